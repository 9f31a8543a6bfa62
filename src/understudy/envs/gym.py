"""Gymnasium environments: made by registered id, described by a spec, observed in named groups."""

import operator
import re
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, DataError, MissingPackageError, did_you_mean
from understudy.core.spec import ACTION_MASK, ActionSpace, Box, Discrete, Group, Spec

Env = gymnasium.Env[Any, Any]

PACKAGES = (
    (
        re.compile(r"((PointMaze|AntMaze)_|FrankaKitchen|AdroitHand|Fetch[A-Z]|HandReach|HandManipulate).*-v\d+"),
        "gymnasium_robotics",
        "understudy[robotics]",
    ),
    (re.compile(r"[A-Za-z0-9]+BulletEnv-v\d+"), "pybullet_envs_gymnasium", "understudy[bullet]"),
)
"""Ids that Gymnasium knows once a package is imported: pattern, package, how to install. Nobody else names imports."""

for _name, _opponent in {"UnderstudyBattle-v0": "random", "UnderstudyBattleScripted-v0": "scripted"}.items():
    gymnasium.register(
        _name, "understudy.envs.battle.env:BattleEnv", max_episode_steps=100, kwargs={"opponent": _opponent}
    )


def make_env(name: str) -> Env:
    """An environment of Gymnasium's registry. `module:Env` is refused: no file may name an import."""
    if not re.fullmatch(r"[A-Za-z0-9_/.-]+", name):
        raise ConfigError("env.id", "not a registered environment id", got=repr(name))
    _register(name)
    if name not in gymnasium.registry:
        raise ConfigError("env.id", f"no environment '{name}'", do=did_you_mean(name, gymnasium.registry))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # an older version was asked for: data came from it
            env = gymnasium.make(name, disable_env_checker=True)
        _clear_model_file(env)
        return env
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise MissingPackageError(
            f"environment '{name}'",
            f"needs a package that is missing ({error})",
            do="Install it; for MuJoCo: pip install 'understudy[mujoco]'.",
        ) from error
    except gymnasium.error.Error as error:
        raise ConfigError("env.id", f"environment '{name}' cannot be made ({error})") from error


def _register(name: str) -> None:
    """Import the package an id belongs to, if it is one of those we know and was not imported yet."""
    if name in gymnasium.registry:
        return
    for pattern, package, install in PACKAGES:
        if pattern.fullmatch(name):
            try:
                import_module(package)
            except ImportError as error:
                raise MissingPackageError(
                    f"environment '{name}'", f"needs {package} ({error})", do=f"Run: pip install '{install}'"
                ) from error


def _clear_model_file(env: Env) -> None:
    """Mazes of gymnasium-robotics leave their model in the temporary folder; once loaded, nobody needs the file."""
    if type(env.unwrapped).__module__.startswith("gymnasium_robotics.envs.maze."):
        unwrapped: Any = env.unwrapped
        Path(unwrapped.tmp_xml_file_path).unlink(missing_ok=True)


def env_spec(env: Env, name: str) -> Spec:
    """What the environment emits and accepts."""
    groups, action = _groups(env.observation_space, name), _actions(env.action_space, name)
    mask = groups.pop(ACTION_MASK, None)
    if mask is not None and (not isinstance(action, Discrete) or mask.shape != (action.count,)):
        raise ConfigError(
            f"environment '{name}'",
            f"'{ACTION_MASK}' says which discrete actions are legal",
            got=f"shape {mask.shape} for action {action.describe()}",
        )
    return Spec(groups, action, masked=mask is not None)


def _actions(space: "gymnasium.Space[Any]", name: str) -> ActionSpace:
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return Discrete(int(space.n))
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and np.dtype(space.dtype).kind == "f":
        return Box(tuple(map(float, space.low)), tuple(map(float, space.high)), np.dtype(space.dtype).name)
    raise ConfigError(
        f"environment '{name}'", "actions not supported", got=space, expected="Box(A,) of floats, or Discrete from 0"
    )


def as_actions(values: NDArray[Any], space: ActionSpace) -> NDArray[Any]:
    """What a policy chose, as the environment wants it: inside the box and of its dtype, or whole numbers."""
    if isinstance(space, Discrete):
        return values.astype(np.int64)
    return np.asarray(np.clip(values, space.low, space.high), space.dtype)


def _groups(space: "gymnasium.Space[Any]", name: str) -> dict[str, Group]:
    if isinstance(space, spaces.Dict):
        return {key: _group(part, name) for key, part in space.spaces.items()}
    return {"state": _group(space, name)}


def _group(space: "gymnasium.Space[Any]", name: str) -> Group:
    """Numbers as they are; one of n as a one-hot vector."""
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return Group((int(space.n),), "uint8")
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return Group(space.shape, _stored_dtype(space.dtype))
    raise ConfigError(
        f"environment '{name}'", "observations not supported", got=space, expected="Box, Discrete, or a Dict of them"
    )


def _stored_dtype(dtype: Any) -> str:
    return "uint8" if np.dtype(dtype) == np.uint8 else "float32"


def observe(raw: Any, spec: Spec, where: str) -> dict[str, NDArray[Any]]:
    """An environment's observation as named groups of the spec's dtype, shape-checked and finite."""
    named = raw if isinstance(raw, Mapping) else {"state": raw}
    groups = {}
    for name, group in spec.observation.items():
        if name not in named:
            raise DataError(where, f"observation group '{name}' is missing", got=sorted(named))
        try:
            values = _one_hot(named[name], group) if np.ndim(named[name]) == 0 else np.asarray(named[name], group.dtype)
        except (TypeError, ValueError, OverflowError, IndexError) as error:
            raise DataError(where, f"group '{name}' is not numeric ({error})") from error
        if values.shape != group.shape:
            raise DataError(where, f"group '{name}' has the wrong shape", got=values.shape, expected=group.shape)
        if not np.isfinite(values).all():
            raise DataError(where, f"group '{name}' is not finite", got=values)
        groups[name] = values
    if spec.masked:
        groups[ACTION_MASK] = _legal(named.get(ACTION_MASK), spec.action, where)
    return groups


def _legal(mask: Any, space: ActionSpace, where: str) -> NDArray[np.bool_]:
    """Which actions are legal; whoever must act with none of them is told when it happens."""
    assert isinstance(space, Discrete)
    if mask is None or np.shape(mask) != (space.count,) or not np.isin(mask, (0, 1)).all():
        raise DataError(where, f"'{ACTION_MASK}' is not a mask", got=mask, expected=f"{space.count} flags")
    return np.asarray(mask, bool)


def _one_hot(index: Any, group: Group) -> NDArray[Any]:
    """A single number: itself, or the place of the 1 in a one-hot group."""
    if group.dtype != "uint8" or len(group.shape) != 1:
        return np.asarray(index, group.dtype)
    values = np.zeros(group.shape, group.dtype)
    values[operator.index(index)] = 1
    return values


def env_names() -> list[str]:
    """Registered ids, newest version of each only."""
    newest: dict[str, str] = {}
    for name in sorted(gymnasium.registry, key=lambda name: gymnasium.registry[name].version or 0):
        newest[name.rpartition("-v")[0] or name] = name
    return sorted(newest.values())

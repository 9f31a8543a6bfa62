"""Gymnasium environments: made by registered id, described by a spec, observed in named groups."""

import io
import operator
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, DataError, MissingPackageError, did_you_mean
from understudy.core.spec import ACTION_MASK, ActionSpace, Discrete, Group, Spec, as_action_space
from understudy.envs.failures import raise_failure

Env = gymnasium.Env[Any, Any]
Keys = tuple[str, ...]
"""What leads to a part of a nested Dict."""

BULLET = re.compile(r"[A-Za-z0-9]+BulletEnv-v\d+")
"""Ids whose first reset is odd: pybullet-envs-gymnasium 0.6.0 measures progress by the mean place of all bodies, and
counts the floor among them from the first step on. They are reset once when they are made."""
PACKAGES = (
    (
        re.compile(
            r"((PointMaze|AntMaze)_|FrankaKitchen|UnderstudyKitchen|AdroitHand|Fetch[A-Z]|HandReach|HandManipulate)"
            r".*-v\d+"
        ),
        "gymnasium_robotics",
        "understudy-rl[robotics]",
    ),
    (BULLET, "pybullet_envs_gymnasium", "understudy-rl[bullet]"),
)
"""Ids that Gymnasium knows once a package is imported: pattern, package, how to install. Nobody else names imports."""

NOTICE = re.compile(r"AdroitHand\w+-v1, .* reward functions were updated in v1\.2\.1 ")


def make_env(name: str, render_mode: str | None = None) -> Env:
    """An environment of Gymnasium's registry. `module:Env` is refused: no file may name an import."""
    if not re.fullmatch(r"[A-Za-z0-9_/.-]+", name):
        raise ConfigError("env.id", "not a registered environment id", got=repr(name))
    _register(name)
    if name not in gymnasium.registry:
        raise ConfigError("env.id", f"no environment '{name}'", do=did_you_mean(name, gymnasium.registry))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # an older version was asked for: data came from it
            wishes: dict[str, Any] = (
                {} if render_mode is None else {"render_mode": render_mode}
            )  # not every environment knows it
            env = gymnasium.make(name, disable_env_checker=True, **wishes)
        _clear_model_file(env)
        if BULLET.fullmatch(name):
            env.reset()
        return env
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise MissingPackageError(
            f"environment '{name}'",
            f"needs a package that is missing ({error})",
            do="Install it; for MuJoCo: pip install 'understudy-rl[mujoco]'.",
        ) from error
    except gymnasium.error.Error as error:
        raise ConfigError("env.id", f"environment '{name}' cannot be made ({error})") from error
    except BaseException as error:
        raise_failure(f"environment '{name}'", "could not be made", error)


def _register(name: str) -> None:
    """Import the package an id belongs to, if it is one of those we know."""
    for pattern, package, install in PACKAGES:
        if pattern.fullmatch(name):
            try:
                with _without_notice():
                    import_module(package)
            except ImportError as error:
                raise MissingPackageError(
                    f"environment '{name}'", f"needs {package} ({error})", do=f"Run: pip install '{install}'"
                ) from error


@contextmanager
def _without_notice() -> Iterator[None]:
    """gymnasium-robotics tells on stderr, at every import, what changed in Adroit; all else it says comes through."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            yield
    finally:
        sys.stderr.write("".join(line for line in said.getvalue().splitlines(True) if not NOTICE.match(line)))


def _clear_model_file(env: Env) -> None:
    """Mazes of gymnasium-robotics leave their model in the temporary folder; once loaded, nobody needs the file."""
    if type(env.unwrapped).__module__.startswith("gymnasium_robotics.envs.maze."):
        unwrapped: Any = env.unwrapped
        Path(unwrapped.tmp_xml_file_path).unlink(missing_ok=True)


def env_spec(env: Env, name: str) -> Spec:
    """What the environment emits and accepts."""
    try:
        observed, accepted = env.observation_space, env.action_space
    except BaseException as error:
        raise_failure(f"environment '{name}'", "does not tell its spaces", error, env)
    groups, action = _groups(observed, name), as_action_space(accepted, f"environment '{name}'")
    mask = groups.pop(ACTION_MASK, None)
    if mask is not None and (not isinstance(action, Discrete) or mask.shape != (action.count,)):
        raise ConfigError(
            f"environment '{name}'",
            f"'{ACTION_MASK}' says which discrete actions are legal",
            got=f"shape {mask.shape} for action {action.describe()}",
        )
    return Spec(groups, action, masked=mask is not None)


def _groups(space: "gymnasium.Space[Any]", name: str) -> dict[str, Group]:
    """Every part by its name; two parts of one name are refused, for one of them would be lost."""
    groups: dict[str, Group] = {}
    for path, part in _parts(space, ()):
        key = group_name(path)
        if key in groups:
            raise ConfigError(
                f"environment '{name}'",
                "two parts of its observation would have the same name",
                got=f"'{key}' twice",
                do="Wrap the environment so that keys differ in more than signs other than letters and digits.",
            )
        groups[key] = _group(part, name)
    return groups


def _parts(space: "gymnasium.Space[Any]", path: Keys) -> Iterator[tuple[Keys, "gymnasium.Space[Any]"]]:
    """Everything in a nested Dict that is none, with the keys that lead to it."""
    if not isinstance(space, spaces.Dict):
        yield path, space
        return
    for key, part in space.spaces.items():
        yield from _parts(part, (*path, key))


def group_places(space: "gymnasium.Space[Any]") -> dict[str, Keys]:
    """Names of groups, and the keys that lead to each."""
    return {group_name(path): path for path, _ in _parts(space, ())}


def group_name(path: Keys) -> str:
    """The keys of a nested Dict as one name of letters, digits and `_`, as Minari's files are read; `state` if none."""
    return re.sub(r"[^A-Za-z0-9_]", "_", "_".join(map(str, path))) or "state"


def _named(raw: Any, path: Keys = ()) -> Iterator[tuple[str, Any]]:
    """Everything in a nested mapping that is none, by the name of its group."""
    if not isinstance(raw, Mapping):
        yield group_name(path), raw
        return
    for key, part in raw.items():
        yield from _named(part, (*path, key))


def _group(space: "gymnasium.Space[Any]", name: str) -> Group:
    """Numbers as they are; one of n as a one-hot vector."""
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return Group((int(space.n),), "uint8")
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return Group(space.shape, _stored_dtype(space.dtype))
    raise ConfigError(
        f"environment '{name}'",
        "observations not supported",
        got=space,
        expected="Box, Discrete, or a Dict of them (also nested)",
    )


def _stored_dtype(dtype: Any) -> str:
    return "uint8" if np.dtype(dtype) == np.uint8 else "float32"


def observe(raw: Any, spec: Spec, where: str) -> dict[str, NDArray[Any]]:
    """An environment's observation as named groups of the spec's dtype, shape-checked and finite."""
    named = dict(_named(raw))
    groups = {}
    for name, group in spec.observation.items():
        if name not in named:
            raise DataError(where, f"observation group '{name}' is missing", got=sorted(named))
        try:
            values = _values(np.asarray(named[name]), group)
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


def _values(given: NDArray[Any], group: Group) -> NDArray[Any]:
    """Numbers as they are; a single one of a group of flags is the place of the 1."""
    if given.ndim == 0 and group.dtype == "uint8" and len(group.shape) == 1:
        return one_hot(given, group.shape[0])
    check_kept(given, np.dtype(group.dtype))
    return given.astype(group.dtype, copy=False)


def one_hot(place: Any, count: int) -> NDArray[np.uint8]:
    index = operator.index(place)
    if not 0 <= index < count:
        raise IndexError(f"{index} is not one of {count}")
    values = np.zeros(count, np.uint8)
    values[index] = 1
    return values


def check_kept(given: NDArray[Any], dtype: "np.dtype[Any]") -> None:
    """Real numbers, which floats may round; as whole numbers they must be kept as they are."""
    if given.dtype.kind not in "fiub":
        raise TypeError(f"{given.dtype} values are not real numbers")
    with np.errstate(invalid="ignore"):
        if dtype.kind != "f" and given.dtype != dtype and not np.array_equal(given.astype(dtype), given):
            raise ValueError(f"{given.dtype} values that are no {dtype}")


def env_names() -> list[str]:
    """Registered ids, newest version of each only."""
    newest: dict[str, str] = {}
    for name in sorted(gymnasium.registry, key=lambda name: gymnasium.registry[name].version or 0):
        newest[name.rpartition("-v")[0] or name] = name
    return sorted(newest.values())

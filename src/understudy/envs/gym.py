"""Gymnasium environments: made by registered id, described by a spec, observed in named groups."""

import re
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, DataError, MissingPackageError, did_you_mean
from understudy.core.spec import Box, Group, Spec

Env = gymnasium.Env[Any, Any]


def make_env(name: str) -> Env:
    """An environment of Gymnasium's registry. `module:Env` is refused: no file may name an import."""
    if not re.fullmatch(r"[A-Za-z0-9_/.-]+", name):
        raise ConfigError("env.id", "not a registered environment id", got=repr(name))
    if name not in gymnasium.registry:
        raise ConfigError("env.id", f"no environment '{name}'", do=did_you_mean(name, gymnasium.registry))
    try:
        return gymnasium.make(name, disable_env_checker=True)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise MissingPackageError(
            f"environment '{name}'",
            f"needs a package that is missing ({error})",
            do="Install it; for MuJoCo: pip install 'understudy[mujoco]'.",
        ) from error
    except gymnasium.error.Error as error:
        raise ConfigError("env.id", f"environment '{name}' cannot be made ({error})") from error


def env_spec(env: Env, name: str) -> Spec:
    """What the environment emits and accepts."""
    action = env.action_space
    if not isinstance(action, spaces.Box) or len(action.shape) != 1 or np.dtype(action.dtype).kind != "f":
        raise ConfigError(
            f"environment '{name}'", "only vectors of continuous actions are supported", got=action, expected="Box(A,)"
        )
    box = Box(tuple(map(float, action.low)), tuple(map(float, action.high)), np.dtype(action.dtype).name)
    return Spec(_groups(env.observation_space, name), box)


def _groups(space: "gymnasium.Space[Any]", name: str) -> dict[str, Group]:
    if isinstance(space, spaces.Box):
        return {"state": Group(space.shape, _stored_dtype(space.dtype))}
    if isinstance(space, spaces.Dict) and all(isinstance(part, spaces.Box) for part in space.spaces.values()):
        return {key: Group(part.shape or (), _stored_dtype(part.dtype)) for key, part in space.spaces.items()}
    raise ConfigError(f"environment '{name}'", "observations not supported", got=space, expected="Box or Dict of Box")


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
            values = np.asarray(named[name], dtype=group.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(where, f"group '{name}' is not numeric ({error})") from error
        if values.shape != group.shape:
            raise DataError(where, f"group '{name}' has the wrong shape", got=values.shape, expected=group.shape)
        if not np.isfinite(values).all():
            raise DataError(where, f"group '{name}' is not finite", got=values)
        groups[name] = values
    return groups


def env_names() -> list[str]:
    """Registered ids, newest version of each only."""
    newest: dict[str, str] = {}
    for name in sorted(gymnasium.registry, key=lambda name: gymnasium.registry[name].version or 0):
        newest[name.rpartition("-v")[0] or name] = name
    return sorted(newest.values())

"""A world to judge data by: everything that is known of one environment."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

from understudy.core.errors import MissingPackageError, UnderstudyError
from understudy.core.spec import Spec
from understudy.envs.facts import can_terminate, registered, time_limit
from understudy.envs.gym import env_spec, make_env
from understudy.envs.physics.stepping import Stepper, find_stepper, replayable


@final
@dataclass(frozen=True)
class World:
    env_id: str
    spec: Spec
    time_limit: int | None
    can_terminate: bool | None
    """None: not known."""
    stepper: Stepper | None
    """Absent: its state cannot be set from an observation."""


def open_world(env_id: str) -> World:
    """The world of a registered id; where only other versions can be made, the error names them."""
    with quiet_versions():
        registered(env_id)
        try:
            env = make_env(env_id)
        except MissingPackageError as error:
            if others := [other for other in replayable(env_id) if other != env_id]:
                raise MissingPackageError(
                    f"environment '{env_id}'", "cannot be made here", do=f"Try {' or '.join(others)}."
                ) from error
            raise
        try:
            spec = env_spec(env, env_id)
        finally:
            env.close()
        return World(env_id, spec, time_limit(env_id), can_terminate(env_id), find_stepper(env_id))


def recorded_world(env_id: str) -> tuple[World | None, str]:
    """The world a file says it came from, or nothing and the reason: the word may mean nothing here."""
    try:
        return open_world(env_id), ""
    except UnderstudyError as error:
        return None, str(error).partition(" Known: ")[0]


@contextmanager
def quiet_versions() -> Iterator[None]:
    """Gymnasium advises newer versions; whoever checks data against an old one knows why."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield

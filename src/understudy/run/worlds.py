"""The worlds of a run: where rollouts are played, and where policies are evaluated. Never the same objects."""

from collections.abc import Callable

from understudy.algorithms import known_actions
from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import Spec
from understudy.envs.envpool_world import EnvPoolWorld
from understudy.envs.gym import env_spec, make_env
from understudy.envs.local_vector import LocalVector
from understudy.envs.patience import PATIENCE, PatientWorld
from understudy.envs.vector import VectorWorld
from understudy.run.config import EnvSettings, RunConfig

WorldMaker = Callable[[int], VectorWorld]
"""Makes a world of so many environments, for simulators that only their owner's code can make."""


def make_world(
    env: EnvSettings,
    count: int,
    given: WorldMaker | None = None,
    *,
    spread: bool = False,
    workers: int = 1,
    patience: float = PATIENCE,
) -> VectorWorld:
    """`count` environments that step together, each of which must answer in `patience` seconds."""
    world = _make(env, count, given, spread, workers)
    return PatientWorld(world, env.id, patience, simulator=env.simulator == "given")


def _make(env: EnvSettings, count: int, given: WorldMaker | None, spread: bool, workers: int) -> VectorWorld:
    if given is not None and env.simulator != "given":
        raise ConfigError("env.simulator", "a world was given", got=env.simulator, expected="given")
    if env.simulator == "envpool":
        return EnvPoolWorld(env.id, count, settings=env.settings)
    if env.simulator == "gymnasium":
        return LocalVector(env.id, count, workers=workers, spread=spread)
    if given is None:
        raise ConfigError(
            "env.simulator", "no world was given", do="Pass one from Python: train(config, world=lambda count: …)."
        )
    world = given(count)
    if world.count != count:
        world.close()
        raise ConfigError("world", "has another number of environments", got=world.count, expected=count)
    return world


def spec_of(env: EnvSettings) -> Spec:
    """What an environment emits and accepts, with names for its columns; or an error if it cannot be learned from."""
    if env.simulator == "gymnasium":
        single = make_env(env.id)
        try:
            return env_spec(single, env.id).with_segments(env.segments)
        finally:
            single.close()
    world = make_world(env, 1)
    try:
        return world.spec.with_segments(env.segments)
    finally:
        world.close()


def check_actions(spec: Spec, config: RunConfig) -> None:
    """The algorithm knows what to do with such actions."""
    if not isinstance(spec.action, known_actions(config.algo)):
        raise ConfigError(
            f"environment '{config.env.id}'",
            f"its actions are not for {config.algorithm}",
            got=spec.action.describe(),
        )


def check_fits(data: Spec, name: str, env: Spec, env_id: str) -> None:
    """The environment emits and accepts what the data holds."""
    if not env.fits(data):
        raise DataError(
            f"dataset '{name}'", f"does not fit environment '{env_id}'", got=data.describe(), expected=env.describe()
        )

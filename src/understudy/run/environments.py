"""The worlds of a run: where rollouts are played, and where policies are evaluated. Never the same objects."""

from collections.abc import Callable

import gymnasium

from understudy.algorithms import algorithm_names, find_algorithm, needs_of
from understudy.core.errors import ConfigError, DataError
from understudy.core.motion import Motions
from understudy.core.spec import Spec
from understudy.core.wording import counted
from understudy.envs.failures import raise_failure
from understudy.envs.gym import Env, env_spec, make_env
from understudy.envs.tracked_env import TrackedEnv
from understudy.envs.vector.contract import KeepsExtras, Staggering, VectorEnv
from understudy.envs.vector.envpool_adapter import EnvPoolVectorEnv
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.envs.vector.step_timeout import STEP_TIMEOUT, TimedVectorEnv
from understudy.run.config import RunConfig
from understudy.run.env_settings import EnvSettings
from understudy.run.skill_env import with_skills

MakeEnvs = Callable[[int], VectorEnv]
"""Makes a world of so many environments, for simulators that only their owner's code can make."""


def make_vector_env(
    env: EnvSettings,
    count: int,
    make_envs: MakeEnvs | None = None,
    *,
    stagger_episodes: bool = False,
    workers: int = 1,
    step_timeout: float = STEP_TIMEOUT,
    extras: tuple[str, ...] | None = None,
    motions: tuple[Motions, ...] = (),
) -> TimedVectorEnv:
    """`count` environments that step together, each of which must answer in `step_timeout` seconds.

    `extras`: numbers in their infos to tell at every step, instead of what they tell of themselves. `motions`: what
    they follow, where they follow any.
    """
    envs = _make(env, count, make_envs, stagger_episodes, workers, motions)
    if extras is not None and isinstance(envs, KeepsExtras):
        envs.keep_extras(extras)
    envs = with_skills(envs, env)
    return TimedVectorEnv(envs, env.id, step_timeout, simulator=env.simulator == "custom")


def env_maker(
    env: EnvSettings, motions: tuple[Motions, ...], make: Callable[[str], Env] = make_env
) -> Callable[[str], Env]:
    """What makes an environment of a registered id, which follows a motion where that is asked for."""
    tracking = env.tracking
    if tracking is None:
        return make
    if not motions:
        raise ConfigError(
            "env.tracking",
            "only a run knows the motions that are followed",
            do="Play in the run: understudy evaluate RUN.",
        )

    def tracked(name: str) -> Env:
        return TrackedEnv(make(name), motions[0], tracking, env.segments)

    return tracked


def _make(
    env: EnvSettings,
    count: int,
    make_envs: MakeEnvs | None,
    stagger_episodes: bool,
    workers: int,
    motions: tuple[Motions, ...],
) -> VectorEnv:
    if make_envs is not None and env.simulator != "custom":
        raise ConfigError("env.simulator", "make_envs was given", got=env.simulator, expected="custom")
    if env.simulator == "envpool":
        return EnvPoolVectorEnv(env.id, count, settings=env.settings)
    if env.simulator == "gymnasium":
        make = env_maker(env, motions)
        return LocalVectorEnv(env.id, count, workers=workers, stagger_episodes=stagger_episodes, make=make)
    if make_envs is None:
        raise not_handed_over(env.id)
    envs = _own_envs(make_envs, env.id, count)
    if stagger_episodes:
        if not isinstance(envs, Staggering):
            envs.close()
            raise ConfigError("source.stagger_episodes", f"{type(envs).__name__} cannot let episodes end one by one")
        envs.stagger_episodes()
    return envs


def not_handed_over(name: str) -> ConfigError:
    return ConfigError(
        "env",
        f"'{name}' is an environment of somebody's own, which no file can hold",
        do="Hand it over again, from Python: us.resume(path, env=…), run.evaluate(env=…) or us.train(…, env=…).",
    )


def _own_envs(make_envs: MakeEnvs, name: str, count: int) -> VectorEnv:
    """What the owner's code makes, or a sentence about what it makes instead."""
    where = "make_envs"
    given: object = make_envs
    if not callable(given):
        raise ConfigError(
            where,
            "is called with a number of environments, once to learn and once to evaluate",
            got=f"a {type(given).__name__}",
            expected="a function",
            do="Write: make_envs=lambda count: …",
        )
    try:
        made: object = given(count)
    except BaseException as error:
        raise_failure(where, f"failed when asked for {counted(count, 'environment')}", error)
    if isinstance(made, gymnasium.vector.VectorEnv):
        made = GymnasiumVectorEnv(made, name)
    kind = type(made).__name__
    if isinstance(made, gymnasium.Env):
        raise ConfigError(
            where,
            "made a single environment",
            got=kind,
            do="Register it and give its id as env.id; a gymnasium.vector.VectorEnv serves as well.",
        )
    if not isinstance(made, VectorEnv):
        raise ConfigError(
            where,
            "made no vector of environments",
            got=kind if not isinstance(made, type) else f"the class {made.__name__}",
            expected="count, spec, reset, step and close",
            do=f"A simulator as rsl_rl's is wrapped: us.TensorVectorEnv({kind}(count), us.Box(low, high), '{name}').",
        )
    spec: object = made.spec
    if not isinstance(spec, Spec):
        told = type(spec)
        made.close()
        raise ConfigError(
            where,
            f"the spec of what it made is not one of ours ({told.__module__.partition('.')[0]}'s {told.__name__})",
            expected="us.Spec({'state': us.Group((3,), 'float32')}, us.Box((-1.0,), (1.0,)))",
        )
    if made.count != count:
        found = made.count
        made.close()
        raise ConfigError(where, "made another number of environments", got=found, expected=count)
    return made


def spec_of(env: EnvSettings, motions: tuple[Motions, ...] = ()) -> Spec:
    """What an environment emits and accepts, with names for its columns; or an error if it cannot be learned from."""
    if env.simulator == "gymnasium" and env.skills is None:
        single = env_maker(env, motions)(env.id)
        try:
            return env_spec(single, env.id).with_segments(env.segments)
        finally:
            single.close()
    envs = make_vector_env(env, 1)
    try:
        return envs.spec.with_more_segments(env.segments)
    finally:
        envs.close()


def check_actions(spec: Spec, where: str, config: RunConfig) -> None:
    """The algorithm knows what to do with such actions."""
    if isinstance(spec.action, config.needs.actions):
        return
    mine = config.algorithm
    twin = mine.removeprefix("discrete_") if mine.startswith("discrete_") else f"discrete_{mine}"
    fits = twin in algorithm_names() and isinstance(spec.action, needs_of(find_algorithm(twin).Config()).actions)
    what, do = f"its actions are not for {mine}", f"Use algo.name={twin}." if fits else ""
    raise ConfigError(where, what, got=spec.action.describe(), do=do)


def check_fits(data: Spec, name: str, env: Spec, env_id: str) -> None:
    """The environment emits and accepts what the data holds."""
    if not env.fits(data):
        raise DataError(
            f"dataset '{name}'", f"does not fit environment '{env_id}'", got=data.describe(), expected=env.describe()
        )

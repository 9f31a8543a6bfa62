"""Environments that a caller hands over as objects: a Gymnasium environment, a class or function that makes one, or a
vector of them. A registered id is words, and needs none of this."""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Protocol, cast, final, runtime_checkable

import gymnasium
import torch
from gymnasium.vector import VectorEnv as GymnasiumVector

from understudy.core.arguments import kind_of
from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, UnderstudyError
from understudy.core.spec import Spec
from understudy.envs.gym import Env, env_spec
from understudy.envs.vector.contract import KeepsExtras, Step, VectorEnv
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.run.config import RunConfig, parse_config
from understudy.run.environments import MakeEnvs, not_handed_over

EXPECTED = "an id, a gymnasium.Env, a class or function that makes one, or a vector of environments"


@runtime_checkable
class World(Protocol):
    """A vector of environments, as `VectorEnv` says it."""

    @property
    def count(self) -> int: ...

    @property
    def spec(self) -> Spec: ...

    def reset(self, seed: int) -> Obs: ...

    def step(self, action: torch.Tensor) -> Step: ...

    def close(self) -> None: ...


class KeptOpen(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that belongs to its owner, who may go on with it: a run does not close it."""

    def close(self) -> None:
        """Whoever made it does."""


@final
class KeptWorld:
    """A vector of environments that belongs to its owner, too."""

    def __init__(self, world: VectorEnv) -> None:
        self._world = world

    @property
    def count(self) -> int:
        return self._world.count

    @property
    def spec(self) -> Spec:
        return self._world.spec

    def reset(self, seed: int) -> Obs:
        return self._world.reset(seed)

    def step(self, action: torch.Tensor) -> Step:
        return self._world.step(action)

    def keep_extras(self, names: tuple[str, ...]) -> None:
        """If it can be asked."""
        if isinstance(self._world, KeepsExtras):
            self._world.keep_extras(names)

    def close(self) -> None:
        """Whoever made it does."""


@final
class GivenEnvs:
    """Environments of a caller: called with a count, it gives a world of so many. `most` there can be, if not any."""

    def __init__(self, name: str, make: Callable[[int], VectorEnv], spec: Spec | None, most: int | None = None) -> None:
        self.name, self.most = name, most
        self._make, self._spec = make, spec

    def __call__(self, count: int) -> VectorEnv:
        if self.most is not None and count > self.most:
            raise ConfigError(
                "env",
                f"'{self.name}' is {self.most} environment{'s' * (self.most > 1)}, and more are needed",
                got=f"{count} asked for",
                do="Give a class or a function that makes as many as needed, or lower source.num_envs.",
            )
        return self._make(count)

    def as_many_as(self, count: int) -> int:
        """How many to ask for where a count is wished; of a vector there are always all."""
        return count if self.most is None else self.most

    @cached_property
    def spec(self) -> Spec:
        """What they emit and accept; a world that is made by its number is made once to be asked."""
        if self._spec is not None:
            return self._spec
        world = self(1)
        try:
            return world.spec
        finally:
            world.close()


def given_envs(env: object) -> str | GivenEnvs:
    """The id of a registered environment, or a caller's own; anything else is told in a sentence."""
    if isinstance(env, str):
        return env
    if isinstance(env, gymnasium.Env):
        return _of_instance(env)
    if isinstance(env, GymnasiumVector):
        name = "" if env.spec is None else env.spec.id
        return _of_world(GymnasiumVectorEnv(env, name or kind_of(env)), name or kind_of(env))
    if isinstance(env, type):
        return _of_class(env)
    if isinstance(env, World):
        return _of_world(env, kind_of(env))
    if callable(env):
        return _of_function(env)
    raise ConfigError("env", "not an environment", got=kind_of(env), expected=EXPECTED, do=_wrapped(env))


def _of_instance(env: Env) -> str | GivenEnvs:
    """As many as are needed where it says how it was made; otherwise this one, episode after episode."""
    name = type(env.unwrapped).__name__
    if env.spec is not None:
        name = env.spec.id
        known = gymnasium.registry.get(name)
        plain = {key: value for key, value in env.spec.kwargs.items() if key != "render_mode"}
        if known is not None and _alike(env, known) and plain == known.kwargs:
            return name
        try:
            spec = env.spec
            gymnasium.make(spec).close()
            return _of_maker(lambda: gymnasium.make(spec), name, env_spec(env, name))
        except (gymnasium.error.Error, ValueError, TypeError, AttributeError, ImportError):
            pass  # a wrapper that cannot be made again: then there is one of it
    single = KeptOpen(env)
    return GivenEnvs(name, lambda count: LocalVectorEnv(name, 1, make=lambda _: single), env_spec(env, name), most=1)


def _alike(env: Env, known: "gymnasium.envs.registration.EnvSpec") -> bool:
    """It was made by its id alone."""
    spec = env.spec
    assert spec is not None
    fields = ("entry_point", "max_episode_steps", "additional_wrappers", "order_enforce")
    return all(spec.__dict__[field] == known.__dict__[field] for field in fields)


def _of_class(kind: type) -> GivenEnvs:
    if not issubclass(kind, gymnasium.Env):
        told = "a class of something else"
        raise ConfigError("env", told, got=kind.__name__, expected=EXPECTED, do=_wrapped(kind))
    return _of_maker(kind, name_of(kind))


def _wrapped(given: object) -> str:
    """What to do with what steps, but is not one of Gymnasium's: a simulator of tensors, as a rule."""
    if "step" not in dir(given):
        return ""
    name = kind_of(given) if not isinstance(given, type) else given.__name__
    wrapped = f"us.TensorVectorEnv({name}(count), us.Box(low, high), '{name}')"
    return f"A simulator that steps tensors, as rsl_rl's do: make_envs=lambda count: {wrapped}."


def _of_maker(make: Callable[[], Any], name: str, spec: Spec | None = None) -> GivenEnvs:
    """Environments that are made one by one."""
    if spec is None:
        first = make_given(make, name)
        if isinstance(first, GymnasiumVector):
            return _of_world(GymnasiumVectorEnv(first, name), name)
        if isinstance(first, World):
            return _of_world(first, name)
        if not isinstance(first, gymnasium.Env):
            told = f"'{name}' makes no environment"
            raise ConfigError("env", told, got=kind_of(first), expected=EXPECTED, do=_wrapped(first))
        try:
            spec = env_spec(first, name)
        finally:
            first.close()
    return GivenEnvs(name, lambda count: LocalVectorEnv(name, count, make=lambda _: cast(Env, make())), spec)


def make_given(make: Callable[[], Any], name: str) -> Any:
    """What a caller's code makes, or a sentence on why it could not."""
    try:
        return make()
    except UnderstudyError:
        raise
    except Exception as error:
        raise ConfigError(
            "env",
            f"'{name}' could not be made ({type(error).__name__}: {error})",
            do=f"If it takes arguments, give a function: env=lambda: {name}(…).",
        ) from error


def _of_world(world: VectorEnv, name: str) -> GivenEnvs:
    return GivenEnvs(name, lambda count: KeptWorld(world), world.spec, most=world.count)


def _of_function(make: Callable[..., Any]) -> GivenEnvs:
    """A function of nothing makes one environment, a function of a count makes a world of so many."""
    name = name_of(make)
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return _of_maker(make, name)
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.default is inspect.Parameter.empty and one.kind in places]
    if not needed:
        return _of_maker(make, name)
    if len(needed) > 1:
        raise ConfigError(
            "env", f"'{name}' wants {len(needed)} arguments", expected="a function of nothing, or of a count"
        )
    return GivenEnvs(name, lambda count: _world_of(make_given(lambda: make(count), name), name), None)


def _world_of(made: object, name: str) -> VectorEnv:
    if isinstance(made, GymnasiumVector):
        return GymnasiumVectorEnv(made, name)
    if isinstance(made, World):
        return made
    raise ConfigError(
        "env", f"'{name}' of a count makes no vector of environments", got=kind_of(made), expected="a VectorEnv"
    )


def name_of(make: Callable[..., Any]) -> str:
    """How a maker of environments is called."""
    if isinstance(make, type):
        return make.__name__
    if not inspect.isfunction(make) and not inspect.ismethod(make):
        return type(make).__name__
    return "environment" if make.__name__ == "<lambda>" else make.__name__


def own_worlds(env: object, make_envs: MakeEnvs | None) -> MakeEnvs | None:
    """What makes environments, where they are a caller's own."""
    if env is None or isinstance(env, (str, Mapping)):
        return make_envs
    if make_envs is not None:
        raise ConfigError("env", "and make_envs were given: one of them is enough")
    given = given_envs(env)
    return None if isinstance(given, str) else given


def env_words(env: object, worlds: MakeEnvs | None) -> dict[str, Any]:
    """What a config says of an environment that was handed over."""
    if env is None:
        return {}
    if isinstance(env, Mapping):
        return {"env": env}
    return {"env.id": worlds.name if isinstance(worlds, GivenEnvs) else given_envs(env)}


def in_given_envs(config: RunConfig, worlds: GivenEnvs) -> RunConfig:
    """The same where there are so many environments and no more: what plays in them is evaluated in them, too."""
    if worlds.most is None or not config.source_needs.envs:
        return config
    content = config.model_dump(mode="json")
    content["env"] |= {"shared": True}
    content["source"] |= {"num_envs": worlds.most}
    return parse_config(content)


def worlds_of(config: RunConfig, env: object, make_envs: MakeEnvs | None) -> MakeEnvs | None:
    """The same for a run that exists: one in a registered environment takes no other."""
    own = own_worlds(env, make_envs)
    there = None if config.env is None else config.env.id
    if config.env is not None and config.env.simulator == "custom":
        if isinstance(env, str):
            raise ConfigError("env", "an id where an environment of one's own belongs", got=env, expected=there)
        if own is None:
            raise not_handed_over(config.env.id)
        return own
    if env is not None and (own is not None or given_envs(env) != there):
        told = "is not the run's" if there else "was given for a run without one"
        got = own.name if isinstance(own, GivenEnvs) else env
        raise ConfigError("env", told, got=got, expected=there or "none")
    return own

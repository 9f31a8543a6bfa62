"""EnvPool's environments as a vector world: thousands of steps a second from C++ threads, seeded when they are made.

EnvPool resets in the step after the end (NEXT_STEP): the observation that comes with the end is the final one, and the
step after it is a dummy, marked not valid. An episode that ends by itself in the very step of its time limit counts as
truncated: EnvPool tells only one of the two.
"""

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, final

from gymnasium.vector import AutoresetMode
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, MissingPackageError, RunError, did_you_mean
from understudy.core.rng import simulator_seed
from understudy.core.spec import Spec
from understudy.envs.vector.contract import Step
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv

Setting = bool | int | float | str


@final
class EnvPoolVectorEnv:
    """`settings` are EnvPool's own of this task (`max_episode_steps`, `noise_level`, …); `threads` 0 is its choice."""

    def __init__(
        self,
        name: str,
        count: int,
        *,
        threads: int = 0,
        settings: Mapping[str, Setting] | None = None,
        extras: Sequence[str] | None = None,
    ) -> None:
        self._name, self._count, self._extras = name, count, extras
        self._settings = {**(settings or {}), "num_threads": threads}
        self._spec = self._pool(0, 1).spec
        self._running: GymnasiumVectorEnv | None = None

    @property
    def count(self) -> int:
        return self._count

    @property
    def spec(self) -> Spec:
        return self._spec

    def keep_extras(self, names: tuple[str, ...]) -> None:
        """From the next reset on."""
        self._extras = names

    def reset(self, seed: int) -> Obs:
        """A new pool: EnvPool takes its seed only there. Its environments derive theirs from it in EnvPool's way."""
        self.close()
        self._running = self._pool(simulator_seed(seed), self._count)
        return self._running.begin(None, simulator_seed(seed))

    def step(self, action: Tensor) -> Step:
        if self._running is None:
            raise RunError(f"environment '{self._name}'", "stepped before it was reset")
        return self._running.step(action)

    def close(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def _pool(self, seed: int, count: int) -> GymnasiumVectorEnv:
        envpool = _envpool(self._name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # bounds of its spaces are rounded to float32
                pool = envpool.make_gymnasium(self._name, num_envs=count, seed=seed, **self._settings)
                return GymnasiumVectorEnv(pool, self._name, autoreset=AutoresetMode.NEXT_STEP, extras=self._extras)
        except (TypeError, ValueError, KeyError, RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0][:200]
            raise ConfigError(
                "env.id", f"EnvPool cannot make '{self._name}' ({reason})", do="Look at env.settings."
            ) from error


def _envpool(name: str) -> Any:
    """EnvPool, if it is installed and knows the task."""
    try:
        envpool = import_module("envpool")
    except ImportError as error:
        raise MissingPackageError(
            f"environment '{name}'", f"needs envpool ({error})", do="Run: pip install 'understudy-rl[envpool]'"
        ) from error
    known = envpool.list_all_envs()
    if name not in known:
        raise ConfigError("env.id", f"EnvPool has no environment '{name}'", do=did_you_mean(name, known))
    return envpool

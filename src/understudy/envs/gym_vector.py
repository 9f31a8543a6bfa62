"""Any `gymnasium.vector.VectorEnv` as a vector world, in each of its autoreset modes.

Where the final observation of an episode is found depends on the mode. SAME_STEP: in `infos["final_obs"]`, for the
returned one belongs to the next episode. NEXT_STEP: it is the returned one; the step after it ignores its action and
only resets, so it is marked not valid. DISABLED: it is the returned one, and the world resets what ended by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, final

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError, RunError, UnderstudyError
from understudy.core.spec import ACTION_MASK, Spec
from understudy.envs.gym import Keys, env_spec, group_name, observe
from understudy.envs.vector import (
    REWARD_TERMS,
    Block,
    Step,
    action_array,
    check_finite,
    check_groups,
    check_reward,
    environment_seeds,
    finite,
)

Vector = VectorEnv[Any, Any, Any]
Infos = Mapping[str, Any]
FINAL_NAMES = ("final_obs", "final_observation")
"""What Gymnasium calls the final observation in `infos`, now and before 1.0."""


class Single(gymnasium.Env[Any, Any]):
    """One environment of a vector, as far as its spaces go."""

    def __init__(self, vector: Vector) -> None:
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space


@final
class GymVector:
    """`autoreset` is read from the environment's metadata unless given; `extras` as in `LocalVector`."""

    def __init__(
        self,
        vector: Vector,
        name: str,
        *,
        autoreset: AutoresetMode | None = None,
        extras: Sequence[str] | None = None,
    ) -> None:
        self._vector, self._where = vector, f"environment '{name}'"
        self._mode = autoreset or _mode(vector, self._where)
        self._spec = env_spec(Single(vector), name)
        self._extra_names = None if extras is None else tuple(extras)
        self._count = int(vector.num_envs)  # EnvPool takes its time to tell it
        self._places: dict[str, Keys] = {}
        """Where each group stands in a raw observation, found when the first one is read."""
        self._over: NDArray[np.bool_] | None = None
        """Where the next step will only reset [N], if anywhere."""
        self._nowhere = torch.zeros(self._count, dtype=torch.bool)
        self._everywhere = ~self._nowhere
        self._running = False
        self._interrupted = False
        """A call was left before all had answered: nobody may wait for them again."""

    @property
    def count(self) -> int:
        return self._count

    @property
    def spec(self) -> Spec:
        return self._spec

    def reset(self, seed: int) -> Obs:
        return self.begin(environment_seeds(seed, self.count))

    def begin(self, seeds: list[int] | None) -> Obs:
        """Start anew; None for simulators that were seeded when they were made."""
        raw, _ = self._call(lambda: self._reset(seeds, None), "could not be reset")
        self._over = None
        self._running = True
        return self._groups(raw)

    def step(self, action: Tensor) -> Step:
        if not self._running:
            raise RunError(self._where, "stepped before it was reset")
        wishes = action_array(action, self._spec.action, self._count, self._where)
        raw, rewards, terminated, truncated, infos = self._call(lambda: self._advance(wishes), "failed in a step")
        idle, ended = self._over, np.logical_or(terminated, truncated)
        if ended.shape != (self._count,):
            raise RunError(self._where, "ends have the wrong shape", got=ended.shape, expected=(self._count,))
        if not np.count_nonzero(ended):
            return self._quiet_step(raw, rewards, infos, idle)
        over = np.asarray(terminated, bool)
        flags = torch.from_numpy(over), torch.from_numpy(ended & ~over)
        reward = self._reward(rewards, idle)
        obs, final_obs = self._observations(raw, infos, ended)
        self._over = ended if self._mode is AutoresetMode.NEXT_STEP else None
        return Step(obs, final_obs, reward, *flags, self._valid(idle), self._extras(infos, idle, ended))

    def _quiet_step(self, raw: Any, rewards: Any, infos: Infos, idle: NDArray[np.bool_] | None) -> Step:
        """No episode ended: nearly every step is one."""
        reward, obs = self._reward(rewards, idle), self._groups(raw)
        self._over = None
        nowhere = self._nowhere
        return Step(obs, obs, reward, nowhere, nowhere, self._valid(idle), self._extras(infos, idle, None))

    def _valid(self, idle: NDArray[np.bool_] | None) -> Tensor:
        return self._everywhere if idle is None else torch.from_numpy(~idle)

    def _reward(self, rewards: Any, idle: NDArray[np.bool_] | None) -> Tensor:
        """As float32, 0 where a step only reset [N]."""
        copied = np.array(rewards, np.float32)
        if idle is not None and copied.shape == idle.shape:
            copied[idle] = 0.0
        reward = torch.from_numpy(copied)
        if copied.shape != (self._count,) or not finite(copied):
            check_reward(reward, self._count, self._where)
        return reward

    def _observations(self, raw: Any, infos: Infos, ended: NDArray[np.bool_]) -> tuple[Obs, Obs]:
        """What the policy sees next, and the true successors, where some episodes ended."""
        obs = self._groups(raw)
        if self._mode is AutoresetMode.SAME_STEP:
            return obs, self._with_finals(obs, infos, ended)
        if self._mode is AutoresetMode.NEXT_STEP:
            return self._free_choice(obs, ended), obs
        finals = {name: values.clone() for name, values in obs.items()}
        options = {"reset_mask": ended.copy()}
        fresh, _ = self._call(lambda: self._reset(None, options), "could not be reset")
        return self._groups(fresh), finals

    def _with_finals(self, obs: Obs, infos: Infos, ended: NDArray[np.bool_]) -> Obs:
        """Rows of ended episodes replaced by the observations they ended with."""
        told = next((infos[name] for name in FINAL_NAMES if name in infos), None)
        finals = {name: values.clone() for name, values in obs.items()}
        for number in map(int, np.flatnonzero(ended)):
            single = None if told is None else _pick(told, number)
            if single is None:
                raise DataError(
                    self._where,
                    f"the episode of environment {number} ended without its final observation",
                    got=sorted(infos),
                    expected=f"'{FINAL_NAMES[0]}' in infos",
                )
            for name, values in observe(single, self._spec, self._where).items():
                finals[name][number] = torch.from_numpy(values)
        return finals

    def _free_choice(self, obs: Obs, ended: NDArray[np.bool_]) -> Obs:
        """At the end nothing may be legal, yet the policy is asked once more, for a step that ignores its answer."""
        if not self._spec.masked:
            return obs
        return {**obs, ACTION_MASK: obs[ACTION_MASK] | torch.from_numpy(ended)[:, None]}

    def _groups(self, raw: Any) -> Obs:
        places = self._places or _find_places(raw)
        try:
            obs = {name: self._tensor(raw, name, places) for name in self._spec.observation}
            if self._spec.masked:
                obs[ACTION_MASK] = torch.from_numpy(np.asarray(_part(raw, places[ACTION_MASK]), bool))
        except (KeyError, TypeError, IndexError) as error:
            found = sorted(_find_places(raw))
            missing = [name for name in self._spec.observation if name not in found]
            told = (
                f"observation group '{missing[0]}' is missing" if missing else f"observations cannot be read ({error})"
            )
            raise DataError(self._where, told, got=found) from error
        self._places = places
        check_groups(obs, self._spec, self._count, self._where)
        check_finite(obs, self._where)
        return obs

    def _tensor(self, raw: Any, name: str, places: Mapping[str, Keys]) -> Tensor:
        values, group = _part(raw, places[name]), self._spec.observation[name]
        if np.ndim(values) == 1 and group.dtype == "uint8" and len(group.shape) == 1:
            return torch.from_numpy(np.eye(group.shape[0], dtype=np.uint8)[values])  # one of n, as a one-hot vector
        return torch.from_numpy(np.ascontiguousarray(values, group.dtype))

    def _extras(self, infos: Infos, idle: NDArray[np.bool_] | None, ended: NDArray[np.bool_] | None) -> Block:
        if self._extra_names is None:
            self._extra_names = tuple(name for name in infos if name.startswith(REWARD_TERMS))
        names = self._extra_names
        rows = _rows(infos, names, self._count)
        last = {} if ended is None else infos.get("final_info", {})
        if isinstance(last, Mapping) and last and names:
            rows[:, ended] = _rows(last, names, self._count)[:, ended]
        if idle is not None:
            rows[:, idle] = np.nan
        return Block(names, torch.from_numpy(rows))

    def _advance(self, wishes: NDArray[Any]) -> Any:
        if not isinstance(self._vector, AsyncVectorEnv):
            return self._vector.step(wishes)
        self._vector.step_async(wishes)
        self._await(self._vector)
        return self._vector.step_wait()

    def _reset(self, seeds: list[int] | None, options: dict[str, Any] | None) -> Any:
        vector: Any = self._vector  # a list of seeds is welcome there, whatever its annotation says
        if not isinstance(vector, AsyncVectorEnv):  # not every simulator knows options
            return vector.reset(seed=seeds) if options is None else vector.reset(options=options)
        vector.reset_async(seed=None if seeds is None else [*seeds], options=options)
        self._await(vector)
        return vector.reset_wait()

    @staticmethod
    def _await(vector: AsyncVectorEnv) -> None:
        """Until every process has answered; no answer is read before, so that `waiting` can tell who has not."""
        for pipe in filter(None, vector.parent_pipes):
            pipe.poll(None)

    def waiting(self) -> list[int]:
        """Who has not answered, while a call lasts; empty where the simulator does not tell."""
        if not isinstance(self._vector, AsyncVectorEnv):
            return []
        return [number for number, pipe in enumerate(self._vector.parent_pipes) if pipe and not pipe.poll()]

    def _call(self, what: Callable[[], Any], told: str) -> Any:
        try:
            return what()
        except Exception as error:
            if not isinstance(error, UnderstudyError):
                raise RunError(self._where, f"{told} ({type(error).__name__}: {error})") from error
            self._interrupted = True
            raise
        except KeyboardInterrupt:
            self._interrupted = True
            raise

    def close(self) -> None:
        """Processes that have not answered are ended, not asked; those that Ctrl-C ended as well are gone."""
        with suppress(BrokenPipeError, EOFError, ConnectionResetError):
            if self._interrupted and isinstance(self._vector, AsyncVectorEnv):
                self._vector.close(terminate=True)
            else:
                self._vector.close()


def _mode(vector: Vector, where: str) -> AutoresetMode:
    mode = (vector.metadata or {}).get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise ConfigError(
            where,
            "does not say when it resets",
            got=f"metadata['autoreset_mode'] {mode!r}",
            expected=", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode),
            do="Pass autoreset=.",
        )
    return mode


def _find_places(raw: Any, keys: Keys = ()) -> dict[str, Keys]:
    if not isinstance(raw, Mapping):
        return {group_name(keys): keys}
    return {name: place for key, part in raw.items() for name, place in _find_places(part, (*keys, key)).items()}


def _part(raw: Any, keys: Keys) -> Any:
    for key in keys:
        raw = raw[key]
    return raw


def _pick(told: Any, number: int) -> Any:
    """One environment's part of what is told of all: arrays [N, …], an array of N objects, or a Dict of them."""
    if isinstance(told, Mapping):
        return {key: _pick(part, number) for key, part in told.items()}
    return told[number]


def _rows(infos: Infos, names: tuple[str, ...], count: int) -> NDArray[np.float32]:
    """Numbers of each environment [K, N], NaN where it told none."""
    if not names:
        return np.empty((0, count), np.float32)
    columns = [infos.get(name) for name in names]
    plain = all(type(one) is np.ndarray and one.shape == (count,) and one.dtype == float for one in columns)
    if plain and not any(f"_{name}" in infos for name in names):
        return np.array(columns, np.float32)
    return np.stack([_column(infos, name, count) for name in names])


def _column(infos: Infos, name: str, count: int) -> NDArray[np.float32]:
    values, told = infos.get(name), infos.get(f"_{name}")
    if values is None or np.shape(values) != (count,) or np.asarray(values).dtype.kind not in "fiub":
        return np.full(count, np.nan, np.float32)
    column = np.array(values, np.float32)
    return column if told is None else np.where(told, column, np.float32(np.nan))

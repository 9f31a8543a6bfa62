"""Any `gymnasium.vector.VectorEnv` as a vector world, in each of its autoreset modes.

Where the final observation of an episode is found depends on the mode. SAME_STEP: in `infos["final_obs"]`, for the
returned one belongs to the next episode. NEXT_STEP: it is the returned one; the step after it ignores its action and
only resets, so it is marked not valid. DISABLED: it is the returned one, and the world resets what ended by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, final

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError, RunError, UnderstudyError
from understudy.core.spec import ACTION_MASK, Spec
from understudy.envs.call_log import CallLog
from understudy.envs.failures import interrupts, raise_failure
from understudy.envs.gym import Keys, check_kept, env_spec, group_name, observe
from understudy.envs.vector.contract import (
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
class GymnasiumVectorEnv:
    """`autoreset` is read from the environment's metadata unless given; `extras` as in `LocalVectorEnv`."""

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
        self._log = CallLog(self._count)
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

    def keep_extras(self, names: tuple[str, ...]) -> None:
        self._extra_names = names

    def reset(self, seed: int) -> Obs:
        return self.begin(environment_seeds(seed, self.count))

    def begin(self, seeds: list[int] | None, made_with: int = 0) -> Obs:
        """Start anew; None for simulators that were seeded when they were made, with `made_with`."""
        self._log.begin([made_with] * self._count if seeds is None else seeds)
        raw = self._call(lambda: self._reset(seeds, None), "could not be reset", "an observation and infos", 2)[0]
        self._over = None
        self._running = True
        return self._groups(raw)

    def step(self, action: Tensor) -> Step:
        if not self._running:
            raise RunError(self._where, "stepped before it was reset")
        wishes = action_array(action, self._spec.action, self._count, self._where)
        self._log.advance(wishes)
        given = "observations, rewards, terminations, truncations, infos"
        raw, rewards, *flags, infos = self._call(lambda: self._advance(wishes), "failed in a step", given, 5)
        over, cut = (self._flags(values) for values in flags)
        if not isinstance(infos, Mapping):
            raise RunError(self._where, "its infos are none", got=type(infos).__name__, expected="a dictionary")
        idle, ended = self._over, over | cut
        if not np.count_nonzero(ended):
            return self._quiet_step(raw, rewards, infos, idle)
        ends = torch.from_numpy(over), torch.from_numpy(ended & ~over)
        reward = self._reward(rewards, idle)
        obs, final_obs = self._observations(raw, infos, ended)
        self._over = ended if self._mode is AutoresetMode.NEXT_STEP else None
        self._log.end(ended)
        return Step(obs, final_obs, reward, *ends, self._valid(idle), self._extras(infos, idle, ended))

    def _flags(self, values: Any) -> NDArray[np.bool_]:
        """Whether episodes ended [N]."""
        flags = np.asarray(values)
        if flags.shape != (self._count,):
            raise RunError(self._where, "ends have the wrong shape", got=flags.shape, expected=(self._count,))
        if flags.dtype != bool and not np.isin(flags, (0, 1)).all():
            raise RunError(self._where, "ends are not flags", got=flags, expected="True or False for each")
        return flags.astype(bool, copy=False)

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
        given = np.asarray(rewards)
        if given.dtype.kind not in "fiub":
            raise RunError(self._where, "rewards are not numbers", got=given, expected="a real number for each")
        copied = np.array(given, np.float32)
        if idle is not None and copied.shape == idle.shape:
            copied[idle] = 0.0
        reward = torch.from_numpy(copied)
        if copied.shape != (self._count,) or not finite(copied):
            check_reward(reward, self._count, self._where, self._log)
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
        fresh = self._call(lambda: self._reset(None, options), "could not be reset", "an observation and infos", 2)[0]
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
        except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
            found = sorted(_find_places(raw))
            missing = [name for name in self._spec.observation if name not in found]
            told = (
                f"observation group '{missing[0]}' is missing" if missing else f"observations cannot be read ({error})"
            )
            raise DataError(self._where, told, got=found) from error
        self._places = places
        check_groups(obs, self._spec, self._count, self._where)
        check_finite(obs, self._where, self._log)
        return obs

    def _tensor(self, raw: Any, name: str, places: Mapping[str, Keys]) -> Tensor:
        values, group = np.asarray(_part(raw, places[name])), self._spec.observation[name]
        if values.ndim == 1 and group.dtype == "uint8" and len(group.shape) == 1:
            return torch.from_numpy(np.eye(group.shape[0], dtype=np.uint8)[values])  # one of n, as a one-hot vector
        check_kept(values, np.dtype(group.dtype))
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

    def _call(self, what: Callable[[], Any], told: str, expected: str, count: int) -> Any:
        """What the simulator answers: so many things."""
        try:
            answer = what()
        except BaseException as error:
            self._interrupted = self._interrupted or isinstance(error, UnderstudyError) or interrupts(error)
            self._fail(told, error)
        if not isinstance(answer, (tuple, list)) or len(answer) != count:
            got = f"{len(answer)} things" if isinstance(answer, (tuple, list)) else type(answer).__name__
            raise RunError(self._where, "does not answer as Gymnasium's vectors do", got=got, expected=expected)
        return answer

    def _fail(self, told: str, error: BaseException) -> NoReturn:
        """Whoever does not answer is known; which environment raised, a vector does not tell."""
        silent = self.waiting() if isinstance(error, UnderstudyError) else []
        try:
            raise_failure(self._where, told, error)
        except UnderstudyError as failure:
            self._log.locate(failure, silent[0] if silent else None)
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

"""Replay: step an environment from stored states, to see whether data came from it."""

from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, DataError, UnderstudyError
from understudy.core.spec import Box, Discrete
from understudy.envs.call_log import add_sentence, number_words
from understudy.envs.checked_env import CheckedEnv
from understudy.envs.facts import registered
from understudy.envs.failures import raise_failure
from understudy.envs.gym import check_kept, make_env
from understudy.envs.physics.poses import HUGE, POSES, Floats


@dataclass(frozen=True)
class Predictions:
    """What an environment does from given states; NaN where it cannot be known."""

    next_observations: Floats
    """[N, S]: NaN in rows that were not replayed, and in columns that are not part of the state."""
    rewards: Floats
    """[N]"""
    terminated: NDArray[np.bool_]
    """[N]: False in rows that were not replayed."""
    replayed: NDArray[np.bool_]
    """[N]: False where the observation hides part of the state, or the action or observation cannot be one."""


class Stepper(Protocol):
    """An environment that can be put into the state an observation describes."""

    @property
    def env_id(self) -> str: ...

    @property
    def columns(self) -> int:
        """How many leading observation columns make the state. Columns after them are ignored."""

    @property
    def action_space(self) -> Box | Discrete: ...

    def holds_state(self, observations: Floats) -> NDArray[np.bool_]:
        """Whether each observation [N, S] holds the whole state, so that it can be stepped from -> [N]."""

    def is_over(self, observations: Floats) -> NDArray[np.bool_] | None:
        """Whether the environment is over in each observation [N, S], by its own rule; None: it has none -> [N].

        What an observation hides of the state (speeds beyond a limit) does not matter to the rule.
        """

    def step_from(self, observations: Floats, actions: NDArray[Any]) -> Predictions:
        """One step from each observation [N, S] with the action [N, A] (or [N]), given as it is, not clipped."""


def find_stepper(env_id: str) -> Stepper | None:
    """A stepper for a registered id, or None: this environment cannot set its state from an observation."""
    registered(env_id)
    return EnvStepper(env_id) if env_id in POSES else None


def replayable(env_id: str) -> list[str]:
    """Versions of the same environment that can be replayed: for 'Hopper-v2', Hopper-v4 and Hopper-v5."""
    name = env_id.rpartition("-v")[0]
    return sorted(known for known in POSES if known.rpartition("-v")[0] == name)


class EnvStepper:
    """The environment's own `step`, called once per row from the state of that row."""

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id
        self._pose = POSES[env_id]
        env = make_env(env_id)
        self.action_space = _action_space(env.action_space, env_id)
        self._env: Any = env.unwrapped
        self._checked = CheckedEnv(self._env, f"environment '{env_id}'")
        self._checked.reset(0)

    @property
    def columns(self) -> int:
        return self._pose.columns

    def holds_state(self, observations: Floats) -> NDArray[np.bool_]:
        return self._pose.is_whole(np.asarray(observations, dtype=np.float64))

    def is_over(self, observations: Floats) -> NDArray[np.bool_] | None:
        if not self._pose.unhealthy:
            return None
        state = np.asarray(observations, dtype=np.float64)[:, : self.columns]
        over = np.zeros(len(state), dtype=np.bool_)
        with self._pose.quietly():
            for row in np.flatnonzero((np.abs(state) < HUGE).all(axis=1)):
                self._pose.put(self._env, state[row])
                over[row] = not self._env.is_healthy
        return over

    def step_from(self, observations: Floats, actions: NDArray[Any]) -> Predictions:
        observations = np.asarray(observations, dtype=np.float64)
        self._check(observations, actions)
        given, possible = self._given(np.asarray(actions))
        rows = len(observations)
        replayed = self._pose.is_whole(observations) & possible
        out = Predictions(
            np.full(observations.shape, np.nan), np.full(rows, np.nan), np.zeros(rows, dtype=np.bool_), replayed
        )
        with self._pose.quietly():
            for row in np.flatnonzero(replayed):
                self._step(out, int(row), observations[row], given[row])
        return out

    def _step(self, out: Predictions, row: int, observation: Floats, action: Any) -> None:
        self._checked.label = f"the replay of row {row}"
        try:
            self._pose.put(self._env, observation[: self.columns])
            raw, reward, terminated, _, _ = self._checked.step(action)
            out.next_observations[row, : self.columns] = self._state(np.asarray(raw))
        except BaseException as error:
            self._fail(error, observation, action)
        out.terminated[row] = terminated
        if self._pose.rewards:
            out.rewards[row] = reward

    def _state(self, seen: NDArray[Any]) -> NDArray[Any]:
        """The columns of an observation that make the state."""
        check_kept(seen, np.dtype(np.float64))
        if seen.ndim != 1 or len(seen) < self.columns:
            raise ValueError(f"an observation of shape {seen.shape} for one of {self.columns} columns")
        return seen[: self.columns]

    def _fail(self, error: BaseException, observation: Floats, action: Any) -> NoReturn:
        try:
            raise_failure(self._checked.where, f"{self._checked.label} failed", error, self._env)
        except UnderstudyError as failure:
            told = f"From the observation {number_words(observation)}, with the action {number_words(action)}."
            add_sentence(failure, told)
            raise

    def _given(self, actions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Actions as the recorder had them: single precision if that loses nothing, since costs are summed in it."""
        if isinstance(self.action_space, Discrete):
            flat = actions.reshape(len(actions))
            return flat.astype(np.int64), np.isin(flat, np.arange(self.action_space.count))
        wide = actions.reshape(len(actions), self.action_space.size).astype(np.float64)
        possible = np.all(np.abs(wide) < HUGE, axis=1)
        single = wide.astype(np.float32)
        return (single if np.array_equal(single[possible], wide[possible]) else wide), possible

    def _check(self, observations: Floats, actions: NDArray[Any]) -> None:
        where = f"replay in {self.env_id}"
        if observations.ndim != 2 or observations.shape[1] < self.columns:
            raise DataError(
                where, "not its observations", got=observations.shape, expected=f"[N, {self.columns}] or more columns"
            )
        width = self.action_space.size if isinstance(self.action_space, Box) else 1
        if len(actions) != len(observations) or np.size(actions) != len(observations) * width:
            raise DataError(where, "not its actions", got=np.shape(actions), expected=f"[{len(observations)}, {width}]")


def _action_space(space: "gymnasium.Space[Any]", env_id: str) -> Box | Discrete:
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.Box):
        return Box(tuple(map(float, space.low)), tuple(map(float, space.high)), np.dtype(space.dtype).name)
    raise ConfigError(f"environment '{env_id}'", "actions not supported", got=space, expected="Box or Discrete")

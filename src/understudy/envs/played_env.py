"""One environment that is played episode by episode: its observations in named groups, and whatever goes wrong told
with the episode, its seed, the step and the action."""

import math
from collections.abc import Callable, Mapping
from typing import Any, final

from numpy.typing import NDArray

from understudy.core.errors import RunError, UnderstudyError
from understudy.envs.call_log import add_sentence, number_words
from understudy.envs.checked_env import CheckedEnv
from understudy.envs.gym import Env, env_spec, make_env, observe
from understudy.envs.vector.step_timeout import StepTimeout

LONGEST_EPISODE = 1_000_000
"""Steps after which an episode that no time limit ends counts as one that never ends."""
Groups = dict[str, NDArray[Any]]


def endless_episode(where: str, label: str, steps: int) -> RunError:
    return RunError(
        where,
        f"{label} has not ended after {steps:,} steps",
        do="Give the environment a time limit (max_episode_steps where it is registered), or set eval_max_steps.",
    )


@final
class PlayedEnv:
    """Its answers are waited for by `answered`; `max_steps` are for environments without a time limit of their own."""

    def __init__(
        self,
        name: str,
        answered: StepTimeout,
        *,
        max_steps: int = LONGEST_EPISODE,
        make: Callable[[str], Env] = make_env,
    ) -> None:
        self._where, self._answered = f"environment '{name}'", answered
        self.env = make(name)
        self._checked = CheckedEnv(self.env, self._where)
        try:
            self.spec = env_spec(self.env, name)
        except BaseException:
            self.close()
            raise
        own = self.env.spec.max_episode_steps if self.env.spec is not None else None
        self._max_steps = max(max_steps, own or 0)
        self._seed = self._steps = 0
        self.info: Mapping[str, Any] = {}
        """What it told beside in its last step."""

    def begin(self, seed: int, label: str) -> Groups:
        """The first observation of an episode, which errors call `label`."""
        self._checked.label, self._seed, self._steps = label, seed, 0
        try:
            return observe(self._answered.call(self._checked.reset, seed), self.spec, self._where)
        except UnderstudyError as error:
            self._locate(error, "before its first step")
            raise

    def step(self, action: Any) -> tuple[Groups, float, bool, bool]:
        """Observation, reward, terminated, truncated."""
        self._steps += 1
        try:
            raw, reward, terminated, truncated, self.info = self._answered.call(self._checked.step, action)
            seen = observe(raw, self.spec, self._where)
            self._check(reward, bool(terminated or truncated))
        except UnderstudyError as error:
            self._locate(error, f"step {self._steps}, action {number_words(action)}")
            raise
        return seen, float(reward), bool(terminated), bool(truncated)

    def _check(self, reward: float, over: bool) -> None:
        if not math.isfinite(reward):
            raise RunError(self._where, f"the reward of {self._checked.label} is not finite", got=reward)
        if self._steps >= self._max_steps and not over:
            raise endless_episode(self._where, self._checked.label, self._steps)

    def _locate(self, error: UnderstudyError, place: str) -> None:
        add_sentence(error, f"{self._checked.label.capitalize()}: seed {self._seed}, {place}.")

    def close(self) -> None:
        self._answered.call(self._checked.close)

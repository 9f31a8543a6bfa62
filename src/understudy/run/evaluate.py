"""The one evaluator: fixed start states, every episode's return, an interval, a score.

It owns its random streams and environments, so evaluating more or less often changes nothing in training; where its
environments draw from the global generators of the process, those are put back.
"""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.core.protocols import Policy
from understudy.core.rng import derived_seed, own_global_generators, simulator_seed, stream
from understudy.core.spec import Spec
from understudy.data.scores import normalized_score, normalized_spread
from understudy.envs.gym import as_actions
from understudy.envs.played_env import LONGEST_EPISODE, PlayedEnv, endless_episode
from understudy.envs.vector.contract import VectorEnv, first_true
from understudy.envs.vector.step_timeout import STEP_TIMEOUT, StepTimeout

RESAMPLES = 2000


@final
@dataclass(frozen=True)
class Evaluation:
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    reference: str | tuple[float, float] | None = None

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def interval(self) -> tuple[float, float]:
        return bootstrap_interval(np.asarray(self.returns))

    @property
    def score(self) -> float | None:
        return None if self.reference is None else normalized_score(self.reference, self.mean)

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval
        record = {
            "eval/return_mean": self.mean,
            "eval/return_std": float(np.std(self.returns)),
            "eval/return_low": low,
            "eval/return_high": high,
            "eval/length_mean": float(np.mean(self.lengths)),
            "returns": list(self.returns),
            "lengths": list(self.lengths),
        }
        if self.reference is not None:
            record["eval/score"] = normalized_score(self.reference, self.mean)
            record["eval/score_std"] = normalized_spread(self.reference, float(np.std(self.returns)))
        return record


def bootstrap_interval(values: NDArray[np.float64], level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean, with a fixed stream: the same values give the same interval."""
    rng = np.random.default_rng(derived_seed(0, "bootstrap"))
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def evaluate_policy(
    policy: Policy,
    env_id: str,
    episodes: int,
    seed: int,
    *,
    spec: Spec | None = None,
    greedy: bool = True,
    reference: str | tuple[float, float] | None = None,
    on_step: Callable[[int, int], None] | None = None,
    between: Callable[[], None] | None = None,
    step_timeout: float = STEP_TIMEOUT,
    max_steps: int = LONGEST_EPISODE,
) -> Evaluation:
    """Play `episodes` side by side, each in its own environment with its own fixed seed.

    `on_step` is told how many episodes are done and how many there are; `between` is called before every step, and may
    raise to stop. An environment that does not answer for `step_timeout` seconds is an error, and so is an episode that
    has not ended after `max_steps` and has no time limit of its own.
    """
    where = f"environment '{env_id}'"
    with own_global_generators(seed), closing(StepTimeout(step_timeout, where)) as answered, ExitStack() as opened:
        envs = []
        for _ in range(episodes):
            envs.append(PlayedEnv(env_id, answered, max_steps=max_steps))
            opened.callback(envs[-1].close)
        found = envs[0].spec
        if spec is not None and not spec.fits(found):
            raise DataError(where, "does not fit the policy", got=found.describe(), expected=spec.describe())
        returns, lengths = _played(policy, envs, seed, greedy, on_step or _ignore, between or _go_on)
    return Evaluation(tuple(returns.tolist()), tuple(lengths.tolist()), reference)


def _ignore(done: int, episodes: int) -> None:
    """Nobody wants to know."""


def _go_on() -> None:
    """Nobody wants to stop."""


def _played(
    policy: Policy,
    envs: list[PlayedEnv],
    seed: int,
    greedy: bool,
    on_step: Callable[[int, int], None],
    between: Callable[[], None],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns and lengths of one episode in each environment."""
    space, episodes, rng = envs[0].spec.action, len(envs), stream(seed, "eval")
    current = []
    for number, env in enumerate(envs):
        between()
        current.append(env.begin(simulator_seed(derived_seed(seed, "eval", number)), f"evaluation episode {number}"))
    returns, lengths, done = np.zeros(episodes), np.zeros(episodes, np.int64), np.zeros(episodes, bool)
    carry = policy.initial(episodes)
    while not done.all():
        obs = {name: torch.from_numpy(np.stack([groups[name] for groups in current])) for name in current[0]}
        actions, carry = policy.act(obs, carry, greedy=greedy, rng=rng)
        batch = as_actions(actions.cpu().numpy(), space)
        for i in np.flatnonzero(~done):
            between()
            seen, reward, terminated, truncated = envs[i].step(batch[i])
            returns[i] += reward
            lengths[i] += 1
            done[i] = terminated or truncated
            if not done[i]:  # once all is over nothing may be legal, and the batch still asks the policy
                current[i] = seen
        on_step(int(done.sum()), episodes)
    return returns, lengths


def evaluate_in_vector_env(
    policy: Policy,
    vector_env: VectorEnv,
    episodes: int,
    seed: int,
    *,
    greedy: bool = True,
    reference: str | tuple[float, float] | None = None,
    on_step: Callable[[int, int], None] | None = None,
    between: Callable[[], None] | None = None,
    max_steps: int = LONGEST_EPISODE,
    name: str = "custom",
) -> Evaluation:
    """The first episodes of a vector world's first environments, from a fixed seed; what comes after is not counted.

    As in `evaluate_policy`, `between` may stop it and no episode may last longer than `max_steps`; errors call the
    world's environment by `name`.
    """
    with own_global_generators(seed):
        rng, count = stream(seed, "eval"), vector_env.count
        obs, carry = vector_env.reset(derived_seed(seed, "eval")), policy.initial(count)
        returns, lengths = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
        playing = torch.arange(count) < episodes
        while bool(playing.any()):
            if between is not None:
                between()
            action, carry = policy.act(obs, carry, greedy=greedy, rng=rng)
            step = vector_env.step(action)
            counts = playing & step.valid.cpu()
            returns += torch.where(counts, step.reward.cpu().double(), 0.0)
            lengths += counts
            playing &= ~(step.terminated | step.truncated).cpu()
            obs = step.obs
            if bool((playing & (lengths >= max_steps)).any()):
                raise endless_episode(f"environment '{name}'", f"evaluation episode {first_true(playing)}", max_steps)
            if on_step is not None:
                on_step(episodes - int(playing.sum()), episodes)
    return Evaluation(tuple(returns[:episodes].tolist()), tuple(lengths[:episodes].tolist()), reference)

"""The one evaluator: fixed start states, every episode's return, an interval, a score.

It owns its random streams and environments, so evaluating more or less often changes nothing in training.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.core.errors import DataError, RunError
from understudy.core.protocols import Policy
from understudy.core.rng import derived_seed, stream
from understudy.core.spec import Spec
from understudy.data.scores import normalized_score, normalized_spread
from understudy.envs.gym import Env, as_actions, env_spec, make_env, observe
from understudy.envs.patience import PATIENCE, Patience
from understudy.envs.vector import VectorWorld

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
    patience: float = PATIENCE,
) -> Evaluation:
    """Play `episodes` side by side, each in its own environment with its own fixed seed.

    `on_step` is told how many episodes are done and how many there are. An environment that does not answer for
    `patience` seconds is an error.
    """
    envs = [make_env(env_id) for _ in range(episodes)]
    try:
        with closing(Patience(patience, f"environment '{env_id}'")) as answered:
            return _played(policy, envs, env_id, seed, spec, greedy, reference, on_step, answered)
    finally:
        for env in envs:
            env.close()


def _played(
    policy: Policy,
    envs: list[Env],
    env_id: str,
    seed: int,
    spec: Spec | None,
    greedy: bool,
    reference: str | tuple[float, float] | None,
    on_step: Callable[[int, int], None] | None,
    answered: Patience,
) -> Evaluation:
    found, where, episodes = env_spec(envs[0], env_id), f"environment '{env_id}'", len(envs)
    if spec is not None and not spec.fits(found):
        raise DataError(where, "does not fit the policy", got=found.describe(), expected=spec.describe())
    rng = stream(seed, "eval")
    seeds = [derived_seed(seed, "eval", i) % 2**31 for i in range(episodes)]
    resets = [answered.call(env.reset, seed=one)[0] for env, one in zip(envs, seeds, strict=True)]
    current = [observe(raw, found, where) for raw in resets]
    returns, lengths, done = np.zeros(episodes), np.zeros(episodes, int), np.zeros(episodes, bool)
    carry = policy.initial(episodes)
    while not done.all():
        obs = {name: torch.from_numpy(np.stack([groups[name] for groups in current])) for name in current[0]}
        actions, carry = policy.act(obs, carry, greedy=greedy, rng=rng)
        batch = as_actions(actions.cpu().numpy(), found.action)
        for i in np.flatnonzero(~done):
            raw, reward, terminated, truncated, _ = answered.call(envs[i].step, batch[i])
            seen = observe(raw, found, where)
            reward = float(reward)
            if not np.isfinite(reward):
                raise RunError(where, f"reward is not finite at step {lengths[i]} of episode {i}", got=reward)
            returns[i] += reward
            lengths[i] += 1
            done[i] = terminated or truncated
            if not done[i]:  # once all is over nothing may be legal, and the batch still asks the policy
                current[i] = seen
        if on_step is not None:
            on_step(int(done.sum()), episodes)
    return Evaluation(tuple(returns.tolist()), tuple(lengths.tolist()), reference)


def evaluate_in_world(
    policy: Policy,
    world: VectorWorld,
    episodes: int,
    seed: int,
    *,
    greedy: bool = True,
    reference: str | tuple[float, float] | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """The first episodes of a vector world's first environments, from a fixed seed; what comes after is not counted."""
    rng, count = stream(seed, "eval"), world.count
    obs, carry = world.reset(derived_seed(seed, "eval")), policy.initial(count)
    returns, lengths = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    playing = torch.arange(count) < episodes
    while bool(playing.any()):
        action, carry = policy.act(obs, carry, greedy=greedy, rng=rng)
        step = world.step(action)
        counts = playing & step.valid.cpu()
        returns += torch.where(counts, step.reward.cpu().double(), 0.0)
        lengths += counts
        playing &= ~(step.terminated | step.truncated).cpu()
        obs = step.obs
        if on_step is not None:
            on_step(episodes - int(playing.sum()), episodes)
    return Evaluation(tuple(returns[:episodes].tolist()), tuple(lengths[:episodes].tolist()), reference)

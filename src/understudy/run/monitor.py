"""What tells early that offline learning goes wrong, measured at every log on rows that never change.

    value/q_data      mean Q(s, a) of recorded actions, over critics and rows
    value/q_policy    mean Q(s, π(s)) of the policy's greedy actions
    value/q_gap       their difference: large, and the critics believe in actions nobody has seen
    value/q_largest   the largest |Q| of both
    policy/entropy_on_data  of policies that draw their actions, in nats and policy units
    gradient/…        norm of the last gradient of each optimiser
    alarm/diverging   1 where value/q_largest is above R_max/(1 − γ), which no return can reach

It costs nothing between logs, draws from a stream of its own and trains nothing: how often one logs changes no bit.
"""

from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import torch
from torch import Tensor

from understudy.core.batch import Transitions
from understudy.core.protocols import Algorithm, Demand, Metrics
from understudy.core.rng import stream
from understudy.data.dataset import Dataset
from understudy.data.rewards import RewardTransform
from understudy.nn.actor import Actor
from understudy.nn.critic import ActionValues, Critic, QEnsemble
from understudy.nn.dropout import asleep
from understudy.nn.heads import Categorical, SquashedGaussian, TanhMeanGaussian
from understudy.parts.optim import Adam
from understudy.run.build import Learner

ROWS = 512


@runtime_checkable
class Valued(Protocol):
    """An algorithm with critics."""

    @property
    def critic(self) -> Critic: ...


@final
@dataclass(frozen=True)
class Monitor:
    rows: Transitions
    """Evenly spread over the dataset, actions in policy units."""
    bound: float
    """R_max/(1 − γ) of the rewards that are learned from."""
    seed: int

    @classmethod
    def over(cls, learner: Learner, seed: int) -> "Monitor":
        source = learner.source
        dataset, demand = source.dataset, Demand(("mask",) if source.dataset.spec.masked else ())
        index = torch.linspace(0, dataset.steps - 1, min(ROWS, dataset.steps)).long().to(source.device)
        rows = source.into_policy_space(dataset.rows(index, demand))
        return cls(rows, largest_return(dataset, learner.reward, learner.algorithm.demand.gamma), seed)

    @torch.no_grad()
    def look(self, algorithm: Algorithm) -> Metrics:
        """Every number above that this algorithm has."""
        policy = algorithm.policy
        assert isinstance(policy, Actor)
        metrics = _gradient_norms(algorithm)
        with asleep(policy):
            state, mask = policy.view(self.rows.obs), self.rows.extra.get("mask")
            features = policy.features(state, mask)
            if isinstance(policy.head, (TanhMeanGaussian, SquashedGaussian, Categorical)):
                metrics["policy/entropy_on_data"] = policy.head.entropy(features, stream(self.seed, "monitor")).mean()
            if isinstance(algorithm, Valued) and isinstance(algorithm.critic, (QEnsemble, ActionValues)):
                metrics |= self._values(algorithm.critic, state, policy.head.mode(features))
        return metrics

    def _values(self, critic: Critic, state: Tensor, chosen: Tensor) -> Metrics:
        with asleep(critic):
            data, policy = critic(state, self.rows.action), critic(state, chosen)
        largest = torch.maximum(data.abs().amax(), policy.abs().amax())
        return {
            "value/q_data": data.mean(),
            "value/q_policy": policy.mean(),
            "value/q_gap": policy.mean() - data.mean(),
            "value/q_largest": largest,
            "alarm/diverging": (largest > self.bound).float(),
        }


def largest_return(dataset: Dataset, reward: RewardTransform, gamma: float) -> float:
    """R_max/(1 − γ) of the rewards that are learned from; without discount, R_max times the longest episode."""
    ends = reward(torch.stack(torch.aminmax(dataset.rewards)))
    horizon = 1.0 / (1.0 - gamma) if gamma < 1 else float(dataset.index.lengths.max())
    return float(ends.abs().max()) * horizon


def _gradient_norms(algorithm: Algorithm) -> Metrics:
    norms: Metrics = {}
    for field, part in vars(algorithm).items():
        adams = part if isinstance(part, dict) else {field.removesuffix("_optimizer"): part}
        norms |= {f"gradient/{name}": adam.norm.clone() for name, adam in adams.items() if isinstance(adam, Adam)}
    return norms

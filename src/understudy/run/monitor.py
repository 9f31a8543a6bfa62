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

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, is_dataclass
from typing import Protocol, final, runtime_checkable

import torch
from torch import Tensor

from understudy.core.batch import Transitions
from understudy.core.protocols import Algorithm, Demand, Metrics
from understudy.core.rng import stream
from understudy.data.dataset import Dataset
from understudy.data.rewards import RewardTransform
from understudy.nn.committee import Committee, Memoryless
from understudy.nn.critic import ActionValues, Critic, QEnsemble
from understudy.nn.dropout import eval_mode
from understudy.nn.heads import Categorical, SquashedGaussian, TanhMeanGaussian
from understudy.parts.optim import Adam
from understudy.sources.importance.weighed import WeighedSource
from understudy.sources.offline import OfflineSource

ROWS = 512
DRAWING = (TanhMeanGaussian, SquashedGaussian, Categorical)
"""Heads that draw actions."""


@runtime_checkable
class Valued(Protocol):
    """An algorithm with critics."""

    @property
    def critic(self) -> Critic: ...


@runtime_checkable
class Branched(Protocol):
    """An algorithm of several learners."""

    @property
    def critics(self) -> Sequence[Critic]: ...


@final
@dataclass(frozen=True)
class Monitor:
    rows: Transitions
    """Evenly spread over the dataset, actions in policy units."""
    bound: float
    """R_max/(1 − γ) of the rewards that are learned from."""
    seed: int

    @classmethod
    def over(cls, source: OfflineSource | WeighedSource, reward: RewardTransform, gamma: float, seed: int) -> "Monitor":
        dataset, demand = source.dataset, Demand(("mask",) if source.dataset.spec.masked else ())
        index = evenly_spread(min(ROWS, dataset.steps), dataset.steps).to(source.device)
        rows = source.into_policy_space(dataset.rows(index, demand))
        return cls(rows, largest_return(dataset, reward, gamma), seed)

    @torch.no_grad()
    def metrics(self, algorithm: Algorithm) -> Metrics:
        """Every number above that this algorithm has."""
        policy = algorithm.policy
        assert isinstance(policy, Memoryless)
        metrics = _gradient_norms(algorithm)
        with eval_mode(policy):
            state, mask = policy.view(self.rows.obs), self.rows.extra.get("mask")
            members = [policy.a, policy.b] if isinstance(policy, Committee) else [policy]
            features = [member.features(state, mask) for member in members]
            chosen = policy.agree(state) if isinstance(policy, Committee) else policy.head.mode(features[0])
            heads = [(member.head, read) for member, read in zip(members, features, strict=True)]
            rng = stream(self.seed, "monitor")
            entropies = [head.entropy(read, rng) for head, read in heads if isinstance(head, DRAWING)]
            if entropies:
                metrics["policy/entropy_on_data"] = torch.cat(entropies).mean()
            if critics := _critics(algorithm):
                metrics |= self._values(critics, state, chosen)
        return metrics

    def _values(self, critics: Sequence[Critic], state: Tensor, chosen: Tensor) -> Metrics:
        with ExitStack() as stack:
            for critic in critics:
                stack.enter_context(eval_mode(critic))
            data = torch.cat([critic(state, self.rows.action) for critic in critics])
            policy = torch.cat([critic(state, chosen) for critic in critics])
        largest = torch.maximum(data.abs().amax(), policy.abs().amax())
        return {
            "value/q_data": data.mean(),
            "value/q_policy": policy.mean(),
            "value/q_gap": policy.mean() - data.mean(),
            "value/q_largest": largest,
            "alarm/diverging": (largest > self.bound).float(),
        }


def _critics(algorithm: Algorithm) -> list[Critic]:
    """All there are, of one learner or of several branches."""
    if isinstance(algorithm, Branched):
        return list(algorithm.critics)
    if isinstance(algorithm, Valued) and isinstance(algorithm.critic, (QEnsemble, ActionValues)):
        return [algorithm.critic]
    return []


def evenly_spread(count: int, steps: int) -> Tensor:
    """`count` of `steps` rows [count], the first and the last among them; in whole numbers, which never round."""
    return torch.arange(count) * (steps - 1) // max(count - 1, 1)


def largest_return(dataset: Dataset, reward: RewardTransform, gamma: float) -> float:
    """R_max/(1 − γ) of the rewards that are learned from; without discount, R_max times the longest episode."""
    blocks = dataset.blocks(dataset.rewards.cpu().numpy())
    ends = reward(torch.cat([torch.stack(torch.aminmax(torch.from_numpy(block))) for block in blocks]))
    horizon = 1.0 / (1.0 - gamma) if gamma < 1 else float(dataset.index.lengths.max())
    return float(ends.abs().max()) * horizon


def _gradient_norms(algorithm: Algorithm) -> Metrics:
    """Of every optimiser, by its name, and by its branch's where there are branches."""
    norms: Metrics = {}
    for path, part in _parts(algorithm):
        if isinstance(part, Adam):
            norms[f"gradient/{path.removesuffix('_optimizer')}"] = part.norm.clone()
    return norms


def _parts(owner: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Fields of an algorithm, what lies in its dicts, and the fields of what lies there."""
    for name, part in vars(owner).items():
        yield f"{prefix}{name}", part
        if isinstance(part, (dict, tuple)):
            for key, inner in part.items() if isinstance(part, dict) else ((name, inner) for inner in part):
                yield f"{prefix}{key}", inner
                if is_dataclass(inner) and not isinstance(inner, Adam):
                    yield from _parts(inner, f"{key}_")

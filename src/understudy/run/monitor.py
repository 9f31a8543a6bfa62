"""What tells early that offline learning goes wrong, measured at every log on rows that never change.

    value/q_data      mean Q(s, a) of recorded actions, over critics and rows
    value/q_policy    mean Q(s, π(s)) of the policy's greedy actions
    value/q_gap       their difference: large, and the critics believe in actions nobody has seen
    value/q_largest   the largest |Q| of both
    policy/entropy_on_data  of policies that draw their actions, in nats and policy units
    gradient/…        norm of the last gradient of each optimiser
    alarm/diverging   1 where value/q_largest is above R_max/(1 − γ), which no return can reach; R_max counts what the
                      algorithm adds to rewards, and where nobody can say how much (CQL, entropy), or where there are
                      no rewards, it is not told

It costs nothing between logs, draws nothing and trains nothing: how often one logs changes no bit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, final

import torch
from torch import Tensor

from understudy.core.batch import Transitions
from understudy.core.protocols import Algorithm, Demand, Metrics
from understudy.data.dataset import Dataset
from understudy.data.experience import LoggedExperience
from understudy.data.rewards import RewardTransform
from understudy.nn.actor import Actor
from understudy.nn.committee import Committee
from understudy.nn.critic import Critic
from understudy.nn.distributions.gaussians import Deterministic, Gaussian, TanhMeanGaussian
from understudy.nn.dropout import eval_mode
from understudy.nn.perception import Seen
from understudy.nn.value_policy import ValuePolicy
from understudy.parts.optim import Adam

ROWS = 512
Monitored = Actor | ValuePolicy | Committee
"""Policies that judge one state at a time, if they have no memory."""


@final
@dataclass(frozen=True)
class Monitor:
    rows: Transitions
    """Evenly spread over the dataset, actions in policy units."""
    bound: float
    """(R_max + shift)/(1 − γ) of the rewards that are learned from; infinite where there is none."""

    @classmethod
    def over(cls, data: LoggedExperience, gamma: float, shift: float = 0.0) -> "Monitor":
        """`shift`: what the algorithm adds to rewards at most."""
        demand = Demand(("mask",) if data.spec.masked else ())
        rows = data.rows(evenly_spread(min(ROWS, data.steps), data.steps), demand)
        return cls(rows, largest_return(data.recorded, data.reward, gamma, shift))

    @torch.no_grad()
    def metrics(self, algorithm: Algorithm[Any]) -> Metrics:
        """Every number above that this algorithm has."""
        policy = algorithm.policy
        metrics = _gradient_norms(algorithm)
        assert isinstance(policy, Monitored)
        with eval_mode(policy):
            seen, mask = Seen(self.rows.obs), self.rows.extra.get("mask")
            members = [policy.a, policy.b] if isinstance(policy, Committee) else [policy]
            drawing = [one for one in members if not isinstance(one.distribution, Deterministic)]
            entropies = [one.distribution.entropy(one.features(seen.by(one), mask)) for one in drawing]
            if entropies:
                metrics["policy/entropy_on_data"] = torch.cat(entropies).mean()
            if critics := _critics(algorithm):
                metrics |= self._values(critics, seen, greedy_actions(policy, seen, mask))
        return metrics

    def eval_metrics(self, algorithm: Algorithm[Any]) -> dict[str, float]:
        return {}

    def warning(self, values: Mapping[str, float]) -> str:
        """The critics believe in more than any return can be."""
        if not values.get("alarm/diverging"):
            return ""
        return (
            f"|Q| reached {values['value/q_largest']:.3g}, and no return can be beyond {self.bound:.3g} "
            "(largest reward/(1 − γ)): the critics diverge. Lower the learning rates, or choose a more conservative "
            "setting."
        )

    def _values(self, critics: Sequence[Critic], seen: Seen, chosen: Tensor) -> Metrics:
        with ExitStack() as stack:
            for critic in critics:
                stack.enter_context(eval_mode(critic))
            data = torch.cat([critic(seen.by(critic), self.rows.action) for critic in critics])
            policy = torch.cat([critic(seen.by(critic), chosen) for critic in critics])
        largest = torch.maximum(data.abs().amax(), policy.abs().amax())
        told = {
            "value/q_data": data.mean(),
            "value/q_policy": policy.mean(),
            "value/q_gap": policy.mean() - data.mean(),
            "value/q_largest": largest,
        }
        return {**told, "alarm/diverging": (largest > self.bound).float()} if math.isfinite(self.bound) else told


def greedy_actions(policy: Monitored, seen: Seen, mask: Tensor | None) -> Tensor:
    """π(s) in policy space [B, …]."""
    return policy.agree(seen, mask) if isinstance(policy, Committee) else policy.greedy(seen.by(policy), mask)


@final
@dataclass(frozen=True)
class Noise:
    """policy/std: σ of a policy whose σ is the same in every state, the mean over actions, in policy units."""

    distribution: Gaussian | TanhMeanGaussian

    @torch.no_grad()
    def metrics(self, algorithm: Algorithm[Any]) -> Metrics:
        return {"policy/std": self.distribution.limits.hold(self.distribution.log_std).exp().mean()}

    def eval_metrics(self, algorithm: Algorithm[Any]) -> dict[str, float]:
        return {}

    def warning(self, values: Mapping[str, float]) -> str:
        return ""


def _critics(algorithm: Algorithm[Any]) -> list[Critic]:
    """All there are, of one learner or of several branches; targets are not asked."""
    roles = algorithm.networks().items()
    return [part for role, part in roles if role.rpartition(".")[2] == "critic" and isinstance(part, Critic)]


def evenly_spread(count: int, steps: int) -> Tensor:
    """`count` of `steps` rows [count], the first and the last among them; in whole numbers, which never round."""
    return torch.arange(count) * (steps - 1) // max(count - 1, 1)


def largest_return(dataset: Dataset, reward: RewardTransform, gamma: float, shift: float = 0.0) -> float:
    """(R_max + shift)/(1 − γ) of the rewards that are learned from; without discount, times the longest episode.

    Infinite where all rewards are 0: then there are none, and critics are what they began as.
    """
    blocks = dataset.blocks(dataset.rewards.cpu().numpy())
    ends = reward(torch.cat([torch.stack(torch.aminmax(torch.from_numpy(block))) for block in blocks]))
    horizon = 1.0 / (1.0 - gamma) if gamma < 1 else float(dataset.index.lengths.max())
    most = float(ends.abs().max())
    return (most + shift) * horizon if most > 0 else math.inf


def _gradient_norms(algorithm: Algorithm[Any]) -> Metrics:
    """Of every optimiser, by its name, and by its branch's where there are branches."""
    norms: Metrics = {}
    for path, part in _parts(algorithm):
        if isinstance(part, Adam):
            norms[f"gradient/{path.removesuffix('_optimizer')}"] = part.norm.clone()
    return norms


def _parts(owner: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Fields of an algorithm, what lies in its dicts, and the fields of what lies there."""
    assert is_dataclass(owner)
    for name in (entry.name for entry in fields(owner)):
        part = vars(owner)[name]
        yield f"{prefix}{name}", part
        if isinstance(part, (dict, tuple)):
            for key, inner in part.items() if isinstance(part, dict) else ((name, inner) for inner in part):
                yield f"{prefix}{key}", inner
                if is_dataclass(inner) and not isinstance(inner, Adam):
                    yield from _parts(inner, f"{key}_")

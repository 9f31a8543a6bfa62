"""A policy of two: both are asked, and one action comes out."""

from collections.abc import Iterable
from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.protocols import Carry
from understudy.core.settings import Count
from understudy.core.spec import Spec
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.critic import QEnsemble
from understudy.nn.dropout import eval_mode
from understudy.nn.mlp import NetworkSettings

Verdict = Literal["mean", "a", "b", "max_q"]


class JudgeSettings(NetworkSettings):
    """The shape of the critics that judge."""

    members: Count = 2
    """Critics of each judge."""


class CommitteeSettings(ActorSettings):
    """The shape of both policies, and how they agree."""

    verdict: Verdict = "mean"
    """`mean` of both actions, that of `a` or `b`, or the one both branches' critics rate higher (`max_q`)."""
    judges: JudgeSettings | None = None
    """Of `max_q`."""

    @model_validator(mode="after")
    def _judges_for_a_verdict(self) -> Self:
        if (self.verdict == "max_q") != (self.judges is not None):
            raise ValueError("a verdict of max_q has judges, and no other has")
        return self


class Committee(nn.Module):
    """Two actors of one shape, and the critics that decide between them if these are asked."""

    def __init__(self, a: Actor, b: Actor, settings: CommitteeSettings, judges: Iterable[QEnsemble] = ()) -> None:
        super().__init__()
        self.a, self.b = a, b
        self.settings = settings
        self.judges = nn.ModuleList(judges)

    @classmethod
    def blank(cls, spec: Spec, settings: CommitteeSettings, rng: torch.Generator) -> "Committee":
        """One of this shape, to be filled."""
        a, b = (Actor(spec, {}, settings, rng) for _ in range(2))
        shape = settings.judges
        if shape is None:
            return cls(a, b, settings)
        judges = [QEnsemble(a.view.size, spec.box.size, shape, rng, members=shape.members) for _ in range(2)]
        return cls(a, b, settings, judges)

    @property
    def spec(self) -> Spec:
        return self.a.spec

    @property
    def view(self) -> nn.Module:
        """Both see the same."""
        return self.a.view

    @property
    def discrete(self) -> bool:
        return self.a.discrete

    @property
    def action_half_range(self) -> Tensor:
        return self.a.action_half_range

    def initial(self, count: int) -> Carry:
        return ()

    @torch.no_grad()
    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        """Actions [B, A] in environment units, inside the box."""
        here = {name: values.to(self.a.action_centre.device) for name, values in obs.items()}
        with eval_mode(self):
            chosen = self.agree(self.a.view(here), greedy=greedy, rng=rng)
        return self.a.action_centre + self.a.action_half_range * chosen, carry

    def agree(self, state: Tensor, *, greedy: bool = True, rng: torch.Generator | None = None) -> Tensor:
        """The committee's actions [B, A] in policy space for normalised states [B, S]."""
        verdict = self.settings.verdict
        asked = {"a": [self.a], "b": [self.b]}.get(verdict, [self.a, self.b])
        actions = [_action(actor, state, greedy, rng) for actor in asked]
        if len(actions) == 1:
            return actions[0]
        if verdict == "mean":
            return torch.stack(actions).mean(0)
        a, b = actions
        return torch.where((self._rated(state, a) >= self._rated(state, b)).unsqueeze(-1), a, b)

    def _rated(self, state: Tensor, action: Tensor) -> Tensor:
        """The smaller value of each judge, added up [B]."""
        return torch.stack([judge(state, action).amin(0) for judge in self.judges]).sum(0)


def _action(actor: Actor, state: Tensor, greedy: bool, rng: torch.Generator | None) -> Tensor:
    features = actor.features(state)
    return actor.head.mode(features) if greedy else actor.head.sample(features, rng)


Memoryless = Actor | Committee
"""Policies that judge one state at a time; what is trained from data."""

"""A policy of two: both are asked, and one action comes out."""

from collections.abc import Iterable
from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.protocols import Carry
from understudy.core.settings import Count
from understudy.core.spec import ACTION_MASK, Spec
from understudy.nn.actor import Actor, ActorSettings, legal_actions
from understudy.nn.critic import ActionValues, Critic, CriticSettings, QEnsemble, make_critic
from understudy.nn.distributions.categorical import forbid
from understudy.nn.dropout import eval_mode
from understudy.nn.mlp import trunk_words
from understudy.nn.perception import Perception, Seen, share_perception
from understudy.nn.prediction import predict, show_policy
from understudy.nn.segments import Input

Combination = Literal["mean", "a", "b", "max_q"]


class CommitteeCriticSettings(CriticSettings):
    """The shape of the critics that decide."""

    members: Count = 2
    """Critics of each branch."""


class CommitteeSettings(ActorSettings):
    """The shape of both policies, and how their actions become one."""

    combine: Combination = "mean"
    """`mean` of both actions (of choices: of both probabilities), that of `a` or `b`, or the one both branches' critics
    rate higher (`max_q`)."""
    critics: CommitteeCriticSettings | None = None
    """Of `max_q`."""

    @model_validator(mode="after")
    def _critics_where_they_decide(self) -> Self:
        if (self.combine == "max_q") != (self.critics is not None):
            raise ValueError("combine=max_q has critics, and no other has")
        return self


class Committee(nn.Module):
    """Two actors of one shape, and the critics that decide between them if these are asked."""

    kind: ClassVar[str] = "committee"

    def __init__(self, a: Actor, b: Actor, settings: CommitteeSettings, critics: Iterable[Critic] = ()) -> None:
        super().__init__()
        self.a, self.b = a, b
        self.settings = settings
        self.critics = nn.ModuleList(critics)

    @classmethod
    def blank(cls, spec: Spec, settings: CommitteeSettings, rng: torch.Generator) -> "Committee":
        """One of this shape, to be filled. Its parts share what the parts of a branch share."""
        known: list[Perception] = []
        critics, actors = [], []
        for _ in range(2):
            lent = None
            if settings.critics is not None:
                seen = share_perception(known, spec, settings.critics, rng, "settings.critics")
                members = settings.critics.members
                critics.append(make_critic(spec, settings.critics, rng, members=members, perception=seen))
                lent = seen if settings.critics.share_encoder else None
            seen = share_perception(known, spec, settings, rng, "settings", lent)
            actors.append(Actor(spec, settings, rng, perception=seen))
        a, b = actors
        return cls(a, b, settings, critics)

    @property
    def spec(self) -> Spec:
        return self.a.spec

    @property
    def perception(self) -> Perception:
        """Both see the same."""
        return self.a.perception

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All that any of them reads."""
        seers = (self.a, self.b, *self.critics)
        found = {entry.name: entry for seer in seers for entry in _perception(seer).inputs}
        return tuple(found.values())

    @property
    def discrete(self) -> bool:
        return self.a.discrete

    @property
    def action_half_range(self) -> Tensor:
        return self.a.action_half_range

    forward = predict  # `policy(obs)`: actions as NumPy

    def __repr__(self) -> str:
        return show_policy(self, "Committee", f"{self.settings.combine} of two, {trunk_words(self.settings)}")

    def initial(self, count: int) -> Carry:
        return ()

    @torch.no_grad()
    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        """Actions [B, A] in environment units, inside the box; or choices [B], legal where there is a mask."""
        here = {name: values.to(self.a.action_centre.device) for name, values in obs.items()}
        legal = legal_actions(here) if self.spec.masked else None
        with eval_mode(self):
            chosen = self.agree(Seen(here), legal, greedy=greedy, rng=rng)
        return self.a.to_env_action(chosen), carry

    def greedy_action(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        """In policy space [B, …], in operations that can be traced."""
        return self.agree(Seen(obs), self.mask(obs)), carry

    def ratings(self, obs: Obs, carry: Carry) -> Tensor:
        """Of choices [B, N], forbidden ones lowest: log-probabilities, or where critics decide the values of the two
        that are proposed."""
        seen, mask = Seen(obs), self.mask(obs)
        if self.settings.combine != "max_q":
            return self._logits(seen, mask)
        proposed = [_action(actor, seen, True, None, mask).unsqueeze(-1) for actor in (self.a, self.b)]
        rated = [self.rate(seen, action.squeeze(-1)).unsqueeze(-1) for action in proposed]
        lowest = torch.full_like(self.a.features(seen.by(self.a)), torch.finfo(rated[0].dtype).min)
        return lowest.scatter(-1, torch.cat(proposed, -1), torch.cat(rated, -1))

    def mask(self, obs: Obs) -> Tensor | None:
        """What is legal [B, N], where the environment says so."""
        return obs[ACTION_MASK].bool() if self.spec.masked else None

    def to_env_action(self, action: Tensor) -> Tensor:
        return self.a.to_env_action(action)

    def agree(
        self, seen: Seen, mask: Tensor | None = None, *, greedy: bool = True, rng: torch.Generator | None = None
    ) -> Tensor:
        """The committee's actions [B, A] in policy space, or choices [B] of what the `mask` [B, N] allows."""
        combine = self.settings.combine
        if combine == "mean" and self.discrete:
            logits, chooser = self._logits(seen, mask), self.a.distribution
            return chooser.mode(logits) if greedy else chooser.sample(logits, rng)
        actions = [_action(actor, seen, greedy, rng, mask) for actor in self._asked()]
        if len(actions) == 1:
            return actions[0]
        if combine == "mean":
            return torch.stack(actions).mean(0)
        a, b = actions
        first = self.rate(seen, a) >= self.rate(seen, b)
        return torch.where(first if self.discrete else first.unsqueeze(-1), a, b)

    def rate(self, seen: Seen, action: Tensor) -> Tensor:
        """The smaller value of each branch's critics, added up [B]."""
        values = []
        for critic in self.critics:
            assert isinstance(critic, (QEnsemble, ActionValues))
            values.append(critic(seen.by(critic), action).amin(0))
        return torch.stack(values).sum(0)

    def _asked(self) -> list[Actor]:
        return {"a": [self.a], "b": [self.b]}.get(self.settings.combine, [self.a, self.b])

    def _logits(self, seen: Seen, mask: Tensor | None) -> Tensor:
        """log of the mean probabilities [B, N] of those who are asked; forbidden ones lowest."""
        chances = [torch.softmax(actor.features(seen.by(actor), mask), -1) for actor in self._asked()]
        mixed = torch.stack(chances).mean(0)
        logits = mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log()
        return logits if mask is None else forbid(logits, mask)


def _action(actor: Actor, seen: Seen, greedy: bool, rng: torch.Generator | None, mask: Tensor | None = None) -> Tensor:
    state = seen.by(actor)
    return actor.greedy(state, mask) if greedy else actor.distribution.sample(actor.features(state, mask), rng)


def _perception(seer: nn.Module) -> Perception:
    assert isinstance(seer, (Actor, QEnsemble, ActionValues))
    return seer.perception

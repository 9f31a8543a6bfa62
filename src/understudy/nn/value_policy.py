"""A policy that is greedy in values: its trunk is the critics, its logits their mean over T."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.protocols import Carry
from understudy.core.settings import Count
from understudy.core.spec import ACTION_MASK, Spec
from understudy.nn.actor import legal_actions
from understudy.nn.critic import ActionValues, CriticSettings
from understudy.nn.distributions.categorical import Categorical
from understudy.nn.dropout import eval_mode
from understudy.nn.mlp import trunk_words
from understudy.nn.perception import Perception
from understudy.nn.prediction import predict, show_policy
from understudy.nn.segments import Input


class ValuePolicySettings(CriticSettings):
    """The shape of its critics, and how it draws."""

    members: Count = 2
    """Critics that are averaged."""
    quantiles: Count = 1
    """Outputs of a critic for each action, which are averaged."""
    one_hot: bool = False
    """The action is an input of the critics, not one of their outputs."""
    temperature: float = Field(1.0, gt=0)
    """T of softmax(Q/T), from which actions are drawn where they are not greedy."""


class ValuePolicy(nn.Module):
    """One of K actions, by what critics expect of each. They are inside: what is deployed is what was learned."""

    kind: ClassVar[str] = "value_policy"
    discrete = True
    action_half_range: Tensor

    def __init__(self, spec: Spec, settings: ValuePolicySettings, critic: ActionValues) -> None:
        super().__init__()
        self.spec, self.settings = spec, settings
        self.critic = critic
        self.distribution = Categorical(critic.count)
        self.register_buffer("action_half_range", torch.ones(()))

    @classmethod
    def blank(cls, spec: Spec, settings: ValuePolicySettings, rng: torch.Generator) -> "ValuePolicy":
        """One of this shape, to be filled."""
        members, quantiles, one_hot = settings.members, settings.quantiles, settings.one_hot
        critic = ActionValues(spec, settings, rng, members=members, quantiles=quantiles, one_hot=one_hot)
        return cls(spec, settings, critic)

    @property
    def perception(self) -> Perception:
        return self.critic.perception

    @property
    def inputs(self) -> tuple[Input, ...]:
        return self.perception.inputs

    forward = predict  # `policy(obs)`: actions as NumPy

    def __repr__(self) -> str:
        return show_policy(self, "ValuePolicy", f"{self.settings.members} critics, {trunk_words(self.settings)}")

    def initial(self, count: int) -> Carry:
        return ()

    def features(self, state: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits [B, K] from what `perception` gave [B, size]; `mask` [B, K] forbids some."""
        return self.distribution.features(self.critic.every(state).mean(0) / self.settings.temperature, mask)

    def greedy(self, state: Tensor, mask: Tensor | None = None) -> Tensor:
        """The best action [B]."""
        return self.distribution.mode(self.features(state, mask))

    def greedy_action(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        """[B], in operations that can be traced."""
        return self.greedy(self.perception.look(obs), self.mask(obs)), carry

    def ratings(self, obs: Obs, carry: Carry) -> Tensor:
        """Logits [B, K], forbidden ones lowest."""
        return self.features(self.perception.look(obs), self.mask(obs))

    def mask(self, obs: Obs) -> Tensor | None:
        """What is legal [..., K], where the environment says so."""
        return obs[ACTION_MASK].bool() if self.spec.masked else None

    @torch.no_grad()
    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        """Choices [B], legal where there is a mask."""
        here = {name: values.to(self.action_half_range.device) for name, values in obs.items()}
        legal = legal_actions(here) if self.spec.masked else None
        with eval_mode(self):
            logits = self.features(self.perception.look(here), legal)
        return self.distribution.mode(logits) if greedy else self.distribution.sample(logits, rng), carry

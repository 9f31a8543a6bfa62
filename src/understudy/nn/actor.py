"""A policy: view → trunk → head, acting in environment units from raw observations."""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.errors import DataError
from understudy.core.protocols import Carry, Moments
from understudy.core.settings import Count
from understudy.core.spec import ACTION_MASK, Discrete, Spec, recordable
from understudy.nn.critic import mean_outcome
from understudy.nn.dropout import eval_mode
from understudy.nn.heads import HEADS, Categorical, Head, HeadName, forbid
from understudy.nn.mlp import MLP, NetworkSettings
from understudy.nn.view import View

OUTPUT_BOUND = 1e-3
"""A policy that starts with `init: small_output` starts in the middle of its range."""


class ActorSettings(NetworkSettings):
    """The shape of a policy."""

    head: HeadName = "gaussian"
    """Of continuous actions: `gaussian` (tanh mean, state-independent σ), `squashed` (tanh of a Gaussian) or
    `deterministic`. Discrete ones always have a categorical head."""


class ValueActorSettings(ActorSettings):
    """The shape of a policy that is greedy in values: its trunk is the critics, its logits their mean over T."""

    members: Count = 2
    """Critics that are averaged."""
    quantiles: Count = 1
    """Outputs of a critic for each action, which are averaged."""
    temperature: float = Field(1.0, gt=0)
    """T of softmax(Q/T), from which actions are drawn where they are not greedy."""


def parse_actor_settings(data: object, where: str) -> ActorSettings:
    """Of whichever kind they are."""
    of_values = isinstance(data, dict) and "members" in data
    return (ValueActorSettings if of_values else ActorSettings).parse(data, where)


class Actor(nn.Module):
    """Everything a deployed policy needs is inside: normaliser, trunk, head, action range, obedience to masks."""

    action_centre: Tensor
    action_half_range: Tensor
    head: Head

    def __init__(
        self, spec: Spec, moments: Mapping[str, Moments], settings: ActorSettings, rng: torch.Generator
    ) -> None:
        super().__init__()
        self.spec = spec
        self.settings = settings
        self.view = View(spec, moments)
        space = recordable(spec.action)
        self.discrete = isinstance(space, Discrete)
        if isinstance(space, Discrete):
            self.head = Categorical(space.count)
            centre, half_range = torch.zeros(()), torch.ones(())
        else:
            self.head = HEADS[settings.head](space.size)
            centre, half_range = torch.as_tensor(space.centre), torch.as_tensor(space.half_range)
        if isinstance(settings, ValueActorSettings):
            outputs = self.head.outputs * settings.quantiles
            self.trunk = MLP(self.view.size, outputs, settings, rng, members=settings.members)
        else:
            self.trunk = MLP(self.view.size, self.head.outputs, settings, rng, output_bound=OUTPUT_BOUND)
        self.register_buffer("action_centre", centre.float())
        self.register_buffer("action_half_range", half_range.float())

    def features(self, state: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalised state [B, S] → what the head reads [B, outputs]; `mask` [B, K] forbids discrete actions."""
        features: Tensor = self.trunk(state)
        if isinstance(self.settings, ValueActorSettings):
            features = mean_outcome(features, self.settings.quantiles).mean(0) / self.settings.temperature
        return features if mask is None else forbid(features, mask)

    def log_prob(self, state: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        """log π(a|s) [B] of actions in [-1, 1], or of legal choices."""
        return self.head.log_prob(self.features(state, mask), action)

    def initial(self, count: int) -> Carry:
        return ()

    @torch.no_grad()
    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        """Actions [B, A] in environment units, inside the box; or choices [B], legal where there is a mask."""
        here = {name: values.to(self.action_centre.device) for name, values in obs.items()}
        with eval_mode(self):
            features = self.features(self.view(here), legal_actions(here) if self.spec.masked else None)
            chosen = self.head.mode(features) if greedy else self.head.sample(features, rng)
        return chosen if self.discrete else self.action_centre + self.action_half_range * chosen, carry


def legal_actions(obs: Obs) -> Tensor:
    """The mask [B, K] that came with observations; somebody who must act needs a legal action."""
    if ACTION_MASK not in obs:
        raise DataError("observation", f"'{ACTION_MASK}' is missing", got=sorted(obs), do="This policy obeys masks.")
    mask = obs[ACTION_MASK].bool()
    stuck = ~mask.any(-1)
    if bool(stuck.any()):
        raise DataError(f"observation, row {int(stuck.nonzero()[0])}", "no action is legal")
    return mask

"""A policy: view → trunk → head, acting in environment units from raw observations."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.protocols import Carry, Moments
from understudy.core.spec import Spec
from understudy.nn.heads import HEADS, Head, HeadName
from understudy.nn.mlp import MLP, NetworkSettings
from understudy.nn.view import View


class ActorSettings(NetworkSettings):
    """The shape of a policy."""

    head: HeadName = "gaussian"
    """`gaussian` (tanh mean, state-independent σ), `squashed` (tanh of a Gaussian) or `deterministic`."""


class Actor(nn.Module):
    """Everything a deployed policy needs is inside: normaliser, trunk, head, action range."""

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
        self.head = HEADS[settings.head](spec.box.size)
        self.trunk = MLP(self.view.size, self.head.outputs, settings, rng)
        self.register_buffer("action_centre", torch.as_tensor(spec.box.centre, dtype=torch.float32))
        self.register_buffer("action_half_range", torch.as_tensor(spec.box.half_range, dtype=torch.float32))

    def features(self, state: Tensor) -> Tensor:
        """Normalised state [B, S] → what the head reads [B, outputs]."""
        features: Tensor = self.trunk(state)
        return features

    def log_prob(self, state: Tensor, action: Tensor) -> Tensor:
        """log π(a|s) [B] of actions in [-1, 1]."""
        return self.head.log_prob(self.features(state), action)

    def initial(self, count: int) -> Carry:
        return ()

    @torch.no_grad()
    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        """Actions [B, A] in environment units, inside the box."""
        training = self.training
        self.eval()
        features = self.features(
            self.view({name: values.to(self.action_centre.device) for name, values in obs.items()})
        )
        unit = self.head.mode(features) if greedy else self.head.sample(features, rng)
        self.train(training)
        return self.action_centre + self.action_half_range * unit, carry

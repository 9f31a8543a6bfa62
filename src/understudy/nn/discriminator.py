"""Tells windows of one kind from windows of another: a normaliser of frames, then an MLP that gives one number.

Both kinds go through the same normaliser. With one for each, every kind would be whitened by itself, and their
differences in mean and scale, which are what there is to see, would be gone.
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from understudy.core.settings import Widths
from understudy.nn.activations import Activation
from understudy.nn.mlp import MLP, NetworkSettings
from understudy.nn.normalization import Normalizer, NormalizerSettings


class DiscriminatorSettings(NetworkSettings):
    """The shape of a discriminator."""

    hidden: Widths = (256, 128)
    """Units of each hidden layer; none is a linear map."""
    activation: Activation = "relu"
    """Between layers: `relu`, `tanh`, `elu`, `gelu`, `silu`, `leaky_relu` or `selu`."""
    output_gain: float = Field(1.0, gt=0)
    """Of the last layer, where layers start orthogonal."""
    dropout: float = Field(0.0, ge=0, le=0)
    """None: what a window is worth would depend on chance."""


class Discriminator(nn.Module):
    """Windows [..., frames, F] → D [...]."""

    def __init__(
        self,
        frames: int,
        size: int,
        settings: DiscriminatorSettings,
        normalizer: NormalizerSettings,
        rng: torch.Generator,
    ) -> None:
        super().__init__()
        self.normalizer = Normalizer((size,), normalizer)
        self.trunk = MLP(frames * size, 1, settings, rng)

    def forward(self, windows: Tensor) -> Tensor:
        logit: Tensor = self.trunk(self.prepared(windows))
        return logit.squeeze(-1)

    def prepared(self, windows: Tensor) -> Tensor:
        """Normalised and flat, [..., frames·F]: what its slopes are taken in."""
        normal: Tensor = self.normalizer(windows)
        return normal.flatten(-2)

    def judge(self, prepared: Tensor, *, sloped: bool) -> tuple[Tensor, Tensor]:
        """D [B] of prepared windows [B, frames·F] and, if `sloped`, its slopes there [B, frames·F], else none [0, …].

        A slope is part of a loss, so what it is made of is differentiated again.
        """
        if not sloped:
            logit: Tensor = self.trunk(prepared)
            return logit.squeeze(-1), prepared[:0]
        inputs = prepared.detach().requires_grad_()
        logit = self.trunk.by_autograd(inputs).squeeze(-1)
        (slope,) = torch.autograd.grad(logit.sum(), inputs, create_graph=True)
        return logit, slope

    @property
    def output_weight(self) -> Tensor:
        """Of the last layer [units, 1], with gradient."""
        return self.trunk.layout.layers(self.trunk.flat)[-1].weight

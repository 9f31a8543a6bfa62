"""How layers start. Weights are [inputs, outputs], multiplied as `x @ W`, or [K, inputs, outputs]."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

Init = Literal["orthogonal", "default"]


@torch.no_grad()
def init_layer(weight: Tensor, bias: Tensor, scheme: Init, rng: torch.Generator) -> None:
    """`orthogonal`: gain √2, zero bias (official IQL). `default`: torch's Linear, U(±1/√inputs) for both."""
    if scheme == "orthogonal":
        for member in weight if weight.dim() == 3 else [weight]:
            nn.init.orthogonal_(member, gain=math.sqrt(2.0), generator=rng)
        bias.zero_()
    else:
        bound = 1.0 / math.sqrt(weight.shape[-2])
        weight.uniform_(-bound, bound, generator=rng)
        bias.uniform_(-bound, bound, generator=rng)

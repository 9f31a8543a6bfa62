"""How layers start. Weights are [inputs, outputs], multiplied as `x @ W`, or [K, inputs, outputs].

Layers on torch's `meta` device have shapes and no numbers, and nothing starts there: that is how a network is outlined
before anybody spends memory on it.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

Init = Literal["orthogonal", "default", "small_output", "xavier_output"]
HIDDEN_BIAS, OUTPUT_BOUND = 0.1, 3e-3
"""Of `small_output`: where hidden biases start, and within what the last layer does."""
HIDDEN_GAIN = math.sqrt(2.0)
"""Of orthogonal layers, before every activation, as the implementations of IQL and PPO have it."""


@torch.no_grad()
def orthogonal(weight: Tensor, gain: float, rng: torch.Generator) -> None:
    """Rows or columns at right angles, all of length `gain`."""
    if not weight.is_meta:
        nn.init.orthogonal_(weight, gain=gain, generator=rng)


@torch.no_grad()
def init_layer(weight: Tensor, bias: Tensor, scheme: Init, rng: torch.Generator, *, gain: float = HIDDEN_GAIN) -> None:
    """`orthogonal`: gain √2, zero bias (official IQL). `default`: torch's Linear, U(±1/√inputs) for both.

    In a hidden layer `small_output` is torch's weights and biases of 0.1 (EDAC, ReBRAC), `xavier_output` is torch's.
    """
    if weight.is_meta:
        return
    if scheme == "orthogonal":
        for member in weight if weight.dim() == 3 else [weight]:
            orthogonal(member, gain, rng)
        bias.zero_()
    else:
        bound = 1.0 / math.sqrt(weight.shape[-2])
        weight.uniform_(-bound, bound, generator=rng)
        if scheme == "small_output":
            bias.fill_(HIDDEN_BIAS)
        else:
            bias.uniform_(-bound, bound, generator=rng)


@torch.no_grad()
def init_output(
    weight: Tensor, bias: Tensor, scheme: Init, rng: torch.Generator, bound: float, *, gain: float = HIDDEN_GAIN
) -> None:
    """The last layer: with `small_output` U(±bound) for both, so that a network starts near 0; an orthogonal one has a
    gain of its own: 0.01 lets a policy start in the middle of its range, 1 suits a value. So has `xavier_output`, after
    Glorot and Bengio: U(±gain·√(6/(inputs + outputs))), zero bias (young-geng's and CORL's CQL)."""
    if scheme == "small_output" and not weight.is_meta:
        weight.uniform_(-bound, bound, generator=rng)
        bias.uniform_(-bound, bound, generator=rng)
    elif scheme == "xavier_output" and not weight.is_meta:
        spread = gain * math.sqrt(6.0 / (weight.shape[-2] + weight.shape[-1]))
        weight.uniform_(-spread, spread, generator=rng)
        bias.zero_()
    else:
        init_layer(weight, bias, scheme, rng, gain=gain)

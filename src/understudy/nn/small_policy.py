"""A small Gaussian policy at work, in NumPy: of a few rows torch's time is spent between its operations, not in them.

The same layers over the same memory, read anew at every step; results differ from torch's in the last bits.
"""

from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from understudy.core.batch import Obs
from understudy.nn.activations import Activation
from understudy.nn.actor import Actor
from understudy.nn.distributions.gaussians import Gaussian
from understudy.nn.normalization import Normalizer

Rows = NDArray[np.float32]
LARGEST_PRODUCT = 64**3
"""Multiplications beyond which NumPy's products may use threads of their own, beside those of the simulator."""


def is_small(policy: Actor, count: int) -> bool:
    """A Gaussian whose outputs are its means, of which NumPy can compute so many rows."""
    return isinstance(policy.distribution, Gaussian) and is_small_network(policy, count)


def is_small_network(policy: Actor, count: int) -> bool:
    """On the CPU, one flat input, no memory, no encoder, a plain trunk, and products that stay small."""
    perception, trunk = policy.perception, policy.trunk
    plain = perception.fixed and trunk.plain and trunk.flat.device.type == "cpu" and len(perception.inputs) == 1
    entry = perception.inputs[0]
    group = policy.spec.observation[entry.group]
    floats = group.dtype == "float32" and len(entry.shape) == 1 and entry.visible is None
    sizes = (layer.weight.numel() for layer in trunk.layers())
    return plain and floats and count * max(sizes) <= LARGEST_PRODUCT


@final
class SmallPolicy:
    """Observations → the trunk's outputs, for as long as nothing about the policy changes; at most `count` rows at a
    time."""

    def __init__(self, policy: Actor, count: int) -> None:
        (entry,) = policy.perception.inputs
        self._group, self._columns = entry.group, slice(None) if entry.columns is None else slice(*entry.columns)
        normalised = policy.perception.normalised()
        self._normalize = _normalization(normalised[0][1]) if normalised else None
        self._layers = [(layer.weight.numpy(), layer.bias.numpy()) for layer in policy.trunk.layers()]
        self._room = [np.empty((count, len(bias)), np.float32) for _, bias in self._layers]
        self._activate = IN_PLACE[policy.trunk.activation]

    def means(self, obs: Obs) -> Rows:
        """The trunk's outputs [n, A]; holds until the next call."""
        rows: Rows = obs[self._group].numpy()[:, self._columns].astype(np.float32, copy=False)
        if self._normalize is not None:
            rows = self._normalize(rows)
        last = len(self._layers) - 1
        for number, (weight, bias) in enumerate(self._layers):
            room = self._room[number][: len(rows)]
            rows = np.add(np.dot(rows, weight, out=room), bias, out=room)
            if number < last:
                self._activate(rows)
        return rows


def _normalization(normalizer: Normalizer) -> Callable[[Rows], Rows]:
    shift, scale, clip = normalizer.shift.numpy(), normalizer.scale.numpy(), normalizer.settings.clip

    def normalize(rows: Rows) -> Rows:
        normal: Rows = np.subtract(rows, shift)
        normal *= scale
        return normal if clip is None else np.clip(normal, -clip, clip, out=normal)

    return normalize


def _tanh(rows: Rows) -> None:
    np.tanh(rows, out=rows)


def _relu(rows: Rows) -> None:
    np.maximum(rows, 0.0, out=rows)


def _elu(rows: Rows) -> None:
    below = np.minimum(rows, 0.0)
    np.maximum(rows, np.expm1(below, out=below), out=rows)


IN_PLACE: dict[Activation, Callable[[Rows], None]] = {"tanh": _tanh, "relu": _relu, "elu": _elu}

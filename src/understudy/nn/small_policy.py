"""Small Gaussian policies at work, in NumPy: of a few rows torch's time is spent between its operations, not in them.

The same layers over the same memory, read anew at every step; results differ from torch's in the last bits.
"""

from collections.abc import Callable
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.protocols import Policy
from understudy.nn.activations import Activation
from understudy.nn.actor import Actor
from understudy.nn.distributions.gaussians import ACTION_LIMIT, Gaussian, TanhGaussian
from understudy.nn.normalization import Normalizer

Rows = NDArray[np.float32]
LARGEST_PRODUCT = 64**3
"""Multiplications beyond which NumPy's products may use threads of their own, beside those of the simulator."""


def is_small(policy: Actor, count: int, kind: type[Gaussian] | type[TanhGaussian] = Gaussian) -> bool:
    """A policy that draws in this way, of which NumPy can compute so many rows."""
    return isinstance(policy.distribution, kind) and is_small_network(policy, count)


def is_small_network(policy: Actor, count: int) -> bool:
    """On the CPU, one flat input, no memory, no encoder, nothing estimated in its place, a plain trunk, and products
    that stay small."""
    perception, trunk = policy.perception, policy.trunk
    plain = (
        (policy.estimator is None or policy.estimator.idle)
        and perception.fixed
        and trunk.plain
        and trunk.flat.device.type == "cpu"
        and len(perception.inputs) == 1
    )
    entry = perception.inputs[0]
    group = policy.spec.observation[entry.group]
    floats = group.dtype == "float32" and len(entry.shape) == 1 and entry.visible is None
    sizes = (layer.weight.numel() for layer in trunk.layers())
    return plain and floats and count * max(sizes) <= LARGEST_PRODUCT


@final
class SmallPolicy:
    """Observations → what the trunk says, for as long as nothing but its numbers changes; `count` rows at most."""

    def __init__(self, policy: Actor, count: int) -> None:
        (entry,) = policy.perception.inputs
        self._group, self._columns = entry.group, slice(None) if entry.columns is None else slice(*entry.columns)
        normalised = policy.perception.normalised()
        self._normalize = _normalization(normalised[0][1]) if normalised else None
        self._layers = [(layer.weight.numpy(), layer.bias.numpy()) for layer in policy.trunk.layers()]
        self._room = [np.empty((count, len(bias)), np.float32) for _, bias in self._layers]
        self._activate = IN_PLACE[policy.trunk.activation]

    def outputs(self, obs: Obs) -> Rows:
        """[n, outputs], the means of a Gaussian; holds until the next call."""
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


@final
class SmallSquashedPolicy:
    """What `Actor.act` draws of tanh of a Gaussian, from the same noise, in a third of the time."""

    def __init__(self, policy: Actor, count: int) -> None:
        assert isinstance(policy.distribution, TanhGaussian)
        inside, spec = policy.distribution.inside, policy.spec
        self._policy, self._count, self._size = policy, count, spec.box.size
        self._start, self._lowest, self._highest = inside.start, inside.limits.low, inside.limits.high
        ranges = policy.action_centre, policy.action_half_range, policy.action_low, policy.action_high
        self._centre, self._half_range, self._low, self._high = (one.numpy() for one in ranges)
        self._layers, self._small = policy.trunk.layers(), SmallPolicy(policy, count)

    def act(self, obs: Obs, rng: torch.Generator) -> Tensor:
        """Actions [n, A] in environment units."""
        if (layers := self._policy.trunk.layers()) is not self._layers:  # its numbers lie elsewhere now
            self._layers, self._small = layers, SmallPolicy(self._policy, self._count)
        outputs = self._small.outputs(obs)
        log_std = np.add(outputs[:, self._size :], np.float32(self._start))
        np.minimum(np.maximum(log_std, self._lowest, out=log_std), self._highest, out=log_std)
        action: Rows = np.exp(log_std, out=log_std)
        action *= torch.randn(action.shape, generator=rng).numpy()
        action += outputs[:, : self._size]
        np.tanh(action, out=action)
        np.minimum(np.maximum(action, -ACTION_LIMIT, out=action), ACTION_LIMIT, out=action)
        action *= self._half_range
        action += self._centre
        return torch.from_numpy(np.minimum(np.maximum(action, self._low, out=action), self._high, out=action))


def explorer(policy: Policy, count: int) -> Callable[[Obs, torch.Generator], Tensor]:
    """What `policy` draws for `count` observations, in environment units and on the CPU, in the quickest way there is.

    Which way that is depends on the policy's shape alone: a resumed run goes the same.
    """
    if isinstance(policy, Actor) and is_small(policy, count, TanhGaussian):
        return SmallSquashedPolicy(policy, count).act
    return lambda obs, rng: policy.act(obs, (), greedy=False, rng=rng)[0].cpu()


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

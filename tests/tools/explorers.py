"""Exploring policies of every kind, as a learner would leave them: statistics moved, no parameter at its start."""

from typing import Any

import torch

from understudy.core.rng import stream
from understudy.core.spec import ActionSpace, Box, Discrete, Group, Spec
from understudy.nn.actor import Actor
from understudy.parts.ppo.networks import OnPolicyActorSettings
from understudy.tools.parity import random_observations
from understudy.tools.portable import Portable

BOX = Box((-2.0, 0.1), (2.0, 0.7))
GROUPS = {
    "state": Group((4,), "float32"),
    "depth": Group((1, 7, 9), "float32"),
    "camera": Group((3, 8, 8), "uint8"),
}
SEGMENTS = {"state": {"body": (0, 2), "goal": (3, 4)}}
CONV = {"kind": "conv", "layers": [{"channels": 2, "kernel": 3, "stride": 2}], "size": 3}
SHAPES: dict[str, dict[str, Any]] = {
    "vector": {"sees": ["state"]},
    "visual": {"sees": ["depth", "state"], "encoders": {"depth": CONV}},
    "segments": {"sees": ["state.goal", "state.body"], "encoders": {"state.body": {"kind": "mlp", "size": 5}}},
}
MEMORIES: dict[str, dict[str, Any]] = {
    "none": {},
    "gru": {"memory": {"kind": "gru", "units": 8}},
    "lstm": {"memory": {"kind": "lstm", "units": 6, "layers": 2}},
}
DENSITIES = ("gaussian", "state_gaussian", "tanh_gaussian", "beta")


def explorer(
    shape: str = "vector", memory: str = "none", action: ActionSpace = BOX, *, masked: bool = False, **changes: Any
) -> Actor:
    """A policy of that shape whose every number is another than at birth."""
    spec = Spec(GROUPS, action, masked).with_segments(SEGMENTS)
    settings = OnPolicyActorSettings.parse({"hidden": [16], **SHAPES[shape], **MEMORIES[memory], **changes})
    policy = Actor(spec, settings, stream(0, "init"))
    disturb(policy)
    return policy


def estimating(memory: str, estimate: dict[str, Any]) -> Actor:
    """One that sees `depths` [3] only where it learns."""
    spec = Spec({"state": GROUPS["state"], "depths": Group((3,), "float32")}, BOX).with_segments(SEGMENTS)
    actor = {"hidden": [16], "sees": ["depths", "state.body", "state.goal"], **MEMORIES[memory], "estimate": estimate}
    policy = Actor(spec, OnPolicyActorSettings.parse(actor), stream(0, "init"))
    rng = torch.Generator().manual_seed(4)
    policy.observe({"state": 5.0 + 3.0 * torch.randn(50, 4, generator=rng), "depths": torch.rand(50, 3, generator=rng)})
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng))
    return policy


def disturb(policy: Actor) -> None:
    rng = torch.Generator().manual_seed(3)
    seen = random_observations(Portable(policy), 50, rng)
    obs = dict(zip(Portable(policy).observed, seen, strict=True))
    policy.observe({name: 5.0 + 3.0 * values.float() for name, values in obs.items() if name != "action_mask"})
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng))


def chooser(shape: str = "vector", memory: str = "none", *, masked: bool = True, **changes: Any) -> Actor:
    """One that chooses among five."""
    return explorer(shape, memory, Discrete(5), masked=masked, **changes)

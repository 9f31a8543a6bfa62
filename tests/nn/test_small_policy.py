"""The same policy in NumPy and in torch."""

from typing import Any

import numpy as np
import pytest
import torch

from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete, Group, Spec
from understudy.nn.actor import Actor
from understudy.nn.small_policy import LARGEST_PRODUCT, SmallPolicy, is_small
from understudy.parts.ppo.networks import OnPolicyActorSettings

BOX = Box((-1.0,) * 3, (1.0,) * 3)
SPEC = Spec({"state": Group((5,), "float32"), "other": Group((4,), "float32")}, BOX).with_segments(
    {"state": {"end": (3, 5)}}
)
ROWS = 7


def explorer(spec: Spec = SPEC, **settings: Any) -> Actor:
    policy = Actor(spec, OnPolicyActorSettings.parse({"sees": ["state"], **settings}), stream(0, "policy"))
    with torch.no_grad():
        policy.trunk.flat.add_(0.1 * torch.randn(policy.trunk.flat.shape, generator=stream(1, "biases")))
    return policy


@pytest.mark.parametrize("activation", ["tanh", "elu", "relu"])
@pytest.mark.parametrize("sees", ["state", "state.end"])
@pytest.mark.parametrize("clip", [None, 0.5])
@torch.no_grad()
def test_it_says_what_torch_says(activation: str, sees: str, clip: float | None) -> None:
    policy = explorer(sees=[sees], hidden=[16, 8], activation=activation, normalizer={"clip": clip})
    obs = {"state": 3.0 + 2.0 * torch.randn(50, 5, generator=stream(2, "obs")), "other": torch.zeros(50, 4)}
    policy.observe(obs)
    small = SmallPolicy(policy, 50)
    for rows in (50, ROWS):
        some = {name: values[:rows] for name, values in obs.items()}
        expected = policy.trunk(policy.perception.look(some))
        assert torch.allclose(torch.from_numpy(small.means(some)), expected, atol=2e-6)
    assert float(expected.abs().max()) > 0.01


@torch.no_grad()
def test_other_kinds_of_numbers_are_read_as_float32() -> None:
    policy, rows = explorer(), torch.randn(ROWS, 5, generator=stream(2, "obs"))
    expected, found = (SmallPolicy(policy, ROWS).means({"state": one}) for one in (rows, rows.double()))
    assert np.array_equal(expected, found)


def test_who_is_small() -> None:
    assert is_small(explorer(), ROWS)
    assert not is_small(explorer(sees=["state", "other"]), ROWS)
    assert not is_small(explorer(memory={"kind": "gru", "units": 4}), ROWS)
    assert not is_small(explorer(hidden=[8], layer_norm=True), ROWS)
    assert not is_small(explorer(encoders={"state": {"kind": "mlp", "size": 4}}), ROWS)
    assert not is_small(explorer(distribution={"kind": "beta"}), ROWS)
    assert not is_small(explorer(Spec(SPEC.observation, Discrete(3))), ROWS)
    assert not is_small(explorer(Spec({"state": Group((5,), "uint8")}, BOX)), ROWS)
    wide = explorer(hidden=[64, 64])
    assert is_small(wide, LARGEST_PRODUCT // 64**2)
    assert not is_small(wide, LARGEST_PRODUCT // 64**2 + 1)

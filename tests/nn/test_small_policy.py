"""The same policy in NumPy and in torch."""

from typing import Any

import numpy as np
import pytest
import torch

from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete, Group, Spec
from understudy.nn.actor import Actor
from understudy.nn.distributions.gaussians import TanhGaussian
from understudy.nn.small_policy import LARGEST_PRODUCT, SmallPolicy, explorer, is_small
from understudy.parts.ppo.networks import OnPolicyActorSettings
from understudy.parts.soft_critic import SoftActorSettings

BOX = Box((-1.0,) * 3, (1.0,) * 3)
SPEC = Spec({"state": Group((5,), "float32"), "other": Group((4,), "float32")}, BOX).with_segments(
    {"state": {"end": (3, 5)}}
)
ROWS = 7


def gaussian(spec: Spec = SPEC, **settings: Any) -> Actor:
    policy = Actor(spec, OnPolicyActorSettings.parse({"sees": ["state"], **settings}), stream(0, "policy"))
    with torch.no_grad():
        policy.trunk.flat.add_(0.1 * torch.randn(policy.trunk.flat.shape, generator=stream(1, "biases")))
    return policy


@pytest.mark.parametrize("activation", ["tanh", "elu", "relu"])
@pytest.mark.parametrize("sees", ["state", "state.end"])
@pytest.mark.parametrize("clip", [None, 0.5])
@torch.no_grad()
def test_it_says_what_torch_says(activation: str, sees: str, clip: float | None) -> None:
    policy = gaussian(sees=[sees], hidden=[16, 8], activation=activation, normalizer={"clip": clip})
    obs = {"state": 3.0 + 2.0 * torch.randn(50, 5, generator=stream(2, "obs")), "other": torch.zeros(50, 4)}
    policy.observe(obs)
    small = SmallPolicy(policy, 50)
    for rows in (50, ROWS):
        some = {name: values[:rows] for name, values in obs.items()}
        expected = policy.trunk(policy.perception.look(some))
        assert torch.allclose(torch.from_numpy(small.outputs(some)), expected, atol=2e-6)
    assert float(expected.abs().max()) > 0.01


@torch.no_grad()
def test_other_kinds_of_numbers_are_read_as_float32() -> None:
    policy, rows = gaussian(), torch.randn(ROWS, 5, generator=stream(2, "obs"))
    expected, found = (SmallPolicy(policy, ROWS).outputs({"state": one}) for one in (rows, rows.double()))
    assert np.array_equal(expected, found)


def test_who_is_small() -> None:
    assert is_small(gaussian(), ROWS)
    assert not is_small(gaussian(sees=["state", "other"]), ROWS)
    assert not is_small(gaussian(memory={"kind": "gru", "units": 4}), ROWS)
    assert not is_small(gaussian(hidden=[8], layer_norm=True), ROWS)
    assert not is_small(gaussian(encoders={"state": {"kind": "mlp", "size": 4}}), ROWS)
    assert not is_small(gaussian(distribution={"kind": "beta"}), ROWS)
    assert not is_small(gaussian(Spec(SPEC.observation, Discrete(3))), ROWS)
    assert not is_small(gaussian(Spec({"state": Group((5,), "uint8")}, BOX)), ROWS)
    wide = gaussian(hidden=[64, 64])
    assert is_small(wide, LARGEST_PRODUCT // 64**2)
    assert not is_small(wide, LARGEST_PRODUCT // 64**2 + 1)


def squashed(**settings: Any) -> Actor:
    box = Box((-2.0, 0.0, -1.0), (2.0, 1.0, 1.0))
    spec = Spec({"state": Group((5,), "float32")}, box)
    policy = Actor(spec, SoftActorSettings.parse({"hidden": [16, 8], **settings}), stream(0, "policy"))
    with torch.no_grad():
        policy.trunk.flat.add_(torch.randn(policy.trunk.flat.shape, generator=stream(1, "biases")))
    return policy


@torch.no_grad()
def test_a_squashed_policy_draws_what_torch_draws_from_the_same_noise() -> None:
    policy = squashed(distribution={"log_std_min": -0.5, "log_std_max": 0.5, "initial_std": 0.7})
    act, ours, theirs = explorer(policy, 3), stream(3, "noise"), stream(3, "noise")
    assert is_small(policy, 3, TanhGaussian)
    edges = 0
    for step in range(40):
        obs = {"state": 3.0 * torch.randn(1 + step % 3, 5, generator=stream(step, "obs"))}
        expected = policy.act(obs, (), greedy=False, rng=theirs)[0]
        found = act(obs, ours)
        assert torch.allclose(found, expected, atol=1e-5)
        assert torch.equal(ours.get_state(), theirs.get_state())
        edges += int((found.abs() > 1.99).sum())
        policy.trunk.flat.mul_(0.97)  # it learns, in the same memory
    assert edges > 0
    policy.trunk.flat = torch.nn.Parameter(policy.trunk.flat * 0.5)  # and lies elsewhere
    obs = {"state": torch.ones(2, 5)}
    assert torch.allclose(act(obs, ours), policy.act(obs, (), greedy=False, rng=theirs)[0], atol=1e-5)


def test_others_draw_as_they_always_do() -> None:
    obs = {"state": torch.ones(2, 5)}
    for policy in (squashed(layer_norm=True), squashed(hidden=[512, 512])):
        assert not is_small(policy, 2, TanhGaussian)
        expected = policy.act(obs, (), greedy=False, rng=stream(0, "noise"))[0]
        assert torch.equal(explorer(policy, 2)(obs, stream(0, "noise")), expected)

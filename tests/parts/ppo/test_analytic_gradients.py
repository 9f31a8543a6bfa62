"""Gradients written out against autograd's, and a whole update against one that goes through the graph."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from understudy.core.batch import Rollout
from understudy.core.rng import stream
from understudy.core.spec import Box, Group, Spec
from understudy.core.torchscript import scripted
from understudy.losses.surrogate import clipped_surrogate, clipped_value_error
from understudy.nn.exploring_policy import ExplorerSettings, ExploringPolicy
from understudy.nn.gaussian_density import Gaussian
from understudy.nn.value_network import ValueNetwork, ValueSettings
from understudy.parts.ppo import fused_steps as passes
from understudy.parts.ppo import update as proximal_part
from understudy.parts.ppo.analytic_gradients import PolicySlopes, is_plain, policy_slopes, trunk_of, value_slopes
from understudy.parts.ppo.batch import SEEN, PPOBatch
from understudy.parts.ppo.settings import PPOSettings
from understudy.parts.ppo.update import Proximal

SPEC = Spec({"state": Group((5,), "float32")}, Box((-1.0,) * 3, (1.0,) * 3))
ROWS = 80


def networks(activation: str = "tanh", min_std: float = 1e-3) -> tuple[ExploringPolicy, ValueNetwork]:
    eyes: dict[str, Any] = {"trunk": {"hidden": [16, 8], "activation": activation}}
    density = {"initial_std": 0.7, "min_std": min_std}
    policy = ExploringPolicy(SPEC, ExplorerSettings.parse({**eyes, "density": density}), stream(0, "policy"))
    return policy, ValueNetwork(SPEC, ValueSettings.parse(eyes), stream(0, "value"))


def batch(rng: torch.Generator) -> PPOBatch:
    """Ratios on both sides of the clip, advantages of both signs, values that moved beyond their clip."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng)

    shown = {SEEN: normal(ROWS, 5)}
    log_prob = -3.0 + normal(ROWS)
    return PPOBatch(shown, shown, normal(ROWS, 3), log_prob, normal(ROWS), normal(ROWS), normal(ROWS), {})


@torch.no_grad()
def slopes_of(policy: ExploringPolicy, rows: PPOBatch, entropy_coef: float) -> tuple[PolicySlopes, Tensor]:
    """With the gradient of the trunk."""
    density = policy.density
    assert isinstance(density, Gaussian)
    log_std = density.log_std.detach()
    held = log_std.clamp(density.low, density.high)
    columns = rows.policy_obs[SEEN], rows.action, rows.log_prob, rows.advantage
    found = policy_slopes(trunk_of(policy.trunk), log_std, held, *columns, 0.2, entropy_coef)
    return found, policy.trunk.gradient_room()[0]


@pytest.mark.parametrize("activation", ["tanh", "elu", "relu"])
@pytest.mark.parametrize("entropy_coef", [0.0, 0.3])
def test_the_policy_gradient_is_that_of_the_graph(activation: str, entropy_coef: float) -> None:
    (policy, _), rows = networks(activation), batch(stream(1, "rows"))
    found, flat = slopes_of(policy, rows, entropy_coef)
    judged = policy.judge(rows.policy_obs[SEEN], rows.action)
    surrogate = clipped_surrogate(judged.log_prob, rows.log_prob, rows.advantage, 0.2)
    loss = surrogate.mean() - entropy_coef * judged.entropy.mean()
    ratio = (judged.log_prob - rows.log_prob).exp()
    assert 0 < int((ratio > 1.2).sum()) < ROWS
    assert 0 < int((ratio < 0.8).sum()) < ROWS
    assert torch.allclose(found.surrogate, surrogate)
    assert torch.allclose(found.log_ratio.exp(), ratio, rtol=1e-4)
    slopes = zip((found.to_log_std, flat), torch.autograd.grad(loss, [*policy.parameters()]), strict=True)
    for gradient, expected in slopes:
        assert torch.allclose(gradient, expected, atol=1e-6)
        assert float(expected.abs().sum()) > 0


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_width_beyond_its_limit_may_only_come_back(sign: float) -> None:
    (policy, _), rows = networks(min_std=0.5), batch(stream(1, "rows"))
    density = policy.density
    assert isinstance(density, Gaussian)
    with torch.no_grad():
        density.log_std.fill_(-3.0)
    log_prob = policy.judge(rows.policy_obs[SEEN], rows.action).log_prob
    rows = replace(rows, log_prob=log_prob.detach(), advantage=sign * rows.advantage.abs())
    loss = clipped_surrogate(log_prob, rows.log_prob, rows.advantage, 0.2).mean()
    (expected,) = torch.autograd.grad(loss, [density.log_std])
    found = slopes_of(policy, rows, 0.0)[0].to_log_std
    assert torch.allclose(found, expected, atol=1e-6)
    assert bool((found == 0).all()) == (sign < 0)


@pytest.mark.parametrize("clip", [None, 0.2, 1.5])
def test_the_value_gradient_is_that_of_the_graph(clip: float | None) -> None:
    (_, value), rows = networks(), batch(stream(2, "rows"))
    with torch.no_grad():
        found = value_slopes(trunk_of(value.trunk), rows.value_obs[SEEN], rows.value, rows.target, clip, 0.5)
    values = value.judge(rows.value_obs[SEEN])
    error = (values - rows.target).square()
    if clip is not None:
        error = clipped_value_error(values, rows.value, rows.target, clip)
    (expected,) = torch.autograd.grad(0.5 * error.mean(), list(value.parameters()))
    assert torch.allclose(found, error)
    assert torch.allclose(value.trunk.gradient_room()[0], expected, atol=1e-6)


def rollout(steps: int, count: int) -> Rollout:
    rng = stream(3, "rollout")

    def normal(*shape: int) -> Tensor:
        return torch.randn(steps, count, *shape, generator=rng)

    def rare() -> Tensor:
        return torch.rand(steps, count, generator=rng) < 0.05

    terminated = rare()
    return Rollout(
        {"state": normal(5)}, normal(3), -3.0 + 0.1 * normal(), normal(), {"state": normal(5)},
        terminated, rare() & ~terminated, ~rare(), (), {},
    )  # fmt: skip


@pytest.mark.parametrize("schedule", ["constant", "adaptive"])
@pytest.mark.parametrize("activation", ["tanh", "elu", "relu"])
def test_compiled_or_not_it_is_the_same_to_the_bit(
    schedule: str, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = []
    for compile_it in (True, False):
        monkeypatch.setattr(passes, "scripted", scripted if compile_it else lambda function: function)
        policy, value = networks(activation)
        settings = PPOSettings.parse({"schedule": schedule, "value_clip": 0.3, "epochs": 3, "learning_rate": 3e-3})
        learner = Proximal.of(settings, policy, value, stream(0, "shuffle"), 4, updates=10)
        for _ in range(3):  # TorchScript optimises what has run twice
            learner.update(rollout(40, 4))
        after.append({**policy.state_dict(), **{f"v.{k}": v for k, v in value.state_dict().items()}})
    assert all(torch.equal(after[0][name], after[1][name]) for name in after[0])


@pytest.mark.parametrize("schedule", ["constant", "adaptive"])
def test_an_update_by_hand_is_one_through_the_graph(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that do not count and a rate that adapts included; only rounding differs."""
    after = []
    for by_hand in (True, False):
        monkeypatch.setattr(proximal_part, "is_plain", is_plain if by_hand else lambda network: False)
        policy, value = networks()
        settings = PPOSettings.parse({"schedule": schedule, "entropy_coef": 0.01, "epochs": 2})
        learner = Proximal.of(settings, policy, value, stream(0, "shuffle"), 4, updates=10)
        told = learner.update(rollout(40, 4))
        after.append(({**policy.state_dict(), **{f"v.{k}": v for k, v in value.state_dict().items()}}, told))
    (by_hand_state, by_hand_told), (state, told) = after
    assert by_hand_told.keys() == told.keys()
    assert all(torch.allclose(by_hand_told[name], told[name], atol=1e-4) for name in told)
    assert all(torch.allclose(by_hand_state[name], state[name], atol=1e-4) for name in state)


def test_a_plain_policy_beside_a_critic_with_memory_ignores_rows_that_do_not_count() -> None:
    """There rows come in sequences, with those that only started an episode among them."""
    after = []
    for poison in (0.0, 1e3):
        policy, _ = networks()
        eyes = ValueSettings.parse({"memory": {"kind": "gru", "units": 4}, "trunk": {"hidden": [8]}})
        value = ValueNetwork(SPEC, eyes, stream(0, "value"))
        played = rollout(12, 4)
        assert not bool(played.valid.all())
        columns = {name: getattr(played, name) for name in Rollout.__slots__}
        columns["log_prob"] = torch.where(played.valid, played.log_prob, poison)
        settings = PPOSettings.parse({"schedule": "constant", "epochs": 2})
        Proximal.of(settings, policy, value, stream(0, "shuffle"), 4, updates=10).update(Rollout(**columns))
        after.append(policy.state_dict())
    assert all(torch.equal(after[0][name], after[1][name]) for name in after[0])


def test_networks_with_something_between_are_not_plain() -> None:
    eyes: dict[str, Any] = {"trunk": {"hidden": [8], "activation": "tanh"}}
    for extra in ({"memory": {"kind": "gru", "units": 4}}, {"trunk": {"hidden": [8], "layer_norm": True}}):
        assert not is_plain(ValueNetwork(SPEC, ValueSettings.parse({**eyes, **extra}), stream(0, "v")))
    beta = ExplorerSettings.parse({**eyes, "density": {"kind": "beta"}})
    assert not is_plain(ExploringPolicy(SPEC, beta, stream(0, "p")))
    assert is_plain(ValueNetwork(SPEC, ValueSettings.parse(eyes), stream(0, "v")))

"""Fused steps: gradients written out against autograd's, and a whole update against the plain one."""

import importlib
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from learners import differences
from rollouts import build_ppo
from understudy.algorithms import ppo
from understudy.core.batch import Rollout
from understudy.core.protocols import Metrics
from understudy.core.rng import stream
from understudy.core.spec import Box, Group, Spec
from understudy.core.state import State, capture
from understudy.core.torchscript import scripted
from understudy.losses import surrogate
from understudy.losses.surrogate import (
    clipped_surrogate,
    clipped_value_error,
    surrogate_with_slope,
    value_error_with_slope,
)
from understudy.nn.actor import Actor
from understudy.nn.distributions.gaussians import Gaussian
from understudy.nn.value_network import ValueNetwork
from understudy.parts.ppo import analytic_gradients, fused_steps
from understudy.parts.ppo.analytic_gradients import PolicySlopes, is_plain, policy_slopes, trunk_of, value_slopes
from understudy.parts.ppo.batch import SEEN, PPOBatch
from understudy.parts.ppo.fused_steps import FusedSteps
from understudy.parts.ppo.networks import OnPolicyActorSettings, OnPolicyCriticSettings

SPEC = Spec({"state": Group((5,), "float32")}, Box((-1.0,) * 3, (1.0,) * 3))
ROWS = 80


def networks(activation: str = "tanh", min_std: float = 1e-3) -> tuple[Actor, ValueNetwork]:
    eyes: dict[str, Any] = {"hidden": [16, 8], "activation": activation}
    density = {"initial_std": 0.7, "log_std_min": math.log(min_std)}
    policy = Actor(SPEC, OnPolicyActorSettings.parse({**eyes, "distribution": density}), stream(0, "policy"))
    return policy, ValueNetwork(SPEC, OnPolicyCriticSettings.parse(eyes), stream(0, "value"))


def batch(rng: torch.Generator) -> PPOBatch:
    """Ratios on both sides of the clip, advantages of both signs, values that moved beyond their clip."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng)

    shown = {SEEN: normal(ROWS, 5)}
    log_prob = -3.0 + normal(ROWS)
    return PPOBatch(shown, shown, normal(ROWS, 3), log_prob, normal(ROWS), normal(ROWS), normal(ROWS), {})


@torch.no_grad()
def slopes_of(policy: Actor, rows: PPOBatch, entropy_coef: float) -> tuple[PolicySlopes, Tensor]:
    """With the gradient of the trunk."""
    density = policy.distribution
    assert isinstance(density, Gaussian)
    log_std = density.log_std.detach()
    held = log_std.clamp(density.limits.low, density.limits.high)
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
    density = policy.distribution
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
    values = value(rows.value_obs[SEEN])
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


def plain_ppo(activation: str = "tanh", **settings: Any) -> ppo.PPO:
    role: dict[str, Any] = {"hidden": [16, 8], "activation": activation}
    return build_ppo(SPEC, 4, actor={**role, "distribution": {"initial_std": 0.7}}, critic=role, **settings)


def through_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppo, "fused_steps_for", lambda learner, batch: None)


def learned(algorithm: ppo.PPO, updates: int = 1) -> tuple[State, Metrics]:
    metrics: Metrics = {}
    for _ in range(updates):
        metrics = algorithm.update(rollout(40, 4)).metrics
    return capture(algorithm), metrics


@pytest.mark.parametrize("schedule", ["constant", "adaptive"])
@pytest.mark.parametrize("activation", ["tanh", "elu", "relu"])
def test_compiled_or_not_it_is_the_same_to_the_bit(
    schedule: str, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = []
    for compile_it in (True, False):
        monkeypatch.setattr(fused_steps, "scripted", scripted if compile_it else lambda function: function)
        settings: dict[str, Any] = {"schedule": schedule, "value_clip": 0.3, "epochs": 3, "learning_rate": 3e-3}
        after.append(learned(plain_ppo(activation, **settings), 3)[0])  # TorchScript optimises what has run twice
    assert differences(*after) == []


@pytest.mark.parametrize("schedule", ["constant", "adaptive"])
@pytest.mark.parametrize(
    "others",
    [
        {"value_clip": None},
        {"value_clip": 0.3, "normalize_advantage": "minibatch"},
        {"critic_learning_rate": 3e-3, "clip": 0.02, "clip_schedule": "linear", "normalize_reward": True},
    ],
)
def test_fused_steps_are_those_of_the_algorithm(
    schedule: str, others: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that do not count and a rate that adapts included; only rounding differs."""
    settings: dict[str, Any] = {"schedule": schedule, "entropy_coef": 0.01, "epochs": 2, **others}
    fused_state, fused_metrics = learned(plain_ppo(**settings))
    through_the_graph(monkeypatch)
    state, metrics = learned(plain_ppo(**settings))
    assert fused_metrics.keys() == metrics.keys()
    assert all(torch.allclose(fused_metrics[name], metrics[name], atol=1e-5) for name in metrics)
    tensors = {name: leaf for name, leaf in state.items() if isinstance(leaf, Tensor)}
    for name, leaf in tensors.items():
        other = fused_state[name]
        assert isinstance(other, Tensor)
        assert torch.allclose(other, leaf, atol=1e-5), name


@pytest.mark.parametrize("schedule", ["constant", "adaptive"])
@pytest.mark.parametrize("role", [{"memory": {"kind": "gru", "units": 4}}, {"hidden": [8], "layer_norm": True}])
def test_networks_that_are_not_plain_take_the_very_steps_of_the_algorithm(
    schedule: str, role: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side, the critic an epoch behind if the rate adapts: to the bit, and in all they tell."""
    found = []
    for fused in (True, False):
        if not fused:
            through_the_graph(monkeypatch)
        others: dict[str, Any] = {"epochs": 3, "minibatches": 3, "normalize_advantage": "minibatch"}
        if schedule == "adaptive":
            others["target_kl"] = 1e-3
        algorithm = build_ppo(SPEC, 4, actor=role, critic=role, schedule=schedule, **others)
        played = replace(rollout(40, 4), carry=algorithm.policy.initial(4))
        told = [algorithm.update(played).metrics for _ in range(2)]
        found.append((capture(algorithm), told))
        assert (float(algorithm.rates["policy"]) != 1e-3) == (schedule == "adaptive")
    (state, told), (plain_state, plain_told) = found
    assert differences(state, plain_state) == []
    assert [differences(dict(one), dict(other)) for one, other in zip(told, plain_told, strict=True)] == [[], []]


def counting(function: Callable[..., Any], calls: list[str], name: str) -> Callable[..., Any]:
    """Somewhat more than the formula gives, and a note of every call."""

    def more(*given: Any) -> Any:
        calls.append(name)
        found = function(*given)
        return tuple(1.25 * part for part in found) if isinstance(found, tuple) else 1.25 * found

    return more


def test_the_formulas_of_the_docstring_are_the_ones_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the plain path: each is called as often as there is something to compute, and what it says is learned."""
    named = re.findall(r"→ (losses\.\w+)\.(\w+)", ppo.__doc__ or "")
    assert len(named) == 3
    through_the_graph(monkeypatch)
    settings: dict[str, Any] = {
        "schedule": "constant",
        "epochs": 2,
        "minibatches": 3,
        "value_clip": 0.3,
        "normalize_advantage": False,
    }
    expected, _ = learned(plain_ppo(**settings))
    for room, name in named:
        formula = getattr(importlib.import_module(f"understudy.{room}"), name)
        assert vars(ppo)[name] is formula
        calls: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(ppo, name, counting(formula, calls, name))
            moved = differences(expected, learned(plain_ppo(**settings))[0])
        assert len(calls) == (1 if room == "losses.returns" else 6)
        networks = {path.partition(".")[0] for path in moved} & {"policy", "value"}
        assert networks == {"surrogate": {"policy"}}.get(name.removeprefix("clipped_"), {"value"}) | (
            {"policy", "value"} if room == "losses.returns" else set()
        )


def test_fused_steps_call_the_same_formulas_with_their_slopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unscripted, so that Python sees them."""
    monkeypatch.setattr(fused_steps, "scripted", lambda function: function)
    settings: dict[str, Any] = {"schedule": "constant", "epochs": 2, "minibatches": 3}
    expected, _ = learned(plain_ppo(**settings))
    for name, network in (("surrogate_with_slope", "policy"), ("value_error_with_slope", "value")):
        calls: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(analytic_gradients, name, counting(vars(surrogate)[name], calls, name))
            moved = differences(expected, learned(plain_ppo(**settings))[0])
        assert len(calls) == 6
        assert {path.partition(".")[0] for path in moved} & {"policy", "value"} == {network}


def test_a_formula_with_its_slope_is_the_formula_to_the_bit() -> None:
    rows = batch(stream(4, "rows"))
    log_prob, value = (
        column.clone().requires_grad_() for column in (rows.log_prob + 0.3 * rows.value, rows.value + rows.advantage)
    )
    plain = clipped_surrogate(log_prob, rows.log_prob, rows.advantage, 0.2)
    found, slope = surrogate_with_slope((log_prob - rows.log_prob).detach(), rows.advantage, 0.2)
    assert torch.equal(found, plain)
    assert torch.allclose(slope, torch.autograd.grad(plain.sum(), log_prob)[0], rtol=1e-6)
    plain = clipped_value_error(value, rows.value, rows.target, 0.2)
    found, slope = value_error_with_slope(value.detach(), rows.value, rows.target, 0.2)
    assert torch.equal(found, plain)
    assert torch.equal(slope, torch.autograd.grad(plain.sum(), value)[0])


def test_what_is_shared_takes_the_plain_path() -> None:
    memory = {"memory": {"kind": "gru", "units": 4}}
    cases: list[tuple[bool, dict[str, Any]]] = [
        (True, {}),
        (True, {"schedule": "constant", "actor": memory, "critic": memory}),
        (True, {"schedule": "adaptive", "actor": memory, "critic": memory}),
        (True, {"schedule": "adaptive", "actor": {"distribution": {"kind": "beta"}}}),
        (False, {"schedule": "constant", "actor": memory, "critic": {**memory, "share_memory": True}}),
    ]
    for fused, settings in cases:
        algorithm = build_ppo(SPEC, 4, **{"schedule": "constant", **settings})
        taken: list[bool] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                ppo, "fused_steps_for", lambda *given, taken=taken: note(taken, fused_steps.fused_steps_for(*given))
            )
            algorithm.update(replace(rollout(8, 4), carry=algorithm.policy.initial(4)))
        assert taken == [fused], settings


def note(taken: list[bool], found: FusedSteps | None) -> FusedSteps | None:
    taken.append(found is not None)
    return found


def test_a_plain_policy_beside_a_critic_with_memory_ignores_rows_that_do_not_count() -> None:
    """There rows come in sequences, with those that only started an episode among them."""
    after = []
    for poison in (0.0, 1e3):
        critic = {"memory": {"kind": "gru", "units": 4}, "hidden": [8]}
        algorithm = build_ppo(SPEC, 4, critic=critic, schedule="constant", epochs=2)
        played = rollout(12, 4)
        assert not bool(played.valid.all())
        algorithm.update(replace(played, log_prob=torch.where(played.valid, played.log_prob, poison)))
        after.append(capture(algorithm.policy))
    assert differences(*after) == []


def test_networks_with_something_between_are_not_plain() -> None:
    eyes: dict[str, Any] = {"hidden": [8], "activation": "tanh"}
    for extra in ({"memory": {"kind": "gru", "units": 4}}, {"hidden": [8], "layer_norm": True}):
        assert not is_plain(ValueNetwork(SPEC, OnPolicyCriticSettings.parse({**eyes, **extra}), stream(0, "v")))
    beta = OnPolicyActorSettings.parse({**eyes, "distribution": {"kind": "beta"}})
    assert not is_plain(Actor(SPEC, beta, stream(0, "p")))
    assert is_plain(ValueNetwork(SPEC, OnPolicyCriticSettings.parse(eyes), stream(0, "v")))

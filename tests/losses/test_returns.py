"""Advantages against brute force, with episodes that end for both reasons, and in closed form."""

import pytest
import torch
from torch import Tensor

from understudy.core.discounting import discounted_sums
from understudy.losses.returns import generalised_advantages

GENERATOR = torch.Generator().manual_seed(0)


def brute_sums(values: Tensor, factors: Tensor) -> Tensor:
    found = values.clone()
    for time in range(len(values) - 2, -1, -1):
        found[time] = values[time] + factors[time] * found[time + 1]
    return found


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 64, 100])
def test_sums_are_those_of_a_loop(steps: int) -> None:
    values, factors = torch.randn(2, steps, 5, generator=GENERATOR, dtype=torch.float64)
    factors[torch.rand(factors.shape, generator=GENERATOR) < 0.2] = 0.0
    assert torch.allclose(discounted_sums(values, factors), brute_sums(values, factors), rtol=1e-12, atol=1e-12)


def test_sums_change_nothing_they_are_given() -> None:
    values, factors = torch.ones(4), torch.full((4,), 0.5)
    assert discounted_sums(values, factors).tolist() == [1.875, 1.75, 1.5, 1.0]
    assert values.tolist() == [1.0] * 4
    assert factors.tolist() == [0.5] * 4


def brute_advantage(time: int, rollout: dict[str, Tensor], gamma: float, gae_lambda: float) -> float:
    """Σ_l (γλ)^l·δ_{t+l} of one environment, up to the end of the episode or of the rollout."""
    total, factor = 0.0, 1.0
    for later in range(time, len(rollout["reward"])):
        ahead = 0.0 if rollout["terminated"][later] else gamma * float(rollout["next_value"][later])
        total += factor * (float(rollout["reward"][later]) + ahead - float(rollout["value"][later]))
        if rollout["ended"][later]:
            break
        factor *= gamma * gae_lambda
    return total


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.99, 0.95), (0.9, 0.0), (0.9, 1.0), (1.0, 1.0)])
def test_advantages_are_those_of_their_definition(gamma: float, gae_lambda: float) -> None:
    steps, envs = 37, 4
    reward, value, next_value = torch.randn(3, steps, envs, generator=GENERATOR, dtype=torch.float64)
    chance = torch.rand(steps, envs, generator=GENERATOR)
    terminated, truncated = chance < 0.1, (chance >= 0.1) & (chance < 0.2)
    ended = terminated | truncated
    found = generalised_advantages(reward, value, next_value, terminated, ended, gamma, gae_lambda)
    for env in range(envs):
        columns = {"reward": reward, "value": value, "next_value": next_value, "terminated": terminated, "ended": ended}
        rollout = {name: column[:, env] for name, column in columns.items()}
        for time in range(steps):
            assert float(found[time, env]) == pytest.approx(
                brute_advantage(time, rollout, gamma, gae_lambda), abs=1e-10
            )


def test_a_time_limit_bootstraps_and_a_termination_does_not() -> None:
    one = torch.ones(1, 1)
    limits = [
        generalised_advantages(one, 0 * one, 10 * one, torch.tensor([[terminated]]), torch.tensor([[True]]), 0.9, 0.95)
        for terminated in (False, True)
    ]
    assert [float(found) for found in limits] == [10.0, 1.0]


def test_a_right_value_function_has_no_advantages() -> None:
    """Reward 1 forever is worth 1/(1 − γ) everywhere; only whoever terminates loses it."""
    value = torch.full((20, 3), 10.0, dtype=torch.float64)
    no = torch.zeros(20, 3, dtype=torch.bool)
    found = generalised_advantages(torch.ones_like(value), value, value, no, no, 0.9, 0.95)
    assert torch.allclose(found, torch.zeros_like(found), atol=1e-12)


def test_what_carries_gradient_is_refused() -> None:
    value, no = torch.ones(2, 1, requires_grad=True), torch.zeros(2, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match="carries gradient"):
        generalised_advantages(torch.ones(2, 1), value, value.detach(), no, no, 0.9, 0.9)

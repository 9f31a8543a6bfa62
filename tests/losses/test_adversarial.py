"""What discriminators lose and pay, at known points, and where their losses are least."""

import math

import pytest
import torch
from torch import Tensor

from understudy.losses.adversarial import (
    EQUILIBRIUM,
    LOSSES,
    MOST,
    accuracies,
    expert_loss,
    gradient_penalty,
    least_reward,
    policy_loss,
    style_reward,
)


def number(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_losses_at_known_points() -> None:
    at = number(-1.0, 0.0, 1.0, 3.0)
    assert expert_loss(at, "lsgan").tolist() == [4.0, 1.0, 0.0, 4.0]
    assert policy_loss(at, "lsgan").tolist() == [0.0, 1.0, 4.0, 16.0]
    e = math.e
    wanted = number(math.log(1 + e), math.log(2), math.log(1 + 1 / e), math.log(1 + e**-3))
    assert torch.allclose(expert_loss(at, "bce"), wanted)
    assert torch.allclose(policy_loss(at, "bce"), wanted + at), "softplus(x) = softplus(−x) + x"
    assert float(expert_loss(number(2.0), "wgan", 0.5)) == pytest.approx(-(e**2 - 1) / (e**2 + 1))


def test_the_policys_loss_is_the_experts_in_a_mirror() -> None:
    at = torch.linspace(-4, 4, 33, dtype=torch.float64)
    for kind in LOSSES:
        assert torch.equal(policy_loss(at, kind, 0.3), expert_loss(-at, kind, 0.3))


def test_the_least_loss_is_where_theory_says() -> None:
    """Of densities p_e and p_π at one point, the D that makes p_e·ℓ_e + p_π·ℓ_π least."""
    grid = torch.linspace(-3, 3, 60_001, dtype=torch.float64)
    for expert, policy in ((0.7, 0.3), (0.5, 0.5), (0.1, 0.6)):
        best = {
            kind: float(grid[(expert * expert_loss(grid, kind) + policy * policy_loss(grid, kind)).argmin()])
            for kind in ("lsgan", "bce")
        }
        assert best["lsgan"] == pytest.approx((expert - policy) / (expert + policy), abs=1e-3)
        assert best["bce"] == pytest.approx(math.log(expert / policy), abs=1e-3)


def test_rewards_at_known_points_and_in_a_draw() -> None:
    at = number(-5.0, -1.0, 0.0, 1.0, 3.0, 9.0)
    assert style_reward(at, "quad").tolist() == [0.0, 0.0, 0.75, 1.0, 0.0, 0.0]
    logs = style_reward(at, "log")
    assert torch.allclose(logs[:4], -torch.log(1 - torch.sigmoid(at[:4])))
    assert float(style_reward(number(50.0), "log")) == pytest.approx(math.log(1e4)), "1 − σ is never below 1e-4"
    assert torch.allclose(style_reward(at, "wgan", 0.3).log().atanh() / 0.3, at)
    for kind, level in EQUILIBRIUM.items():
        assert float(style_reward(number(0.0), kind)) == pytest.approx(level)
        assert float(style_reward(torch.linspace(-60, 60, 2401, dtype=torch.float64), kind).max()) <= MOST[kind] + 1e-12


def test_a_penalty_is_a_squared_norm_per_row() -> None:
    assert gradient_penalty(number(3.0, 4.0, 0.0, 1.0).view(2, 2)).tolist() == [25.0, 1.0]


def test_accuracies_are_shares_of_the_right_side() -> None:
    expert, policy = number(-1.0, 1.0, 2.0, 3.0), number(-2.0, -1.0, 0.5, -3.0)
    assert [float(share) for share in accuracies(expert, policy, "lsgan")] == [0.75, 0.75]
    assert [float(share) for share in accuracies(expert - 10, policy - 10, "bce")] == [0.0, 1.0]
    assert [float(share) for share in accuracies(expert - 10, policy - 10, "wgan")] == [0.75, 0.75]


def test_what_a_window_is_worth_that_nobody_doubts() -> None:
    assert least_reward("lsgan", "quad") == 0.0
    assert least_reward("lsgan", "log") == pytest.approx(math.log(1 + 1 / math.e))
    assert least_reward("bce", "log") == 0.0
    assert least_reward("wgan", "wgan", 0.3) == pytest.approx(1 / math.e)

"""PPO's losses at known points, and where their gradient stops."""

import math

import pytest
import torch
from torch import Tensor

from understudy.losses.surrogate import clip_fraction, clipped_surrogate, clipped_value_error, estimated_kl


def number(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def slope(ratio: float, advantage: float) -> float:
    log_prob = number(math.log(ratio)).requires_grad_()
    clipped_surrogate(log_prob, number(0.0), number(advantage), 0.2).sum().backward()  # type: ignore[no-untyped-call]
    assert log_prob.grad is not None
    return float(log_prob.grad)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [(1.0, 2.0, -2.0), (1.5, 2.0, -2.4), (0.5, 2.0, -1.0), (1.5, -2.0, 3.0), (0.5, -2.0, 1.6), (1.1, -1.0, 1.1)],
)
def test_the_surrogate_is_the_worse_of_both(ratio: float, advantage: float, loss: float) -> None:
    found = clipped_surrogate(number(math.log(ratio)), number(0.0), number(advantage), 0.2)
    assert float(found) == pytest.approx(loss)


def test_nobody_gains_by_leaving_the_range() -> None:
    """Beyond it the slope is 0 where going on would pay, and not 0 where coming back does."""
    assert slope(1.5, 1.0) == 0.0
    assert slope(0.5, -1.0) == 0.0
    assert slope(1.5, -1.0) == pytest.approx(1.5)
    assert slope(0.5, 1.0) == pytest.approx(-0.5)
    assert slope(1.0, 1.0) == pytest.approx(-1.0)


def test_the_same_policy_has_ratio_one_exactly() -> None:
    log_prob = torch.randn(100, generator=torch.Generator().manual_seed(0))
    advantage = torch.randn(100, generator=torch.Generator().manual_seed(1))
    assert torch.equal(clipped_surrogate(log_prob, log_prob.clone(), advantage, 0.2), -advantage)
    assert float(clip_fraction(log_prob, log_prob.clone(), 0.2)) == 0.0


def test_a_value_gains_nothing_by_moving_more_than_the_clip() -> None:
    value, old, target = number(1.0, 0.1, -1.0), number(0.0, 0.0, 0.0), number(2.0, 2.0, 2.0)
    assert clipped_value_error(value, old, target, 0.2).tolist() == pytest.approx([3.24, 3.61, 9.0])
    assert clipped_value_error(value, old, target, 1e9).tolist() == pytest.approx([1.0, 3.61, 9.0])


def test_the_share_outside() -> None:
    log_prob = torch.log(number(1.0, 1.19, 1.21, 0.79))
    assert float(clip_fraction(log_prob, torch.zeros(4, dtype=torch.float64), 0.2)) == 0.5


def test_the_estimated_divergence_is_that_of_two_coins() -> None:
    """Σ p·(ρ − 1 − log ρ) over a coin of p is KL(p‖q), and no row of it is negative."""
    before, now = torch.tensor([0.25, 0.75]), torch.tensor([0.4, 0.6])
    rows = torch.cat([(now / before).log()[:1], (now / before).log()[1:].expand(3)])
    expected = (before * (before / now).log()).sum()
    assert torch.allclose(estimated_kl(rows), expected)
    assert all(float(estimated_kl(row[None])) >= 0 for row in rows)
    assert float(estimated_kl(torch.zeros(5))) == 0.0

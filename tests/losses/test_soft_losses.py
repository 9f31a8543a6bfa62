"""Entropy-regularised losses by hand and by slope."""

from itertools import permutations

import pytest
import torch

from understudy.losses.soft import (
    cautious_value,
    drawn_members,
    multiplier_loss,
    soft_policy_loss,
    soft_value,
    temperature_loss,
)


def test_backup_orders() -> None:
    """O-18: Q₁ = (1, 3), Q₂ = (2, 0): 1 and 2."""
    q = torch.tensor([[[1.0], [3.0]], [[2.0], [0.0]]])
    assert cautious_value(q).tolist() == [1.0]
    assert cautious_value(q, "min_max").tolist() == [2.0]


def test_one_action_is_the_smaller_critic_in_both_orders() -> None:
    q = torch.randn(2, 1, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(cautious_value(q, "max_min"), q[:, 0].amin(0))
    assert torch.equal(cautious_value(q, "min_max"), q[:, 0].amin(0))


def test_policy_loss_by_hand() -> None:
    loss = soft_policy_loss(torch.tensor([-2.0, 1.0]), torch.tensor([3.0, 4.0]), torch.tensor(0.5))
    assert loss.tolist() == [-4.0, -3.5]
    with pytest.raises(ValueError, match="alpha carries gradient"):
        soft_policy_loss(torch.ones(2), torch.ones(2), torch.tensor(0.5, requires_grad=True))
    with pytest.raises(ValueError, match="nothing broadcasts here"):
        soft_policy_loss(torch.ones(2), torch.ones(2, 1), 0.5)


def test_what_a_state_is_worth_by_hand() -> None:
    value = soft_value(torch.tensor([3.0, 4.0]), torch.tensor([-2.0, 1.0]), torch.tensor(0.5))
    assert value.tolist() == [4.0, 3.5]
    with pytest.raises(ValueError, match="nothing broadcasts here"):
        soft_value(torch.ones(2), torch.ones(2, 1), 0.5)


@pytest.mark.parametrize(("log_prob", "slope"), [(3.0, -1.0), (2.0, 0.0), (1.0, 1.0)])
def test_temperature_rises_while_entropy_is_below_its_target(log_prob: float, slope: float) -> None:
    """Entropy −3 below the target −2: going down the slope raises log α."""
    log_alpha = torch.tensor(0.7, requires_grad=True)
    loss = temperature_loss(log_alpha, torch.full((4,), log_prob), -2.0).mean()
    (found,) = torch.autograd.grad(loss, log_alpha)
    assert float(found) == slope


def test_multiplier_rises_while_violated() -> None:
    multiplier = torch.tensor(2.0, requires_grad=True)
    (slope,) = torch.autograd.grad(multiplier_loss(multiplier, torch.tensor([[3.0, 5.0]])).mean(), multiplier)
    assert float(slope) == -4.0
    with pytest.raises(ValueError, match="violation carries gradient"):
        multiplier_loss(multiplier, torch.ones(1, 1, requires_grad=True))


def test_every_subset_is_drawn_alike() -> None:
    """All orders of five lots: each pair twelve times, and the smaller of two from 0..4 is 1 on average."""
    drawn = [tuple(sorted(drawn_members(torch.tensor(lots), 2).tolist())) for lots in permutations(range(5))]
    assert {pair: drawn.count(pair) for pair in drawn} == {(a, b): 12 for b in range(5) for a in range(b)}
    assert sum(map(min, drawn)) / len(drawn) == 1.0

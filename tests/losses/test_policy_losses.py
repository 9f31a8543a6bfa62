"""Policy losses: BC as the limit of AWR, climbing with a penalty, and gradients by finite differences."""

import pytest
import torch

from understudy.losses.policy import (
    negative_log_likelihood,
    penalised_climb,
    squared_distance,
    summed_squared_distance,
    value_scale,
    weighted_negative_log_likelihood,
)

LOG_PROB = torch.tensor([-0.3, -7.0, 2.5])


def test_weights_of_one_are_behaviour_cloning_to_the_bit() -> None:
    weighted = weighted_negative_log_likelihood(LOG_PROB, torch.ones(3))
    assert torch.equal(weighted, negative_log_likelihood(LOG_PROB))


def test_weights_by_hand() -> None:
    loss = weighted_negative_log_likelihood(torch.tensor([-2.0, 1.0, -3.0]), torch.tensor([0.5, 2.0, 0.0]))
    assert loss.tolist() == [1.0, -2.0, 0.0]


def test_likelier_actions_lose_less() -> None:
    loss = negative_log_likelihood(LOG_PROB)
    assert loss.argsort().tolist() == LOG_PROB.argsort(descending=True).tolist()


def test_squared_distance_by_hand() -> None:
    loss = squared_distance(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[0.0, 2.0], [0.5, 0.5]]))
    assert loss.tolist() == [2.5, 0.0]


def test_gradients_are_slopes() -> None:
    rng = torch.Generator().manual_seed(0)
    action, weight, log_prob, mean = (
        torch.rand(shape, generator=rng, dtype=torch.float64) for shape in ((4, 2), (4,), (4,), (4, 2))
    )
    assert torch.autograd.gradcheck(lambda x: weighted_negative_log_likelihood(x, weight), log_prob.requires_grad_())
    assert torch.autograd.gradcheck(lambda x: squared_distance(x, action), mean.requires_grad_())


def test_summed_distance_by_hand() -> None:
    left, right = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 1.0]]), torch.tensor([[0.0, 2.0, 0.0], [0.5, 0.5, -1.0]])
    assert summed_squared_distance(left, right).tolist() == [5.0, 4.0]


@pytest.mark.parametrize("dimensions", [1, 2, 6])
def test_sum_and_mean_convert_by_the_number_of_dimensions(dimensions: int) -> None:
    """O-37."""
    rng = torch.Generator().manual_seed(0)
    left, right = (torch.rand((5, dimensions), generator=rng, dtype=torch.float64) for _ in range(2))
    torch.testing.assert_close(summed_squared_distance(left, right), dimensions * squared_distance(left, right))


def test_the_scale_of_values_is_one_over_their_mean_size_and_a_constant() -> None:
    value = torch.tensor([-1.0, 3.0, -8.0], requires_grad=True)
    assert float(value_scale(value)) == pytest.approx(0.25)
    assert not value_scale(value).requires_grad
    assert bool(value_scale(torch.zeros(3)).isfinite())


@pytest.mark.parametrize("factor", [1e-3, 7.0, 1e4])
def test_rewards_in_other_units_leave_the_loss_equal(factor: float) -> None:
    """O-37: Q times c, and so λ by c."""
    value, distance = torch.tensor([-1.0, 3.0, -8.0]).double(), torch.tensor([0.1, 0.0, 0.4]).double()
    plain, scaled = (penalised_climb(q, 2.5 * value_scale(q), distance, 1.0) for q in (value, factor * value))
    torch.testing.assert_close(plain, scaled)
    assert plain.tolist() == pytest.approx([0.1 + 0.625, -1.875, 0.4 + 5.0])


def test_climbing_by_hand() -> None:
    loss = penalised_climb(torch.tensor([2.0, -1.0]), 0.5, torch.tensor([3.0, 4.0]), 0.1)
    assert loss.tolist() == pytest.approx([-0.7, 0.9])


def test_climbing_goes_up_the_value_and_down_the_distance() -> None:
    value, distance = torch.tensor([2.0]).requires_grad_(), torch.tensor([3.0]).requires_grad_()
    gradients = torch.autograd.grad(penalised_climb(value, 0.5, distance, 0.1).sum(), (value, distance))
    assert [float(gradient) for gradient in gradients] == pytest.approx([-0.5, 0.1])

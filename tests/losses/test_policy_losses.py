"""Policy losses: BC as the limit of AWR, and gradients by finite differences."""

import torch

from understudy.losses.policy import negative_log_likelihood, squared_distance, weighted_negative_log_likelihood

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

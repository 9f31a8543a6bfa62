"""Actions drawn from a squashed Gaussian with gradient, and their log-probability."""

import math

import pytest
import torch

from understudy.nn.distributions.gaussians import TanhGaussian

MEAN, STD, NOISE = 0.3, 0.5, 0.8


def test_a_draw_at_a_point() -> None:
    """O-19: u = .3 + .5·.8 = .7."""
    features = torch.tensor([[MEAN, math.log(STD)]], dtype=torch.float64)
    action, log_prob = TanhGaussian.draw(features, torch.full((1, 1), NOISE, dtype=torch.float64))
    assert float(action) == pytest.approx(0.604368, abs=1e-6)
    assert float(log_prob) == pytest.approx(-0.091251, abs=1e-6)


def test_many_draws_of_each_row() -> None:
    rng = torch.Generator().manual_seed(0)
    features, noise = 0.3 * torch.randn(6, 4, generator=rng), torch.randn(10, 6, 2, generator=rng)
    actions, log_prob = TanhGaussian.draw(features, noise)
    for number in range(10):
        action, single = TanhGaussian.draw(features, noise[number])
        assert torch.equal(actions[number], action)
        torch.testing.assert_close(log_prob[number], single)
        torch.testing.assert_close(single, TanhGaussian(2).log_prob(features, action), atol=1e-3, rtol=1e-3)


def test_gradients_are_slopes() -> None:
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(3, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(3, 2, generator=rng, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: TanhGaussian.draw(x, noise), features)


def test_saturated_draws_stay_finite() -> None:
    """O-20: at u = 20, tanh is 1 in float32 and its slope 0; the log-probability is exact all the same."""
    features = torch.tensor([[20.0, 0.0]], requires_grad=True)
    action, log_prob = TanhGaussian.draw(features, torch.zeros(1, 1))
    (gradient,) = torch.autograd.grad(log_prob.sum() + action.sum(), features)
    assert float(log_prob.detach()) == pytest.approx(38.613706 - 0.918939, abs=1e-4)
    assert bool(gradient.isfinite().all())

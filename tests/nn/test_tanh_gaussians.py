"""Action distributions: they integrate to one, stay in the box and survive saturation."""

import math

import pytest
import torch
from torch import Tensor

from understudy.nn.distributions.categorical import Categorical, forbid
from understudy.nn.distributions.gaussians import (
    DEFAULT_LIMITS,
    Deterministic,
    TanhGaussian,
    TanhMeanGaussian,
    tanh_log_slope,
)

MEAN, STD = 0.3, 0.5


def squashed(rows: int, dtype: torch.dtype = torch.float64) -> tuple[TanhGaussian, Tensor]:
    """One action dimension with μ = .3, σ = .5 in every row."""
    features = torch.tensor([[MEAN, math.log(STD)]], dtype=dtype).expand(rows, 2)
    return TanhGaussian(1), features


def midpoints(low: float, high: float, count: int) -> tuple[Tensor, float]:
    width = (high - low) / count
    return low + width * (torch.arange(count, dtype=torch.float64) + 0.5), width


def test_squashed_density_at_a_point() -> None:
    """O-19: u = .7 is a = .604368, log p = −.091251."""
    head, features = squashed(1)
    log_prob = head.log_prob(features, torch.tensor([[0.604368]], dtype=torch.float64))
    assert float(log_prob) == pytest.approx(-0.091251, abs=2e-6)


def test_squashed_density_integrates_to_one() -> None:
    head, features = squashed(400_000)
    actions, width = midpoints(-0.99999, 0.99999, 400_000)
    density = head.log_prob(features, actions.unsqueeze(1)).exp()
    assert float(density.sum() * width) == pytest.approx(1.0, abs=1e-8)
    assert float((density * actions).sum() * width) == pytest.approx(0.243535, abs=1e-6)
    assert float(density[actions < 0.5].sum() * width) == pytest.approx(0.690974, abs=1e-5)


def test_squashed_samples_follow_their_density() -> None:
    head, features = squashed(200_000)
    actions = head.sample(features, torch.Generator().manual_seed(0))
    assert float((actions < 0.5).double().mean()) == pytest.approx(0.690974, abs=0.004)
    assert float(actions.mean()) == pytest.approx(0.243535, abs=0.004)


def test_squashed_mode_is_the_squashed_mean() -> None:
    head, features = squashed(1)
    assert float(head.mode(features)) == pytest.approx(0.291313, abs=1e-6)


@pytest.mark.parametrize(("pre_tanh", "correction"), [(10.0, -18.613706), (20.0, -38.613706), (-20.0, -38.613706)])
def test_saturation_is_exact_and_its_gradient_finite(pre_tanh: float, correction: float) -> None:
    """O-20, in float32, where 1 − tanh² is exactly zero."""
    u = torch.tensor(pre_tanh, requires_grad=True)
    slope = tanh_log_slope(u)
    (gradient,) = torch.autograd.grad(slope, u)
    assert float(slope.detach()) == pytest.approx(correction, abs=1e-5)
    assert float(gradient) == pytest.approx(-2 * math.copysign(1, pre_tanh), abs=1e-5)


@pytest.mark.parametrize("action", [-1.0, 1.0])
def test_squashed_density_is_finite_on_the_edge_of_the_box(action: float) -> None:
    head = TanhGaussian(1)
    features = torch.tensor([[0.0, 0.0]], requires_grad=True)
    log_prob = head.log_prob(features, torch.tensor([[action]]))
    (gradient,) = torch.autograd.grad(log_prob.sum(), features)
    assert log_prob.isfinite().all()
    assert gradient.isfinite().all()


def test_gaussian_density_is_that_of_torch_distributions() -> None:
    rng = torch.Generator().manual_seed(0)
    features, action = (torch.randn(6, 3, generator=rng) for _ in range(2))
    head = TanhMeanGaussian(3)
    head.log_std.data = torch.tensor([-1.0, 0.0, 0.7])
    known = torch.distributions.Normal(features.tanh(), head.log_std.exp())
    expected: Tensor = known.log_prob(action).sum(-1)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(head.log_likelihood(features, action), expected)


def test_gaussian_starts_with_unit_standard_deviation() -> None:
    head = TanhMeanGaussian(1)
    log_prob = head.log_likelihood(torch.zeros(1, 1), torch.zeros(1, 1)).detach()
    assert float(log_prob) == pytest.approx(-0.918939, abs=1e-6)


@pytest.mark.parametrize(("asked", "kept"), [(-40.0, DEFAULT_LIMITS.low), (40.0, DEFAULT_LIMITS.high)])
def test_standard_deviations_are_clipped(asked: float, kept: float) -> None:
    gaussian, limit = TanhMeanGaussian(1), TanhMeanGaussian(1)
    gaussian.log_std.data.fill_(asked)
    limit.log_std.data.fill_(kept)
    features, action = torch.zeros(1, 1), torch.full((1, 1), 0.01)
    assert torch.equal(gaussian.log_likelihood(features, action), limit.log_likelihood(features, action))
    squash = TanhGaussian(1)
    asked_features, kept_features = torch.tensor([[0.0, asked]]), torch.tensor([[0.0, kept]])
    assert torch.equal(squash.log_likelihood(asked_features, action), squash.log_likelihood(kept_features, action))


@pytest.mark.parametrize("head", [TanhGaussian(2), Deterministic(2)])
def test_samples_stay_inside_the_box(head: TanhGaussian | Deterministic) -> None:
    outputs = 5 * torch.randn(5000, head.outputs, generator=torch.Generator().manual_seed(0))
    features = head.features(outputs)
    for actions in (head.sample(features, torch.Generator().manual_seed(1)), head.mode(features)):
        assert actions.shape == (5000, 2)
        assert bool((actions.abs() <= 1).all())


@pytest.mark.parametrize("head", [TanhMeanGaussian(2), TanhGaussian(2)])
def test_samples_come_from_the_given_stream_only(head: TanhMeanGaussian | TanhGaussian) -> None:
    features = head.features(torch.zeros(4, head.outputs))
    before = torch.get_rng_state()
    first, again, other = (head.sample(features, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_deterministic_log_probability_peaks_at_its_action() -> None:
    head, features = Deterministic(2), Deterministic(2).features(torch.tensor([[0.2, -0.4]]))
    peak = head.mode(features)
    assert float(head.log_prob(features, peak)) == 0.0
    assert float(head.log_prob(features, peak + torch.tensor([[0.3, -0.4]]))) == pytest.approx(-0.25)


def test_a_categorical_head_is_a_softmax_over_what_is_allowed() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0, 50.0]], dtype=torch.float64)
    mask = torch.tensor([[True, False, True, False]])
    head = Categorical(4)
    masked = forbid(logits, mask)
    assert head.mode(masked).tolist() == [2]
    expected = torch.tensor([1 / (1 + math.e**2), math.e**2 / (1 + math.e**2)], dtype=torch.float64).log()
    got = head.log_prob(masked.expand(2, -1), torch.tensor([0, 2]))
    torch.testing.assert_close(got, expected)
    draws = head.sample(masked.expand(20_000, -1).float(), torch.Generator().manual_seed(0))
    shares = torch.bincount(draws, minlength=4) / 20_000
    torch.testing.assert_close(shares[[0, 2]].double(), expected.exp(), atol=0.01, rtol=0)
    assert shares[[1, 3]].tolist() == [0, 0]


def test_forbidden_logits_have_no_gradient_and_make_no_nan() -> None:
    logits = torch.randn(5, 3, requires_grad=True)
    mask = torch.tensor([[True, True, False]]).expand(5, -1)
    log_prob = Categorical(3).log_prob(forbid(logits, mask), torch.tensor([0, 1, 0, 1, 0]))
    (slope,) = torch.autograd.grad(log_prob.sum(), logits)
    assert bool(torch.isfinite(slope).all())
    assert slope[:, 2].abs().max() == 0

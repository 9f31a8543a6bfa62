"""Distributions: closed forms against torch.distributions, integrals of one, limits, masks."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch import distributions as known

from understudy.core.errors import ConfigError
from understudy.core.spec import Box, Discrete
from understudy.nn.distributions import (
    Distribution,
    DistributionSettings,
    OnPolicyDistributionSettings,
    evaluate_outputs,
    make_distribution,
)
from understudy.nn.distributions.beta import Beta
from understudy.nn.distributions.categorical import Categorical, MultiCategorical
from understudy.nn.distributions.gaussians import (
    Deterministic,
    Gaussian,
    Limits,
    StateGaussian,
    TanhGaussian,
    TanhMeanGaussian,
    clamp_with_gradient,
)

A = 3
EVERY: dict[str, Callable[[], Distribution]] = {
    "gaussian": lambda: Gaussian(A, 0.5),
    "tanh_mean_gaussian": lambda: TanhMeanGaussian(A, 0.5),
    "state_gaussian": lambda: StateGaussian(A, 0.5),
    "tanh_gaussian": lambda: TanhGaussian(A, 0.5),
    "beta": lambda: Beta(A),
    "choice": lambda: Categorical(5),
    "choices": lambda: MultiCategorical((3, 2, 4)),
}


def features_of(density: Distribution, *leading: int, seed: int = 0) -> Tensor:
    outputs = torch.randn(*leading, density.outputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return density.features(outputs).detach().double()


def reference(density: Distribution, features: Tensor) -> known.Distribution:
    """The same density by torch, each dimension of its own; a Beta on [0, 1]."""
    if isinstance(density, Categorical):
        return known.Categorical(logits=features)
    left, right = features.chunk(2, dim=-1)
    if isinstance(density, Beta):
        return known.Independent(known.Beta(1 + left, 1 + right), 1)
    normal = known.Normal(left, right.exp())
    if isinstance(density, TanhGaussian):
        return known.Independent(known.TransformedDistribution(normal, [known.TanhTransform()]), 1)
    return known.Independent(normal, 1)


def called(function: Callable[..., object], *arguments: Tensor) -> Tensor:
    """torch.distributions has no types."""
    result = function(*arguments)
    assert isinstance(result, Tensor)
    return result


@pytest.mark.parametrize("name", EVERY)
def test_shapes_follow_the_leading_axes(name: str) -> None:
    """A rollout [T, N] is the same rows as a batch [T·N]."""
    density = EVERY[name]()
    grid = features_of(density, 4, 6)
    action = density.sample(grid, torch.Generator().manual_seed(1))
    assert action.shape[:2] == (4, 6)
    assert density.mode(grid).shape == action.shape
    flat, flat_action, other = grid.flatten(0, 1), action.flatten(0, 1), features_of(density, 4, 6, seed=9)
    for one, many in (
        (density.log_prob(flat, flat_action), density.log_prob(grid, action)),
        (density.entropy(flat), density.entropy(grid)),
        (density.kl(flat, other.flatten(0, 1)), density.kl(grid, other)),
    ):
        assert many.shape == (4, 6)
        torch.testing.assert_close(one, many.flatten())


@pytest.mark.parametrize("name", EVERY)
def test_draws_come_from_the_given_stream_only(name: str) -> None:
    density = EVERY[name]()
    features, before = features_of(density, 8), torch.get_rng_state()
    first, again, other = (density.sample(features, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "name", ["gaussian", "tanh_mean_gaussian", "state_gaussian", "tanh_gaussian", "beta", "choice"]
)
def test_densities_are_those_of_torch_distributions(name: str) -> None:
    density = EVERY[name]()
    old, new = features_of(density, 50), features_of(density, 50, seed=1)
    action = density.sample(old, torch.Generator().manual_seed(2))
    there = (action + 1) / 2 if name == "beta" else action
    stretch = A * math.log(2) if name == "beta" else 0.0
    torch.testing.assert_close(density.log_prob(old, action), called(reference(density, old).log_prob, there) - stretch)
    if name == "tanh_gaussian":
        return
    torch.testing.assert_close(density.entropy(old), called(reference(density, old).entropy) + stretch)
    expected = called(known.kl_divergence, reference(density, old), reference(density, new))  # type: ignore[arg-type]
    torch.testing.assert_close(density.kl(old, new), expected)


@pytest.mark.parametrize("name", EVERY)
def test_entropy_and_kl_are_the_averages_they_stand_for(name: str) -> None:
    """H = −E log p and KL = E (log p − log q), over many draws."""
    density, rows = EVERY[name](), 200_000
    old, new = features_of(density, 1), features_of(density, 1, seed=4)
    many = old.expand(rows, -1)
    action = density.sample(many, torch.Generator().manual_seed(0))
    log_old, log_new = density.log_prob(many, action), density.log_prob(new.expand(rows, -1), action)
    for told, sampled in ((density.entropy(old), -log_old), (density.kl(old, new), log_old - log_new)):
        error = 5 * float(sampled.std()) / math.sqrt(rows)
        assert float(told) == pytest.approx(float(sampled.mean()), abs=error)


@pytest.mark.parametrize("name", EVERY)
def test_a_policy_is_at_no_distance_from_itself(name: str) -> None:
    density = EVERY[name]()
    features = features_of(density, 20)
    assert float(density.kl(features, features).abs().max()) < 1e-12
    assert float(density.kl(features, features_of(density, 20, seed=1)).min()) > 0


@pytest.mark.parametrize("name", ["tanh_gaussian", "beta"])
def test_bounded_densities_integrate_to_one_on_the_box(name: str) -> None:
    density: Distribution = TanhGaussian(1, 0.5) if name == "tanh_gaussian" else Beta(1)
    features = density.features(torch.tensor([[0.4, 0.3]], dtype=torch.float64))
    width = 2 / 200_000
    grid = (-1 + width * (torch.arange(200_000, dtype=torch.float64) + 0.5)).unsqueeze(1)
    weights = density.log_prob(features.expand(200_000, -1), grid).exp() * width
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-4)
    draws = density.sample(features.expand(100_000, -1), torch.Generator().manual_seed(0))
    assert bool((draws.abs() < 1).all())
    assert float(draws.mean()) == pytest.approx(float((weights * grid[:, 0]).sum()), abs=0.01)


def test_the_mode_of_a_beta_is_its_peak() -> None:
    density = Beta(1)
    features = density.features(torch.tensor([[1.5, -0.5]], dtype=torch.float64))
    grid = torch.linspace(-0.999, 0.999, 20_001, dtype=torch.float64).unsqueeze(1)
    peak = grid[density.log_prob(features.expand(len(grid), -1), grid).argmax()]
    assert float(density.mode(features)) == pytest.approx(float(peak), abs=2e-4)
    assert float(density.mode(density.features(torch.full((1, 2), -200.0)))) == 0.0


@pytest.mark.parametrize("std", [0.05, 1.0, 3.0])
def test_the_entropy_of_a_squashed_gaussian_is_an_integral(std: float) -> None:
    """Against a fine sum over u, in float32; σ = 3 is as wide as bang-bang."""
    density = TanhGaussian(1, std)
    u = torch.linspace(-40, 40, 400_001, dtype=torch.float64)
    normal = known.Normal(torch.tensor(0.7, dtype=torch.float64), std)
    log_density = called(normal.log_prob, u)
    slope = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
    expected = -((log_density - slope) * log_density.exp()).sum() * (u[1] - u[0])
    got = density.entropy(density.features(torch.tensor([[0.7, 0.0]])))
    assert float(got) == pytest.approx(float(expected), abs=1e-4 if std <= 1 else 0.05)


@pytest.mark.parametrize(
    "name", ["gaussian", "tanh_mean_gaussian", "state_gaussian", "tanh_gaussian", "beta", "choice"]
)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    density = EVERY[name]()
    old, new = features_of(density, 2), features_of(density, 2, seed=3).requires_grad_()
    action = density.sample(old, torch.Generator().manual_seed(1))
    assert torch.autograd.gradcheck(lambda x: density.log_prob(x, action), new)
    assert torch.autograd.gradcheck(density.entropy, new)
    assert torch.autograd.gradcheck(lambda x: density.kl(old, x), new)


def test_sigma_starts_where_told_and_is_the_same_in_every_state() -> None:
    density = Gaussian(2, 0.4)
    spread = density.features(torch.randn(5, 2))[:, 2:].exp()
    torch.testing.assert_close(spread, torch.full((5, 2), 0.4))
    for other in (StateGaussian(2, 0.4), TanhGaussian(2, 0.4)):
        torch.testing.assert_close(other.features(torch.zeros(1, 4))[:, 2:].exp(), torch.full((1, 2), 0.4))


def test_sigma_cannot_reach_zero_and_comes_back_from_its_floor() -> None:
    """P10: steps of any size leave σ at the floor; and unlike a plain clamp, the way back is open."""
    density = Gaussian(1, 1.0, Limits(math.log(0.1), 2.0, returning=True))
    density.log_std.data.fill_(-100.0)
    features = density.features(torch.zeros(4, 1))
    torch.testing.assert_close(features[:, 1].exp(), torch.full((4,), 0.1))
    (wider,) = torch.autograd.grad(-density.entropy(features).sum(), density.log_std)
    assert float(wider) < 0
    narrower = torch.autograd.grad(density.entropy(density.features(torch.zeros(4, 1))).sum(), density.log_std)[0]
    assert float(narrower) == 0


def test_what_is_held_may_only_go_back_inside() -> None:
    values = torch.tensor([-2.0, -2.0, 0.0, 2.0, 2.0], requires_grad=True)
    slopes = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0])
    (gradient,) = torch.autograd.grad(clamp_with_gradient(values, -1.0, 1.0), values, slopes)
    assert gradient.tolist() == [0.0, -1.0, 1.0, 1.0, 0.0]


def test_the_old_sigma_is_in_the_old_features() -> None:
    """KL after a step of σ alone: log(2) − 3/8 for σ twice as wide."""
    density = Gaussian(1)
    old = density.features(torch.zeros(1, 1)).detach()
    density.log_std.data.fill_(math.log(2.0))
    moved = density.kl(old, density.features(torch.zeros(1, 1))).detach()
    assert float(moved) == pytest.approx(math.log(2) - 0.375, abs=1e-6)


def test_forbidden_choices_have_no_probability_no_entropy_and_no_gradient() -> None:
    density = MultiCategorical((3, 2))
    mask = torch.tensor([[True, False, True, True, False]])
    outputs = torch.randn(1, 5, requires_grad=True)
    features = density.features(outputs, mask)
    draws = density.sample(features.detach().expand(2000, -1), torch.Generator().manual_seed(0))
    assert set(draws[:, 0].tolist()) == {0, 2}
    assert set(draws[:, 1].tolist()) == {0}
    alone = Categorical(2)
    torch.testing.assert_close(density.entropy(features), alone.entropy(outputs[:, [0, 2]]))
    other = density.features(torch.randn(1, 5), mask)
    total = density.entropy(features) + density.kl(other, features) + density.log_prob(features, torch.tensor([[2, 0]]))
    (gradient,) = torch.autograd.grad(total.sum(), outputs)
    assert bool(torch.isfinite(gradient).all())
    assert gradient[0, [1, 3, 4]].tolist() == [0, 0, 0]


def test_several_choices_are_a_product_of_single_ones() -> None:
    density, single = MultiCategorical((3, 3)), Categorical(3)
    features = features_of(density, 7)
    action = density.sample(features, torch.Generator().manual_seed(0))
    left, right = torch.split(features, 3, dim=-1)
    expected = single.log_prob(left, action[:, 0]) + single.log_prob(right, action[:, 1])
    torch.testing.assert_close(density.log_prob(features, action), expected)
    assert torch.equal(density.mode(features), torch.stack([left.argmax(-1), right.argmax(-1)], -1))


WIDTHS = {
    "gaussian": 2,
    "tanh_mean_gaussian": 2,
    "deterministic": 2,
    "state_gaussian": 4,
    "tanh_gaussian": 4,
    "beta": 4,
}


@pytest.mark.parametrize("kind", WIDTHS)
def test_settings_make_the_distribution_that_fits_the_space(kind: str) -> None:
    """A word is enough."""
    settings = DistributionSettings.parse(kind)
    assert settings == DistributionSettings.parse({"kind": kind})
    assert make_distribution(Box((-1.0, -1.0), (1.0, 1.0)), settings).outputs == WIDTHS[kind]
    assert isinstance(make_distribution(Discrete(6), settings), Categorical)


def test_words_of_choices_are_refused_for_a_box_and_points_for_those_who_explore() -> None:
    with pytest.raises(ConfigError, match="categorical is of discrete actions"):
        make_distribution(Box((-1.0,), (1.0,)), DistributionSettings.parse("categorical"))
    with pytest.raises(ConfigError, match="deterministic"):
        OnPolicyDistributionSettings.parse("deterministic", "actor.distribution")


@pytest.mark.parametrize("name", [*EVERY, "deterministic"])
def test_outputs_alone_say_what_features_say(name: str) -> None:
    """`greedy` and `log_likelihood` are shorter ways to `mode` and `log_prob`, also for gradients."""
    density = Deterministic(A) if name == "deterministic" else EVERY[name]()
    outputs = torch.randn(9, density.outputs, generator=torch.Generator().manual_seed(0), requires_grad=True)
    features = density.features(outputs)
    action = density.sample(features, torch.Generator().manual_seed(1)).detach()
    torch.testing.assert_close(density.greedy(outputs), density.mode(features))
    short, long = density.log_likelihood(outputs, action), density.log_prob(features, action)
    torch.testing.assert_close(short, long)
    weights = torch.randn(9, generator=torch.Generator().manual_seed(2))
    mine, theirs = (torch.autograd.grad((one * weights).sum(), outputs)[0] for one in (short, long))
    torch.testing.assert_close(mine, theirs)


def test_a_hard_limit_has_no_way_back_and_a_returning_one_has() -> None:
    for returning, moves in ((False, False), (True, True)):
        density = StateGaussian(1, 1.0, Limits(-1.0, 1.0, returning))
        outputs = torch.tensor([[0.0, -3.0]], requires_grad=True)
        (gradient,) = torch.autograd.grad(-density.entropy(density.features(outputs)).sum(), outputs)
        assert (float(gradient[0, 1]) < 0) == moves


def test_a_point_is_infinitely_sure() -> None:
    point = Deterministic(2)
    here, there = torch.zeros(3, 2), torch.ones(3, 2)
    assert point.entropy(here).tolist() == [-math.inf] * 3
    assert point.kl(here, here).tolist() == [0.0] * 3
    assert point.kl(here, there).tolist() == [math.inf] * 3


@pytest.mark.parametrize("leading", [(7,), (3, 4)])
def test_the_short_way_of_a_plain_gaussian_is_the_long_one(leading: tuple[int, ...]) -> None:
    density = Gaussian(A, 0.5)
    outputs = torch.randn(*leading, A, generator=torch.Generator().manual_seed(0), requires_grad=True)
    action = torch.randn(*leading, A, generator=torch.Generator().manual_seed(1))
    features = density.features(outputs)
    short, long = (
        evaluate_outputs(density, outputs, action),
        (density.log_prob(features, action), density.entropy(features)),
    )
    assert torch.equal(short.log_prob, long[0])
    assert torch.equal(short.features, features)
    torch.testing.assert_close(short.entropy, long[1])
    weights = torch.randn(2, *leading, generator=torch.Generator().manual_seed(2))
    for mine, theirs in zip(
        *(
            torch.autograd.grad((torch.stack(pair) * weights).sum(), [outputs, density.log_std])
            for pair in (short[:2], long)
        ),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_limits_that_cross_are_refused() -> None:
    with pytest.raises(ConfigError, match="σ must start between its limits"):
        DistributionSettings.parse({"log_std_min": 1.0}, "actor.distribution")
    with pytest.raises(ConfigError, match="Did you mean 'log_std_min'"):
        DistributionSettings.parse({"min_std": 2.0}, "actor.distribution")
    with pytest.raises(ConfigError, match="a factor has no actions"):
        MultiCategorical((3, 0))

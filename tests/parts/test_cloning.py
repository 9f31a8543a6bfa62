"""Distances from the data (oracle O-34) and the weight that follows them."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from understudy.core.errors import ConfigError
from understudy.losses.policy import gaussian_kl
from understudy.nn.actor import Actor, ActorSettings
from understudy.parts.cloning import CloningSettings, CloningWeight, cloning_distance
from worlds import random_dataset

CPU = torch.device("cpu")


def one(value: float) -> torch.Tensor:
    return torch.tensor([[value]], dtype=torch.float64)


def test_the_divergence_of_two_gaussians() -> None:
    first, second = (one(0.0), one(math.log(0.5))), (one(0.3), one(math.log(0.8)))
    assert float(gaussian_kl(*first, *second)) == pytest.approx(0.235629, abs=1e-6)
    assert float(gaussian_kl(*second, *first)) == pytest.approx(0.489996, abs=1e-6)
    assert float(gaussian_kl(*first, *first)) == 0.0


def test_it_is_summed_over_dimensions_and_agrees_with_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, log_std, other, other_log_std = torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
    expected = kl_divergence(Normal(mean, log_std.exp()), Normal(other, other_log_std.exp())).sum(-1)
    assert torch.allclose(gaussian_kl(mean, log_std, other, other_log_std), expected)


def policy(distribution: str) -> Actor:
    settings = ActorSettings.parse({"hidden": [8], "distribution": distribution})
    return Actor(random_dataset().spec, settings, torch.Generator().manual_seed(0))


def distance(kind: str, actor: Actor, action: torch.Tensor, **changes: object) -> torch.Tensor:
    features = actor.features(torch.linspace(-1, 1, 12).view(4, 3))
    greedy = actor.distribution.mode(features)
    settings = CloningSettings.parse({"kind": kind, **changes})
    return cloning_distance(settings, actor, features, greedy, action, features.detach().clone())


def test_distances_from_actions() -> None:
    """Four rows, two dimensions: the greedy action moved by 0.1 and by -0.3."""
    actor = policy("deterministic")
    action = actor.greedy(torch.linspace(-1, 1, 12).view(4, 3)).detach() + torch.tensor([0.1, -0.3])
    assert distance("mse", actor, action).tolist() == pytest.approx([0.05] * 4)
    assert distance("mse", actor, action, reduction="sum").tolist() == pytest.approx([0.1] * 4)
    assert distance("log_prob", actor, action).tolist() == pytest.approx([0.1] * 4)


def test_distances_of_policies_with_a_density() -> None:
    actor = policy("tanh_gaussian")
    action = torch.tensor([[0.5, -0.5]] * 4)
    features = actor.features(torch.linspace(-1, 1, 12).view(4, 3))
    assert torch.allclose(distance("log_prob", actor, action), -actor.distribution.log_prob(features, action))
    assert distance("kl", actor, action).tolist() == pytest.approx([0.0] * 4, abs=1e-6)
    wider = torch.cat([features[:, :2] + 1.0, features[:, 2:] + 0.5], dim=1)
    mine, data = (
        Normal(mean, log_std.exp()) for mean, log_std in ((part[:, :2], part[:, 2:]) for part in (wider, features))
    )
    found = cloning_distance(CloningSettings(kind="kl"), actor, wider, action, action, features)
    assert torch.allclose(found, kl_divergence(mine, data).sum(-1), rtol=1e-4)
    assert not torch.allclose(found, kl_divergence(data, mine).sum(-1), rtol=0.1)


def weight(tether: CloningWeight, updates: int = 0) -> float:
    return float(tether.weight(torch.tensor(updates)))


def test_the_weight_follows_its_schedule() -> None:
    settings = CloningSettings.parse({"weight": {"kind": "linear", "start": 2.0, "end": 1.0, "over": 10}})
    tether = CloningWeight.of(settings, CPU)
    tether.follow(torch.tensor(100.0))
    assert [weight(tether, updates) for updates in (0, 5, 10, 20)] == pytest.approx([2.0, 1.5, 1.0, 1.0])


def test_dual_ascent_raises_the_weight_while_the_policy_is_too_far() -> None:
    settings = CloningSettings.parse(
        {"weight": 0.5, "adaptive": {"target": 0.2, "rate": 0.1, "smallest": 0.4, "largest": 0.6}}
    )
    tether = CloningWeight.of(settings, CPU)
    assert weight(tether) == pytest.approx(0.5)
    tether.follow(torch.tensor(0.7))
    assert weight(tether) == pytest.approx(0.5 * math.exp(0.1 * 0.5))
    tether.follow(torch.tensor(0.1))
    assert weight(tether) == pytest.approx(0.5 * math.exp(0.1 * 0.4))
    for _ in range(50):
        tether.follow(torch.tensor(5.0))
    assert weight(tether) == pytest.approx(0.6)
    for _ in range(200):
        tether.follow(torch.tensor(0.0))
    assert weight(tether) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"weight": {"kind": "linear"}, "adaptive": {"target": 0.1}}, "use one of them"),
        ({"weight": 0.0, "adaptive": {"target": 0.1}}, "outside its bounds"),
        ({"adaptive": {"target": 0.1, "smallest": 2.0, "largest": 1.0}}, "must be below"),
        ({"adaptive": {}}, "target"),
        ({"adaptive": {"target": 0.0}}, "never be reached"),
        ({"kind": "log_prob", "reduction": "sum"}, "means nothing"),
        ({"weight": -1}, "greater than or equal to 0"),
        ({"weight": {"over": 0}}, "greater than or equal to 1"),
    ],
)
def test_contradictions_are_told(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        CloningSettings.parse(settings, "algo.cloning")

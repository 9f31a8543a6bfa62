"""Distances between a student and its teacher, by hand; cross entropy where numbers are outside of what it knows."""

import math

import pytest
import torch

from understudy.losses.distillation import DISTANCES, INSIDE, huber_distance

MEAN = torch.tensor([[0.5, 0.0], [-0.2, 0.3]])
LABEL = torch.tensor([[0.0, -0.5], [-0.2, 0.3]])


def bce(mean: float, label: float) -> float:
    chance, wanted = (mean + 1) / 2, (label + 1) / 2
    return -wanted * math.log(chance) - (1 - wanted) * math.log(1 - chance)


def test_every_distance_by_hand() -> None:
    agreed = (bce(-0.2, -0.2) + bce(0.3, 0.3)) / 2
    apart = (bce(0.5, 0.0) + bce(0.0, -0.5)) / 2
    known = {
        "mse": (0.25, 0.0),
        "mse_sum": (0.5, 0.0),
        "l1": (1.0, 0.0),
        "l2": (math.sqrt(0.5), 0.0),
        "real": (math.sqrt(0.5), 0.0),
        "huber": (0.125, 0.0),
        "tanh": (2 * apart, 2 * agreed),
        "scaled_tanh": (apart * 0.5, 0.0),
    }
    assert known.keys() == DISTANCES.keys()
    for name, expected in known.items():
        assert DISTANCES[name](MEAN, LABEL).tolist() == pytest.approx(expected, rel=1e-5), name


def test_huber_is_a_square_within_delta_and_a_line_beyond() -> None:
    mean, label = torch.tensor([[0.1, 4.0]]), torch.zeros(1, 2)
    assert huber_distance(mean, label, 0.5).item() == pytest.approx((0.005 + 0.5 * (4.0 - 0.25)) / 2)
    assert huber_distance(mean, label, 100.0).item() == pytest.approx((0.005 + 8.0) / 2)


def test_cross_entropy_takes_whatever_a_gaussian_says_and_leads_it_back() -> None:
    """T4: a mean outside ±1 is no error, and is not stuck where it is; a label on the edge is finite."""
    for name in ("tanh", "scaled_tanh"):
        mean = torch.tensor([[3.0, -40.0, 0.2]], requires_grad=True)
        loss = DISTANCES[name](mean, torch.tensor([[1.0, 0.5, -1.0]])).sum()
        assert bool(loss.isfinite())
        (slope,) = torch.autograd.grad(loss, mean)
        assert bool(slope.isfinite().all())
        assert slope[0, 1] < 0 < slope[0, 2], "towards the label"
    best = torch.linspace(-0.99, 0.99, 199).unsqueeze(-1)
    for label in (-0.7, 0.0, 0.4):
        found = DISTANCES["tanh"](best, torch.full_like(best, label)).argmin()
        assert best[found].item() == pytest.approx(label, abs=0.011), "least where both agree"
    assert DISTANCES["tanh"](torch.tensor([[9.0]]), torch.tensor([[1.0]])).item() == pytest.approx(
        2 * bce(INSIDE, INSIDE), rel=1e-3
    )


def test_gradients_are_slopes_and_none_reaches_a_label() -> None:
    rng = torch.Generator().manual_seed(0)
    mean, label = (torch.rand(4, 3, generator=rng, dtype=torch.float64) * 1.6 - 0.8 for _ in range(2))
    for distance in DISTANCES.values():
        assert torch.autograd.gradcheck(lambda x, d=distance: d(x, label), mean.requires_grad_())
    at_rest = torch.zeros(1, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(DISTANCES["l2"](at_rest, torch.zeros(1, 3)).sum(), at_rest)
    assert slope.tolist() == [[0.0, 0.0, 0.0]]
    for name in ("tanh", "scaled_tanh"):
        with pytest.raises(ValueError, match="label"):
            DISTANCES[name](MEAN, LABEL.clone().requires_grad_())
    for distance in DISTANCES.values():
        with pytest.raises(ValueError, match="nothing broadcasts here"):
            distance(MEAN, LABEL[:1])

"""Errors of estimates by hand, and scores against their definition."""

import pytest
import torch

from understudy.losses.estimation import ErrorKind, estimation_error, mean_squared_errors, r_squared

ESTIMATE, TARGET = torch.tensor([[0.5, -2.0], [0.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 4.0]])


@pytest.mark.parametrize(
    ("kind", "delta", "by_hand"),
    [
        ("mse", 1.0, [0.25 + 9.0, 16.0]),
        ("l1", 1.0, [0.5 + 3.0, 4.0]),
        ("huber", 1.0, [0.125 + 2.5, 3.5]),
        ("huber", 3.5, [0.125 + 4.5, 3.5 * (4.0 - 1.75)]),
    ],
)
def test_errors_by_hand(kind: ErrorKind, delta: float, by_hand: list[float]) -> None:
    summed = estimation_error(ESTIMATE, TARGET, kind, delta=delta, reduction="sum")
    assert summed.tolist() == pytest.approx(by_hand)
    assert estimation_error(ESTIMATE, TARGET, kind, delta=delta).tolist() == pytest.approx([e / 2 for e in by_hand])


def test_scores_of_each_feature() -> None:
    rng = torch.Generator().manual_seed(0)
    target = torch.randn(50, 3, generator=rng, dtype=torch.float64) * torch.tensor([1.0, 10.0, 0.1]) + 5.0
    estimate = target + 0.5 * torch.randn(50, 3, generator=rng, dtype=torch.float64)
    for column in range(3):
        mine, true = estimate[:, column].tolist(), target[:, column].tolist()
        squares = sum((one - other) ** 2 for one, other in zip(mine, true, strict=True))
        around = sum((other - sum(true) / 50) ** 2 for other in true)
        assert float(r_squared(estimate, target)[column]) == pytest.approx(1.0 - squares / around)
        assert float(mean_squared_errors(estimate, target)[column]) == pytest.approx(squares / 50)
    assert r_squared(target, target).tolist() == [1.0, 1.0, 1.0]
    mean = target.mean(0).expand_as(target)
    assert r_squared(mean, target).tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-12)


def test_there_is_nothing_to_explain_in_what_does_not_vary() -> None:
    target = torch.full((1000, 1), 0.1)
    assert bool(r_squared(target + 1.0, target).isnan().all())

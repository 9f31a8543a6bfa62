"""Advantage weights in the forms of others: what they do to a batch, and that asking for them warns."""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from learners import start, tiny_algorithm
from understudy.core.errors import ConfigError
from understudy.losses.weights import awr_weights, effective_sample_size
from understudy.parts.advantage_weighting import WeightingSettings, advantage_weights, share_at_ceiling

ADVANTAGE = torch.tensor([-1.0, 0.0, 1.0, 2.0])


def normal_quantiles(rows: int) -> Tensor:
    values: Tensor = torch.special.ndtri((torch.arange(rows, dtype=torch.float64) + 0.5) / rows)
    return values


def test_softmax_of_what_is_above_the_floor() -> None:
    """Bad actions weigh as much as average ones."""
    weights = awr_weights(ADVANTAGE, 1.0, 100.0, norm="softmax", floor=0.0)
    assert (weights / 4).tolist() == pytest.approx([0.083, 0.083, 0.225, 0.610], abs=5e-4)


def test_softmax_lets_a_few_rows_decide() -> None:
    """Advantages of standard deviation 3, β = 3, 256 rows: two are left on average, and dozens with a ceiling."""
    drawn = [3 * torch.randn(256, generator=torch.Generator().manual_seed(seed)) for seed in range(200)]
    weights = [awr_weights(advantage, 3.0, 100.0, norm="softmax", floor=0.0) for advantage in drawn]
    sizes = torch.stack([effective_sample_size(weight) for weight in weights])
    largest = torch.stack([weight.max() / weight.sum() for weight in weights])
    assert float(sizes.mean()) == pytest.approx(2.0, abs=0.3)
    assert float(largest.mean()) > 0.67
    capped = torch.stack([effective_sample_size(awr_weights(advantage, 3.0, 100.0)) for advantage in drawn])
    assert float(capped.min()) > 40


def test_batch_mean_keeps_proportions_and_averages_to_one() -> None:
    plain, normed = (awr_weights(ADVANTAGE, 3.0, 100.0, norm=norm) for norm in ("none", "batch_mean"))
    torch.testing.assert_close(normed, plain / plain.mean())
    assert float(normed.mean()) == pytest.approx(1)
    assert awr_weights(torch.full((3,), -1e9), 3.0, 100.0, norm="batch_mean").tolist() == [0.0] * 3


def test_batch_mean_is_softmax_where_nothing_meets_the_ceiling() -> None:
    advantage = 0.5 * normal_quantiles(64)
    torch.testing.assert_close(
        awr_weights(advantage, 1.0, 100.0, norm="batch_mean"), awr_weights(advantage, 1.0, 100.0, norm="softmax")
    )


def test_dividing_by_three_is_nine_times_flatter_than_multiplying_by_three() -> None:
    divided = advantage_weights(ADVANTAGE, WeightingSettings(awr_form="divide"))
    assert divided.tolist() == pytest.approx([math.exp(a / 3) for a in ADVANTAGE.tolist()])
    multiplied = advantage_weights(ADVANTAGE, WeightingSettings())
    assert multiplied[:3].log().tolist() == pytest.approx((9 * divided[:3].log()).tolist(), abs=1e-5)


def test_a_softmax_has_no_ceiling() -> None:
    advantage = torch.full((4,), 50.0)
    assert float(share_at_ceiling(advantage, WeightingSettings())) == 1
    assert float(share_at_ceiling(advantage, WeightingSettings(awr_norm="softmax"))) == 0


@pytest.mark.parametrize("name", ["iql", "ciql"])
@pytest.mark.parametrize(
    "wrong", [{"awr_norm": "softmax"}, {"awr_form": "divide"}, {"advantage_floor": 0.0}, {"advantage_floor": -1.0}]
)
def test_what_reproduces_others_warns_once_and_learns(name: str, wrong: dict[str, Any]) -> None:
    config = tiny_algorithm(name, **wrong)
    with pytest.warns(UserWarning, match=f"algo.{next(iter(wrong))}=.*known to be wrong") as told:
        learning = start(config)
    assert len(told) == 1
    assert "\n" not in str(told[0].message)
    assert all(bool(value.isfinite()) for value in learning.update(3).values())


def test_two_of_them_are_one_line() -> None:
    with pytest.warns(UserWarning, match=r"algo\.awr_norm=softmax, algo\.advantage_floor=0\.0: known") as told:
        start(tiny_algorithm("iql", awr_norm="softmax", advantage_floor=0.0))
    assert len(told) == 1


@pytest.mark.parametrize("right", [{}, {"awr_norm": "batch_mean"}])
@pytest.mark.parametrize("name", ["iql", "ciql"])
def test_nothing_else_warns(name: str, right: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start(tiny_algorithm(name, **right))


@pytest.mark.parametrize(
    ("idle", "word"), [({"awr_divisor": 2.0}, "awr_divisor"), ({"awr_form": "divide", "beta": 1.0}, "beta")]
)
def test_a_temperature_that_does_nothing_is_refused(idle: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=f"{word} does nothing with awr_form"):
        tiny_algorithm("iql", **idle)

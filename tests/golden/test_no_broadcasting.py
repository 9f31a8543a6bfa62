"""O-24: (B,) times (B, 1) is the silent bug; ours is the mean of products, and the slip is refused."""

import pytest
import torch

from understudy.losses.policy import weighted_negative_log_likelihood
from understudy.losses.value import mean_over, squared_error

ROWS = 32
RNG = torch.Generator().manual_seed(0)
WEIGHT, ERROR = (torch.rand(ROWS, generator=RNG, dtype=torch.float64) for _ in range(2))


def test_weighted_loss_is_the_mean_of_products() -> None:
    by_hand = sum(w * -e for w, e in zip(WEIGHT.tolist(), ERROR.tolist(), strict=True)) / ROWS
    assert float(weighted_negative_log_likelihood(ERROR, WEIGHT).mean()) == pytest.approx(by_hand, rel=1e-12)


def test_the_slip_is_plausible_wrong_and_refused() -> None:
    slipped = float((WEIGHT * -ERROR.unsqueeze(1)).mean())
    assert slipped == pytest.approx(float(WEIGHT.mean() * -ERROR.mean()), rel=1e-12)
    assert slipped != pytest.approx(float(weighted_negative_log_likelihood(ERROR, WEIGHT).mean()), rel=1e-3)
    with pytest.raises(ValueError, match=r"log_prob \[32, 1\], weight \[32\]"):
        weighted_negative_log_likelihood(ERROR.unsqueeze(1), WEIGHT)


def test_critic_error_is_the_mean_of_squares_per_member() -> None:
    predictions = torch.stack([WEIGHT, 2 * WEIGHT])
    found = mean_over(squared_error(predictions, ERROR), torch.ones(ROWS, dtype=torch.bool))
    for scale, member in zip((1, 2), found.tolist(), strict=True):
        by_hand = sum((scale * w - e) ** 2 for w, e in zip(WEIGHT.tolist(), ERROR.tolist(), strict=True)) / ROWS
        assert member == pytest.approx(by_hand, rel=1e-12)

"""Smoothed target actions: by hand, in distribution, and repeatable from a checkpoint."""

import math

import pytest
import torch

from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.parts.td3 import TargetNoise


def noise(std: float = 0.2, ceiling: float = 0.5, seed: int = 0) -> TargetNoise:
    return TargetNoise.seeded(std, ceiling, seed)


def test_by_hand() -> None:
    """The numbers of the named stream: scaled, cut to ±c, added, cut to the box."""
    action = torch.tensor([[0.0, 0.0, 0.9, -0.9], [0.99, -0.99, 0.0, 0.5]]).repeat(20, 1)
    draws = torch.randn(40, 4, generator=stream(0, "target_noise"))
    expected = [
        [min(max(a + min(max(0.4 * x, -0.5), 0.5), -1.0), 1.0) for a, x in zip(row, drawn, strict=True)]
        for row, drawn in zip(action.tolist(), draws.tolist(), strict=True)
    ]
    torch.testing.assert_close(noise(std=0.4).smoothed(action), torch.tensor(expected))
    assert max(max(row) for row in expected) == 1.0
    assert expected[0][0] == pytest.approx(0.4 * float(draws[0, 0]))


def test_without_noise_nothing_changes() -> None:
    action = torch.tensor([[0.3, -0.7]])
    assert torch.equal(noise(std=0.0).smoothed(action), action)
    assert torch.equal(noise(ceiling=0.0).smoothed(action), action)


def test_the_noise_is_a_normal_cut_at_its_ceiling() -> None:
    """σ = .2, c = .5: P(|ε| = c) = 2Φ(−2.5) = .012419; the standard deviation falls from .2 to .197743."""
    here = noise()
    action = torch.zeros(200_000, 1)
    drawn = here.smoothed(action)
    assert float((drawn.abs() == 0.5).float().mean()) == pytest.approx(0.012419, abs=1e-3)
    assert float(drawn.mean()) == pytest.approx(0, abs=2e-3)
    density, tail = math.exp(-(2.5**2) / 2) / math.sqrt(2 * math.pi), 0.5 * math.erfc(2.5 / math.sqrt(2))
    variance = 0.04 * (1 - 2 * tail - 2 * 2.5 * density) + 2 * 0.25 * tail
    assert float(drawn.std()) == pytest.approx(math.sqrt(variance), rel=4e-3)
    assert math.sqrt(variance) == pytest.approx(0.197743, abs=1e-6)


def test_draws_continue_from_a_capture() -> None:
    first, second = noise(), noise(seed=1)
    action = torch.zeros(4, 2)
    first.smoothed(action)
    restore(second, capture(first), "test")
    before = torch.get_rng_state()
    assert torch.equal(first.smoothed(action), second.smoothed(action))
    assert not torch.equal(first.smoothed(action), first.smoothed(action))
    assert torch.equal(torch.get_rng_state(), before)

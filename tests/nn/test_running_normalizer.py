"""Normalisation by what was seen: the same numbers as numpy on everything at once."""

import numpy as np
import pytest
import torch

from understudy.core.state import capture, restore
from understudy.nn.running_normalizer import NormalizerSettings, RunningNormalizer

FREE = NormalizerSettings(clip=None)


def batches() -> list[torch.Tensor]:
    """Far from zero, where float32 sums of squares would be wrong in every digit."""
    rng = np.random.default_rng(0)
    sizes = [(7,), (4, 5), (1,), (300,)]
    return [torch.tensor(1e4 + rng.normal(size=(*size, 3)) * [1.0, 0.1, 30.0], dtype=torch.float32) for size in sizes]


def test_many_updates_equal_one_of_everything() -> None:
    normalizer = RunningNormalizer((3,), FREE)
    for batch in batches():
        normalizer.update(batch)
    rows = np.concatenate([batch.reshape(-1, 3).double().numpy() for batch in batches()])
    np.testing.assert_allclose(normalizer.mean.numpy(), rows.mean(0), rtol=1e-13)
    np.testing.assert_allclose(normalizer.variance.numpy(), rows.var(0), rtol=1e-9)
    assert int(normalizer.count) == len(rows) == 328
    expected = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + FREE.epsilon)
    got = normalizer(torch.as_tensor(rows)).numpy()
    np.testing.assert_allclose(got, expected, atol=2e-2)  # float32 rounds 10,000 to a thousandth
    np.testing.assert_allclose(got[:, 2], expected[:, 2], atol=1e-4)


def test_it_changes_nothing_before_it_has_seen_anything_and_by_use() -> None:
    normalizer = RunningNormalizer((2,), NormalizerSettings())
    values = torch.tensor([[1.0, -3.0]])
    torch.testing.assert_close(normalizer(values), values)
    before = capture(normalizer)
    for _ in range(3):
        normalizer(values)
        normalizer.inverse(values)
    after = capture(normalizer)
    assert all(torch.equal(torch.as_tensor(after[path]), torch.as_tensor(leaf)) for path, leaf in before.items())


def test_rows_that_do_not_count_may_hold_anything() -> None:
    masked, plain = RunningNormalizer((3,), FREE), RunningNormalizer((3,), FREE)
    grid = batches()[1].clone()
    mask = torch.rand(4, 5, generator=torch.Generator().manual_seed(0)) < 0.6
    plain.update(grid[mask])
    grid[~mask] = float("nan")
    masked.update(grid, mask)
    torch.testing.assert_close(masked.mean, plain.mean)
    torch.testing.assert_close(masked.variance, plain.variance)
    masked.update(grid, torch.zeros_like(mask))
    assert int(masked.count) == int(mask.sum())
    assert bool(masked.scale.isfinite().all())


def test_a_constant_column_gives_zero_and_clipping_holds() -> None:
    normalizer = RunningNormalizer((1,), NormalizerSettings(clip=5.0))
    normalizer.update(torch.full((10, 1), 0.1))
    normalizer.update(torch.full((3, 1), 0.1))
    assert float(normalizer(torch.tensor([0.1]))) == 0.0
    assert float(normalizer(torch.tensor([100.0]))) == 5.0


def test_inverse_gives_the_raw_values_back() -> None:
    normalizer = RunningNormalizer((3,), FREE)
    normalizer.update(batches()[0])
    values = batches()[1]
    torch.testing.assert_close(normalizer.inverse(normalizer(values)), values)


def test_statistics_rest_when_enough_was_seen() -> None:
    normalizer = RunningNormalizer((1,), NormalizerSettings(until=10))
    normalizer.update(torch.arange(8.0).unsqueeze(1))
    normalizer.update(torch.arange(8.0).unsqueeze(1))
    mean = normalizer.mean.clone()
    normalizer.update(torch.full((5, 1), 1000.0))
    assert torch.equal(normalizer.mean, mean)
    assert int(normalizer.count) == 16


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_a_checkpoint_holds_it(shape: tuple[int, ...]) -> None:
    one, other = (RunningNormalizer(shape, FREE) for _ in range(2))
    one.update(torch.randn(9, *shape, generator=torch.Generator().manual_seed(0)))
    restore(other, capture(one), "checkpoint")
    values = torch.randn(4, *shape)
    assert torch.equal(one(values), other(values))
    one.update(values)
    other.update(values)
    assert torch.equal(one(values), other(values))

"""Normalisation, by the moments of a dataset or by what was seen: the same numbers as numpy on everything at once."""

import numpy as np
import pytest
import torch

from understudy.core.protocols import Moments
from understudy.core.state import capture, restore
from understudy.nn.normalization import Normalizer, NormalizerSettings, OnPolicyNormalizerSettings

FREE = OnPolicyNormalizerSettings(clip=None)


def batches() -> list[torch.Tensor]:
    """Far from zero, where float32 sums of squares would be wrong in every digit."""
    rng = np.random.default_rng(0)
    sizes = [(7,), (4, 5), (1,), (300,)]
    return [torch.tensor(1e4 + rng.normal(size=(*size, 3)) * [1.0, 0.1, 30.0], dtype=torch.float32) for size in sizes]


def test_many_updates_equal_one_of_everything() -> None:
    normalizer = Normalizer((3,), FREE)
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
    normalizer = Normalizer((2,), OnPolicyNormalizerSettings())
    values = torch.tensor([[1.0, -3.0]])
    torch.testing.assert_close(normalizer(values), values)
    before = capture(normalizer)
    for _ in range(3):
        normalizer(values)
        normalizer.inverse(values)
    after = capture(normalizer)
    assert all(torch.equal(torch.as_tensor(after[path]), torch.as_tensor(leaf)) for path, leaf in before.items())


def test_rows_that_do_not_count_may_hold_anything() -> None:
    masked, plain = Normalizer((3,), FREE), Normalizer((3,), FREE)
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
    normalizer = Normalizer((1,), OnPolicyNormalizerSettings(clip=5.0))
    normalizer.update(torch.full((10, 1), 0.1))
    normalizer.update(torch.full((3, 1), 0.1))
    assert float(normalizer(torch.tensor([0.1]))) == 0.0
    assert float(normalizer(torch.tensor([100.0]))) == 5.0


def test_inverse_gives_the_raw_values_back() -> None:
    normalizer = Normalizer((3,), FREE)
    normalizer.update(batches()[0])
    values = batches()[1]
    torch.testing.assert_close(normalizer.inverse(normalizer(values)), values)


def test_statistics_rest_when_enough_was_seen() -> None:
    normalizer = Normalizer((1,), OnPolicyNormalizerSettings(until=10))
    normalizer.update(torch.arange(8.0).unsqueeze(1))
    normalizer.update(torch.arange(8.0).unsqueeze(1))
    mean = normalizer.mean.clone()
    normalizer.update(torch.full((5, 1), 1000.0))
    assert torch.equal(normalizer.mean, mean)
    assert int(normalizer.count) == 16


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_a_checkpoint_holds_it(shape: tuple[int, ...]) -> None:
    one, other = (Normalizer(shape, FREE) for _ in range(2))
    one.update(torch.randn(9, *shape, generator=torch.Generator().manual_seed(0)))
    restore(other, capture(one), "checkpoint")
    values = torch.randn(4, *shape)
    assert torch.equal(one(values), other(values))
    one.update(values)
    other.update(values)
    assert torch.equal(one(values), other(values))


def fitted(mean: list[float], std: list[float], count: int = 10) -> Normalizer:
    normalizer = Normalizer((len(mean),), NormalizerSettings())
    normalizer.fit(Moments(torch.tensor(mean), torch.tensor(std)), count)
    return normalizer


def test_a_datasets_moments_by_hand() -> None:
    """(s − μ)/(σ + 1e-3), unclipped; a constant column gives 0 and stays finite elsewhere."""
    normalizer = fitted([1.0, -2.0], [0.999, 1.999])
    assert normalizer(torch.tensor([[3.0, 0.0], [101.0, -2.0]])).flatten().tolist() == pytest.approx([2, 1, 100, 0])
    assert fitted([5.0], [0.0])(torch.tensor([[5.0], [5.001]])).flatten().tolist() == pytest.approx([0, 1], abs=1e-3)


def test_statistics_are_buffers_not_parameters_and_not_the_callers() -> None:
    moments = Moments(torch.zeros(2), torch.ones(2))
    normalizer = Normalizer((2,), NormalizerSettings())
    normalizer.fit(moments, 3)
    moments.mean.fill_(7.0)
    assert not list(normalizer.parameters())
    assert not normalizer.mean.any()
    assert not normalizer.shift.any()


def test_what_was_fitted_is_where_running_statistics_go_on_from() -> None:
    """A dataset first, then rollouts: as if all rows had been seen one after the other."""
    first, *rest = batches()
    rows = first.double()
    going_on, seen = Normalizer((3,), FREE), Normalizer((3,), FREE)
    going_on.fit(Moments(rows.mean(0).float(), rows.std(0, correction=0).float()), len(rows))
    for batch in (first, *rest):
        seen.update(batch)
    for batch in rest:
        going_on.update(batch)
    torch.testing.assert_close(going_on.mean, seen.mean, rtol=1e-7, atol=0)
    torch.testing.assert_close(going_on.variance, seen.variance, rtol=1e-3, atol=0)
    assert int(going_on.count) == int(seen.count)


def test_epsilon_is_added_where_the_settings_say() -> None:
    for settings, scale in ((NormalizerSettings(epsilon=0.5), 1 / 2.5), (OnPolicyNormalizerSettings(epsilon=5), 1 / 3)):
        normalizer = Normalizer((1,), settings)
        normalizer.fit(Moments(torch.zeros(1), torch.full((1,), 2.0)), 10)
        by_fit = float(normalizer.scale)
        normalizer.settle()
        assert by_fit == pytest.approx(scale)
        assert float(normalizer.scale) == pytest.approx(scale)

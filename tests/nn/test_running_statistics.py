"""Running statistics for those who hold NumPy arrays: equal to those of all rows at once, and to a policy's own."""

from typing import Any

import numpy as np
import pytest
import torch

import understudy as us
from understudy.core.errors import UnderstudyError
from understudy.nn.normalization import Normalizer, OnPolicyNormalizerSettings


def rows(count: int, seed: int) -> Any:
    return 5 + 3 * np.random.default_rng(seed).standard_normal((count, 2, 3))


def test_many_updates_and_moments_alone_equal_one_update_of_all_rows() -> None:
    parts = [rows(count, seed) for seed, count in enumerate((1, 40, 7))]
    every = np.concatenate(parts)
    one, many, told = (us.RunningMeanStd((2, 3)) for _ in range(3))
    one.update(every)
    for part in parts:
        many.update(part)
        told.update_from_moments(part.mean(0), part.var(0), len(part))
    for statistics in (one, many, told):
        np.testing.assert_allclose(statistics.mean, every.mean(0))
        np.testing.assert_allclose(statistics.var, every.var(0))
        np.testing.assert_allclose(statistics.std, every.std(0))
        assert statistics.count == 48
    before = told.mean
    told.update_from_moments(np.zeros((2, 3)), np.zeros((2, 3)), 0)
    np.testing.assert_array_equal(told.mean, before)


def test_what_is_normalised_comes_back_and_is_cut() -> None:
    statistics = us.RunningMeanStd((2, 3))
    assert statistics.normalize(np.full((2, 3), 4.0)).tolist() == np.full((2, 3), 4.0).tolist(), "nothing was seen"
    data = rows(500, 0)
    statistics.update(data.reshape(5, 100, 2, 3))
    normal = statistics.normalize(data)
    np.testing.assert_allclose(normal.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(normal.std(0), 1, atol=1e-5)
    np.testing.assert_allclose(statistics.inverse(normal), data, rtol=1e-5, atol=1e-5)
    assert statistics.count == 500, "only update takes rows in"
    cut = us.RunningMeanStd((), clip=1.5)
    assert cut.normalize([-9.0, 0.5, 9.0]).tolist() == [-1.5, 0.5, 1.5]


def test_it_is_a_face_of_a_policys_normaliser_and_rests_after_so_many_rows() -> None:
    normalizer = Normalizer((2, 3), OnPolicyNormalizerSettings(until=10))
    face = us.RunningMeanStd.of(normalizer)
    face.update(rows(12, 0))
    assert torch.equal(normalizer.mean, torch.from_numpy(face.mean))
    np.testing.assert_array_equal(face.normalize(rows(3, 1)), normalizer(torch.from_numpy(rows(3, 1))).numpy())
    before = face.mean
    face.update(rows(5, 2))
    face.update_from_moments(np.ones((2, 3)), np.ones((2, 3)), 5)
    np.testing.assert_array_equal(face.mean, before)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda one: one.update(np.zeros((4, 3))), r"rows: another shape: got \[4, 3\]"),
        (lambda one: one.update([[1.0, float("nan")]]), "rows: not all numbers are finite"),
        (lambda one: one.update("abc"), "rows: not an array of numbers"),
        (lambda one: one.update_from_moments([0, 0], [1, -1], 3), "variance and count are not below 0"),
        (lambda one: one.update_from_moments([0, 0, 0], [1, 1], 3), r"mean: another shape: got \[3\], expected \[2\]"),
    ],
)
def test_what_is_wrong_is_told_and_changes_nothing(call: Any, told: str) -> None:
    statistics = us.RunningMeanStd((2,))
    with pytest.raises(UnderstudyError, match=told):
        call(statistics)
    assert statistics.count == 0

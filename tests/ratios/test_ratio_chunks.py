"""Weights asked for in chunks: the same bits, and the memory of one chunk."""

import numpy as np
import pytest
import torch
from gaussians import samples
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from understudy.core.errors import UnderstudyError

ESTIMATORS: dict[str, us.ratios.Estimator] = {
    "kliep": us.ratios.KLIEP(bandwidth=1.0, centres=37),
    "ulsif": us.ratios.ULSIF(bandwidth=1.0, ridge=0.1, centres=100),
    "linear": us.ratios.ULSIF(kernel="linear", ridge=0.1, centres=50),
    "polynomial": us.ratios.ULSIF(kernel="polynomial", degree=3, ridge=0.1, centres=50),
    "classifier": us.ratios.Classifier(steps=100),
}
FITTED = {name: estimator.fit(*samples(0, 400, features=5)) for name, estimator in ESTIMATORS.items()}
ROWS = torch.randn(5001, 5, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_chunks_of_any_size_give_the_same_bits(name: str) -> None:
    whole = FITTED[name].weights(ROWS, chunk_rows=len(ROWS))
    assert float(whole.std()) > 0.05, "even weights would prove nothing"
    for chunk_rows in (61, 1000, 4096, 5000, 10**9):
        assert torch.equal(FITTED[name].weights(ROWS, chunk_rows=chunk_rows), whole), chunk_rows


@settings(max_examples=30, deadline=None)
@given(start=st.integers(0, 2999), count=st.integers(1, 40), name=st.sampled_from(sorted(ESTIMATORS)))
def test_a_row_weighs_the_same_alone_and_among_others(start: int, count: int, name: str) -> None:
    whole = FITTED[name].weights(ROWS)
    assert torch.equal(FITTED[name].weights(ROWS[start : start + count]), whole[start : start + count])


def test_arrays_tensors_and_mapped_files_are_the_same_rows(tmp_path: object) -> None:
    fitted = FITTED["kliep"]
    array = ROWS.numpy()
    readonly = array.copy()
    readonly.flags.writeable = False
    expected = fitted.weights(ROWS)
    assert torch.equal(fitted.weights(array), expected)
    assert torch.equal(fitted.weights(readonly), expected)
    path = f"{tmp_path}/rows.npy"
    np.save(path, array)
    assert torch.equal(fitted.weights(np.load(path, mmap_mode="r")), expected)
    assert torch.equal(fitted.weights(ROWS.double().requires_grad_()), expected)


def test_a_bad_row_is_found_in_its_chunk() -> None:
    rows = ROWS.clone()
    rows[2500, 3] = torch.inf
    with pytest.raises(UnderstudyError, match=r"row 2500, feature 3.*got inf"):
        FITTED["kliep"].weights(rows, chunk_rows=100)


def test_chunks_of_no_rows_are_refused() -> None:
    with pytest.raises(UnderstudyError, match="chunk_rows"):
        FITTED["kliep"].weights(ROWS, chunk_rows=0)


@pytest.mark.slow
def test_a_million_rows_need_little_memory() -> None:
    """Tensors beyond rows and answer: one chunk of 16,384 rows and its kernels, not a million of them."""
    import resource

    rows = torch.randn(1_000_000, 5)
    FITTED["ulsif"].weights(rows[:50_000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    weights = FITTED["ulsif"].weights(rows)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert len(weights) == 1_000_000
    assert grown < 150, f"{grown:.0f} MB, all kernels at once would be 800"

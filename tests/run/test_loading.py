"""What is read into memory fits there, and what does not is told before it is read."""

import os
from pathlib import Path

import pytest

from understudy.core.errors import DataError
from understudy.data.formats.npz_writer import write_npz
from understudy.data.stores.store import write_store
from understudy.data.transforms import Transforms
from understudy.run.loading import load_dataset
from worlds import random_dataset


def with_memory(patch: pytest.MonkeyPatch, size: int) -> None:
    """A machine of so many bytes."""
    patch.setattr(os, "sysconf", {"SC_PHYS_PAGES": size, "SC_PAGE_SIZE": 1}.__getitem__)


def test_a_file_that_would_not_fit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = random_dataset()
    write_npz(dataset, tmp_path / "a.npz")
    size = sum(column.nbytes for name, column in dataset.columns().items() if name[:3] in ("obs", "act", "rew"))
    with_memory(monkeypatch, int(2.6 * size))
    assert load_dataset(tmp_path / "a.npz").fingerprint == dataset.fingerprint
    with_memory(monkeypatch, int(2.4 * size))
    with pytest.raises(DataError, match=r"too large to be read into memory.*Make it a store first: understudy dataset"):
        load_dataset(tmp_path / "a.npz")


def test_a_few_episodes_of_a_large_store_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is chosen is read; a store is not told to become one."""
    path = write_store(random_dataset(), tmp_path / "store")
    with_memory(monkeypatch, 3000)
    assert load_dataset(path).episodes == 6
    assert load_dataset(path, transforms=Transforms(max_episodes=2)).episodes == 2
    with pytest.raises(
        DataError, match=r"too large to be read into memory.*Choose fewer episodes.*a store of their own"
    ):
        load_dataset(path, transforms=Transforms(max_episodes=5))

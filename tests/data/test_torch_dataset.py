"""A dataset in the hands of torch's DataLoader: rows of dicts, whole batches, and workers."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from understudy.core.errors import DataError
from understudy.core.protocols import Demand
from understudy.core.spec import Discrete
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.rewards import RewardTransform
from understudy.data.stores import store
from worlds import random_dataset


def test_a_row_is_a_dict_of_tensors() -> None:
    dataset = random_dataset()
    rows = dataset.rows(torch.arange(dataset.steps), Demand(("td_valid",)))
    assert len(dataset) == dataset.steps
    for number in (0, 7, dataset.steps - 1):
        row = dataset[number]
        assert torch.equal(row["observation"]["state"], rows.obs["state"][number])
        assert torch.equal(row["next_observation"]["state"], rows.next_obs["state"][number])
        assert torch.equal(row["action"], rows.action[number])
        assert (row["reward"], row["terminated"]) == (rows.reward[number], rows.terminated[number])
        assert row["td_valid"] == rows.extra["td_valid"][number]
    assert torch.equal(dataset[-1]["action"], rows.action[-1])
    assert torch.equal(dataset[[3, 1]]["action"], rows.action[[3, 1]])
    assert torch.equal(dataset[1:6:2]["action"], rows.action[1:6:2])
    assert dataset[3:3]["action"].shape == (0, *rows.action.shape[1:])
    assert len(list(iter(dataset))) == dataset.steps
    with pytest.raises(IndexError):
        dataset[dataset.steps]
    for wrong in (1.5, True, [[1]], "a", None):
        with pytest.raises(DataError, match="not the number of a step"):
            dataset[wrong]  # type: ignore[index]


def test_masks_and_further_columns_come_along() -> None:
    episode = Episode(
        {"a": np.zeros((3, 2)), "b": np.ones((3, 4, 4, 1), np.uint8)},
        np.array([0, 1]),
        np.ones(2),
        True,
        False,
        mask=np.ones((3, 2), bool),
        extra={"goal": np.array([[1.0], [2.0]])},
    )
    row = Dataset.from_episodes([episode], Discrete(2))[1]
    assert row["goal"].tolist() == [2.0]
    assert row["mask"].tolist() == row["next_mask"].tolist() == [True, True]
    assert row["observation"]["b"].dtype == torch.uint8


@pytest.mark.parametrize("paged", [False, True])
def test_a_loader_with_workers_gives_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paged: bool
) -> None:
    dataset = random_dataset()
    if paged:
        store.write_store(dataset, tmp_path / "x")
        monkeypatch.setattr(store, "RESIDENT_BUDGET", 0)
        dataset = store.open_store(tmp_path / "x")
    expected = dataset.rows(torch.arange(dataset.steps), Demand())
    single: Any = DataLoader(dataset, batch_size=32, num_workers=2)  # type: ignore[arg-type]
    sampler = BatchSampler(SequentialSampler(dataset), 32, False)
    whole: Any = DataLoader(dataset, batch_size=None, sampler=sampler, num_workers=2)  # type: ignore[arg-type]
    for loader in (single, whole):
        batches = list(loader)
        assert torch.equal(torch.cat([batch["action"] for batch in batches]), expected.action)
        states = torch.cat([batch["next_observation"]["state"] for batch in batches])
        assert torch.equal(states, expected.next_obs["state"])


def test_it_can_be_sent_to_another_process_unless_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = random_dataset().with_rewards(RewardTransform(2.0)).with_rewards(RewardTransform(1.0, 1.0))
    sent = pickle.loads(pickle.dumps(dataset))
    assert sent.fingerprint == dataset.fingerprint
    assert sent[3]["reward"] == dataset[3]["reward"] == dataset.rewards[3] * 2 + 1
    store.write_store(dataset, tmp_path / "x")
    monkeypatch.setattr(store, "RESIDENT_BUDGET", 0)
    with pytest.raises(DataError, match="too large to be sent to another process"):
        pickle.dumps(store.open_store(tmp_path / "x"))

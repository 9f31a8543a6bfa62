"""Sequences against a plain walk over episodes."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import source_of
from nobody import Nobody
from understudy.core.batch import Sequences
from understudy.core.errors import ConfigError
from understudy.core.protocols import Demand
from understudy.core.spec import Box, Discrete
from understudy.core.state import capture, restore
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.stores.store import open_store, write_store
from understudy.sources.sequences import SequenceSource
from worlds import random_dataset

CPU = torch.device("cpu")
UNIT = Box((-1.0,), (1.0,))


def numbered(lengths: list[int]) -> Dataset:
    """Episodes in which every step says its own number, as observation and as reward."""
    episodes, step = [], 0
    for number, length in enumerate(lengths):
        slots = np.arange(step + number, step + number + length + 1, dtype=np.float32)[:, None]
        rewards = np.arange(step, step + length, dtype=np.float32)
        ended = number % 2 == 0
        weights = {"weight": np.asarray(number + (rewards == step), np.float32)}
        actions = np.zeros((length, 1), np.float32)
        episodes.append(Episode({"state": slots}, actions, rewards, ended, not ended, extra=weights))
        step += length
    return Dataset.from_episodes(episodes, UNIT, name="numbered")


def sequences(dataset: Dataset, batch: int = 8, length: int = 4, seed: int = 0, **wishes: object) -> SequenceSource:
    return asking(dataset, Demand(("row", "td_valid")), seed, batch_size=batch, length=length, **wishes)


def asking(dataset: Dataset, demand: Demand, seed: int = 0, **settings: object) -> SequenceSource:
    source = source_of("sequences", dataset, demand, seed, **settings)
    assert isinstance(source, SequenceSource)
    return source


def drawn(source: SequenceSource, batches: int) -> Sequences:
    """Several batches as one."""
    parts = [source.next(Nobody()) for _ in range(batches)]
    return Sequences(
        {"state": torch.cat([part.obs["state"] for part in parts])},
        torch.cat([part.action for part in parts]),
        torch.cat([part.reward for part in parts]),
        {"state": torch.cat([part.next_obs["state"] for part in parts])},
        torch.cat([part.terminated for part in parts]),
        torch.cat([part.valid for part in parts]),
        torch.cat([part.first for part in parts]),
        {name: torch.cat([part.extra[name] for part in parts]) for name in parts[0].extra},
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.integers(1, 12),
    st.sampled_from(["step", "episode"]),
    st.booleans(),
    st.integers(0, 1000),
)
def test_a_sequence_is_what_a_walk_finds(
    lengths: list[int], length: int, starts: str, replacement: bool, seed: int
) -> None:
    dataset = numbered(lengths)
    batch = drawn(sequences(dataset, 16, length, seed, starts=starts, replacement=replacement), 3)
    begins, ends = dataset.index.starts, dataset.index.ends
    for rows, rewards, states, successors, valid, first, ended in zip(
        batch.extra["row"].tolist(),
        batch.reward.tolist(),
        batch.obs["state"][..., 0].tolist(),
        batch.next_obs["state"][..., 0].tolist(),
        batch.valid.tolist(),
        batch.first.tolist(),
        batch.terminated.tolist(),
        strict=True,
    ):
        episode = int(np.searchsorted(ends, rows[0], side="right"))
        real = min(length, int(ends[episode]) - rows[0])
        expected = [rows[0] + min(place, real - 1) for place in range(length)]
        assert rows == rewards == expected
        assert states == [row + episode for row in expected]
        assert successors == [row + episode + 1 for row in expected]
        assert valid == [place < real for place in range(length)]
        assert first == [place == 0 and rows[0] == begins[episode] for place in range(length)]
        assert ended == [row == ends[episode] - 1 and episode % 2 == 0 for row in expected]
        assert starts == "step" or first[0]


def test_shapes_and_types() -> None:
    source = sequences(random_dataset(), batch=5, length=7)
    batch = source.next(Nobody())
    assert batch.obs["state"].shape == batch.next_obs["state"].shape == (5, 7, 3)
    assert batch.action.shape == (5, 7, 2)
    assert batch.reward.shape == batch.terminated.shape == (5, 7)
    assert {name: (value.dtype, value.shape) for name, value in batch.extra.items()} == {
        "row": (torch.int64, (5, 7)),
        "td_valid": (torch.bool, (5, 7)),
    }
    assert all((mark.dtype, mark.shape) == (torch.bool, (5, 7)) for mark in (batch.valid, batch.first))


def test_windows_of_several_steps_stay_inside_too() -> None:
    dataset = numbered([3, 5])
    source = asking(dataset, Demand(("row",), horizon=3, gamma=1.0), batch_size=16, length=4)
    batch = source.next(Nobody())
    rewards = dataset.rewards.tolist()
    for row, reward in zip(batch.extra["row"].flatten().tolist(), batch.reward.flatten().tolist(), strict=True):
        assert reward == sum(rewards[row : min(row + 3, 3 if row < 3 else 8)])


@pytest.mark.parametrize(("starts", "count"), [("step", 120), ("episode", 6)])
def test_starts_are_drawn_uniformly(starts: str, count: int) -> None:
    first = drawn(sequences(random_dataset(), 64, 4, starts=starts), 400).extra["row"][:, 0]
    counts = np.bincount(first, minlength=120)[:: 120 // count]
    expected = 400 * 64 / count
    chi = ((counts - expected) ** 2 / expected).sum()
    assert counts.sum() == 400 * 64
    assert chi < {120: 173.6, 6: 20.5}[count]  # p = 0.001


def test_every_start_once_per_epoch() -> None:
    first = drawn(sequences(random_dataset(), 8, 4, replacement=False), 30).extra["row"][:, 0].view(2, 120)
    assert torch.equal(first.sort(1).values, torch.arange(120).expand(2, 120))
    assert not torch.equal(first[0], first[1])


def test_a_sequence_has_the_weight_of_its_first_step() -> None:
    dataset = numbered([4, 4, 4])
    first = drawn(sequences(dataset, 64, 3, weights="weight"), 200).extra["row"][:, 0].numpy()
    share = np.bincount(first, minlength=12) / len(first)
    assert share == pytest.approx(dataset.extra["weight"].numpy() / dataset.extra["weight"].sum().item(), abs=0.01)
    first = drawn(sequences(dataset, 64, 3, weights="weight", starts="episode"), 200).extra["row"][:, 0].numpy()
    assert np.bincount(first, minlength=12)[[0, 4, 8]] / len(first) == pytest.approx(np.array([1, 2, 3]) / 6, abs=0.01)


@pytest.mark.parametrize(("already", "replacement"), list(product([0, 3, 16, 33], [True, False])))
def test_a_restored_source_goes_on(already: int, replacement: bool) -> None:
    original, other = (sequences(random_dataset(), replacement=replacement) for _ in range(2))
    if already:
        drawn(original, already)
    state = capture(original)
    rest = drawn(original, 20)
    drawn(other, 5)
    restore(other, state, "x")
    assert state == {"sampler.drawn": already}
    again = drawn(other, 20)
    assert torch.equal(again.extra["row"], rest.extra["row"])
    assert torch.equal(again.obs["state"], rest.obs["state"])


def test_long_sequences_are_gathered_in_smaller_blocks() -> None:
    dataset = random_dataset(count=2, steps=50, state=1000)
    source = sequences(dataset, batch=32, length=16)
    assert source.sampler.block_batches == 2
    assert source.next(Nobody()).obs["state"].shape == (32, 16, 1000)
    assert sequences(dataset, batch=32, length=1).sampler.block_batches == 16


def test_actions_arrive_in_policy_space() -> None:
    actions = np.array([[0.0], [2.0], [4.0]], np.float32)
    episode = Episode({"state": np.zeros((4, 1))}, actions, np.zeros(3), True, False)
    dataset = Dataset.from_episodes([episode], Box((0.0,), (4.0,)))
    batch = asking(dataset, Demand(), batch_size=8, length=3, starts="episode").next(Nobody())
    assert torch.equal(batch.action[..., 0], torch.tensor([-1.0, 0.0, 1.0]).expand(8, 3))


def test_choices_stay_whole_numbers() -> None:
    episode = Episode({"state": np.zeros((4, 1))}, np.array([2, 0, 1]), np.zeros(3), True, False)
    dataset = Dataset.from_episodes([episode], Discrete(3))
    batch = asking(dataset, Demand(("next_action",)), batch_size=8, length=3, starts="episode").next(Nobody())
    assert torch.equal(batch.action, torch.tensor([2, 0, 1]).expand(8, 3))
    assert torch.equal(batch.extra["next_action"][:, :2], torch.tensor([0, 1]).expand(8, 2))


def test_a_store_gives_what_memory_gives(tmp_path: Path) -> None:
    dataset = numbered([5, 1, 9, 3])
    stored = open_store(write_store(dataset, tmp_path / "store"))
    one, two = (drawn(sequences(data), 40) for data in (dataset, stored))
    assert torch.equal(one.obs["state"], two.obs["state"])
    assert torch.equal(one.valid, two.valid)


@pytest.mark.parametrize("length", [0, -3])
def test_a_sequence_has_a_step(length: int) -> None:
    with pytest.raises(ConfigError, match=r"source\.length"):
        sequences(random_dataset(), length=length)

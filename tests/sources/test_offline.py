"""Batches from a fixed dataset: rightly drawn, normalised, and the same stream for ever."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from learners import offline_source
from nobody import Nobody
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import Demand
from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete
from understudy.core.state import capture, restore
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.stores.store import open_store, write_store
from understudy.run.build import build_learner
from understudy.sources.offline import OfflineSource
from understudy.sources.sampling.blocks import BlockSampler
from worlds import random_dataset, random_episodes, tiny_config

CPU = torch.device("cpu")
GOLDEN = [68, 111, 84, 81, 17, 108, 96, 92]
"""The first rows of seed 0."""


def source(seed: int = 0, demand: Demand | None = None, dataset: Dataset | None = None, **wishes: Any) -> OfflineSource:
    return offline_source(dataset or random_dataset(), demand or Demand(("row",)), 32, seed, **wishes)


def rows(source: OfflineSource, batches: int) -> Tensor:
    return torch.cat([source.next(Nobody()).extra["row"] for _ in range(batches)])


def test_rows_are_drawn_uniformly() -> None:
    counts = np.bincount(rows(source(), 750), minlength=120)
    expected = 750 * 32 / 120
    assert len(counts) == 120
    assert ((counts - expected) ** 2 / expected).sum() < 173.6  # χ² with 119 degrees of freedom, p = 0.001
    assert ((counts - expected) ** 2 / expected).sum() > 76.9  # too even would be no chance either


def test_the_stream_is_its_seed() -> None:
    first = rows(source(3), 5)
    torch.manual_seed(1)
    assert torch.equal(rows(source(3), 5), first)
    assert not torch.equal(rows(source(4), 5), first)


def large_rows(values: int) -> Dataset:
    """Rows too large to be gathered sixteen batches at a time."""
    return random_dataset(count=2, steps=10, state=values)


@pytest.mark.parametrize("dataset", [random_dataset(), large_rows(10_000), large_rows(100_000)])
@pytest.mark.parametrize("already", [0, 3, 15, 16, 17, 40])
@pytest.mark.parametrize("elsewhere", [0, 5, 21])
def test_a_restored_source_goes_on(dataset: Dataset, already: int, elsewhere: int) -> None:
    """In the middle of a block and between two, into a new source and into one that is ahead or behind."""
    original, other = source(dataset=dataset), source(dataset=dataset)
    original.sampler.drawn = already
    state = capture(original)
    rest = rows(original, 20)
    if elsewhere:
        rows(other, elsewhere)
    restore(other, state, "x")
    assert state == {"sampler.drawn": already}
    assert torch.equal(rows(other, 20), rest)
    restore(original, state, "x")
    assert torch.equal(rows(original, 20), rest)


def test_the_state_counts_what_was_handed_out() -> None:
    original, other = source(), source()
    before = rows(original, 37)
    assert capture(original) == {"sampler.drawn": 37}
    rest = rows(original, 20)
    assert torch.equal(rows(other, 57), torch.cat([before, rest]))
    other.sampler.drawn = 37
    assert torch.equal(rows(other, 20), rest)


@pytest.mark.parametrize(("values", "batches"), [(3, 16), (10_000, 3), (100_000, 1)])
def test_blocks_do_not_repeat_and_batches_are_whole(values: int, batches: int) -> None:
    several = source(dataset=large_rows(values))
    drawn = [several.next(Nobody()) for _ in range(3 * batches)]
    assert {(len(batch.reward), len(batch.obs["state"]), len(batch.action)) for batch in drawn} == {(32, 32, 32)}
    assert len({tuple(batch.extra["row"].tolist()) for batch in drawn}) == 3 * batches
    assert isinstance(several.sampler, BlockSampler)
    number, block = several.sampler.block
    assert number == 2
    assert len(block) == batches == several.sampler.block_batches


@pytest.mark.parametrize("columns", [("row",), ("row", "next_action", "td_valid", "discount")])
def test_a_batch_is_whole_rows_of_the_dataset(columns: tuple[str, ...]) -> None:
    dataset, demand = random_dataset(), Demand(columns)
    drawing = source(demand=demand, dataset=dataset)
    for _ in range(35):
        batch = drawing.next(Nobody())
        known = dataset.rows(batch.extra["row"], demand)
        assert set(batch.extra) == set(columns)
        for name in columns:
            assert torch.equal(batch.extra[name], known.extra[name])
        assert torch.equal(batch.obs["state"], known.obs["state"])
        assert torch.equal(batch.next_obs["state"], known.next_obs["state"])
        for column in ("action", "reward", "terminated"):
            assert torch.equal(getattr(batch, column), getattr(known, column))


def test_nothing_more_than_demanded_is_handed_out() -> None:
    drawing = source(demand=Demand())
    assert all(drawing.next(Nobody()).extra == {} for _ in range(20))


def uneven() -> Dataset:
    """Actions in [0, 4] and [-1, 0]: neither centred nor of unit size."""
    episodes = [
        Episode(e.observations, (e.actions * [2.0, 0.5] + [2.0, -0.5]).astype(np.float32), e.rewards, False, True)
        for e in random_episodes(seed=1)
    ]
    return Dataset.from_episodes(episodes, Box((0.0, -1.0), (4.0, 0.0)))


@pytest.mark.parametrize("horizon", [1, 2])
def test_actions_are_normalised(horizon: int) -> None:
    plain, dataset = torch.cat([torch.from_numpy(e.actions) for e in random_episodes(seed=1)]), uneven()
    batch = source(demand=Demand(("row", "next_action"), horizon), dataset=dataset).next(Nobody())
    row = batch.extra["row"]
    torch.testing.assert_close(batch.action, plain[row], rtol=0, atol=1e-6)
    inside = row % 20 < 20 - horizon
    torch.testing.assert_close(batch.extra["next_action"][inside], plain[row[inside] + horizon], rtol=0, atol=1e-6)
    assert dataset.actions.max() > 3  # stored units are left alone


def test_bounds_map_to_one() -> None:
    corners = np.array([[0.0, -1.0], [4.0, 0.0], [2.0, -0.5]], np.float32)
    episode = Episode({"state": np.zeros((4, 1), np.float32)}, corners, np.zeros(3), True, False)
    dataset = Dataset.from_episodes([episode], Box((0.0, -1.0), (4.0, 0.0)))
    batch = source(dataset=dataset).next(Nobody())
    expected = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]])[batch.extra["row"]]
    assert torch.equal(batch.action, expected)


def test_the_uniform_stream_is_the_one_runs_were_recorded_with() -> None:
    """Block b is `randint` of the stream sample/b: old runs resume to the bit."""
    blocks = [torch.randint(120, (16 * 32,), generator=stream(7, f"sample/{number}")) for number in range(3)]
    assert torch.equal(rows(source(7), 48), torch.cat(blocks))
    assert rows(source(0), 1)[:8].tolist() == GOLDEN


def weighed() -> Dataset:
    """120 steps; step i has weight i, but every seventh has none."""
    weights = np.where(np.arange(120) % 7 == 0, 0, np.arange(120)).reshape(6, 20)
    episodes = [
        Episode(e.observations, e.actions, e.rewards, False, True, extra={"priority": weights[number]})
        for number, e in enumerate(random_episodes())
    ]
    return Dataset.from_episodes(episodes, random_dataset().spec.action)


def test_rows_are_drawn_by_weight() -> None:
    dataset = weighed()
    counts = np.bincount(rows(source(dataset=dataset, weights="priority"), 1500), minlength=120)
    weights = dataset.extra["priority"].double().numpy()
    expected = 1500 * 32 * weights / weights.sum()
    some = weights > 0
    assert counts[~some].sum() == 0
    chi = ((counts[some] - expected[some]) ** 2 / expected[some]).sum()
    assert 60 < chi < 152  # 101 degrees of freedom, p = 0.001 on either side


def test_without_replacement_every_row_comes_once_per_epoch() -> None:
    epochs = rows(source(replacement=False), 60).view(16, 120)
    assert torch.equal(epochs.sort(1).values, torch.arange(120).expand(16, 120))
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 16


KINDS: list[dict[str, Any]] = [{"weights": "priority"}, {"replacement": False}]


@pytest.mark.parametrize("wishes", KINDS)
@pytest.mark.parametrize("already", [1, 3, 15, 16, 17, 40])
def test_every_kind_of_source_goes_on_where_it_was(wishes: dict[str, Any], already: int) -> None:
    """In the middle of a block, of an epoch, and of a batch that an epoch ends in."""
    original, other = (source(dataset=weighed(), **wishes) for _ in range(2))
    whole = rows(source(dataset=weighed(), **wishes), already + 40)
    assert torch.equal(rows(original, already), whole[: already * 32])
    state = capture(original)
    rows(other, 7)
    restore(other, state, "x")
    assert state == {"sampler.drawn": already}
    assert torch.equal(rows(other, 40), whole[already * 32 :])
    assert torch.equal(rows(original, 40), whole[already * 32 :])


@pytest.mark.parametrize("wishes", [{}, *KINDS])
@pytest.mark.parametrize("budget", [0, 1 << 29])
def test_a_store_gives_what_memory_gives(
    wishes: dict[str, Any], budget: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapped, and read row by row."""
    monkeypatch.setattr("understudy.data.stores.store.RESIDENT_BUDGET", budget)
    demand = Demand(("row", "next_action", "td_valid", "priority"))
    stored = open_store(write_store(weighed(), tmp_path / "store"))
    memory, disk = (source(1, demand, dataset, **wishes) for dataset in (weighed(), stored))
    for _ in range(20):
        one, two = memory.next(Nobody()), disk.next(Nobody())
        assert torch.equal(one.obs["state"], two.obs["state"])
        assert torch.equal(one.next_obs["state"], two.next_obs["state"])
        for column in ("action", "reward", "terminated"):
            assert torch.equal(getattr(one, column), getattr(two, column))
        assert all(torch.equal(one.extra[name], two.extra[name]) for name in demand.columns)


def test_choices_are_not_normalised() -> None:
    actions = np.array([2, 0, 1])
    episode = Episode({"state": np.zeros((4, 1))}, actions, np.zeros(3), True, False)
    dataset = Dataset.from_episodes([episode], Discrete(3))
    batch = source(demand=Demand(("row", "next_action")), dataset=dataset).next(Nobody())
    row = batch.extra["row"]
    assert batch.action.dtype == torch.int64
    assert torch.equal(batch.action, torch.from_numpy(actions)[row])
    assert torch.equal(batch.extra["next_action"][row < 2], torch.from_numpy(actions)[row[row < 2] + 1])


def test_a_run_hears_of_bad_weights_before_its_first_step(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"column 'priority': no such column to weigh rows by"):
        build_learner(tiny_config("bc", tmp_path, source={"batch_size": 32, "weights": "priority"}))
    with pytest.raises(ConfigError, match=r"source: rows drawn by weight may be drawn again"):
        tiny_config("bc", tmp_path, source={"weights": "priority", "replacement": False})


def test_a_run_may_draw_without_replacement(tmp_path: Path) -> None:
    learner: Any = build_learner(tiny_config("bc", tmp_path, source={"batch_size": 50, "replacement": False}))
    data = learner.data["main"]
    assert data.steps == 800
    drawn = torch.cat([learner.source.next(learner.policy).reward for _ in range(16)])
    assert torch.equal(drawn.sort().values, data.dataset.rewards.sort().values)

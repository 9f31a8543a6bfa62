"""Files without time-limit marks: cut by the clock, alike for every format, as a loop over single rows would."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import Box, Discrete
from understudy.data.episode import Episode
from understudy.data.episode_cuts import finite_pieces, pieces
from understudy.data.formats.d4rl import open_d4rl
from understudy.data.formats.npz import open_npz
from understudy.data.formats.readers import open_recording
from understudy.data.stores.store import open_store, write_store
from understudy.data.transforms import Mending, Transforms, mend
from understudy.tools.dataset.conversion import convert_file

BOX = Box((-1.0, -1.0), (1.0, 1.0))


def rows(terminals: list[bool], **more: Any) -> dict[str, Any]:
    """D4RL's version 0: no timeouts, no next_observations. Each row is told apart by its numbers."""
    count = len(terminals)
    numbers = np.arange(count, dtype=np.float32)
    return {
        "observations": np.stack([numbers, numbers + 0.5], 1),
        "actions": np.stack([numbers / count, -numbers / count], 1),
        "rewards": 100 + numbers,
        "terminals": np.array(terminals, bool),
        **more,
    }


def version_0(path: Path, terminals: list[bool], **more: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in rows(terminals, **more).items():
            file[name] = values
    return path


def by_hand(terminals: list[bool], limit: int) -> list[tuple[list[int], bool, bool]]:
    """D4RL's clock, row by row: it strikes after `limit` rows and starts anew there and after each terminal."""
    found, episode = [], []
    for row, terminal in enumerate(terminals):
        episode.append(row)
        struck = len(episode) == limit and not terminal
        if terminal or struck or row == len(terminals) - 1:
            found.append((episode, terminal, struck))
            episode = []
    return found


def told(episodes: Any) -> list[tuple[list[int], bool, bool]]:
    """The rows of every episode by their rewards, and its end; nothing beyond them may be known."""
    found = []
    for episode in episodes:
        numbers = (episode.rewards - 100).astype(int).tolist()
        assert not episode.final_known
        assert episode.observations["state"][:, 0].tolist() == numbers
        found.append((numbers, episode.terminated, episode.truncated))
    return found


@given(st.lists(st.booleans(), min_size=1, max_size=40).filter(any), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_the_clock_is_that_of_a_loop_over_rows(tmp_path_factory: Any, terminals: list[bool], limit: int) -> None:
    path = tmp_path_factory.mktemp("clock") / "x.npz"
    np.savez(path, **rows(terminals))
    expected = by_hand(terminals, limit)
    assert told(open_npz(path, episode_steps=limit).episodes()) == expected
    assert told(mend(open_npz(path), Mending(episode_steps=limit), BOX).episodes()) == expected


@pytest.mark.parametrize("terminals", [[False] * 20, [row in (6, 19) for row in range(20)], [False] * 17])
def test_every_way_in_cuts_alike(tmp_path: Path, terminals: list[bool]) -> None:
    """HalfCheetah of version 0 marks no end at all: without the setting it cannot be read."""
    expected = by_hand(terminals, 5)
    np.savez(tmp_path / "x.npz", **rows(terminals))
    path = version_0(tmp_path / "x.hdf5", terminals)
    change = Transforms(episode_steps=5)
    assert told(open_d4rl(path, episode_steps=5).episodes()) == expected
    assert told(open_recording(tmp_path / "x.npz", episode_steps=5).episodes()) == expected
    loaded = us.load_dataset(path, action_space=BOX, transforms=change)
    assert told(loaded.recording().episodes()) == expected
    convert_file(str(path), tmp_path / "store", space=BOX, transforms=change)
    assert told(open_store(tmp_path / "store").recording().episodes()) == expected
    assert open_store(tmp_path / "store").fingerprint == loaded.fingerprint
    if not any(terminals):
        with pytest.raises(DataError, match=r"no episode boundary.*set episode_steps \(as in episode_steps=1000\)"):
            us.load_dataset(path, action_space=BOX)


def test_no_row_bootstraps_from_another_episode(tmp_path: Path) -> None:
    path = version_0(tmp_path / "x.hdf5", [row == 6 for row in range(20)])
    loaded = us.load_dataset(path, action_space=BOX, transforms=Transforms(episode_steps=5))
    assert np.flatnonzero(~loaded._td_valid.numpy()).tolist() == [4, 11, 16, 19], "a terminal needs no successor"


def test_a_store_and_a_list_of_episodes_are_cut_too(tmp_path: Path) -> None:
    numbers = np.arange(8, dtype=np.float32)
    whole = Episode({"state": numbers[:, None]}, np.zeros((7, 2), np.float32), numbers[:7], True, False)
    change = Transforms(episode_steps=3)
    from_list = us.load_dataset([whole], action_space=BOX, transforms=change)
    write_store(us.load_dataset([whole], action_space=BOX), tmp_path / "store")
    from_store = us.load_dataset(tmp_path / "store", transforms=change)
    assert from_list.fingerprint == from_store.fingerprint
    assert from_list.index.lengths.tolist() == [3, 3, 1]
    assert from_list.index.final_known.tolist() == [False, False, True], "the whole's final observation is known"
    assert from_list.index.terminated.tolist() == [False, False, True]
    assert from_list.index.truncated.tolist() == [True, True, False]


def test_what_belongs_to_rows_goes_with_them() -> None:
    mask = np.arange(24).reshape(8, 3) % 2 == 0
    whole = Episode(
        {"state": np.arange(8.0)[:, None], "image": np.arange(8, dtype=np.uint8)[:, None, None]},
        np.arange(7) % 3,
        np.arange(7.0),
        False,
        False,
        mask=mask,
        extra={"behaviour_log_prob": -np.arange(7.0)},
    )
    first, second = pieces(whole, 4)
    np.testing.assert_array_equal(first.mask, mask[:4])
    np.testing.assert_array_equal(second.mask, mask[4:])
    assert first.extra["behaviour_log_prob"].tolist() == [0, -1, -2, -3]
    assert second.observations["image"].ravel().tolist() == [4, 5, 6, 7]
    assert (second.truncated, second.terminated, second.final_known) == (False, False, True)
    assert first.truncated


def test_episodes_that_reach_the_limit_are_cut_off_and_shorter_ones_are_left() -> None:
    whole = Episode({"state": np.arange(4.0)[:, None]}, np.zeros(3, int), np.zeros(3), False, False)
    (same,) = pieces(whole, 3)
    assert (same.truncated, same.final_known, len(same.observations["state"])) == (True, True, 4)
    (same,) = pieces(replace(whole, terminated=True), 3)
    assert (same.truncated, same.terminated) == (False, True)
    (same,) = pieces(whole, 4)
    assert not same.truncated


def test_successors_tell_where_the_clock_cannot(tmp_path: Path) -> None:
    """Time limits show as jumps; a clock that strikes where next_observations is the next row knows no successor."""
    seen = np.random.default_rng(0).standard_normal((2, 7, 2)).astype(np.float32)
    columns = rows([False] * 12, observations=seen[:, :-1].reshape(-1, 2), next_observations=seen[:, 1:].reshape(-1, 2))
    np.savez(tmp_path / "x.npz", **columns)
    whole = list(open_npz(tmp_path / "x.npz", episode_steps=6).episodes())
    assert [(len(episode), episode.truncated, episode.final_known) for episode in whole] == [(6, True, True)] * 2
    np.testing.assert_array_equal(whole[0].observations["state"], seen[0])
    cut = list(open_npz(tmp_path / "x.npz", episode_steps=4).episodes())
    assert [(len(episode), episode.final_known) for episode in cut] == [(4, False), (2, True)] * 2
    np.savez(tmp_path / "y.npz", **columns, timeouts=np.zeros(12, bool))  # marks that were never set
    found = list(open_npz(tmp_path / "y.npz", episode_steps=6).episodes())
    assert [(len(episode), episode.truncated, episode.final_known) for episode in found] == [(6, True, True)] * 2
    np.testing.assert_array_equal(found[0].observations["state"], seen[0])


def test_whole_numbers_across_a_cut_are_not_believed(tmp_path: Path) -> None:
    """Grid worlds repeat their states, so elsewhere an equal successor is no sign; at a cut it is all there is."""
    seen = np.arange(9)[:, None]
    columns = rows([False] * 8, observations=seen[:-1], next_observations=seen[1:], actions=np.arange(8) % 3)
    np.savez(tmp_path / "x.npz", **columns)
    change = Transforms(episode_steps=4)
    loaded = us.load_dataset(tmp_path / "x.npz", action_space=Discrete(3), transforms=change)
    assert loaded.index.final_known.tolist() == [False, True]


@pytest.mark.parametrize("steps", [0, -1, 1.5])
def test_a_limit_is_at_least_one_step(steps: float) -> None:
    with pytest.raises(ConfigError, match="episode_steps"):
        Transforms.parse({"episode_steps": steps})


def test_cut_first_then_mended(tmp_path: Path) -> None:
    """The chain's order: a piece as long as the time limit is not a terminal of that length."""
    path = version_0(tmp_path / "x.hdf5", [row == 7 for row in range(8)])
    change = Transforms(episode_steps=4, time_limit=4)
    loaded = us.load_dataset(path, action_space=BOX, transforms=change)
    assert loaded.index.terminated.tolist() == [False, False]
    late = us.load_dataset(path, action_space=BOX, transforms=Transforms(episode_steps=4, late_rewards=True))
    assert late.rewards.tolist() == [101, 102, 103, 105, 106, 107]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_rows_without_numbers_are_cut_out_as_a_loop_over_rows_would(data: st.DataObject) -> None:
    steps, known = data.draw(st.integers(1, 7)), data.draw(st.booleans())
    seen = np.arange(float(steps + known))[:, None]
    acted, earned = np.arange(float(steps))[:, None], np.arange(float(steps))
    for values in (seen, acted, earned):
        broken = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=2))
        values[broken] = data.draw(st.sampled_from([np.nan, np.inf]))
    ended = data.draw(st.booleans())
    episode = Episode({"state": seen}, acted, earned, ended, not ended, known, extra={"row": np.arange(steps)})

    found: list[list[int]] = []
    for row in range(steps):
        if np.isfinite([seen[row, 0], acted[row, 0], earned[row]]).all():
            if found and found[-1][-1] == row - 1:
                found[-1].append(row)
            else:
                found.append([row])
    parts = list(finite_pieces(episode))
    assert [part.extra["row"].tolist() for part in parts] == found
    for part, numbers in zip(parts, found, strict=True):
        after = numbers[-1] + 1
        final = [float(after)] if after < len(seen) and np.isfinite(seen[after, 0]) else []
        assert part.observations["state"][:, 0].tolist() == [*map(float, numbers), *final]
        assert part.final_known == bool(final)
        assert part.rewards.tolist() == part.actions[:, 0].tolist() == numbers
        assert (part.terminated, part.truncated) == ((ended, not ended) if after == steps else (False, False))


def test_a_gap_costs_a_row_and_not_the_day() -> None:
    table = rows([False, False, False, False, True])
    table["rewards"][2] = np.nan
    with pytest.raises(DataError, match="drop leaves such episodes out, =cut only such rows"):
        us.load_dataset(table, action_space=BOX)
    dataset = us.load_dataset(table, action_space=BOX, transforms=Transforms(not_finite="cut"))
    assert dataset.index.lengths.tolist() == [2, 2]
    assert dataset.index.final_known.tolist() == [True, False]

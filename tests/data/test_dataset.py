"""A dataset's layout: identity, statistics, memory, and what it refuses."""

from typing import Any

import numpy as np
import pytest
import torch

from allocations import most_allocated
from understudy.core.errors import DataError
from understudy.core.protocols import Demand
from understudy.core.spec import Box, Group, Spec
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.index import EpisodeIndex
from worlds import random_dataset, random_episodes

BOX = Box((-1.0, -1.0), (1.0, 1.0))


def copy_of(episode: Episode, **changes: Any) -> Episode:
    parts: dict[str, Any] = {
        "observations": {name: values.copy() for name, values in episode.observations.items()},
        "actions": episode.actions.copy(),
        "rewards": episode.rewards.copy(),
        "terminated": episode.terminated,
        "truncated": episode.truncated,
        "final_known": episode.final_known,
    }
    return Episode(**{**parts, **changes})


def build(episodes: list[Episode], box: Box = BOX) -> Dataset:
    return Dataset.from_episodes(episodes, box)


def test_counts() -> None:
    dataset = random_dataset(count=6, steps=20)
    assert (dataset.episodes, dataset.steps) == (6, 120)
    assert dataset.spec.observation == {"state": Group((3,), "float32")}


def test_an_episode_is_found_from_either_end() -> None:
    dataset = random_dataset()
    last, same = dataset.episode(-1), dataset.episode(dataset.episodes - 1)
    assert np.array_equal(last.observations["state"], same.observations["state"])
    assert np.array_equal(last.actions, same.actions)
    with pytest.raises(IndexError, match=rf"has {dataset.episodes} episodes, and no episode {dataset.episodes}"):
        dataset.episode(dataset.episodes)


def test_one_array_of_observations_is_the_group_state() -> None:
    episode = Episode(np.zeros((4, 2)), np.zeros((3, 1)), np.ones(3), terminated=True)  # type: ignore[arg-type]
    assert repr(episode) == "Episode(3 steps, return 3, terminated; state [2] → [1])"
    assert Dataset.from_episodes([episode], Box((-1.0,), (1.0,))).spec.observation == {"state": Group((2,), "float32")}


def test_actions_keep_their_shape_and_type() -> None:
    """Continuous actions stay continuous, even where every one of them is a whole number."""
    episode = copy_of(random_episodes(1)[0], actions=np.ones((20, 2), np.int64))
    batch = build([episode]).rows(torch.arange(5), Demand())
    assert batch.action.shape == (5, 2)
    assert batch.action.dtype == torch.float32


def test_the_fingerprint_does_not_depend_on_the_order_of_groups() -> None:
    first, second = np.zeros((21, 2), np.float32), np.ones((21, 3), np.float32)
    plain = random_episodes(1)[0]
    one = build([copy_of(plain, observations={"a": first, "b": second})])
    other = build([copy_of(plain, observations={"b": second, "a": first})])
    assert one.fingerprint == other.fingerprint


def test_the_fingerprint_does_not_depend_on_name_or_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = random_dataset().fingerprint
    monkeypatch.setattr("understudy.data.dataset.CHUNK_ROWS", 7)
    assert Dataset.from_episodes(random_episodes(), BOX, name="another").fingerprint == whole


def test_any_change_changes_the_fingerprint() -> None:
    episodes = random_episodes(3, steps=5)
    first = episodes[0]
    prints = {"plain": build(episodes).fingerprint}
    for part, shape in (("state", (6, 3)), ("actions", (5, 2)), ("rewards", (5,))):
        for place in np.ndindex(shape):
            changed = copy_of(first)
            array = changed.observations["state"] if part == "state" else getattr(changed, part)
            array[place] = np.nextafter(array[place], np.float32(0))
            prints[f"{part}{place}"] = build([changed, *episodes[1:]]).fingerprint
    for flags in ((True, False), (False, False)):
        changed = copy_of(first, terminated=flags[0], truncated=flags[1])
        prints[f"flags {flags}"] = build([changed, *episodes[1:]]).fingerprint
    unknown = copy_of(first, observations={"state": first.observations["state"][:-1]}, final_known=False)
    prints["unknown end"] = build([unknown, *episodes[1:]]).fingerprint
    prints["bounds"] = build(episodes, Box((-1.0, -1.0), (1.0, 1.5))).fingerprint
    prints["action type"] = build(episodes, Box((-1.0, -1.0), (1.0, 1.0), "float64")).fingerprint
    prints["order"] = build(episodes[::-1]).fingerprint
    prints["fewer"] = build(episodes[:-1]).fingerprint
    as_bytes = [copy_of(e, observations={"state": np.zeros((6, 3), np.uint8)}) for e in episodes]
    as_floats = [copy_of(e, observations={"state": np.zeros((6, 3), np.float32)}) for e in episodes]
    renamed = [copy_of(e, observations={"other": np.zeros((6, 3), np.float32)}) for e in episodes]
    prints |= {f"as {i}": build(kind).fingerprint for i, kind in enumerate((as_bytes, as_floats, renamed))}
    assert len(set(prints.values())) == len(prints)


def test_moments_are_those_of_numpy_in_float64() -> None:
    rng = np.random.default_rng(0)
    scale = np.array([1e-3, 1.0, 1e4])
    episodes = [
        copy_of(e, observations={"state": (1e3 + rng.standard_normal((21, 3)) * scale).astype(np.float32)})
        for e in random_episodes(50)
    ]
    seen = np.concatenate([e.observations["state"][:-1] for e in episodes]).astype(np.float64)
    moments = build(episodes).moments()["state"]
    np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-7)
    np.testing.assert_allclose(moments.std, seen.std(0), rtol=1e-6)


def test_moments_are_of_the_observations_that_were_acted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CORL takes them: a final observation, known or copied to stand in for a lost one, is no row's own."""
    episodes = [*random_episodes(2, steps=1), *random_episodes(3, steps=4, seed=1)]
    lost = [copy_of(e, observations={"state": e.observations["state"][:-1]}, final_known=False) for e in episodes[::2]]
    mixed = [lost[0], episodes[1], lost[1], episodes[3], lost[2]]
    seen = np.concatenate([e.observations["state"][: len(e)] for e in mixed]).astype(np.float64)
    for rows in (1 << 16, 3, 1):
        monkeypatch.setattr("understudy.data.dataset.CHUNK_ROWS", rows)
        moments = build(mixed).moments()["state"]
        np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-6)
        np.testing.assert_allclose(moments.std, seen.std(0), rtol=1e-6)


def test_a_constant_column_has_no_spread() -> None:
    episode = copy_of(random_episodes(1)[0], observations={"state": np.full((21, 3), 0.1, np.float32)})
    moments = build([episode]).moments()["state"]
    np.testing.assert_array_equal(moments.mean, np.full(3, 0.1, np.float32))
    assert float(moments.std.max()) < 1e-9


def test_returns_are_sums_of_raw_rewards() -> None:
    episodes = [*random_episodes(3, steps=20, seed=1), *random_episodes(2, steps=1, seed=2)]
    dataset = build(episodes).with_rewards(lambda reward: reward * 100)
    np.testing.assert_allclose(dataset.returns(), [e.rewards.astype(np.float64).sum() for e in episodes], rtol=1e-12)


def test_returns_of_long_episodes_take_the_memory_of_one() -> None:
    dataset = random_dataset(count=20, steps=50_000, state=1)
    assert most_allocated(dataset.returns) < 2 * 8 * 50_000


def test_other_rewards_share_everything() -> None:
    dataset = random_dataset()
    scaled = dataset.with_rewards(lambda reward: reward * 2.0)
    assert scaled.actions.data_ptr() == dataset.actions.data_ptr()
    assert scaled.rewards.data_ptr() == dataset.rewards.data_ptr()
    assert scaled.observations["state"].data_ptr() == dataset.observations["state"].data_ptr()
    rows = torch.arange(dataset.steps)
    assert torch.equal(scaled.rows(rows, Demand()).reward, dataset.rows(rows, Demand()).reward * 2)
    twice = scaled.with_rewards(lambda reward: reward - 1.0)
    assert torch.equal(twice.rows(rows, Demand()).reward, dataset.rewards * 2 - 1)


def test_a_million_rows_cost_little_more_than_their_bytes() -> None:
    episodes, length = 1000, 1000
    rows = episodes * length
    ends = np.zeros(episodes, bool)
    index = EpisodeIndex(np.full(episodes, length, np.int64), ends, ~ends, ~ends)
    spec = Spec({"state": Group((17,), "float32")}, Box((-1.0,) * 6, (1.0,) * 6))
    state = {"state": torch.rand(rows + episodes, 17)}
    dataset = Dataset(spec, state, torch.rand(rows, 6), torch.rand(rows), index, name="million")
    raw = rows * (17 * 4 + 6 * 4 + 4 + 1)
    assert raw < dataset.nbytes <= 1.2 * raw
    held = [value for value in vars(dataset).values() if isinstance(value, torch.Tensor)]
    assert sum(value.nbytes for value in [*held, *dataset.observations.values()]) <= dataset.nbytes
    assert dataset.with_rewards(lambda reward: reward).nbytes == dataset.nbytes
    batch = dataset.rows(torch.tensor([0, 999, 1000, rows - 1]), Demand())
    assert torch.equal(batch.obs["state"], state["state"][[0, 999, 1001, rows + episodes - 2]])
    assert torch.equal(batch.next_obs["state"], state["state"][[1, 1000, 1002, rows + episodes - 1]])


def test_no_episodes_are_no_dataset() -> None:
    with pytest.raises(DataError, match="has no episodes"):
        build([])


def test_episodes_must_agree() -> None:
    wide = random_episodes(1, state=4)
    with pytest.raises(DataError, match="episode 2: observations differ"):
        build([*random_episodes(2), *wide])
    with pytest.raises(DataError, match="episode 2: action size differs: got 3, expected 2"):
        build([*random_episodes(2), *random_episodes(1, action=3)])


def test_actions_must_fit_the_space() -> None:
    with pytest.raises(DataError, match=r"actions have the wrong size: got 2, expected 1, as in .* environment's"):
        build(random_episodes(1), Box((-1.0,), (1.0,)))
    wild = random_episodes(2)
    wild[0].actions[3] = 8.0
    wild[1].actions[0, 1] = -1.5
    with pytest.raises(DataError, match=r"2 of 40 actions lie outside .*, the first in row 3: got up to 8, .*clip"):
        build(wild)


def test_rounding_at_the_bound_is_forgiven() -> None:
    episode = random_episodes(1)[0]
    episode.actions[0] = np.nextafter(np.float32(1), np.float32(2))
    build([episode])

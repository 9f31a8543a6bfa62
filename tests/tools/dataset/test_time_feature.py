"""A column that only counts steps."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.tools.dataset.column_tally import time_column
from worlds import real_data


def walks(lengths: list[int], columns: int = 4, seed: int = 0) -> list[NDArray[np.float64]]:
    """Random walks: smooth, and no clock."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((length, columns)).cumsum(axis=0) for length in lengths]


def with_clock(episodes: list[NDArray[np.float64]], clock: Any, at: int = 4) -> list[NDArray[np.float32]]:
    return [np.insert(rows, at, clock(np.arange(len(rows))), axis=1).astype(np.float32) for rows in episodes]


@pytest.mark.parametrize(
    "clock",
    [
        lambda step: 1 - step / 1000,
        lambda step: step / 200,
        lambda step: step,
        lambda step: 0.002 * step - 3,
        lambda step: 1 - step / 100_000,
    ],
)
@pytest.mark.parametrize("at", [0, 2, 4])
def test_clocks_of_all_kinds(clock: Any, at: int) -> None:
    assert time_column(with_clock(walks([1000, 350, 12]), clock, at)) == at


def test_walks_are_no_clocks() -> None:
    assert time_column(walks([1000, 350, 12])) is None


def test_constant_columns_are_no_clocks() -> None:
    assert time_column(with_clock(walks([100, 50]), lambda step: np.full(len(step), 7.0))) is None


def test_a_clock_runs_alike_in_every_episode() -> None:
    episodes = [np.linspace(0, end, 100)[:, None] for end in (1.0, 1.0, 2.0)]
    assert time_column(episodes[:2]) == 0
    assert time_column(episodes) is None


def test_one_late_episode_without_a_clock_is_enough() -> None:
    episodes: list[NDArray[Any]] = [*with_clock(walks([50] * 3), lambda step: step), walks([50], 5)[0]]
    assert time_column(episodes) is None


def test_nearly_straight_is_not_straight() -> None:
    episodes = with_clock(walks([200, 200]), lambda step: step / 200 + 1e-3 * np.sin(step))
    assert time_column(episodes) is None


def test_short_episodes_say_nothing() -> None:
    assert time_column(with_clock(walks([2, 5, 9]), lambda step: step)) is None
    assert time_column([]) is None


@pytest.mark.parametrize(
    ("name", "column"),
    [("hopper_opolo_3500", 11), ("ant_opolo_1200", 111), ("halfcheetah_cs285", None), ("pendulum_replay", None)],
)
def test_real_files(name: str, column: int | None) -> None:
    with np.load(real_data(f"{name}.npz"), allow_pickle=False) as file:
        observations, episode = file["observations"], file["episode_id"]
    cuts = np.flatnonzero(np.diff(episode)) + 1
    assert time_column(np.split(observations, cuts)) == column

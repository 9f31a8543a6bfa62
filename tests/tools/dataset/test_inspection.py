"""An inspection: scores on the right scale, one screen whatever the data, pictures that are drawn."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from understudy import Box, Episode
from understudy.cli.dataset_screens import BARS, inspection_screen, spark
from understudy.core.errors import DataError
from understudy.core.spec import Discrete
from understudy.data.recording import Recording
from understudy.data.scores import normalized_score
from understudy.tools.dataset.inspection import Inspection, find_scale, inspect_recording, read_range
from understudy.tools.dataset.plots import draw_survey
from worlds import random_episodes

BOX = Box((-1.0, -1.0), (1.0, 1.0))


def recorded(episodes: Sequence[Episode], name: str = "some.npz", **facts: Any) -> Recording:
    return Recording(name, sum(len(episode) for episode in episodes), lambda: iter(episodes), **facts)


def wide_episodes() -> list[Episode]:
    """Many groups, many dimensions, a long name: nothing may burst the screen."""
    rng = np.random.default_rng(0)
    groups = {f"a_rather_long_name_of_a_group_{number}": rng.standard_normal((31, 40)) for number in range(30)}
    extra = {f"another_long_name_{number}": rng.standard_normal(30) * 1e-20 for number in range(9)}
    return [
        Episode(groups, rng.standard_normal((30, 60)) * 1e9, rng.standard_normal(30), False, True, True, None, extra)
    ]


def broken_episodes() -> list[Episode]:
    episodes = random_episodes()
    episodes[0].rewards[0], episodes[1].actions[0], episodes[2].observations["state"][:] = np.nan, np.inf, np.nan
    return [*episodes, replace(episodes[0], actions=episodes[0].actions[:0])]


def text_of(inspection: Inspection, width: int = 100) -> str:
    """The screen as plain text."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(inspection_screen(inspection))
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


CASES: dict[str, tuple[list[Episode], Any]] = {
    "clean": (random_episodes(), BOX),
    "no bounds": (random_episodes(), None),
    "wrong space": (random_episodes(), Discrete(3)),
    "choices": ([Episode({"state": np.eye(4)[:3]}, np.array([0, 7]), np.ones(2), True, False)], None),
    "wide": (wide_episodes(), None),
    "broken": (broken_episodes(), BOX),
    "nothing": ([], BOX),
    "one step": (random_episodes(1, 1), BOX),
    "image": ([Episode({"image": np.zeros((3, 3, 84, 84), np.uint8)}, np.zeros((2, 2)), np.ones(2), False, True)], BOX),
    "all NaN": ([replace(random_episodes(1)[0], rewards=np.full(20, np.nan), actions=np.full((20, 2), np.nan))], None),
    "huge": ([replace(random_episodes(1)[0], rewards=np.linspace(-1e308, 1e308, 20))], BOX),
}


@pytest.mark.parametrize("case", CASES)
def test_one_screen(case: str) -> None:
    episodes, space = CASES[case]
    seen = inspect_recording(recorded(episodes, notes=("a sentence " * 12,) * 9), space)
    text = text_of(seen)
    lines = text.splitlines()
    assert len(lines) <= 48
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("some.npz")
    json.dumps(seen.to_json(), allow_nan=False)


def test_the_screen_tells_what_matters() -> None:
    episodes = random_episodes(terminated=True, truncated=False)
    for episode in episodes:
        episode.observations["state"][:, 2] = 1
        episode.actions[:10, 0] = 1
    text = text_of(
        inspect_recording(recorded(episodes, notes=("Boundaries were restored.",), env="World-v0"), BOX, (0.0, 10.0))
    )
    for words in (
        "6 episodes, 120 steps; all terminated",
        "Boundaries were restored.",
        "World-v0",
        "1 constant",
        "time-limit-as-terminal: ",
        "→ time_limit=20",
        "on the given range",
    ):
        assert words in text
    row = next(line for line in text.splitlines() if line.startswith("0  "))
    assert "50 %" in row or "51 %" in row  # half of the steps lie at the high bound


def test_scores_are_those_of_the_returns() -> None:
    episodes = random_episodes()
    seen = inspect_recording(recorded(episodes), BOX, "hopper-medium-v2")
    returns = [float(episode.rewards.astype(np.float64).sum()) for episode in episodes]
    assert seen.score is not None
    assert seen.score.mean == pytest.approx(normalized_score("hopper-medium-v2", float(np.mean(returns))))
    assert seen.score.high == pytest.approx(normalized_score("hopper-medium-v2", max(returns)))


def test_where_the_scale_comes_from() -> None:
    def scale(name: str = "x", wanted: Any = None, **facts: Any) -> Any:
        return find_scale(recorded([], name, **facts), wanted)

    assert scale() is None
    assert scale(env="Nowhere-v0") is None
    assert scale(env="HalfCheetah-v4")[0] == "HalfCheetah-v4"
    assert scale("folder/hopper_medium_expert-v2.hdf5")[0] == "hopper-medium-expert-v2"
    own = {"ref_min_score": 1.0, "ref_max_score": 3.0}
    assert scale("hopper-medium-v2", facts=own)[1] == (1.0, 3.0)
    assert scale("hopper-medium-v2", (2.0, 4.0), facts=own)[1] == (2.0, 4.0)
    with pytest.raises(DataError, match="Did you mean"):
        scale(wanted="hoper-medium-v2")
    with pytest.raises(DataError, match="not a range"):
        scale(wanted=(4.0, 2.0))


def test_no_score_where_there_are_no_rewards() -> None:
    silent = recorded(random_episodes(), facts={"rewards": "absent"})
    assert inspect_recording(silent, BOX, (0.0, 1.0)).score is None


def test_ranges_on_the_command_line() -> None:
    assert read_range("hopper-medium-v2") == "hopper-medium-v2"
    assert read_range("-20,3e3") == (-20.0, 3000.0)
    assert read_range("[1, 2]") == (1.0, 2.0)
    with pytest.raises(DataError, match="expected an id, or LOW,HIGH"):
        read_range("low,high")


def test_spark() -> None:
    assert spark(np.array([0.0, 1.0, 1.0, 1.0]), bins=4) == f"{BARS[3]}  {BARS[-1]}"
    assert spark(np.full(5, 2.0)) == BARS[-1]
    assert spark(np.array([np.nan])) == ""
    lone = spark(np.append(np.zeros(10_000), 1.0), bins=4)
    assert lone[-1] == BARS[1]  # one among thousands still shows


@pytest.mark.parametrize("case", ["clean", "choices", "wide", "all NaN", "huge"])
def test_pictures(case: str, tmp_path: Path) -> None:
    episodes, space = CASES[case]
    drawn = draw_survey(inspect_recording(recorded(episodes), space).survey, tmp_path / "new" / "plot.png")
    assert drawn.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in drawn.parent.iterdir()] == ["plot.png"]


def test_pictures_that_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected \.png"):
        draw_survey(inspect_recording(recorded(random_episodes()), BOX).survey, tmp_path / "plot.gif")
    with pytest.raises(DataError, match="nothing to draw"):
        draw_survey(inspect_recording(recorded([]), BOX).survey, tmp_path / "plot.png")

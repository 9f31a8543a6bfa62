"""A death at the 1st, 2nd, … n-th file operation of a run, until it ends without dying (SQLite's method)."""

import itertools
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import Faults
from folders import fast_folder
from forks import Child, forks, next_words
from small import content, leftovers, short_config

TINY: dict[str, Any] = {
    "updates": 6,
    "log_every": 2,
    "eval_every": 2,
    "eval_episodes": 1,
    "save_every": 2,
    "keep_checkpoints": 2,
    "source": {"batch_size": 4},
    "seed": 9,
}
"""Three saves, of which the third drops the first; evaluations that replace the best policy."""
AT_ONCE = 4

Fault = Callable[[int], Faults]
FAULTS: dict[str, Fault] = {
    "before a change": lambda number: {"die_at": number},
    "in the middle of a write": lambda number: {"torn_at": number},
    "before anything": lambda number: {"die_at_any": number},
}


def births(folder: Path) -> tuple[Path, Path]:
    """The config and directory of a run that is not there yet."""
    return short_config(folder, "bc", "run", **TINY), folder / "run"


def extensions(folder: Path) -> tuple[Path, Path]:
    """A finished run."""
    config, run = births(folder)
    if not (folder.parent / "finished").exists():
        assert start("train", config).wait().code == 0
        shutil.copytree(run, folder.parent / "finished")
        shutil.rmtree(run)
    shutil.copytree(folder.parent / "finished", run)
    return config, run


def replays(folder: Path) -> tuple[Path, Path]:
    """A run with a replay buffer of 16 rows, which goes round three times."""
    source = {"kind": "replay", "batch_size": 4, "buffer_size": 16, "learning_starts": 20, "utd_ratio": 0.2}
    algo = {"name": "sac", "actor": {"hidden": [8]}, "critic": {"hidden": [8]}}
    return short_config(folder, "sac", "run", **{**TINY, "source": source, "algo": algo, "data": None}), folder / "run"


def start(*words: str | Path, fault: Faults | None = None) -> Child:
    faults: Faults = {"no_plots": True}
    faults.update(fault or {})
    return forks().start(*words, **faults)


def check_births(fault: Fault, *, at_least: int) -> None:
    with fast_folder() as folder:
        config, run = births(folder / "whole")
        assert start("train", config).wait().code == 0
        deaths = die_everywhere(folder, births, lambda config, run: ["train", config], fault, content(run))
    assert deaths >= at_least


def check_extensions(fault: Fault, *, at_least: int) -> None:
    with fast_folder() as folder:
        _, run = extensions(folder / "whole")
        assert start("resume", run, "updates=8").wait().code == 0
        deaths = die_everywhere(
            folder, extensions, lambda config, run: ["resume", run, "updates=8"], fault, content(run)
        )
    assert deaths >= at_least


def test_a_death_before_every_change_of_a_run() -> None:
    check_births(FAULTS["before a change"], at_least=80)


@pytest.mark.slow
def test_a_death_in_the_middle_of_every_write_of_a_run() -> None:
    check_births(FAULTS["in the middle of a write"], at_least=20)


@pytest.mark.slow
def test_a_death_before_every_change_of_an_extension() -> None:
    check_extensions(FAULTS["before a change"], at_least=20)


def check_replays(fault: Fault, moments: range, *, at_least: int) -> None:
    """Deaths of a run with a replay buffer: between two segments of it, and in the middle of one."""
    with fast_folder() as folder:
        config, run = replays(folder / "whole")
        assert start("train", config).wait().code == 0
        whole, died = content(run), 0
        for number in moments:
            config, run = replays(folder / str(number))
            died += start("train", config, fault=fault(number)).wait().code == -signal.SIGKILL
            recover(lambda config, run: ["train", config], [(config, run)])
            assert content(run) == whole, f"death at operation {number}"
            shutil.rmtree(folder / str(number))
    assert died >= at_least


def test_a_death_while_the_replay_buffer_is_written() -> None:
    check_replays(FAULTS["before a change"], range(3, 120, 13), at_least=8)
    check_replays(FAULTS["in the middle of a write"], range(2, 40, 9), at_least=4)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_death_at_every_operation_with_a_replay_buffer(fault: str) -> None:
    check_replays(FAULTS[fault], range(1, 150), at_least=20)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_death_at_every_operation_of_any_kind(fault: str) -> None:
    check_births(FAULTS[fault], at_least=20)
    check_extensions(FAULTS[fault], at_least=10)


def die_everywhere(
    folder: Path,
    prepare: Callable[[Path], tuple[Path, Path]],
    words: Callable[[Path, Path], list[str | Path]],
    fault: Fault,
    whole: dict[str, str],
) -> int:
    """Deaths at operation 1, 2, 3, … each followed by a resume that must end like the `whole` run."""
    for first in itertools.count(1, AT_ONCE):
        places = [prepare(folder / str(number)) for number in range(first, first + AT_ONCE)]
        lives = [start(*words(*place), fault=fault(first + i)) for i, place in enumerate(places)]
        endings = [life.wait() for life in lives]
        assert {ending.code for ending in endings} <= {0, -signal.SIGKILL}, endings
        dead = [place for place, ending in zip(places, endings, strict=True) if ending.code != 0]
        recover(words, dead)
        for number, (_, run) in enumerate(dead, first):
            assert content(run) == whole, f"death at operation {number}"
            assert leftovers(run) == [], f"death at operation {number}"
        if len(dead) < AT_ONCE:
            return first + len(dead) - 1
        for number in range(first, first + AT_ONCE):
            shutil.rmtree(folder / str(number))
    raise AssertionError("counting never ends")


def recover(words: Callable[[Path, Path], list[str | Path]], places: list[tuple[Path, Path]]) -> None:
    """What a person does: go on; and if that ended the run as it was before, ask for more again."""
    unfinished = [place for place in places if not (place[1] / "result.json").exists()]
    for life in [start(*next_words(*place)) for place in unfinished]:
        ending = life.wait()
        assert ending.code == 0, ending.err
    for config, run in places:
        again = words(config, run)
        if again[-1] == "updates=8" and "updates: 6\n" in (run / "config.yaml").read_text():
            ending = start(*again).wait()
            assert ending.code == 0, ending.err

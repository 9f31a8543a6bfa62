"""`understudy dataset inspect` and `list`: one screen for every real recording."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import complaint, understudy

from understudy.data.ladders import LEVELS, shipped_ladders
from worlds import SHARED_DATA, real_data

RECORDINGS = sorted(path.name for path in SHARED_DATA.glob("*.npz"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two episodes of ten steps in a file."""
    rng = np.random.default_rng(0)
    ends = np.arange(20) % 10 == 9
    path = tmp_path / "small.npz"
    np.savez(
        path,
        observations=rng.standard_normal((20, 3)).astype(np.float32),
        actions=rng.uniform(-2, 2, (20, 1)).astype(np.float32),
        rewards=rng.standard_normal(20).astype(np.float32),
        timeouts=ends,
        terminals=np.zeros(20, bool),
    )
    return path


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_real_recording_fits_one_screen(name: str) -> None:
    spoken = understudy("dataset", "inspect", real_data(name))
    assert (spoken.code, spoken.err) == (0, "")
    lines = spoken.out.splitlines()
    assert lines[0].startswith(name)
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100


def test_inspect(small: Path) -> None:
    spoken = understudy("dataset", "inspect", small)
    assert spoken.code == 0, spoken.err
    assert "2 episodes, 20 steps; none terminated, all truncated" in spoken.out
    assert "coverage" in spoken.out


def test_inspect_against_an_environment_and_a_scale(small: Path) -> None:
    spoken = understudy("dataset", "inspect", small, "--env", "Pendulum-v1", "--reference", "-1000,0")
    assert spoken.code == 0, spoken.err
    assert "on the given range" in spoken.out
    heads = [line.split() for line in spoken.out.splitlines() if line.startswith("action ")]
    assert heads[-1][:5] == ["action", "low", "high", "min", "max"]  # bounds are declared now
    assert "no-such-action: " in understudy("dataset", "inspect", small, "--env", "CartPole-v1").out


def test_inspect_for_machines(small: Path) -> None:
    spoken = understudy("dataset", "inspect", small, "--json")
    assert spoken.code == 0, spoken.err
    told = json.loads(spoken.out)
    assert (told["episodes"], told["steps"]) == (2, 20)
    assert told["columns"]["observation.state"]["shape"] == [3]
    assert [finding["kind"] for finding in told["findings"]]
    assert told["per_episode"]["lengths"] == [10, 10]


def test_inspect_draws(small: Path, tmp_path: Path) -> None:
    picture = tmp_path / "plot.png"
    spoken = understudy("dataset", "inspect", small, "--plot", picture)
    assert spoken.code == 0, spoken.err
    assert f"drawn: {picture}" in spoken.out.replace("\n", "")
    assert picture.stat().st_size > 10_000


def test_inspect_complains_in_one_sentence(small: Path) -> None:
    assert "no such file" in complaint("dataset", "inspect", "nowhere.npz", code=1)
    assert "Did you mean" in complaint("dataset", "inspect", small, "--reference", "hoper-medium-v2", code=1)
    assert "expected .png" in complaint("dataset", "inspect", small, "--plot", "x.gif", code=1)


def test_list_marks_what_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    assert "(here)" not in understudy("dataset", "list").out
    for name in ("D4RL/pen/human-v2", "mine/own-v0"):
        folder = tmp_path / name / "data"
        folder.mkdir(parents=True)
        (folder / "metadata.json").write_text("{}", encoding="utf-8")
    lines = understudy("dataset", "list").out.splitlines()
    assert [line.split(" (here)")[0] for line in lines if "(here)" in line] == ["D4RL/pen/human-v2", "mine/own-v0"]
    assert any("atari/" in line for line in lines)


def test_list_begins_with_what_comes_with_the_library() -> None:
    lines = understudy("dataset", "list").out.splitlines()
    ladder = shipped_ladders()["hopper-ladder"]
    assert [line.split()[0] for line in lines[:5]] == [f"hopper-ladder/{name}" for name in LEVELS]
    for line, level in zip(lines, ladder.levels.values(), strict=False):
        told = f"{level.steps:,} steps, {level.episodes} episodes, return {level.return_mean:.0f}, "
        assert f"  {told}score {100 * (level.return_mean + 20.272305) / 3254.572305:.1f}, Hopper-v5" in line
    assert "18,000 steps" in understudy("dataset", "inspect", "hopper-ladder/expert").out


@pytest.mark.parametrize("command", ["inspect", "list"])
def test_help_of_dataset_commands(command: str) -> None:
    spoken = understudy("dataset", command, "--help")
    assert spoken.code == 0
    assert spoken.out.startswith(f"Usage: understudy dataset {command}")

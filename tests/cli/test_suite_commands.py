"""Suites and tasks on the command line."""

from pathlib import Path

import pytest
import yaml
from command_line import complaint, understudy

from understudy.run.suites import suites


def test_list_suites_names_tasks_presets_and_sources() -> None:
    lines = understudy("list", "suites").out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [suite.name for suite in suites()]
    assert any("iql/paper-antmaze" in line and "arXiv:2110.06169" in line for line in lines)


def test_list_tasks_of_all_and_of_one() -> None:
    every = understudy("list", "tasks").out.splitlines()[1:]
    assert [line.split()[0] for line in every] == [task.id for suite in suites() for task in suite.tasks]
    mazes = understudy("list", "tasks", "antmaze").out.splitlines()[1:]
    assert mazes[0].split()[:4] == ["antmaze-umaze-v2", "AntMaze_UMaze-v4", "700", "no"]
    assert len(mazes) == 6


def test_list_tasks_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("{name: mine, about: Mine., tasks: [{id: a, env: Pendulum-v1, episode_cap: 9, reference: [0, 1]}]}")
    assert understudy("list", "tasks", file).out.splitlines()[1].split() == ["a", "Pendulum-v1", "9", "yes"]


def test_words_too_many_and_unknown() -> None:
    assert complaint("list", "configs", "antmaze", code=2) == "list configs: takes no more words: got 'antmaze'.\n"
    assert "Did you mean 'antmaze'?" in complaint("list", "tasks", "antmase", code=2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_check_a_preset_with_and_without_its_file(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    words = ("check", "iql/corl-locomotion", "task=hopper-medium-v2")
    file = tmp_path / "hopper.hdf5"
    assert "names no data" in complaint(*words, code=2)
    assert f"dataset '{file}': no such file" in complaint(*words, f"data.path={file}", code=1)
    file.touch()
    printed = understudy(*words, f"data.path={file}").out
    assert printed.startswith(
        "# Published for hopper-medium-v2: a score of 67.53 ± 3.78, CORL (tinkoff-ai/CORL, configs"
    )
    config = yaml.safe_load(printed)
    assert {name: config["env"][name] for name in ("id", "reference")} == {
        "id": "Hopper-v4",
        "reference": "hopper-medium-v2",
    }
    assert config["algo"]["actor"]["distribution"]["kind"] == "deterministic"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_check_says_why_no_score_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium_robotics")
    file = tmp_path / "maze.hdf5"
    file.touch()
    words = ("check", "iql/paper-antmaze", "task=antmaze-umaze-v2", f"data.path={file}")
    printed = understudy(*words).out
    assert printed.startswith("# No score is reported for antmaze-umaze-v2: gymnasium-robotics' AntMaze goes on")
    assert yaml.safe_load(printed)["env"]["reference"] is None
    assert understudy(*words, "env.reference=antmaze-umaze-v2").out.startswith("algo:")

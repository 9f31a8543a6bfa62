"""bench, compare and ablate on the command line: what they say before anything runs, and of what is there."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command_line import complaint, understudy
from numpy.typing import NDArray

import understudy as us
from understudy.run.rundir import RunDir
from understudy.tools.experiments.work import Outcome, train_or_resume

PLAY = {"env": "Pendulum-v1", "episodes": 4, "behaviours": [{"policy": "random"}]}
SUITE = {
    "name": "small",
    "about": "Two ways to clone.",
    "tasks": [{"id": "swing", "env": "Pendulum-v1", "recipe": PLAY}],
    "methods": {"BC": "bc/pendulum", "half, of BC": {"config": "bc/pendulum", "settings": {"data.best_episodes": 0.5}}},
    "seeds": 1,
}
SMALL = ("updates=4", "eval_every=4", "eval_episodes=1", "eval_max_steps=5", "log_every=2", "algo.actor.hidden=[4]")


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(yaml.safe_dump(SUITE), encoding="utf-8")
    return "small.yaml"


def test_a_table_of_what_is_there_runs_nothing(suite: str) -> None:
    spoken = understudy("bench", suite, "--table")
    assert spoken.code == 0, spoken
    assert [line.split() for line in spoken.out.splitlines()] == [
        ["eval/return_mean", "swing"],
        ["BC", "–"],
        ["half,", "of", "BC", "–"],
        ["There", "are", "no", "results", "yet."],
        ["runs:", "runs/small"],
    ]
    one = understudy("bench", suite, "--table", "--methods", "half, of BC", "--out", "elsewhere")
    assert "BC  " not in one.out.replace("half, of BC", "")
    assert one.out.endswith("runs: elsewhere\n")
    assert not Path("runs").exists()


def test_what_is_wrong_is_said_before_anything_begins(suite: str) -> None:
    assert "Did you mean 'pendulum-quick'?" in complaint("bench", "pendulum-quik", code=2)
    assert "there is no 'CB'" in complaint("bench", suite, "--methods", "CB", code=2)
    assert complaint("bench", suite, "--seeds", "0", code=2).startswith("seeds: no seed, so nothing would be run")
    assert complaint("bench", suite, "--seeds", ",", code=2).startswith("seeds: no seed, so nothing would be run")
    assert complaint("bench", suite, "--seeds", "many", code=2).startswith("--seeds: wrong value: got 'many'")
    assert "algo.expectil: no such setting" in complaint("bench", suite, "algo.expectil=1", code=2)
    assert "understudy dataset download hopper-medium-v2" in complaint("bench", "locomotion", code=1)
    assert "data.path: is what is compared on: give it" in complaint("compare", code=2)
    assert "task: this compares on data of your own" in complaint("compare", "data.path=x.npz", "task=x", code=2)
    assert "nothing is declared to be changed about it" in complaint("ablate", "bc/pendulum", code=2)
    assert "there is no 'no clothing'" in complaint("ablate", "iact/pendulum", "--arms", "no clothing", code=2)
    for word, option in (("seed=3", "--seeds"), ("out=x", "--out"), ("task=x", "--tasks"), ("method=x", "--methods")):
        told = complaint("bench", suite, word, code=2)
        assert "every run of an experiment has its own" in told
        assert f"Say {option} " in told
    assert complaint("bench", suite, "--table", "--on", "mars", code=2).startswith("--on: no such place")
    assert not Path("runs").exists()


def test_baselines_are_those_for_the_actions_of_the_data(suite: str) -> None:
    def logs(name: str, obs: int, actions: NDArray[Any], **more: NDArray[Any]) -> str:
        ends = np.arange(20) % 10 == 9
        columns = {"observations": np.zeros((20, obs), np.float32), "actions": actions, "timeouts": ends, **more}
        np.savez(name, **columns)
        return f"data.path={name}"

    rewards = {"rewards": np.ones(20, np.float32)}
    torques = logs("torques.npz", 3, np.full((20, 1), 0.5, np.float32), **rewards)
    numbers = understudy("compare", torques, "env.id=Pendulum-v1", "--table").out
    pushes = logs("pushes.npz", 4, np.arange(20) % 2, **rewards)
    choices = understudy("compare", pushes, "env.id=CartPole-v1", "--table").out
    assert [line.split("  ")[0] for line in numbers.splitlines()[1:9]] == [
        *("BC", "10 % BC", "TD3+BC", "CQL", "IQL", "ReBRAC", "CIQL", "IACT")
    ]
    assert [line.split("  ")[0] for line in choices.splitlines()[1:6]] == [
        *("BC", "10 % BC", "discrete CQL", "IQL", "IACT")
    ]
    alone = understudy("compare", pushes, "--table").out
    assert [line.split("  ")[0] for line in alone.splitlines()[:5]] == [
        *("eval/action_error", "BC", "discrete CQL", "IQL", "IACT")
    ]
    assert "hold out different episodes" in complaint("compare", pushes, "--methods", "BC, 10 % BC", code=2)

    told = complaint("compare", torques, "env.id=CartPole-v1", code=1)
    assert told.startswith("dataset 'torques.npz': actions are numbers: expected choices, as in CartPole-v1. Is the")
    told = complaint("compare", logs("two.npz", 3, np.zeros((20, 2)), **rewards), "env.id=Pendulum-v1", code=1)
    assert "'two.npz': actions have the wrong size: got 2, expected 1, as in Pendulum-v1" in told
    told = complaint("compare", logs("poles.npz", 4, np.arange(20) % 2, **rewards), "env.id=Pendulum-v1", code=1)
    assert told.startswith("dataset 'poles.npz': observation 'state' has the wrong shape: got [4], expected [3], as in")
    bare = logs("bare.npz", 3, np.full((20, 1), 0.5))
    assert "has no rewards, and all but cloning learn from them" in complaint("compare", bare, code=1)
    assert understudy("compare", bare, "env.id=Pendulum-v1", "--methods", "BC", "--table").code == 0
    assert not Path("runs").exists()


def test_tables_are_compared_and_ablated_by_the_names_of_their_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{step % 7},{step % 5 * 0.75},{step % 3},{step // 50}" for step in range(200)]
    (tmp_path / "logs.csv").write_text("\n".join(["heat,valve,cost,day", *rows]) + "\n")
    words = ("data.path=logs.csv", "--action-low", "0", "--action-high", "4", "--on", "slurm", "--dry-run", "--quiet")
    columns = ("--columns", "obs=heat,action=valve,reward=-cost,episode=day")
    assert "Say which: --columns" in complaint("compare", *words, code=1)
    for command in (("compare", "--methods", "BC"), ("ablate", "iql", "--arms", "expectile 0.5 × beta 1")):
        sent = understudy(*command, *words, *columns, "--seeds", "2")
        assert sent.code == 0, sent
    texts = [path.read_text() for path in Path("runs").glob("*/slurm/*/runs.jsonl")]
    assert len(texts) == 2
    assert all("columns: obs=heat,action=valve" in text for text in texts)
    assert all("action_high:" in text and "action_high: null" not in text for text in texts)


def test_an_ablation_of_ones_own(suite: str) -> None:
    Path("mine.yaml").write_text("{about: x, arms: {slow: {algo.learning_rate: 1e-5}, same: {threads: 1}}}")
    spoken = understudy("ablate", "bc/pendulum", "--changes", "mine.yaml", "--table", "updates=3")
    assert [line.split()[0] for line in spoken.out.splitlines()[:3]] == ["eval/return_mean", "base", "slow"]
    assert "same" not in spoken.out
    assert "runs/ablate-bc-pendulum" in spoken.out


def test_unfinished_runs_of_other_versions_are_refused_unless_they_are_accepted(suite: str, no_plots: None) -> None:
    send = ("bench", suite, *SMALL, "--on", "slurm", "--dry-run", "--quiet")
    sent = understudy(*send)
    assert sent.code == 0, sent
    first = json.loads(next(Path("runs/small/slurm").glob("*/runs.jsonl")).read_text().splitlines()[0])
    assert Outcome.from_json(train_or_resume(first["directory"], first["config"])).outcome == "finished"
    run = RunDir(first["directory"])
    run.result_file.unlink()
    shutil.rmtree(run.checkpoints)
    run.meta_file.write_text(run.meta_file.read_text().replace('"understudy": "', '"understudy": "0.0.'))
    told = complaint(*send, code=1)
    assert told.startswith("run 'runs/small/BC/swing/0': was written with other versions (understudy 0.0.")
    assert told.endswith("accept it: --accept-versions.\n")
    assert understudy("bench", suite, *SMALL, "--table").code == 0
    accepted = understudy(*send[:-1], "--accept-versions")
    assert accepted.code == 0
    assert "note: 1 unfinished run of other versions or code (understudy 0.0." in accepted.err
    lists = [path.read_text() for path in Path("runs/small/slurm").glob("*/runs.jsonl")]
    assert sorted(text.count("accept_versions: true") for text in lists) == [0, 2]
    again = next(json.loads(text.splitlines()[0]) for text in lists if "accept_versions: true" in text)
    assert Outcome.from_json(train_or_resume(again["directory"], again["config"])).outcome == "finished"


def test_a_table_shows_what_is_there_and_notes_in_what_it_is_not_what_was_asked_for(suite: str, no_plots: None) -> None:
    def run(seeds: list[int], *words: str) -> None:
        plan = us.Experiment(suite, seeds=seeds, methods=["BC"], overrides=[*SMALL, *words]).plan
        for making in plan.makings:
            making.make()
        for planned in plan.runs:
            assert '"finished"' in train_or_resume(str(planned.directory), planned.order)

    run([0, 1])
    spoken = understudy("bench", suite, "--table")
    assert spoken.code == 0, spoken
    assert "note: 1 run of other settings than are asked for, among them runs/small/BC/swing/0: " in spoken.err
    assert "updates is 4 there and " in spoken.err
    assert "note: 1 run with other seeds there: --seeds 2 counts them" in spoken.err
    assert "(1)" in spoken.out.splitlines()[1]
    assert understudy("bench", suite, "--table", "--quiet").err == ""
    assert "(2)" in understudy("bench", suite, "--table", "--seeds", "2").out.splitlines()[1]
    run([2], "updates=5")
    mixed = complaint("bench", suite, "--table", "--seeds", "3", code=1)
    assert (
        "'runs/small/BC/swing/0' and 'runs/small/BC/swing/2' are of different experiments: updates is 4 and 5" in mixed
    )


def test_what_is_decided_so_far_is_shown_without_running_anything(suite: str) -> None:
    Path("mine.yaml").write_text("{about: x, arms: {slow: {algo.learning_rate: 1e-5}}}")
    for words in (("bench", suite, "--seeds", "3"), ("ablate", "bc/pendulum", "--changes", "mine.yaml")):
        spoken = understudy(*words, "--table", "--until-decided")
        assert spoken.code == 0, spoken
        assert ("no results yet" in spoken.out) or ("nothing can be said" in spoken.out)
    assert "groups of 1 seed can be dealt in 32 ways" in complaint("bench", suite, "--until-decided", code=2)
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_suite_is_run_to_its_end_and_told(suite: str) -> None:
    spoken = understudy("bench", suite, *SMALL, "--jobs", "2", "--seeds", "2")
    assert spoken.code == 0, spoken
    assert "small: 4 of 4 runs finished" in spoken.err
    assert "(2)" in spoken.out.splitlines()[1]
    assert "with 2 seeds" in spoken.out
    again = understudy("bench", suite, *SMALL, "--seeds", "2", "--quiet")
    assert (again.out, again.err) == (spoken.out, "")

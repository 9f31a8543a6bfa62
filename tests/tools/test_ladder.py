"""The ladder of a run: five datasets by its own history, made once, and again to the byte."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from understudy.cli.program import run as command
from understudy.core.errors import CheckpointError, ConfigError, DataError, RunError
from understudy.data.dataset import Dataset
from understudy.data.ladders import LEVELS, Ladder
from understudy.data.stores.store import store_recipe
from understudy.run.checkpoint import list_checkpoints
from understudy.run.config import parse_config
from understudy.run.replay_data import replay_recording
from understudy.tools.ladder import joined, ladder_folder, pack_ladder, thinned, trained_run
from worlds import random_dataset, tiny_settings

RETURNS = {5: -1500.0, 10: -1050.0, 15: -600.0, 20: -150.0}
"""A third of the way is update 10. The best policy is kept from the true evaluations, whichever it is."""


def write_returns(run: Path, returns: dict[int, float]) -> None:
    lines = [json.dumps({"updates": updates, "eval/return_mean": value}) for updates, value in returns.items()]
    (run / "eval.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = {"kind": "replay", "num_envs": 2, "learning_starts": 500, "batch_size": 4, "exploration_noise": 0.1}
    plan: dict[str, Any] = {"updates": 20, "eval_every": 5, "save_every": 5, "keep_checkpoints": 100}
    plan |= {"eval_episodes": 1, "eval_max_steps": 20, "env": {"id": "Pendulum-v1", "reference": [-1600.0, -100.0]}}
    settings = tiny_settings("td3bc", tmp_path_factory.mktemp("ladder") / "run", source=source, **plan)
    settings.pop("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.run.loop.draw_run", lambda run: None)
        path = us.train(parse_config(settings)).path
    write_returns(path, RETURNS)
    return path


@pytest.fixture(scope="module")
def made(run: Path) -> Ladder:
    return us.collect_ladder(run, run.parent / "made", steps=500, num_envs=3)


def test_every_level_is_a_dataset(made: Ladder, run: Path) -> None:
    assert tuple(made.levels) == LEVELS
    for name, facts in made.levels.items():
        dataset = us.load_dataset(made.path / name)
        assert (dataset.fingerprint, dataset.steps, dataset.episodes) == (
            *(facts.fingerprint, facts.steps, facts.episodes),
        )
        assert facts.return_mean == pytest.approx(dataset.returns().mean())
        assert made.score(facts) == pytest.approx(100 * (facts.return_mean + 1600) / 1500)
        assert dataset.env == "Pendulum-v1"
    assert [made.levels[name].steps for name in ("random", "medium", "expert", "medium-expert")] == [500] * 3 + [1000]
    assert (made.path / "returns.png").stat().st_size > 5000


def test_who_plays_is_said_by_the_run_s_history(made: Ladder, run: Path) -> None:
    expert = json.loads((run / "policy" / "best" / "policy.json").read_text())["facts"]["updates"]
    for name, updates in {"medium": 10, "expert": expert}.items():
        (policy,) = store_recipe(made.path / name)["policies"]
        assert (policy["updates"], policy["greedy"]) == (updates, False)
        assert made.levels[name].made_by == f"policy of update {updates}, sampled"
    assert store_recipe(made.path / "random")["policies"] == [{"policy": "random", "share": 1.0}]
    assert "medium: update 10" in made.facts.origin


def test_medium_replay_is_the_buffer_of_the_medium_checkpoint(made: Ladder, run: Path) -> None:
    recording = replay_recording(run, 10)
    assert recording.space is not None
    buffer = Dataset.from_episodes(recording.episodes(), recording.space)
    assert buffer.fingerprint == made.levels["medium-replay"].fingerprint
    assert buffer.steps == 510  # what was played before the first update, and as many as there were updates


def test_medium_expert_is_both(made: Ladder) -> None:
    both = us.load_dataset(made.path / "medium-expert")
    halves = [us.load_dataset(made.path / name) for name in ("medium", "expert")]
    np.testing.assert_array_equal(both.rewards, np.concatenate([half.rewards for half in halves]))
    np.testing.assert_array_equal(both.returns(), np.concatenate([half.returns() for half in halves]))


def test_what_is_finished_is_not_made_again_and_the_rest_is_the_same(made: Ladder, run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(made.path, tmp_path / "copy")
    for name in ("expert", "medium-expert"):
        shutil.rmtree(copy / name)
    before = {file: file.stat().st_mtime_ns for file in (copy / "medium").iterdir()}
    again = us.collect_ladder(run, copy, steps=500, num_envs=3)
    assert again.facts == made.facts
    assert before == {file: file.stat().st_mtime_ns for file in (copy / "medium").iterdir()}
    with pytest.raises(DataError, match=r"random: already exists, and is another dataset \(steps 600, there 500\)"):
        us.collect_ladder(run, copy, steps=600, num_envs=3)
    with pytest.raises(DataError, match="medium-replay: already exists, and was made from something else"):
        us.collect_ladder(run, copy, steps=500, num_envs=3, replay_steps=50)


def test_packed_it_is_the_same_in_small_files(made: Ladder, tmp_path: Path) -> None:
    packed = pack_ladder(made, tmp_path / "packed")
    assert {file.name for file in packed.path.iterdir()} == {
        *("ladder.json", "random.npz", "medium-replay.npz", "medium.npz", "expert.npz"),
    }
    for name, facts in made.levels.items():
        assert us.load_dataset(packed.path / name).fingerprint == facts.fingerprint
        assert packed.score(packed.level(name)) == made.score(facts)
    with pytest.raises(DataError, match="already exists"):
        pack_ladder(made, tmp_path / "packed")


def test_a_part_of_the_buffer_is_taken_evenly() -> None:
    """Long episodes are as likely as short ones, early ones as late ones."""
    lengths = np.random.default_rng(0).integers(1, 8, 200).tolist()
    whole = joined([random_dataset(count=1, steps=steps, seed=number) for number, steps in enumerate(lengths)])
    few = thinned(whole, 200)
    assert few.steps == sum(map(len, few.episodes())) == pytest.approx(200, abs=25)
    lengths = [len(episode) for episode in few.episodes()]
    assert set(lengths) == {1, 2, 3, 4, 5, 6, 7}
    assert sum(lengths[: len(lengths) // 2]) == pytest.approx(100, abs=25)
    assert thinned(whole, 10_000).steps == whole.steps


def test_a_run_without_a_buffer_has_its_history_played(tmp_path: Path) -> None:
    plan: dict[str, Any] = {"updates": 8, "eval_every": 2, "save_every": 2, "eval_max_steps": 5, "eval_episodes": 1}
    path = us.train(parse_config(tiny_settings("bc", tmp_path / "run", **plan))).path
    write_returns(path, {2: 0.0, 4: 3.0, 6: 9.0, 8: 8.0})
    made = us.collect_ladder(path, tmp_path / "made", steps=250, num_envs=2)
    assert [policy["updates"] for policy in store_recipe(made.path / "medium-replay")["policies"]] == [2, 4]
    assert made.levels["medium-replay"].made_by == "checkpoints up to update 4 in equal parts, sampled"
    assert made.score(made.level("expert")) is None


def test_everything_wrong_is_told_before_anything_is_played(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such directory"):
        us.collect_ladder(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(ConfigError, match="steps"):
        us.collect_ladder(run, tmp_path / "out", steps=0)
    with pytest.raises(DataError, match=r"hopper-mediun-v2.*Did you mean"):
        us.collect_ladder(run, tmp_path / "out", steps=50, reference="hopper-mediun-v2")
    copy = shutil.copytree(run, tmp_path / "copy")
    for updates in (5, 10, 15):
        shutil.rmtree(copy / "checkpoints" / f"{updates:09d}")
    with pytest.raises(CheckpointError, match="save_every equal to eval_every and keep_checkpoints=1000"):
        us.collect_ladder(copy, tmp_path / "out", steps=50)
    assert not (tmp_path / "out").exists()


def test_folders_are_called_as_environments_are() -> None:
    names = {"Hopper-v5": "hopper", "HalfCheetah-v5": "halfcheetah", "a/Own-v0": "own", "Other": "own"}
    assert {env: ladder_folder(env).name for env in names} == names


def test_the_command_tells_the_levels_from_the_worst_to_the_best(
    made: Ladder, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["collect", "ladder", str(run), "--steps", "500", "--num-envs", "3", "--out", str(made.path)]
    assert command([*words, "--packed", str(tmp_path / "packed")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:6]] == list(LEVELS)
    assert lines[3].split()[1:3] == ["500", "3"]
    assert lines[-1].endswith(f"packed: {tmp_path / 'packed'}")
    assert us.load_dataset(tmp_path / "packed" / "expert").fingerprint == made.levels["expert"].fingerprint
    for more, told in {
        ("--packed", str(tmp_path / "packed")): "already exists",
        ("seed=3",): "seed=3: is for a run that is trained first",
        ("--steps", "0"): "steps: ",
    }.items():
        assert command([*words, *more]) != 0
        assert told in capsys.readouterr().err
    assert command(["collect", "ladder", "hoper"]) == 2
    assert "no such directory, and no task of its own. Did you mean 'hopper'?" in capsys.readouterr().err
    assert command(["dataset", "from-run", str(run), str(tmp_path / "buffer.npz"), "--checkpoint", "10"]) == 0
    assert made.levels["medium-replay"].fingerprint in capsys.readouterr().out


def test_the_buffer_of_the_best_checkpoint_is_not_that_of_the_last(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    us.save_policy(us.load_policy(run, 10), copy / "policy" / "best", {"updates": 10})
    assert replay_recording(copy).name.endswith("at update 20")
    assert replay_recording(copy, "best").name.endswith("at update 10")
    shutil.rmtree(copy / "checkpoints" / f"{10:09d}")
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        replay_recording(copy, "best")
    shutil.rmtree(copy / "policy" / "best")
    with pytest.raises(CheckpointError, match="has no best policy yet"):
        replay_recording(copy, "best")


def test_a_task_is_trained_once_where_its_run_belongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("understudy.run.loop.draw_run", lambda run: None)
    words = ["env_steps=304", "source.learning_starts=300", "eval_every=2", "eval_max_steps=5", "eval_episodes=1"]
    words.append("save_every=3")
    path = trained_run("pendulum", words)
    assert path == Path("runs/sac/pendulum/0")
    assert list_checkpoints(path / "checkpoints") == [2, 4]  # one for every evaluation, whatever the config saves
    before = (path / "result.json").stat().st_mtime_ns
    assert trained_run("pendulum", words) == path
    assert (path / "result.json").stat().st_mtime_ns == before
    for word in ("algo.gamma=0.5", "env_steps=1400", "updates=5"):
        with pytest.raises(RunError, match=f"was trained with other settings than {re.escape(word)}"):
            trained_run("pendulum", [word])
    (path / "result.json").unlink()  # as if it had been stopped at its end
    assert trained_run("pendulum", []) == path
    assert (path / "result.json").exists()


@pytest.mark.slow
def test_levels_of_a_pendulum_s_run_are_of_graded_quality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command from nothing; the second time it finds everything there."""
    monkeypatch.chdir(tmp_path)
    assert command(["collect", "ladder", "pendulum", "--steps", "10000", "-q"]) == 0
    made = Ladder(Path("ladders/pendulum"), "pendulum")
    means = {name: level.return_mean for name, level in made.levels.items()}
    assert means["random"] < means["medium"] < means["medium-expert"] < means["expert"]
    assert means["medium-replay"] < means["medium"]  # a young pendulum earns less than chance: so may its buffer
    assert means["expert"] > -250
    capsys.readouterr()
    assert command(["collect", "ladder", "pendulum", "--steps", "10000"]) == 0
    assert capsys.readouterr().err.count("finished before") == 3
    assert command(["collect", "ladder", "pendulum", "algo.gamma=0.5", "--steps", "10000"]) == 1
    assert "was trained with other settings than algo.gamma=0.5" in capsys.readouterr().err

"""Learning from logs of something that has no simulator: from the command line to an exported policy, to the bit."""

import json
import signal
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import fast_folder
from forks import forks
from rich.console import Console
from small import content, short_settings, write_settings

import understudy as us
from understudy.core.errors import ConfigError, DataError, RunError
from understudy.run.build import build_learner
from understudy.run.config import load_config, parse_config
from understudy.run.evaluate import evaluate_policy
from understudy.run.progress import Reporter
from understudy.tools.export import export_policy

pytestmark = pytest.mark.usefixtures("no_plots")

SMALL = (
    *("algo.actor.hidden=[8]", "algo.critic.hidden=[8]", "source.batch_size=16", "compile=false", "updates=40"),
    *("log_every=10", "eval_every=5", "save_every=10"),
)


def write_logs(path: Path, *, days: int = 20, seed: int = 0, rewards: bool = True) -> Path:
    """A heater's log: inside, outside and hour; a valve from 0 to 10 and a fan."""
    rng, steps = np.random.default_rng(seed), 12
    obs = rng.normal(size=(days * steps, 3)).astype(np.float32)
    valve, fan = np.clip(5 + 5 * obs[:, 0], 0.5, 9.5), (obs[:, 1] > 0).astype(np.float32)
    columns = {"observations": obs, "actions": np.stack([valve, fan], 1).astype(np.float32)}
    if rewards:
        columns["rewards"] = -np.abs(obs[:, 2]) - 1
    ends = np.arange(days * steps) % steps == steps - 1
    np.savez(path, **columns, terminals=np.zeros(len(ends), bool), timeouts=ends)  # type: ignore[arg-type]
    return path


def words(logs: Path, out: Path, *more: str) -> list[str | Path]:
    return ["train", "iql", f"data.path={logs}", f"out={out}", *SMALL, *more]


def test_from_a_file_to_an_exported_policy_through_a_kill_to_the_bit() -> None:
    with fast_folder() as folder:
        logs = write_logs(folder / "heat.npz")
        whole, killed = folder / "whole", folder / "killed"
        bounds = ("--action-low", "0,0", "--action-high", "10,1")
        ended = forks().run(*words(logs, whole), *bounds, no_plots=True)
        assert ended.code == 0, ended.err
        assert "Held out to judge by: 2 of 20 episodes" in ended.err
        assert "finished: action error" in ended.out
        assert forks().run(*words(logs, killed), *bounds, die_at=60, no_plots=True).code == -signal.SIGKILL
        assert not (killed / "result.json").exists()
        assert forks().run("resume", killed, no_plots=True).code == 0
        assert content(killed) == content(whole)

        run = us.Run(whole)
        assert run.config.env is None
        assert run.policy().spec.box.low == (0, 0)
        assert run.policy().spec.box.high == (10, 1)
        assert len(run.evaluations()) == 8
        for line in run.evaluations():
            assert all(np.isfinite(line[f"eval/{name}"]) for name in ("action_error", "td_error", "value_of_starts"))
        actions = run.predict(np.zeros((4, 3), np.float32))
        assert actions.shape == (4, 2)
        assert (actions >= 0).all()
        assert (actions <= [10, 1]).all()
        exported = export_policy(whole, "onnx", out=folder / "export")
        assert exported.parity.difference < 1e-5
        told = (folder / "export" / "card.md").read_text()
        assert "Policy" in told
        assert "| env |" not in told
        assert f"| held_out.eval/action_error | `{run.result['eval/action_error']}` |" in told
        with pytest.raises(RunError, match=r"trained without an environment.*give an environment: --env ID"):
            run.evaluate()
        said = forks().run("evaluate", whole)
        assert said.code == 1
        assert "trained without an environment" in said.err


def test_bounds_come_from_the_file_or_the_line_and_are_kept(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "heat.npz")

    def learner_space(**data: Any) -> Any:
        settings = short_settings("bc", tmp_path / "run", env=None, data={"path": str(logs), **data})
        return build_learner(parse_config(settings)).policy.spec.box

    with np.load(logs) as columns:
        low, high = columns["actions"].min(0), columns["actions"].max(0)
    box = learner_space()
    assert (box.low, box.high) == (tuple(low.tolist()), tuple(high.tolist()))
    assert learner_space(action_low=-1, action_high="20,2").high == (20, 2)
    with pytest.raises(DataError, match=r"actions lie outside the action space, the first in row \d+"):
        learner_space(action_low=0, action_high=[5, 1])
    for wrong in ({"action_low": 0}, {"action_low": [0, 0, 0], "action_high": 1}, {"action_low": 3, "action_high": 1}):
        with pytest.raises(ConfigError, match=r"^data\.action_low"):
            learner_space(**wrong)
    still = tmp_path / "still.npz"
    with np.load(logs) as columns:
        held = {name: columns[name] for name in columns}
    held["actions"][:, 1] = 3
    np.savez(still, **held)
    box = learner_space(path=str(still))
    assert (box.low[1], box.high[1]) == (2, 4), "a dimension that never changes has room on either side"
    with pytest.raises(ConfigError, match="the environment says what actions there are"):
        parse_config(short_settings("bc", tmp_path, data={"path": "x", "action_low": 0, "action_high": 1}))


def test_patience_ends_a_run_early_and_a_killed_one_ends_alike() -> None:
    """A policy that learns nothing (a step size of 0 but for rounding) gets no better after its first evaluation."""
    with fast_folder() as folder:
        settings = short_settings("bc", folder / "whole", env=None, patience=2, eval_every=3, updates=60)
        settings["algo"]["learning_rate"] = 1e-30
        whole = us.train(parse_config(settings), progress=False)
        assert whole.result["updates"] == 9, "the first is the best, and two more are not better"
        assert whole.result["best"]["updates"] == 3
        assert whole.result["stopped_early"] == "eval/action_error was not better in 2 evaluations"
        assert whole.finished
        with pytest.raises(RunError, match=r"ended early.*larger patience"):
            us.resume(whole.path, updates=100, progress=False)
        config = write_settings(folder / "killed.yaml", {**settings, "out": str(folder / "killed")})
        for moment in (60, 75, 90):
            killed = folder / "killed"
            assert forks().run("train", config, "--overwrite", die_at=moment, no_plots=True).code == -signal.SIGKILL
            if not (killed / "result.json").exists():
                assert forks().run("resume", killed, no_plots=True).code == 0
            ours, theirs = (json.loads((run / "result.json").read_text()) for run in (killed, whole.path))
            assert ours == theirs
            assert content(killed) == content(whole.path)


def test_one_episode_holds_nothing_out_and_says_so(tmp_path: Path) -> None:
    logs, heard = write_logs(tmp_path / "day.npz", days=1), StringIO()
    settings = short_settings("bc", tmp_path / "run", env=None, data={"path": str(logs)}, tensorboard=False)
    run = us.train(parse_config(settings), reporter=Reporter(console=Console(file=heard, width=1000)))
    assert "No episode is held out" in heard.getvalue()
    assert run.result["best"] is None
    assert run.result["not_evaluated"] == "there is no environment, and no episode is held out"
    with pytest.raises(ConfigError, match=r"^patience: needs evaluations, and there is no environment"):
        us.train(parse_config({**settings, "patience": 1, "out": str(tmp_path / "other")}), progress=False)


def test_who_learns_from_rewards_is_told_that_there_are_none(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "heat.npz", rewards=False)
    zero = tmp_path / "zero.npz"
    with np.load(logs) as columns:
        np.savez(zero, **columns, rewards=np.zeros(len(columns["actions"]), np.float32))
    for algorithm in ("iql", "bc"):
        settings = short_settings(algorithm, tmp_path / "run", env=None)
        heard = StringIO()
        reporter = Reporter(console=Console(file=heard, width=1000))
        with_zeros = build_learner(parse_config({**settings, "data": {"path": str(zero)}}), reporter)
        assert ("every reward is 0" in heard.getvalue()) == (algorithm == "iql")
        with_zeros.close()
        config = parse_config({**settings, "data": {"path": str(logs)}})
        if algorithm == "bc":
            build_learner(config).close()
            continue
        with pytest.raises(DataError, match=r"has no rewards, and iql learns from them.*use bc"):
            build_learner(config)


def test_a_stage_and_a_warm_start_without_an_environment(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "heat.npz")
    common = {"env": None, "data": {"path": str(logs)}, "tensorboard": False}
    settings = short_settings("iql", tmp_path / "run", **common)
    algo = {**settings["algo"], "actor": {"hidden": [8]}}
    staged = us.train(
        parse_config({**settings, "algo": algo, "stages": [{"algo": {"name": "bc"}, "updates": 4}]}), progress=False
    )
    assert (staged.path / "stages" / "1-bc" / "result.json").exists()
    heir = {**settings, "algo": algo, "init_from": str(staged.path), "out": str(tmp_path / "heir")}
    assert us.train(parse_config(heir), progress=False).finished


def test_held_out_episodes_and_the_world_both_show_learning(tmp_path: Path) -> None:
    """A pole's logs, learned from without the pole; afterwards the policy is tried on it."""
    skilled = [{"policy": "scripted", "skill": 1.0, "epsilon": 0.1}]
    recipe = {"env": "CartPole-v1", "episodes": 30, "seed": 0, "behaviours": skilled}
    algo = {"name": "bc", "learning_rate": 1e-3, "actor": {"hidden": [32]}}
    beats = {"updates": 300, "log_every": 100, "eval_every": 100, "save_every": 300, "tensorboard": False}
    config = load_config({"algo": algo, "data": {"recipe": recipe}, **beats, "out": str(tmp_path / "run")})
    untrained = build_learner(config)
    run = us.train(config, progress=False)
    assert run.result["eval/action_error"] < 0.5 * untrained.eval_metrics()["eval/action_error"]
    before = evaluate_policy(untrained.policy, "CartPole-v1", 10, run.config.seed)
    after = run.evaluate(10, env="CartPole-v1", progress=False)
    assert after.mean > before.mean + 100


def test_what_plays_needs_an_environment() -> None:
    with pytest.raises(ConfigError, match=r"plays in environments, and there is none: env\.id="):
        parse_config({"algo": {"name": "ppo"}})


def test_days_of_a_table_from_a_check_to_actions_by_name(tmp_path: Path) -> None:
    """One command each, with the same words: the columns are told once, and new rows are found by their names."""
    (tmp_path / "days").mkdir()
    rng = np.random.default_rng(0)
    for day in range(10):
        rows = [f"auto,{t:.3f},{v:.3f},{c:.3f}" for t, v, c in rng.uniform(0, 10, (12, 3))]
        (tmp_path / "days" / f"{day}.csv").write_text("\n".join(["mode,temp,valve,energy", *rows]))
    days = f"data.path={tmp_path / 'days'}"
    table = (days, "--columns", "obs=temp,action=valve,reward=-energy", "--action-low", "0")
    told = forks().run("check", "iql", days)
    assert told.code == 1, told.err
    assert "no column is known to be the observations: got mode, temp, valve, energy" in told.err
    bounded = (*table, "--action-high", "10")
    checked = forks().run("check", "iql", *bounded)
    assert "columns: obs=temp,action=valve,reward=-energy" in checked.out, checked.err
    ended = forks().run("train", "iql", *bounded, f"out={tmp_path / 'run'}", *SMALL, no_plots=True)
    assert ended.code == 0, ended.err
    (tmp_path / "new.csv").write_text("energy,temp\n,3\n,4.5\n")
    said = forks().run("predict", tmp_path / "run", "--obs", tmp_path / "new.csv", "--out", tmp_path / "do.csv")
    assert said.code == 0, said.err
    expected = us.Run(tmp_path / "run").predict([[3.0], [4.5]])
    header, *lines = (tmp_path / "do.csv").read_text().splitlines()
    assert header == "valve"
    assert [float(line) for line in lines] == pytest.approx(expected[:, 0].tolist(), abs=1e-6)
    exported = export_policy(tmp_path / "run", "onnx", out=tmp_path / "export")
    assert exported.card["observation"]["state"]["segments"] == [{"name": "temp", "start": 0, "stop": 1}]
    told_to_people = (tmp_path / "export" / "card.md").read_text()
    assert "Columns of `state`: `temp` 0:1." in told_to_people
    assert "`obs=temp,action=valve,reward=-energy`" in told_to_people

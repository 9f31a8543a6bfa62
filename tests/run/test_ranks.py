"""One run in several processes: the numbers of one process, one run directory, and ends that all hear of."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small import StoppedAt
from torch.distributed.rendezvous import rendezvous

import understudy as us
from ranks import in_ranks
from understudy import Dataset, Discrete, Episode
from understudy.cli.program import run as run_command
from understudy.core.errors import ConfigError, DivergenceError, RunError
from understudy.core.ranks import (
    LostProcessError,
    Share,
    across,
    averaged,
    own,
    process_share,
    shared,
    slice_of_draw,
    whole,
)
from understudy.core.stopping import StoppedError, stoppable
from understudy.run.build import build_learner
from understudy.run.checkpoint import list_checkpoints
from understudy.run.config import load_config
from understudy.run.crew import check_shared, line_of_process
from understudy.run.learner import Learner
from understudy.run.loop import InterruptedRunError
from worlds import tiny_settings

CLOSE = 1e-6
"""Relative to the largest number of a tensor, after 20 updates."""
Changes = Mapping[str, Any]
CLIPPED = {"kind": "adamw", "weight_decay": 0.01, "max_grad_norm": 0.5, "schedule": "cosine"}
QUICK: dict[str, tuple[str, Changes]] = {
    "iql": ("iql", {"algo.critic_optimizer.max_grad_norm": 1.0, "source.priority.exponent": 0.6}),
    "td3bc": ("td3bc", {"algo.n_step": 3}),
    "bc": ("bc", {}),
    "iact, weighed": ("iact", {"algo.teaching.keep": 0.7, "source.importance.provider": "elite"}),
}
OTHERS: dict[str, tuple[str, Changes]] = {
    "iql, weights of mean 1": ("iql", {"algo.awr_norm": "batch_mean"}),
    "iql, softmax of advantages": ("iql", {"algo.awr_norm": "softmax"}),
    "cql": ("cql", {"algo.lagrange": True, "algo.sampled_actions": 3}),
    "cal-ql": ("cql", {"algo.calibrate": True, "algo.sampled_actions": 3, "algo.warm_start": 5}),
    "ciql": ("ciql", {"algo.sampled_actions": 3}),
    "ciql that climbs": ("ciql", {"algo.extraction": "ddpg_bc"}),
    "rebrac": ("rebrac", {"algo.actor_optimizer": CLIPPED, "algo.critic_optimizer": CLIPPED}),
    "iact": ("iact", {"algo.teaching.keep": 0.7}),
    "iact, td": ("iact", {"algo.teaching": {"score": "td", "keep": 0.7, "select_critic": True, "disagreement": 0.8}}),
    "iact, confident": ("iact", {"algo.cloning.confidence": 1.5, "algo.teaching.keep": 0.7}),
    "iact, sac_bc": ("iact", {"algo.base": "sac_bc", "algo.cloning.adaptive.target": 0.1}),
    "sac": ("sac", {}),
    "redq": ("redq", {}),
    "discrete_cql": ("discrete_cql", {"algo.penalty": "sampled", "algo.negatives": 1}),
    "discrete_sac": ("discrete_sac", {}),
}


@pytest.fixture(autouse=True)
def _no_plots(no_plots: None) -> None:
    pass


def short(algorithm: str, out: Path, **changes: Any) -> dict[str, Any]:
    """20 updates without evaluations, logged twice."""
    settings = tiny_settings(algorithm, out, updates=20, eval_every=0, log_every=10, save_every=20)
    return {**settings, "source": {"kind": "offline", "batch_size": 32}, **changes}


def same(one: Path, other: Path, close: float) -> None:
    """The newest states and the last logs agree: what is drawn and counted to the bit, what is rounded nearly."""
    ours, theirs = (load_file(run / "checkpoints" / "000000020" / "state.safetensors") for run in (one, other))
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        if values.is_floating_point() and "priorit" not in name:
            assert (values - theirs[name]).abs().max() <= close * (1e-3 + values.abs().max()), name
        elif not values.is_floating_point():
            assert torch.equal(values, theirs[name]), name
    logs = (json.loads((run / "metrics.jsonl").read_text().splitlines()[-1]) for run in (one, other))
    mine, others = logs
    assert mine.keys() == others.keys()
    for name, value in mine.items():
        if value is not None:
            assert others[name] == pytest.approx(value, rel=1e2 * close, abs=10 * close), name


def run_content(run: Path) -> dict[str, str]:
    """sha256 of what two runs have in common that are equal to the bit."""
    newest = f"checkpoints/{list_checkpoints(run / 'checkpoints')[-1]:09d}/state.safetensors"
    names = [newest, "metrics.jsonl", "eval.jsonl", "policy/final/policy.safetensors", "result.json"]
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}


def compare(cases: Mapping[str, tuple[str, Changes]], folder: Path) -> None:
    alone, together = folder / "alone", folder / "together"

    def train(place: Path) -> None:
        for name, (algorithm, changes) in cases.items():
            run = us.train(short(algorithm, place / name), progress=False, **changes)
            assert run.path == place / name

    train(alone)
    assert in_ranks(lambda: train(together)) == [0, 0]
    for name in cases:
        same(alone / name, together / name, CLOSE)


def test_two_processes_learn_what_one_does_and_write_one_directory(tmp_path: Path) -> None:
    compare(QUICK, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "together"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:algo.awr_norm=softmax")
def test_every_algorithm_that_can_be_shared_learns_what_it_does_alone(tmp_path: Path) -> None:
    compare(OTHERS, tmp_path)


@pytest.mark.slow
def test_stages_are_shared_too(tmp_path: Path) -> None:
    stage = {"algo": {"name": "bc", "actor": {"hidden": [16, 16]}}, "source": {"kind": "offline", "batch_size": 16}}
    compare({"iql after bc": ("iql", {"stages": [{**stage, "updates": 10}]})}, tmp_path)


def few_choices() -> Dataset:
    """Not all actions are legal, rows are drawn by what they are worth, and some have no known successor."""
    rng, episodes, steps = np.random.default_rng(3), [], 10
    for _ in range(12):
        mask, actions = rng.random((steps, 4)) < 0.6, rng.integers(0, 4, steps)
        mask[np.arange(steps), actions] = True
        seen, rewards = (rng.standard_normal(shape).astype(np.float32) for shape in ((steps, 3), steps))
        worth = {"worth": rng.random(steps)}
        known = {"terminated": False, "truncated": True, "final_known": False}
        episodes.append(Episode({"state": seen}, actions, rewards, mask=mask, extra=worth, **known))
    return Dataset.from_episodes(episodes, Discrete(4), name="few choices")


@pytest.mark.slow
def test_masks_weights_unknown_successors_and_a_policy_to_begin_with_are_shared_too(tmp_path: Path) -> None:
    data, algorithms = few_choices(), ("bc", "discrete_cql", "discrete_sac", "iact", "iql", "ciql")

    def train(place: Path) -> None:
        for algorithm in algorithms:
            origin = "" if algorithm in ("bc", "discrete_cql") else str(place / "bc")
            settings = short(algorithm, place / algorithm, env=None, init_from=origin)
            settings["source"]["weights"] = "worth"
            us.train({**settings, "data": {}}, data=data, progress=False)

    train(tmp_path / "alone")
    assert in_ranks(lambda: train(tmp_path / "together")) == [0, 0]
    for algorithm in algorithms:
        same(tmp_path / "alone" / algorithm, tmp_path / "together" / algorithm, CLOSE)


LONG: dict[str, Any] = {"updates": 300, "save_every": 50, "eval_every": 150, "eval_episodes": 1, "eval_max_steps": 10}


def at_the_first_checkpoint(run: Path, act: Callable[[], None]) -> None:
    """Somebody does something while the run goes on."""

    def wait_and_act() -> None:
        while not (run / "checkpoints" / "latest").exists():
            time.sleep(0.001)
        act()

    threading.Thread(target=wait_and_act, daemon=True).start()


def ends_by(rank: int, number: signal.Signals, run: Path, errors: Mapping[int, type[Exception]]) -> Callable[[], None]:
    """Training in which one process is hit by a signal, and the others meet errors."""

    def train() -> None:
        mine = process_share().rank
        os.environ["UNDERSTUDY_PATIENCE"] = "5" if number == signal.SIGSTOP else "100"
        if mine == rank:
            at_the_first_checkpoint(run, lambda: os.kill(os.getpid(), number))
        with pytest.raises(errors[mine]):
            us.train(short("td3bc", run, **LONG), progress=False)
        if number == signal.SIGSTOP:
            (other,) = (int(pid) for pid in run.with_name("pids").read_text().split() if int(pid) != os.getpid())
            os.kill(other, signal.SIGKILL)

    def noted() -> None:
        with run.with_name("pids").open("a") as file:
            file.write(f"{os.getpid()} ")
        train()

    return noted


@pytest.mark.slow
def test_however_one_process_ends_all_do_and_the_same_processes_go_on_to_the_bit(tmp_path: Path) -> None:
    def train_whole() -> None:
        us.train(short("td3bc", tmp_path / "whole", **LONG), progress=False)

    def go_on(run: Path) -> None:
        us.resume(run, progress=False)

    assert in_ranks(train_whole) == [0, 0]
    whole = run_content(tmp_path / "whole")
    told, lost = {0: InterruptedRunError, 1: RunError}, {0: LostProcessError, 1: LostProcessError}
    ends = (
        ("told", 1, signal.SIGTERM, told, [0, 0]),
        ("told first", 0, signal.SIGINT, told, [0, 0]),
        ("killed", 1, signal.SIGKILL, lost, [0, -signal.SIGKILL]),
        ("killed first", 0, signal.SIGKILL, lost, [-signal.SIGKILL, 0]),
        ("hung", 1, signal.SIGSTOP, lost, [0, -signal.SIGKILL]),
    )
    for name, rank, number, errors, codes in ends:
        run = tmp_path / name / "run"
        run.parent.mkdir()
        assert in_ranks(ends_by(rank, number, run, errors)) == codes, name
        assert not (run / "result.json").exists()
        assert in_ranks(partial(go_on, run)) == [0, 0], name
        assert run_content(run) == whole, name


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_in_one(tmp_path: Path) -> None:
    def stop_at_ten() -> None:
        settings = short("iql", tmp_path / "run", save_every=10)
        with pytest.raises(KeyboardInterrupt if process_share().rank == 0 else RunError):
            us.train(settings, progress=False, callbacks=[StoppedAt(10)])

    us.train(short("iql", tmp_path / "alone"), progress=False)
    assert in_ranks(stop_at_ten) == [0, 0]
    us.resume(tmp_path / "run", progress=False)
    same(tmp_path / "alone", tmp_path / "run", CLOSE)


@pytest.mark.slow
def test_torchrun_itself_is_stopped_saved_and_resumed(tmp_path: Path) -> None:
    run, config = tmp_path / "run", tmp_path / "run.yaml"
    config.write_text(json.dumps(short("iql", run, **{**LONG, "updates": 100_000})), encoding="utf-8")
    source = Path(us.__file__).parents[1]
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "understudy"]
    start = partial(subprocess.Popen, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(source)})
    torchrun = start([*words, "train", str(config), "--quiet"])
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").stat().st_size:
        assert torchrun.poll() is None
        time.sleep(0.01)
    torchrun.send_signal(signal.SIGINT)
    said = torchrun.communicate(timeout=90)[1]
    saved = list_checkpoints(run / "checkpoints")[-1]
    sentence = f"run '{run}': stopped and saved at update {saved:,}. Go on with: understudy resume {run}"
    assert [line for line in said.splitlines() if line.startswith("run '")] == [sentence]
    finished = start([*words, "resume", str(run), f"updates={saved + 10}", "--quiet"])
    said = finished.communicate(timeout=180)[1]
    assert finished.returncode == 0, said
    assert json.loads((run / "result.json").read_text())["updates"] == saved + 10


def test_shares_are_stretches_that_make_the_whole() -> None:
    rows = torch.arange(24).view(2, 6, 2)
    parts = [Share(rank, 3).of(rows, 1) for rank in range(3)]
    assert torch.equal(torch.cat(parts, 1), rows)
    assert Share().of(rows) is rows


def test_numbers_gradients_draws_and_choices_are_of_the_whole_batch() -> None:
    def work() -> None:
        share = process_share()
        torch.distributed.init_process_group("gloo", rank=share.rank, world_size=share.size)
        whole_batch = torch.arange(12.0).view(6, 2)
        with shared(share):
            mine = share.of(whole_batch)
            assert torch.equal(across(mine.mean()), whole_batch.mean())
            assert across(torch.tensor(share.rank)) == 1.0
            gradients = averaged([mine.sum(0), mine.sum()])
            assert torch.equal(gradients[0], whole_batch.sum(0) / 3)
            assert torch.equal(gradients[1], whole_batch.sum() / 3)
            assert torch.equal(whole(mine), whole_batch)
            assert torch.equal(whole(mine > 4), whole_batch > 4)
            assert torch.equal(own(whole_batch), mine)
            drawn = slice_of_draw((4, 2, 1), 1, lambda shape: torch.arange(4.0 * shape[1]).view(shape))
            assert torch.equal(drawn, share.of(torch.arange(24.0).view(4, 6, 1), 1))
            assert slice_of_draw((5,), None, torch.ones).shape == (5,)
        assert across(mine.mean()) is not None
        assert torch.equal(across(mine.mean()), mine.mean())  # by itself again

    assert in_ranks(work, 3) == [0, 0, 0]


def test_what_several_processes_would_learn_otherwise_is_refused_before_anything(tmp_path: Path) -> None:
    def told(algorithm: str, *words: str, size: int = 2) -> str:
        config = load_config(short(algorithm, tmp_path / "run"), words)
        check_shared(config, Share())  # one process may do what it likes
        with pytest.raises(ConfigError) as error:
            check_shared(config, Share(1, size))
        return str(error.value)

    uneven = "source.batch_size: cannot be shared by 3 processes: got 32, expected a multiple of 3."
    assert told("iql", size=3) == uneven
    assert "compile: is for one process, and there are 2" in told("iql", "compile=true")
    assert "dropout would not be that of one process" in told("iql", "algo.critic.dropout=0.1")
    assert "ciql with these settings cannot be shared" in told("ciql", "algo.penalty=relu_mean")
    assert "fqe with these settings cannot be shared" in told("fqe")
    assert "source.kind=replay cannot be shared" in told("sac", "source.kind=replay", "data=null")


def test_commands_that_are_not_of_one_run_are_refused_by_several_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "0")
    for size, code in (("1", 0), ("2", 2)):
        monkeypatch.setenv("WORLD_SIZE", size)
        assert run_command(["explain", "bc"]) == code
    told = "torchrun: its 2 processes share one run: got `explain`, expected `train` or `resume`."
    assert capsys.readouterr().err.startswith(told)


def test_processes_that_cannot_find_each_other_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(RunError, match=r"torchrun: process 0 of 2 cannot find the others .* start it with torchrun"):
        us.train(short("iql", tmp_path / "run"), progress=False)
    monkeypatch.setenv("UNDERSTUDY_PATIENCE", "for ever")
    with pytest.raises(ConfigError, match="UNDERSTUDY_PATIENCE: no number of seconds: got 'for ever'"):
        us.train(short("iql", tmp_path / "run"), progress=False)


def test_who_waits_for_a_first_process_that_was_refused_a_setting_can_be_told_to_stop(tmp_path: Path) -> None:
    """torchrun tells the others to stop when one has ended."""
    waiting, done = tmp_path / "waiting", tmp_path / "done"

    def work() -> None:
        if process_share().rank == 1:
            waiting.write_text(str(os.getpid()))
            with pytest.raises(StoppedError), stoppable("torchrun"):
                us.train(short("iql", tmp_path / "run"), progress=False)
            done.touch()
            return
        store = next(iter(rendezvous("env://")))  # and no further: it says nothing
        time.sleep(0.5)
        os.kill(int(waiting.read_text()), signal.SIGTERM)
        until = time.monotonic() + 20.0
        while not done.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        del store

    assert in_ranks(work) == [0, 0]


def test_processes_that_are_no_longer_alike_end_with_a_sentence(tmp_path: Path) -> None:
    """Of the same state they tell metrics of the whole batch."""

    def learner(seed: int) -> Learner:
        return build_learner(load_config(short("bc", tmp_path / "run", seed=seed)))

    def work() -> None:
        line = line_of_process()
        metrics = {"loss/actor": torch.tensor(float(line.share.rank))}
        assert line.agreed(metrics, learner(0))["loss/actor"] == 1.0
        with pytest.raises(RunError, match="no longer in the same state"):
            line.agreed(metrics, learner(line.share.rank))

    assert in_ranks(work, 3) == [0, 0, 0]


def test_a_process_that_cannot_begin_says_why_and_ends_all(tmp_path: Path) -> None:
    """An environment is known to the first one only."""
    pendulum = "gymnasium.envs.classic_control.pendulum:PendulumEnv"

    def train() -> None:
        rank = process_share().rank
        if rank == 0:
            gym.register("OnlyHere-v0", pendulum, max_episode_steps=200)
        with pytest.raises(RunError if rank == 0 else ConfigError) as told:
            us.train(short("td3bc", tmp_path / "run", env={"id": "OnlyHere-v0"}), progress=False)
        assert "OnlyHere" in str(told.value)
        assert rank or str(told.value).startswith("process 1 of this run: could not begin.")

    assert in_ranks(train) == [0, 0]


def test_numbers_that_stop_being_numbers_end_all_and_leave_the_last_good_state(tmp_path: Path) -> None:
    steep: dict[str, Any] = {"algo.critic_learning_rate": 1e30}

    def train() -> None:
        with pytest.raises(DivergenceError if process_share().rank == 0 else RunError):
            us.train(short("td3bc", tmp_path / "run"), progress=False, **steep)

    assert in_ranks(train) == [0, 0]
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == [0]


def test_an_error_of_the_first_process_ends_all_and_leaves_nothing(tmp_path: Path) -> None:
    settings = short("iql", tmp_path / "run", source={"kind": "offline", "batch_size": 31})

    def train() -> None:
        error = ConfigError if process_share().rank == 0 else RunError
        with pytest.raises(error) as told:
            us.train(settings, progress=False)
        first = "source.batch_size: cannot be shared by 2 processes: got 31, expected a multiple of 2."
        others = "torchrun: the first process of this run has ended with an error. It says which."
        assert str(told.value) == (first if error is ConfigError else others)

    assert in_ranks(train) == [0, 0]
    assert not (tmp_path / "run").exists()

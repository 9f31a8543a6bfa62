"""N updates = k updates + save + another process + load + N−k updates, for every algorithm there is."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forks import Ending, finish, forks
from small import BATTLE, SHORT, content, leftovers, short_config, short_settings

from understudy.algorithms import algorithm_names
from understudy.data.dataset import Dataset
from understudy.data.recipes import Recipe
from understudy.data.stores.store import open_store, write_store
from understudy.data.transforms import Choosing, choose
from understudy.run.checkpoint import list_checkpoints, load_checkpoint
from understudy.run.loading import make_dataset
from worlds import takes_boxes, takes_choices

ALGORITHMS = [name for name in sorted(algorithm_names()) if takes_boxes(name)]
IN_WORLDS = [(name, SHORT) for name in ALGORITHMS]
IN_WORLDS += [(name, BATTLE) for name in sorted(algorithm_names()) if takes_choices(name)]


def stop_after(updates: int, config: Path) -> Ending:
    """Train in a process of its own that is told to stop during an update."""
    return forks().run("train", config, stop_at=updates, stop_signal=signal.SIGTERM)


@pytest.mark.parametrize(("algorithm", "world"), IN_WORLDS)
def test_interrupted_run_equals_uninterrupted_one(algorithm: str, world: str, tmp_path: Path) -> None:
    """After its first update, off every beat, and on a save."""
    whole, halves = (short_config(tmp_path, algorithm, name, world=world) for name in ("whole", "halves"))
    finish(whole, tmp_path / "whole", no_plots=True)
    for updates, more in ((1, 1), (5, 4), (8, 3)):
        command = ("train", halves) if updates == 1 else ("resume", tmp_path / "halves")
        assert forks().run(*command, stop_at=more, stop_signal=signal.SIGTERM).code == 128 + signal.SIGTERM
        assert list_checkpoints(tmp_path / "halves" / "checkpoints")[-1] == updates
    finish(halves, tmp_path / "halves", no_plots=True)
    assert content(tmp_path / "halves") == content(tmp_path / "whole")


@pytest.mark.parametrize("schedule", ["constant", "linear", "adaptive"])
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_networks_that_learn_at_the_same_time_write_the_same_bytes(memory: str, schedule: str, tmp_path: Path) -> None:
    """Whichever of the two is faster: in a repeated run, and in an interrupted one."""
    eyes = {"memory": {"kind": memory, "units": 4}, "hidden": [8]}
    algo = {"name": "ppo", "schedule": schedule, "minibatches": 2, "actor": eyes, "critic": eyes}
    words = {"algo": algo, "log_every": 1}
    whole, again, halves = (short_config(tmp_path, "ppo", name, **words) for name in ("whole", "again", "halves"))
    assert stop_after(5, halves).code == 128 + signal.SIGTERM
    for config in (whole, again, halves):
        finish(config, tmp_path / config.stem, no_plots=True)
    assert content(tmp_path / "whole") == content(tmp_path / "again") == content(tmp_path / "halves")


@pytest.fixture
def weighted(tmp_path: Path) -> Path:
    """A store of four episodes with a column to draw by."""
    dataset = make_dataset(Recipe.parse(short_settings("bc", tmp_path)["data"]["recipe"]))
    weights = torch.arange(dataset.steps, dtype=torch.float32)
    return write_store(dataset.with_extra("priority", weights), tmp_path / "store")


CHAINS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "every row once per epoch": ({"replacement": False}, {}),
    "by weight": ({"weights": "priority"}, {}),
    "held out and hidden": ({}, {"validation": 0.25, "hide_columns": {"state": [0]}, "choice_seed": 3}),
    "best, mended, every row once": (
        {"replacement": False},
        {"best_episodes": 0.5, "time_limit": 10, "actions": "clip", "normalize_observations": False},
    ),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_whatever_is_drawn_from_what_the_halves_are_the_whole(chain: str, weighted: Path, tmp_path: Path) -> None:
    source, data = CHAINS[chain]
    changes: dict[str, Any] = {
        "source": {"batch_size": 8, **source},
        "data": {"path": str(weighted), **data},
        "updates": 40,
    }
    configs = [short_config(tmp_path, name=name, **changes) for name in ("whole", "halves")]
    finish(configs[0], tmp_path / "whole", no_plots=True)
    for updates in (5, 18):  # a block is 16 batches
        command = ("train", configs[1]) if updates == 5 else ("resume", tmp_path / "halves")
        assert forks().run(*command, stop_at=updates).code == 128 + signal.SIGTERM
    assert list_checkpoints(tmp_path / "halves" / "checkpoints")[-1] == 23
    finish(configs[1], tmp_path / "halves", no_plots=True)
    assert content(tmp_path / "halves") == content(tmp_path / "whole")


def test_other_held_out_episodes_are_other_data(weighted: Path, tmp_path: Path) -> None:
    """Evaluations measure them, so a resumed log would not be the uninterrupted one."""
    data = {"path": str(weighted), "validation": 0.25}
    config = short_config(tmp_path, data=data)
    forks().run("train", config, stop_at=5)
    episodes = list(open_store(weighted).recording().episodes())
    held = choose(Choosing(validation=0.25), open_store(weighted).returns(), "here").validation
    episodes[held[0]] = replace(episodes[held[0]], actions=episodes[held[0]].actions * 0.5)
    other = Dataset.from_episodes(episodes, open_store(weighted).spec.action)
    shutil.rmtree(weighted)
    write_store(other, weighted)
    ending = forks().run("resume", tmp_path / "run")
    assert ending.code == 1
    assert "other content than this run was started with" in ending.err


def test_many_short_lives_equal_one_long_one(tmp_path: Path) -> None:
    whole, pieces = short_config(tmp_path, name="whole"), short_config(tmp_path, name="pieces")
    finish(whole, tmp_path / "whole", no_plots=True)
    assert stop_after(1, pieces).code != 0
    for updates in range(2, 12):
        assert forks().run("resume", tmp_path / "pieces", stop_at=1).code == 128 + signal.SIGTERM
        assert list_checkpoints(tmp_path / "pieces" / "checkpoints")[-1] == updates
    finish(pieces, tmp_path / "pieces", no_plots=True)
    assert content(tmp_path / "pieces") == content(tmp_path / "whole")
    assert leftovers(tmp_path / "pieces") == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_evaluating_more_often_changes_nothing_in_training(algorithm: str, tmp_path: Path) -> None:
    for every in (1, 12):
        config = short_config(tmp_path, algorithm, f"every{every}", eval_every=every, eval_episodes=every)
        finish(config, tmp_path / f"every{every}", no_plots=True)
    often, rarely = tmp_path / "every1", tmp_path / "every12"
    assert (often / "metrics.jsonl").read_bytes() == (rarely / "metrics.jsonl").read_bytes()
    states = [run / "checkpoints" / "000000012" / "state.safetensors" for run in (often, rarely)]
    assert states[0].read_bytes() == states[1].read_bytes()
    assert len((often / "eval.jsonl").read_text().splitlines()) == 12


def test_saving_more_often_changes_nothing_in_training(tmp_path: Path) -> None:
    for every in (1, 12):
        finish(
            short_config(tmp_path, name=f"every{every}", save_every=every), tmp_path / f"every{every}", no_plots=True
        )
    states = [load_checkpoint(tmp_path / f"every{every}" / "checkpoints", 12).path for every in (1, 12)]
    assert len({(path / "state.safetensors").read_bytes() for path in states}) == 1


def test_a_checkpoint_holds_networks_optimisers_and_every_stream(tmp_path: Path) -> None:
    finish(short_config(tmp_path), tmp_path / "run", no_plots=True)
    state = load_checkpoint(tmp_path / "run" / "checkpoints", 12).state
    for part in ("algorithm.policy.trunk", "algorithm.critic", "algorithm.target", "algorithm.critic_optimizer"):
        assert any(path.startswith(part) for path in state), part
    assert any(path.endswith(".stream") for path in state), "dropout draws from streams of its own"
    assert state["source.sampler.drawn"] == 12, "the sampler's whole state"
    assert state["algorithm.policy_optimizer.count"] == 12, "the clock of its schedule"


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    for seed in (0, 1):
        finish(short_config(tmp_path, name=f"seed{seed}", seed=seed), tmp_path / f"seed{seed}", no_plots=True)
    first, second = (
        [json.loads(line) for line in (tmp_path / f"seed{seed}" / "metrics.jsonl").read_text().splitlines()]
        for seed in (0, 1)
    )
    assert all(a["loss/actor"] != b["loss/actor"] for a, b in zip(first, second, strict=True))

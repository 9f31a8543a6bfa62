"""From offline to online: an offline stage hands everything on, and a run goes on to the bit wherever it stops."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from small import BATTLE, SHORT, content, short_settings

import understudy as us
from learners import differences
from understudy.algorithms import algorithm_names
from understudy.core.errors import ConfigError
from understudy.core.state import capture, restore
from understudy.data.ring_returns import UNKNOWN
from understudy.run.build import build_learner
from understudy.run.config import RunConfig, load_config, parse_config
from understudy.run.handed_networks import parts_by_role
from understudy.run.policies import find_checkpoint
from understudy.run.progress import SILENT, Reporter
from understudy.run.rundir import RunDir
from understudy.run.warm_start import take_over
from worlds import takes_boxes, usual_needs

pytestmark = pytest.mark.usefixtures("no_plots")

ONLINE = [name for name in sorted(algorithm_names()) if {"offline", "replay"} <= {*usual_needs(name).sources}]
SETTINGS: dict[str, dict[str, Any]] = {"cql": {"calibrate": True, "lagrange": True}, "iact": {"critic_warmup": 2}}
HALF = {"kind": "replay", "batch_size": 8, "learning_starts": 4, "buffer_size": 40, "data_share": 0.5}


def online(out: Path, algorithm: str, **changes: Any) -> RunConfig:
    """Six updates on data, then twelve with half of each batch from there; saved every four."""
    stage = {"algo": algorithm, "updates": 6, "source": {"kind": "offline", "batch_size": 8}, "save_every": 3}
    world = SHORT if takes_boxes(algorithm) else BATTLE
    settings = short_settings(algorithm, out, world=world, source=HALF, stages=[stage], eval_episodes=2)
    settings["algo"] |= SETTINGS.get(algorithm, {})
    return parse_config({**settings, **changes})


class Copy:
    """The run as a kill would leave it behind its checkpoint at eight updates."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def on_checkpoint(self, updates: int, path: Path) -> None:
        if updates == 8:
            shutil.copytree(path.parents[1], self.place, symlinks=True)


def test_everybody_who_learns_values_can_go_online() -> None:
    assert {"iql", "ciql", "cql", "discrete_cql", "td3bc", "rebrac", "iact", "sac"} <= {*ONLINE}
    assert "bc" not in ONLINE


@pytest.mark.parametrize("algorithm", ONLINE)
def test_a_run_over_the_switch_goes_on_to_the_bit(tmp_path: Path, algorithm: str) -> None:
    """And begins with every network and multiplier of the stage's last checkpoint, true targets among them."""
    killed = tmp_path / "killed"
    whole = us.train(online(tmp_path / "whole", algorithm), callbacks=[Copy(killed)], progress=False)
    us.resume(killed, progress=False)
    assert content(killed) == content(whole.path)
    assert [line["env_steps"] for line in whole.evaluations()] == [7, 10, 13, 16]
    stage = us.Run(next((whole.path / "stages").iterdir()))
    last, heir = build_learner(stage.config), build_learner(whole.config)
    restore(last, find_checkpoint(RunDir.open(stage.path), "last").state, "the stage")
    take_over(heir.algorithm, whole.config, str(stage.path), "", SILENT)
    heir.close()
    theirs = parts_by_role(last.algorithm)
    for role, part in parts_by_role(heir.algorithm).items():
        mine, other = capture(part), capture(theirs[role])
        assert [path for path in differences(mine, other) if not path.endswith("stream")] == [], role


def said(config: RunConfig) -> str:
    console = Console(record=True, width=1000)
    build_learner(config, Reporter(console=console)).close()
    return console.export_text()


def test_who_does_not_draw_actions_is_told_to_explore(tmp_path: Path) -> None:
    for algorithm, silent in (("td3bc", False), ("iact", False), ("iql", True), ("discrete_cql", True)):
        assert ("would try nothing new online" not in said(online(tmp_path, algorithm))) == silent
    for noise in ({"exploration_noise": 0.1}, {"exploration_epsilon": 0.1}):
        assert "would try nothing" not in said(online(tmp_path, "td3bc", source={**HALF, **noise}))


ALONE = {**HALF, "data_share": 0.0}


def test_rewards_that_values_were_not_learned_from_are_told(tmp_path: Path) -> None:
    """A run without data has the rewards it says; own steps of one with data have the dataset's transform."""
    scaled = short_settings("iql", tmp_path / "first", updates=3, eval_every=0)
    scaled["data"] |= {"scale_rewards": 0.5, "shift_rewards": -1.0}
    first = us.train(parse_config(scaled), progress=False)
    alone = {key: value for key, value in scaled.items() if key != "data"}
    start = {**alone, "init_from": str(first.path)}
    same = {**ALONE, "scale_rewards": 0.5, "shift_rewards": -1.0}
    for number, (source, told) in enumerate(((ALONE, True), (same, False))):
        console = Console(record=True, width=1000)
        config = parse_config({**start, "source": source, "out": str(tmp_path / str(number))})
        us.train(config, reporter=Reporter(console=console))
        found = "learned from as reward_scale 1.0, reward_shift 0.0, and in" in console.export_text()
        assert found == told
    with pytest.raises(ConfigError, match=r"own rewards are changed as the dataset's are: say data\.scale_rewards"):
        online(tmp_path, "iql", source={**HALF, "scale_rewards": 2.0})


def test_own_steps_have_the_rewards_that_are_learned_from(tmp_path: Path) -> None:
    """Half of the dataset's reward minus one, in both halves of a batch; returns to go are of the same."""
    changes: dict[str, Any] = {"scale_rewards": 0.5, "shift_rewards": -1.0}
    base = online(tmp_path, "cql").model_dump(mode="json")
    plain, moved = (
        build_learner(parse_config({**base, "stages": [], "data": {**base["data"], **given}}))
        for given in ({}, changes)
    )
    for _ in range(12):
        one, other = (learner.source.next(moved.policy) for learner in (plain, moved))
    assert one is not None
    assert other is not None
    torch.testing.assert_close(other.reward, 0.5 * one.reward - 1.0)
    unknown = other.extra["return_to_go"] == UNKNOWN
    assert not unknown[4:].any(), "of the dataset everything is known"
    assert torch.equal(unknown, one.extra["return_to_go"] == UNKNOWN)
    gamma = moved.algorithm.demand.gamma
    steps = torch.log1p((one.extra["return_to_go"] * 0.5 - other.extra["return_to_go"]) * (gamma - 1)) / math.log(gamma)
    assert torch.allclose(steps[~unknown], steps[~unknown].round(), atol=1e-2), "Σγᵏ over whole numbers of steps"
    plain.close()
    moved.close()


def test_a_share_becomes_a_schedule_on_the_command_line() -> None:
    falling = load_config("iql/pendulum-online", ["source.data_share={start: 0.5, end: 0.1, over: 3000}"])
    share = falling.source.model_dump()["data_share"]
    assert share == {"kind": "linear", "start": 0.5, "end": 0.1, "after": 0, "over": 3000}
    assert falling.stages[0].algo.model_dump() == load_config("iql/pendulum-online").algo.model_dump()

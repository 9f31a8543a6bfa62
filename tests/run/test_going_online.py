"""From offline to online: an offline stage hands everything on, and a run goes on to the bit wherever it stops."""

from pathlib import Path
from typing import Any

import pytest
from small import BATTLE, SHORT, content, short_settings

import understudy as us
from learners import differences
from understudy.algorithms import algorithm_names
from understudy.core.state import capture, restore
from understudy.run.build import build_learner
from understudy.run.config import RunConfig, parse_config
from understudy.run.handed_networks import parts_by_role
from understudy.run.policies import find_checkpoint
from understudy.run.progress import SILENT
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


class Stop:
    """Ends a run at a checkpoint."""

    def on_checkpoint(self, updates: int, path: Path) -> None:
        if updates == 8:
            raise KeyboardInterrupt


def test_everybody_who_learns_values_can_go_online() -> None:
    assert {"iql", "ciql", "cql", "discrete_cql", "td3bc", "rebrac", "iact", "sac"} <= {*ONLINE}
    assert "bc" not in ONLINE


@pytest.mark.parametrize("algorithm", ONLINE)
def test_a_run_over_the_switch_goes_on_to_the_bit(tmp_path: Path, algorithm: str) -> None:
    """And begins with every network and multiplier of the stage's last checkpoint, true targets among them."""
    whole = us.train(online(tmp_path / "whole", algorithm), progress=False)
    with pytest.raises(KeyboardInterrupt):
        us.train(online(tmp_path / "stopped", algorithm), callbacks=[Stop()], progress=False)
    us.resume(tmp_path / "stopped", progress=False)
    assert content(tmp_path / "stopped") == content(whole.path)
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

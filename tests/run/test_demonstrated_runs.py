"""What was recorded feeds whoever learns from data, and two stages: cloned with memory and encoders, then PPO."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from forks import finish, go_on
from small import SHORT, content, short_settings, write_settings

import understudy as us
from learners import differences
from understudy.core.state import capture
from understudy.run.config import parse_config

pytestmark = pytest.mark.usefixtures("no_plots")

ROLE: dict[str, Any] = {
    "hidden": [8],
    "memory": {"kind": "gru", "units": 4},
    "encoders": {"state": {"kind": "mlp", "size": 5}},
}
ACTOR: dict[str, Any] = {**ROLE, "normalizer": {"until": 1}}


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demos") / "set"
    us.collect(SHORT, "random", out, episodes=4, success_is="truncated")
    us.collect(SHORT, "random", out, episodes=4, seed=1, success_is="truncated", append=True)
    return out


def two_stages(out: Path, demos: Path, **changes: Any) -> dict[str, Any]:
    algo = {"name": "ppo", "epochs": 2, "minibatches": 2, "critic_warmup": 2, "actor": ACTOR, "critic": ROLE}
    chosen = {"path": str(demos), "only": "successful", "latest_episodes": 6, "starting_frame_range": [0, 3]}
    stage = {"algo": {"name": "bc"}, "updates": 6, "data": chosen, "source": {"batch_size": 3, "length": 4}}
    return short_settings("ppo", out, **{"algo": algo, "stages": [stage], **changes})


def test_what_was_recorded_feeds_bc_and_iql_whole_or_chosen_from(demos: Path, tmp_path: Path) -> None:
    for name in ("bc", "iql"):
        for chosen in ({}, {"only": "successful", "success_is": "told", "latest_episodes": 3}):
            settings = short_settings(name, tmp_path / f"{name}{len(chosen)}", data={"path": str(demos), **chosen})
            run = us.train(parse_config({**settings, "updates": 3, "source": {"batch_size": 8, "replacement": False}}))
            assert run.result["updates"] == 3


def test_ppo_begins_as_the_clone_with_its_memory_encoder_normaliser_and_sigma(demos: Path, tmp_path: Path) -> None:
    """For as long as only the critic learns, nothing of the policy moves; then everything but the normaliser does."""
    for updates in (2, 3):
        settings = two_stages(tmp_path / str(updates), demos, updates=updates, eval_every=10, save_every=10)
        run = us.train(parse_config(settings))
        clone, policy = (capture(one.policy()) for one in (us.Run(run.path / "stages" / "1-bc"), run))
        moved = {path for path in policy if isinstance(policy[path], torch.Tensor) and not same(clone, policy, path)}
        moved.discard("perception.normalizers.of_state.scale")  # the same statistics with PPO's ε
        if updates == 2:
            assert moved == set()
        else:
            assert {path.split(".")[1] for path in moved if path.startswith("perception")} == {"encoders", "memory"}
            assert any("distribution" in path for path in moved)
    assert differences(clone, policy) != []


def same(one: Any, other: Any, path: str) -> bool:
    return path in one and torch.equal(one[path], other[path])


def test_killed_in_any_part_two_stages_are_the_same_run(demos: Path, tmp_path: Path) -> None:
    """Inside cloning, inside the critic's warm-up, and behind it."""
    whole = write_settings(tmp_path / "whole.yaml", two_stages(tmp_path / "whole", demos, updates=5, eval_every=5))
    finish(whole, tmp_path / "whole", no_plots=True)
    for moment in (4, 7, 10):
        there = tmp_path / f"killed-{moment}"
        config = write_settings(tmp_path / f"{moment}.yaml", two_stages(there, demos, updates=5, eval_every=5))
        assert go_on(config, there, stop_at=moment, stop_signal=signal.SIGKILL).code == -signal.SIGKILL
        finish(config, there, no_plots=True)
        assert content(there) == content(tmp_path / "whole"), moment

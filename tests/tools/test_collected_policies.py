"""Who can play: a run at any of its checkpoints, policy folders, exported files, in vectors of anybody's making."""

import re
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from test_collecting import ENV, Walk, files, killed_after

import understudy as us
from understudy.core.errors import CheckpointError, ConfigError, DataError, RunError
from understudy.core.rng import stream
from understudy.data.stores.store import store_recipe
from understudy.nn.actor import Actor, ActorSettings
from understudy.tools.export import policy_digest

QUICK: dict[str, Any] = {"log_every": 1, "eval_every": 2, "save_every": 2, "tensorboard": False, "progress": False}
SPEC = us.Spec({"state": us.Group((2,), "float32")}, us.Box((-1.0,), (1.0,)))


def actor(spec: us.Spec = SPEC, **settings: Any) -> Actor:
    """One that does something else in every state: its last layer is not small."""
    made = Actor(spec, ActorSettings.parse({"hidden": [8], **settings}), stream(0, "actor"))
    return made.requires_grad_(False)


def does_what(policy: Any, data: us.Dataset, number: int) -> bool:
    """Whether an episode's actions are the policy's greedy ones in its states."""
    episode = data.episode(number)
    return np.allclose(policy(episode.observations["state"][:-1]), episode.actions, atol=1e-5)


def test_a_run_plays_at_any_of_its_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.run.loop.draw_run", lambda run: None)
    data = us.collect(ENV, episodes=6)
    small = {"algo": {"actor": {"hidden": [4]}, "learning_rate": 0.1}, "source": {"batch_size": 8}, **QUICK}
    run = us.train("bc", data=data, out=tmp_path / "run", updates=4, **small)
    words = [f"{run.path}@2", f"{run.path}:2", run, str(run.path / "policy" / "best")]
    played = us.collect(ENV, words, tmp_path / "data", episodes=10, num_envs=3)
    told = store_recipe(tmp_path / "data")["policies"]
    best = us.load_policy(run.path / "policy" / "best")
    expected = [run.policy(2), run.policy(4), run.policy(4), best]
    assert [one["updates"] for one in told[:3]] == [2, 4, 4]
    assert [one["sha256"] for one in told] == [policy_digest(policy) for policy in expected]
    parts = played.extra["policy"][torch.from_numpy(played.index.starts)].tolist()
    assert [parts.count(part) for part in range(4)] == [2, 4, 2, 2]
    assert all(does_what(expected[part], played, number) for number, part in enumerate(parts))
    assert not does_what(expected[1], played, 0)
    with pytest.raises(CheckpointError, match=r"no such checkpoint"):
        us.collect(ENV, f"{run.path}@3")
    with pytest.raises(DataError, match=r"does not fit environment 'Pendulum-v1' \(action: .*; state: .*\)"):
        us.collect("Pendulum-v1", run)


def test_an_exported_file_plays_as_the_live_policy_does(tmp_path: Path) -> None:
    """Its memory begins anew in every episode, where the card says."""
    live = actor(memory={"kind": "gru", "units": 4})
    exported = us.export_policy(live, "onnx", out=tmp_path / "export").path
    mine, theirs = (us.collect(ENV, who, episodes=7, num_envs=3) for who in (live, str(exported)))
    assert mine.index.lengths.tolist() == theirs.index.lengths.tolist()
    torch.testing.assert_close(mine.actions, theirs.actions, atol=1e-5, rtol=0)
    assert float(mine.actions.std()) > 0
    with pytest.raises(ConfigError, match=r"policy.onnx': does not fit environment 'Pendulum-v1': got state \[2\]"):
        us.collect("Pendulum-v1", str(exported))
    with pytest.raises(ConfigError, match=r"is greedy: an exported file does not sample"):
        us.collect(ENV, str(exported), greedy=False)
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x07nonsense")
    with pytest.raises(CheckpointError, match=r"broken.onnx': not a readable ONNX file"):
        us.collect(ENV, str(tmp_path / "broken.onnx"))


def test_small_and_large_networks_do_what_they_do_elsewhere() -> None:
    """They are played by shorter ways than `act`."""
    choices = us.Spec({"state": us.Group((4,), "float32")}, us.Discrete(2))
    for settings in ({"distribution": "tanh_gaussian"}, {"hidden": [600, 600]}, {"distribution": "beta"}):
        policy = actor(**settings)
        data = us.collect(ENV, policy, episodes=3, num_envs=2)
        assert all(does_what(policy, data, number) for number in range(3)), settings
    policy = actor(choices)
    data = us.collect("CartPole-v1", policy, episodes=3)
    assert all(does_what(policy, data, number) for number in range(3))


def vector(count: int) -> SyncVectorEnv:
    """Which needs a step to begin an episode, and takes seeds only all at once."""
    return SyncVectorEnv([Walk] * count, autoreset_mode=AutoresetMode.NEXT_STEP)


def test_vectors_that_seed_all_at_once_are_played_in_rounds(tmp_path: Path) -> None:
    given: dict[str, Any] = {"policy": "random", "episodes": 70, "num_envs": 2}
    whole = us.collect(vector, out=tmp_path / "whole", **given)
    for number in range(70):
        states = whole.episode(number).observations["state"]
        assert states[:, 1].tolist() == list(range(len(states) - 1, -1, -1))
    starts = {float(whole.episode(number).observations["state"][0, 0]) for number in range(70)}
    assert len(starts) == 70  # no round is that of another
    killed_after(41, vector, out=tmp_path / "killed", **given)
    us.collect(vector, out=tmp_path / "killed", **given)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_a_failure_can_be_played_again_and_costs_no_finished_episode(tmp_path: Path) -> None:
    class Breaking(Walk):
        breaks_at = 27

    with pytest.raises(RunError, match=r"environment \d failed in its step .*a wall") as told:
        us.collect(Breaking, lambda batch: np.ones((len(batch), 1)), tmp_path / "data", episodes=50, num_envs=2)
    found = re.search(r"seed (\d+), episode 1, step (\d+), action \[1\.\]", str(told.value))
    assert found is not None, told.value
    env = Breaking()
    env.reset(seed=int(found[1]))
    for _ in range(int(found[2]) - 1):
        env.step(np.ones(1, np.float32))
    with pytest.raises(ValueError, match="a wall"):
        env.step(np.ones(1, np.float32))
    assert 0 < us.load_dataset(tmp_path / "data").episodes < 50


def test_an_environment_that_hangs_is_told() -> None:
    class Slow(Walk):
        def step(self, action: Any) -> Any:
            time.sleep(0.0 if self.left > 2 else 5.0)
            return super().step(action)

    with pytest.raises(RunError, match=r"has not answered for 0.3 seconds \(environment 0\)"):
        us.collect(Slow, episodes=2, num_envs=1, step_timeout=0.3)


def test_a_single_environment_of_a_caller_is_played_and_stays_open() -> None:
    env = gymnasium.wrappers.TimeLimit(Walk(), 5)
    data = us.collect(env, episodes=6)
    assert data.index.lengths.max() <= 5
    env.reset(seed=0)

"""Anybody plays, anywhere, into any file: the same seed gives the same bytes, whatever steps together or is killed."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import understudy as us
from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import Carry
from understudy.data.stores.store import store_recipe

ENV = "CollectWalk-v0"
Array = np.ndarray[Any, np.dtype[Any]]


class Walk(gymnasium.Env[Any, Any]):
    """A walk whose length its seed decides; it succeeds where it ends to the right, and may break."""

    observation_space = gymnasium.spaces.Box(-100, 100, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    breaks_at = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.left = float(self.np_random.uniform(-1, 1)), int(self.np_random.integers(3, 30))
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.place, self.left = self.place + float(action[0]) + 0.1 * float(self.np_random.normal()), self.left - 1
        if self.breaks_at >= 0 and self.place > self.breaks_at:
            raise ValueError("a wall")
        ended = self.left == 0
        return self._seen(), self.place, ended and self.place > 0, ended, self._info()

    def _seen(self) -> Any:
        return np.array([self.place, self.left], np.float32)

    def _info(self) -> dict[str, Any]:
        return {"is_success": self.left == 0 and self.place > 0}


class Silent(Walk):
    def _info(self) -> dict[str, Any]:
        return {}


class Counting:
    """A policy with a memory: it does what its count of steps in this episode says."""

    def initial(self, count: int) -> Carry:
        return (torch.zeros(count, 1),)

    def act(
        self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None
    ) -> tuple[torch.Tensor, Carry]:
        noise = 0.0 if greedy else 0.1 * torch.rand(carry[0].shape, generator=rng)
        return torch.sin(carry[0]) + noise, (carry[0] + 1,)


gymnasium.register(ENV, lambda **_: Walk())


class Kill(Exception):
    """Something ends the process."""


def killed_after(kept: int, /, *given: Any, **named: Any) -> None:
    """Collect until so many episodes are kept, and die there."""
    done = 0
    add = us.Recorder.add

    def until(self: us.Recorder, episode: us.Episode) -> None:
        nonlocal done
        if done == kept:
            raise Kill
        done += 1
        add(self, episode)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(us.Recorder, "add", until)
        with pytest.raises(Kill):
            us.collect(*given, **named)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_episodes_are_the_same_however_many_environments_step_together() -> None:
    mixture = [("random", 1), (lambda batch: -0.1 * batch[:, :1], 2)]
    ways: list[dict[str, Any]] = [{"num_envs": n} for n in (1, 3, 7)] + [{"num_envs": 4, "workers": 2}]
    found = {us.collect(ENV, mixture, episodes=20, noise=0.2, epsilon=0.3, **way).fingerprint for way in ways}
    assert len(found) == 1
    assert us.collect(ENV, mixture, episodes=20, noise=0.2, epsilon=0.3, seed=1).fingerprint not in found
    more, fewer = (us.collect(ENV, episodes=n, num_envs=3) for n in (20, 9))
    assert torch.equal(more.actions[: fewer.steps], fewer.actions)


def test_what_is_stored_is_what_happened() -> None:
    """The environment, given the stored actions from the start of the episode, tells the stored story."""
    data = us.collect(ENV, episodes=12, num_envs=5)
    lengths = data.index.lengths
    assert len(set(lengths.tolist())) > 3  # long and short ones, none preferred
    for number in range(12):
        episode = data.episode(number)
        states, actions = episode.observations["state"], episode.actions
        assert len(states) == len(actions) + 1
        assert episode.terminated == (states[-1, 0] > 0)
        assert episode.terminated != episode.truncated
        assert states[:, 1].tolist() == list(range(len(actions), -1, -1))
        np.testing.assert_allclose(episode.rewards, states[1:, 0], atol=1e-5)
        assert (np.abs(states[1:, 0] - states[:-1, 0] - actions[:, 0]) < 0.6).all()
        assert episode.extra["is_success"].tolist() == [False] * (len(actions) - 1) + [bool(states[-1, 0] > 0)]


def test_a_killed_collection_goes_on_with_the_same_bytes(tmp_path: Path) -> None:
    """Greedy or sampling, with a memory or without, of several policies, filtered or not."""
    ways: dict[str, dict[str, Any]] = {
        "plain": {"policy": "random", "episodes": 23},
        "memory": {"policy": Counting(), "episodes": 23, "epsilon": 0.1},
        "sampling": {"policy": Counting(), "episodes": 60, "greedy": False, "num_envs": 2},
        "mixture": {"policy": [("random", 1), (Counting(), 2)], "steps": 300},
        "filtered": {"policy": [Counting(), "random"], "episodes": 12, "only": "failed", "min_return": -100.0},
    }
    for name, way in ways.items():
        given = {"num_envs": 3, **way}
        whole = us.collect(ENV, out=tmp_path / name / "whole", **given)
        for kept in (1, whole.episodes - 1):
            there = tmp_path / name / f"killed-{kept}"
            killed_after(kept, ENV, out=there, **given)
            assert us.collect(ENV, out=there, **given).fingerprint == whole.fingerprint, (name, kept)
            assert files(there) == files(tmp_path / name / "whole")


def test_memory_begins_anew_in_every_episode() -> None:
    data = us.collect(ENV, Counting(), episodes=9, num_envs=4)
    for number in range(9):
        actions = data.episode(number).actions[:, 0]
        np.testing.assert_allclose(actions, np.sin(np.arange(len(actions))), atol=1e-6)


def test_shares_are_of_episodes_or_of_steps() -> None:
    data = us.collect(ENV, ["random:1", (Counting(), 3)], episodes=8)
    assert data.extra["policy"][torch.from_numpy(data.index.starts)].tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    data = us.collect(ENV, ["random:1", (Counting(), 3)], steps=400)
    assert data.steps == 400
    assert torch.bincount(data.extra["policy"]).tolist() == [100, 300]
    cut = data.episode(-1)
    assert cut.observations["state"][-1, 1] > 0
    assert (cut.truncated, cut.terminated) == (True, False)
    assert len(cut.observations["state"]) == len(cut.actions) + 1


def test_filters_keep_what_they_say_and_tell_who_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = us.collect(ENV, episodes=60)
    success = np.array([bool(everything.episode(k).extra["is_success"][-1]) for k in range(60)])
    returns = everything.returns()
    for only, wanted in (("successful", success), ("failed", ~success)):
        best = float(np.median(returns[wanted]))
        data = us.collect(ENV, episodes=5, only=only, min_return=best)  # type: ignore[arg-type]
        expected = np.flatnonzero(wanted & (returns >= best))[:5]
        assert data.extra["episode_number"][torch.from_numpy(data.index.starts)].tolist() == expected.tolist()
        np.testing.assert_allclose(data.returns(), returns[expected])
    with pytest.raises(DataError, match=r"tells nothing of success, and only failed episodes are wanted"):
        us.collect(Silent, episodes=1, only="failed")
    monkeypatch.setattr("understudy.tools.collection.HOPELESS", 40)
    with pytest.raises(
        DataError, match=r"none of the last 40 episodes passed it: got returns up to \S+, expected 1e\+06"
    ):
        us.collect(ENV, episodes=1, min_return=1e6)


def test_noise_and_chance_are_of_the_size_that_was_asked_for() -> None:
    data = us.collect(ENV, lambda batch: 0 * batch[:, :1], steps=4000, noise=0.1)
    assert float(data.actions.std()) == pytest.approx(0.1, rel=0.05)
    data = us.collect(ENV, lambda batch: 0 * batch[:, :1], steps=4000, epsilon=0.3)
    assert float((data.actions != 0).double().mean()) == pytest.approx(0.3, abs=0.03)
    actions = us.collect(ENV, steps=4000).actions.numpy()
    assert ((np.histogram(actions, 20, (-1, 1))[0] - 200) ** 2 / 200).sum() < 43.8  # χ² with 19 degrees, p = 0.001


def test_forbidden_actions_are_never_drawn() -> None:
    data = us.collect("UnderstudyBattle-v0", "random", steps=200, num_envs=3)
    assert data.mask is not None
    assert us.collect("UnderstudyBattle-v0", "random", steps=200, num_envs=1).fingerprint == data.fingerprint
    legal = np.concatenate([data.episode(k).mask[:-1] for k in range(data.episodes)])  # type: ignore[index]
    assert legal[np.arange(200), data.actions.numpy()].all()


def test_every_writer_is_one_of_its_ends(tmp_path: Path) -> None:
    store = us.collect(ENV, episodes=4, out=tmp_path / "store")
    for name in ("data.npz", "data.hdf5"):
        killed_after(2, ENV, episodes=4, out=tmp_path / name)
        us.collect(ENV, episodes=4, out=tmp_path / name)
        read = us.load_dataset(tmp_path / name, action_space=us.Box((-1.0,), (1.0,)))
        assert torch.equal(read.actions, store.actions), name
        assert torch.equal(read.rewards, store.rewards), name
    us.collect(ENV, episodes=4, out=tmp_path / "minari", minari_id="walk/random-v0")
    assert us.load_dataset(tmp_path / "minari" / "walk" / "random-v0").episodes == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.hdf5", "data.npz", "minari", "store"]


def test_the_card_says_who_played(tmp_path: Path) -> None:
    us.collect(ENV, [Counting(), "random"], out=tmp_path / "data", episodes=2, seed=4, noise=0.1, only="failed")
    told = store_recipe(tmp_path / "data")
    assert (told["env"], told["seed"], told["episodes"], told["only"]) == (ENV, 4, 2, "failed")
    assert told["policies"] == [
        {"policy": "Counting", "greedy": True, "noise": 0.1, "share": 1.0},
        {"policy": "random", "share": 1.0},
    ]
    assert told["versions"]["torch"] == torch.__version__
    assert json.loads(json.dumps(told)) == told


def test_another_dataset_is_not_touched(tmp_path: Path) -> None:
    us.collect(ENV, episodes=3, out=tmp_path / "data")
    before = files(tmp_path / "data")
    assert us.collect(ENV, episodes=3, out=tmp_path / "data").episodes == 3  # it is this one
    with pytest.raises(DataError, match=r"is another dataset \(seed 1, there 0\)"):
        us.collect(ENV, episodes=3, out=tmp_path / "data", seed=1)
    assert files(tmp_path / "data") == before
    killed_after(1, ENV, episodes=3, out=tmp_path / "half")
    with pytest.raises(DataError, match=r"is another dataset \(episodes 4, there 3; num_envs 4, there 3\)"):
        us.collect(ENV, episodes=4, out=tmp_path / "half")


def test_wishes_that_cannot_be_met_are_told_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"episodes and steps were given: say until=first"):
        us.collect(ENV, episodes=1, steps=1)
    with pytest.raises(ConfigError, match=r"no environment 'CollectWalk-v1'"):
        us.collect("CollectWalk-v1")
    with pytest.raises(ConfigError, match=r"share of policy 'random': not positive: got 0.0"):
        us.collect(ENV, ["random:0"])
    with pytest.raises(ConfigError, match=r"policy 'runs/none': no such run, folder or file"):
        us.collect(ENV, "runs/none")
    with pytest.raises(ConfigError, match=r"has no level 'mediun'\. Did you mean 'medium'\?"):
        us.collect(ENV, f"{tmp_path}@mediun")
    with pytest.raises(ConfigError, match=r"'CollectWalk-v0': has no scripted controller"):
        us.collect(ENV, "scripted")
    with pytest.raises(ConfigError, match=r"noise: is for continuous actions, 'CartPole-v1' has none. Use epsilon."):
        us.collect("CartPole-v1", noise=0.1)
    with pytest.raises(ConfigError, match=r"policy 'function': gives actions of another shape: got \[2\], expected"):
        us.collect(ENV, lambda row: row[0], episodes=4)

"""Demonstrations: success as data, filters in both directions, chosen groups, stop rules, and sets that grow."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import understudy as us
from understudy.core.errors import ConfigError, DataError
from understudy.data.byte_columns import from_bytes, to_bytes
from understudy.data.stores.recorder import Recorder
from understudy.data.stores.store import store_recipe
from understudy.data.success import FLAG
from understudy.run.loading import load_dataset

ENV = "DemonstrationWalk-v0"


class Walk(gymnasium.Env[Any, Any]):
    """Ends at a goal, by a fall or at its time limit, as its seed decides; only a goal is a success, and it tells so
    one step before the end, too."""

    observation_space = gymnasium.spaces.Dict(
        {
            "state": gymnasium.spaces.Box(-100, 100, (2,), np.float32),
            "privileged": gymnasium.spaces.Box(-100, 100, (1,), np.float32),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.end, self.left = int(self.np_random.integers(3)), int(self.np_random.integers(3, 12))
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        ended = self.left == 0
        told = {"success": self.end == 0 and self.left <= 1, "ending": self.end}
        return self._seen(), float(action[0]), ended and self.end < 2, ended and self.end == 2, told

    def _seen(self) -> Any:
        return {"state": np.array([self.left, 7], np.float32), "privileged": np.array([self.end], np.float32)}


class Silent(Walk):
    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {}


gymnasium.register(ENV, lambda **_: Walk())


def endings(data: us.Dataset) -> list[int]:
    """How each episode ended: 0 goal, 1 fall, 2 time limit."""
    return [int(data.episode(number).observations["privileged"][0, 0]) for number in range(data.episodes)]


def flags(data: us.Dataset) -> list[bool]:
    """Of every episode, the same in all of its steps."""
    columns = [data.episode(number).extra[FLAG] for number in range(data.episodes)]
    assert all(len(set(column.tolist())) == 1 for column in columns)
    return [bool(column[0]) for column in columns]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_success_is_what_the_simulator_told_or_how_the_episode_ended() -> None:
    """By brute force, with environments that end apart: the flag of every episode is that of its own."""
    goals = {"told": {0}, "terminated": {0, 1}, "truncated": {2}}
    for rule, ends in goals.items():
        for count in (1, 5):
            data = us.collect(ENV, episodes=40, num_envs=count, success_is=rule)  # type: ignore[arg-type]
            assert flags(data) == [ending in ends for ending in endings(data)], rule
            assert len(set(endings(data))) == 3
    silent = us.collect(Silent, episodes=30, success_is="truncated")
    assert flags(silent) == [ending == 2 for ending in endings(silent)]
    assert FLAG not in us.collect(Silent, episodes=3).extra


def test_filters_when_collecting_and_when_loading_keep_the_same_episodes(tmp_path: Path) -> None:
    everything = us.collect(ENV, out=tmp_path / "all", episodes=60)
    ends = np.array(endings(everything))
    for rule, goals in (("told", [0]), ("terminated", [0, 1]), ("truncated", [2])):
        for only, wanted in (("successful", np.isin(ends, goals)), ("failed", ~np.isin(ends, goals))):
            loaded = load_dataset(tmp_path / "all", transforms=us.Transforms(only=only, success_is=rule))
            assert torch.equal(loaded.actions, rows_of(everything, np.flatnonzero(wanted))), (rule, only)
            played = us.collect(ENV, episodes=5, only=only, success_is=rule)  # type: ignore[arg-type]
            assert torch.equal(played.actions, rows_of(everything, np.flatnonzero(wanted)[:5])), (rule, only)
    two = load_dataset(tmp_path / "all", transforms=us.Transforms(only="failed", latest_episodes=7, best_episodes=0.5))
    failed = np.flatnonzero(ends != 0)[-7:]
    best = failed[np.argsort(-everything.returns()[failed], kind="stable")[:4]]
    assert torch.equal(two.actions, rows_of(everything, np.sort(best)))
    target = tmp_path / "failed.npz"
    us_convert(tmp_path / "all", target, only="failed", latest_episodes=3)
    space = us.Box((-1.0,), (1.0,))
    assert torch.equal(load_dataset(target, action_space=space).actions, rows_of(everything, failed[-3:]))


def test_episodes_begin_at_a_step_that_is_drawn_once_and_end_as_they_did(tmp_path: Path) -> None:
    whole = us.collect(ENV, out=tmp_path / "set", episodes=40)
    for low, high in ((0, 1), (2, 5), (9, 100)):
        chosen = us.Transforms(starting_frame_range=(low, high), latest_episodes=30)
        late = load_dataset(tmp_path / "set", transforms=chosen)
        starts = []
        for number in range(30):
            left, full = late.episode(number), whole.episode(number + 10)
            starts.append(len(full) - len(left))
            assert low <= starts[-1] < high or len(left) == 1
            assert (left.terminated, left.truncated) == (full.terminated, full.truncated)
            np.testing.assert_array_equal(left.observations["state"], full.observations["state"][starts[-1] :])
            np.testing.assert_array_equal(left.extra[FLAG], full.extra[FLAG][starts[-1] :])
        assert len(set(starts)) == 1 or high - low > 1
        assert late.fingerprint == load_dataset(tmp_path / "set", transforms=chosen).fingerprint
    with pytest.raises(ConfigError, match=r"starting_frame_range: low must be below high: got \[3, 3\]"):
        us.Transforms.parse({"starting_frame_range": [3, 3]}, "data")


def us_convert(source: Path, target: Path, **chosen: Any) -> None:
    from understudy.tools.dataset.conversion import convert_file

    convert_file(str(source), target, transforms=us.Transforms(**chosen))


def rows_of(data: us.Dataset, episodes: Any) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([data.episode(int(number)).actions for number in episodes]))


def test_a_cut_episode_did_not_end_as_it_would_have() -> None:
    whole = us.collect(ENV, episodes=30)
    for rule in ("told", "terminated", "truncated"):
        for steps in range(20, 50):
            data = us.collect(ENV, steps=steps, success_is=rule)
            last = data.episode(-1)
            if len(last) == len(whole.episode(data.episodes - 1)):
                continue
            told = bool(whole.episode(data.episodes - 1).extra["success"][: len(last)].max())
            assert flags(data)[-1] == (told if rule == "told" else False), (rule, steps)


def test_only_the_groups_that_are_named_are_kept(tmp_path: Path) -> None:
    everything = us.collect(ENV, episodes=6)
    kept = us.collect(ENV, out=tmp_path / "kept", episodes=6, groups=["privileged"])
    assert list(kept.spec.observation) == ["privileged"]
    assert torch.equal(kept.observations["privileged"], everything.observations["privileged"])
    assert store_recipe(tmp_path / "kept")["groups"] == ["privileged"]
    with pytest.raises(ConfigError, match=r"groups: no observation group 'stat'\. Did you mean 'state'\?"):
        us.collect(ENV, groups=["stat"])
    with pytest.raises(ConfigError, match=r"groups: named twice"):
        us.collect(ENV, groups=["state", "state"])


def test_every_episode_of_an_envpool_is_whole_and_has_its_own_flag(tmp_path: Path) -> None:
    pytest.importorskip("envpool", reason="EnvPool is not installed")
    world = {"id": "CartPole-v1", "simulator": "envpool", "settings": {"max_episode_steps": 25}}
    data = us.collect(world, out=tmp_path / "set", episodes=30, num_envs=4, success_is="truncated")
    assert flags(data) == data.index.truncated.tolist()
    assert len(set(flags(data))) == 2
    assert set(data.index.lengths[data.index.truncated].tolist()) == {25}
    assert all(len(data.episode(number).observations["state"]) == len(data.episode(number)) + 1 for number in range(30))
    again = load_dataset(tmp_path / "set", transforms=us.Transforms(only="successful"))
    assert set(again.index.lengths.tolist()) == {25}


class Camera(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Dict(
        {
            "camera": gymnasium.spaces.Box(0, 1, (3, 5), np.float32),
            "state": gymnasium.spaces.Box(-9, 9, (2,), np.float32),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        return self._seen(), 0.0, False, bool(self.np_random.random() < 0.2), {}

    def _seen(self) -> Any:
        pixels, rest = self.np_random.random((3, 5), np.float32), self.np_random.random(2, np.float32)
        return {"camera": pixels, "state": rest * 4 - 2}


def test_images_are_stored_in_bytes_and_are_always_the_same_numbers_again(tmp_path: Path) -> None:
    plain = us.collect(Camera, episodes=5)
    packed = us.collect(Camera, out=tmp_path / "set", episodes=5, compress=["camera"])
    assert packed.spec.observation["camera"].dtype == "uint8"
    assert torch.equal(packed.observations["state"], plain.observations["state"])
    again = load_dataset(tmp_path / "set", transforms=us.Transforms(decompress=("camera",)))
    assert again.spec.fits(plain.spec)
    off = (again.observations["camera"] - plain.observations["camera"]).abs().max()
    assert 0 < float(off) <= 1 / 510 + 1e-6
    levels = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(to_bytes(from_bytes(levels, "x"), "x"), levels)
    for wrong, match in (
        ("state", r"compress 'state': only numbers from 0 to 1 fit in bytes: got -1\.\S+ to "),
        ("camra", r"compress: no observation group 'camra' is kept\. Did you mean 'camera'\?"),
    ):
        with pytest.raises(us.UnderstudyError, match=match):
            us.collect(Camera, episodes=2, compress=[wrong])
    for group, match in (("state", r"decompress 'state': is not stored in bytes"), ("x", r"decompress: no group 'x'")):
        with pytest.raises(DataError, match=match):
            load_dataset(tmp_path / "set", transforms=us.Transforms(decompress=(group,)))


def test_it_is_enough_with_the_first_or_with_all() -> None:
    lengths = us.collect(ENV, episodes=60).index.lengths
    for episodes, steps in ((10, 30), (3, 200), (10, int(lengths[:10].sum()))):
        first = us.collect(ENV, episodes=episodes, steps=steps, until="first")
        assert first.episodes <= episodes
        assert first.steps <= steps
        assert first.episodes == episodes or first.steps == steps
        both = us.collect(ENV, episodes=episodes, steps=steps, until="all")
        expected = max(episodes, int(np.searchsorted(np.cumsum(lengths), steps)) + 1)
        assert both.episodes == expected
        assert both.index.lengths.tolist() == lengths[:expected].tolist()
    with pytest.raises(ConfigError, match=r"until=all is of several of episodes, steps and successes"):
        us.collect(ENV, episodes=3, until="all")


def test_successes_are_counted_and_failures_are_kept_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = np.array(endings(us.collect(ENV, episodes=60)))
    for number in (1, 4):
        data = us.collect(ENV, successes=number)
        assert data.episodes == int(np.flatnonzero(ends == 0)[number - 1]) + 1
        assert sum(flags(data)) == number
    first = us.collect(ENV, successes=20, episodes=7, until="first")
    assert first.episodes == 7
    assert us.collect(ENV, successes=1, episodes=20, until="all").episodes == 20
    falls = us.collect(ENV, successes=3, only="failed", success_is="truncated", episodes=4, until="first")
    assert falls.episodes == 4
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    us.collect(ENV, out=whole, successes=5)
    with monkeypatch.context() as patched:
        added = iter([False] * 4 + [True])
        add = Recorder.add
        patched.setattr(Recorder, "add", lambda self, episode: stop() if next(added) else add(self, episode))
        with pytest.raises(KeyboardInterrupt):
            us.collect(ENV, out=stopped, successes=5)
    assert load_dataset(stopped).episodes == 4
    us.collect(ENV, out=stopped, successes=5)
    assert files(stopped) == files(whole)
    with pytest.raises(DataError, match=r"tells nothing of success, and 2 are wanted"):
        us.collect(Silent, successes=2)
    monkeypatch.setattr("understudy.tools.collection.HOPELESS", 12)
    with pytest.raises(DataError, match=r"successes: none of the last 12 episodes was one"):
        us.collect(ENV, successes=3, only="failed")


def stop() -> None:
    raise KeyboardInterrupt


def test_when_the_time_is_over_every_policy_has_played_its_share_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr("understudy.tools.collection.monotonic", lambda: float(next(clock)))
    data = us.collect(ENV, [("random", 1), ("random", 3)], max_time=40)
    played = data.extra["policy"][torch.from_numpy(data.index.starts)].bincount().tolist()
    assert played[1] > 2 * played[0] >= 2
    late = us.collect(ENV, max_time=0.5, episodes=9)
    assert late.episodes == 1
    for wrong in (0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="max_time"):
            us.collect(ENV, max_time=wrong)


def test_a_set_that_grows_is_the_parts_one_after_the_other(tmp_path: Path) -> None:
    parts = [us.collect(ENV, episodes=number, seed=seed) for number, seed in ((5, 0), (4, 1), (3, 2))]
    for seed, part in enumerate(parts):
        grown = us.collect(ENV, out=tmp_path / "set", episodes=part.episodes, seed=seed, append=True)
    assert grown.episodes == 12
    assert torch.equal(grown.actions, torch.cat([part.actions for part in parts]))
    assert torch.equal(grown.extra[FLAG], torch.cat([part.extra[FLAG] for part in parts]))
    assert grown.fingerprint == load_dataset(tmp_path / "set").fingerprint
    told = store_recipe(tmp_path / "set")
    assert told["seed"] == 0
    assert [(one["seed"], one["first_episode"]) for one in told["appended"]] == [(1, 5), (2, 9)]
    before = files(tmp_path / "set")
    us.collect(ENV, out=tmp_path / "set", episodes=3, seed=2, append=True)  # finished before
    assert files(tmp_path / "set") == before
    for wrong, match in (
        ({"groups": ["state"]}, r"what is appended"),
        ({"only": "failed"}, r"what is appended"),
    ):
        with pytest.raises(DataError, match=match):
            us.collect(ENV, out=tmp_path / "set", episodes=2, seed=9, append=True, **wrong)
        assert files(tmp_path / "set") == before, "it is a store still"
    with pytest.raises(ConfigError, match=r"append: is for folders"):
        us.collect(ENV, out=tmp_path / "set.npz", episodes=2, append=True)


def killed_at(change: int, **collected: Any) -> bool:
    """Whether a process that collects this was killed (SIGKILL) before its so-many-th change of a file."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left = change

    def counted(call: Any) -> Any:
        def may_die(*given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*given, **named)

        return may_die

    try:
        for name in ("replace", "unlink"):
            setattr(Path, name, counted(getattr(Path, name)))
        for name in ("write", "ftruncate", "pwrite"):
            setattr(os, name, counted(getattr(os, name)))
        us.collect(ENV, **collected)
    finally:
        os._exit(0)


@pytest.mark.slow
def test_killed_at_any_change_of_a_file_an_appended_set_is_the_same_bytes(tmp_path: Path) -> None:
    """Writes, renames, cuts and removals: the same command then gives what nobody killed gives, and what was there
    before can be read at any time."""
    before = us.collect(ENV, episodes=2, num_envs=2)
    appended: dict[str, Any] = {"episodes": 2, "seed": 1, "append": True, "num_envs": 2}
    us.collect(ENV, out=tmp_path / "whole", episodes=2, num_envs=2)
    shutil.copytree(tmp_path / "whole", tmp_path / "before")
    us.collect(ENV, out=tmp_path / "whole", **appended)
    change, there = 0, tmp_path / "killed"
    while shutil.copytree(tmp_path / "before", there) and killed_at(change, out=there, **appended):
        left = load_dataset(there)
        assert torch.equal(left.actions[: before.steps], before.actions), change
        us.collect(ENV, out=there, **appended)
        assert files(there) == files(tmp_path / "whole"), change
        shutil.rmtree(there)
        change += 1
    assert change > 30
    assert files(there) == files(tmp_path / "whole")

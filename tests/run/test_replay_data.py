"""The replay buffer of a run as a dataset: what its environments saw and said, step by step."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from small import short_settings

import understudy as us
from understudy.core.errors import CheckpointError
from understudy.data.dataset import Dataset
from understudy.run.config import parse_config
from understudy.run.replay_data import keeps_replay, replay_recording
from understudy.tools.dataset.conversion import target_kind, write_recording

pytestmark = pytest.mark.usefixtures("no_plots")
Step = tuple[bytes, bytes, float, bytes, bool, bool]


class Diary(gymnasium.Env[Any, Any]):
    """Walks at random, falls or is called home now and then, and writes everything down."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, written: list[list[Step]]) -> None:
        self.own: list[Step] = []
        written.append(self.own)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.standard_normal(3).astype(np.float32)
        return self.place, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before, self.place = self.place, self.np_random.standard_normal(3).astype(np.float32)
        chance = self.np_random.random()
        terminated, truncated, reward = chance < 0.1, 0.1 <= chance < 0.2, float(np.float32(chance))
        done = np.asarray(action, np.float32).tobytes()
        self.own.append((before.tobytes(), done, reward, self.place.tobytes(), terminated, truncated))
        return self.place, reward, terminated, truncated, {}


class Ending:
    def on_checkpoint(self, updates: int, path: Path) -> None:
        if updates == 12:
            raise KeyboardInterrupt


def settings(out: Path, **source: Any) -> dict[str, Any]:
    replay = {"kind": "replay", "batch_size": 4, "learning_starts": 12, "num_envs": 3, **source}
    plan = {"updates": 24, "eval_every": 0, "save_every": 6, "log_every": 6, "keep_checkpoints": 9}
    given = short_settings("td3bc", out, source=replay, **plan)
    return {key: value for key, value in given.items() if key not in ("data", "env")}


def steps_in(dataset: Dataset) -> list[list[Step]]:
    found = []
    for number in range(dataset.episodes):
        one = dataset.episode(number)
        seen, ends = one.observations["state"], [(False, False)] * (len(one) - 1) + [(one.terminated, one.truncated)]
        found.append(
            [
                (seen[t].tobytes(), one.actions[t].tobytes(), float(one.rewards[t]), seen[t + 1].tobytes(), *ends[t])
                for t in range(len(one))
            ]
        )
    return found


def as_dataset(path: Path, checkpoint: int | str = "last") -> Dataset:
    recording = replay_recording(path, checkpoint)
    assert recording.space is not None
    dataset = Dataset.from_episodes(recording.episodes(), recording.space)
    assert dataset.steps == recording.steps
    return dataset


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Step]]]:
    """Stopped at update 12 and gone on with, where the simulators could not be put back."""
    out, written = tmp_path_factory.mktemp("replay") / "run", list[list[Step]]()
    config = parse_config({**settings(out), "env": {"id": "diary", "simulator": "custom"}})
    with pytest.raises(KeyboardInterrupt):
        us.train(config, env=lambda: Diary(written), callbacks=[Ending()])
    us.resume(out, env=lambda: Diary(written))
    return out, [steps for steps in written if steps]


def test_the_buffer_is_what_happened(run: tuple[Path, list[list[Step]]]) -> None:
    out, written = run
    assert len(written) == 6  # three environments, and three more after the resume
    happened = {step for steps in written for step in steps}
    dataset = as_dataset(out)
    found = steps_in(dataset)
    assert dataset.steps == 36 == sum(map(len, written))
    cut = 0
    for steps in found:
        for step in steps[:-1]:
            assert step in happened
        last = steps[-1]
        if last not in happened:  # it went on, or would have
            assert (*last[:-1], False) in happened
            cut += 1
    assert len({step[:4] for steps in found for step in steps}) == 36
    assert 3 <= cut <= 6
    for steps in written:  # a true end is an end, and nothing else is
        ends = sum(step[-1] or step[-2] for step in steps)
        mine = {step[:4] for step in steps}
        whole = [one for one in found if one[0][:4] in mine]
        assert len(whole) == ends + (not (steps[-1][-1] or steps[-1][-2]))


def test_it_is_written_in_any_format(run: tuple[Path, list[list[Step]]], tmp_path: Path) -> None:
    dataset = as_dataset(run[0], 12)
    for name in ("store", "flat.npz", "flat.hdf5"):
        kind = target_kind(tmp_path / name, "")
        assert write_recording(replay_recording(run[0], 12), tmp_path / name, kind).fingerprint == dataset.fingerprint
        assert us.load_dataset(tmp_path / name, action_space=dataset.spec.action).fingerprint == dataset.fingerprint


def test_an_earlier_checkpoint_holds_what_was_until_then(run: tuple[Path, list[list[Step]]]) -> None:
    out, written = run
    early = as_dataset(out, 6)
    assert early.steps == 18
    first = {step[:4] for steps in written[:3] for step in steps[:6]}
    assert {step[:4] for steps in steps_in(early) for step in steps} == first
    assert keeps_replay(out, 6)


def test_a_ring_that_went_round_holds_the_newest(tmp_path: Path) -> None:
    written = list[list[Step]]()
    config = parse_config({**settings(tmp_path / "run", buffer_size=15), "env": {"id": "x", "simulator": "custom"}})
    us.train(config, env=lambda: Diary(written))
    newest = {step[:4] for steps in written if steps for step in steps[-5:]}
    assert {step[:4] for steps in steps_in(as_dataset(tmp_path / "run")) for step in steps} == newest
    assert len(newest) == 15
    words = (tmp_path / "run" / "config.yaml").read_text()
    for count in (1, 5, 15):  # each of which divides the ring
        (tmp_path / "run" / "config.yaml").write_text(words.replace("num_envs: 3", f"num_envs: {count}"))
        with pytest.raises(CheckpointError, match=f"another number of environments: got 3, expected {count}, as"):
            replay_recording(tmp_path / "run")


def test_other_runs_have_none(tmp_path: Path) -> None:
    us.train(parse_config(short_settings("bc", tmp_path / "run")))
    with pytest.raises(CheckpointError, match=r"keeps no replay buffer: got source\.kind=offline"):
        replay_recording(tmp_path / "run")
    assert not keeps_replay(tmp_path / "run", 12)

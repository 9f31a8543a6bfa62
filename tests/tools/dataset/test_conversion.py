"""Any recording into any format: exact both ways, mended on the way, whole or not at all."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import ActionSpace, Box, Discrete
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.formats.readers import open_recording
from understudy.data.stores.store import open_store, store_recipe, write_store
from understudy.data.transforms import Transforms
from understudy.run.loading import make_dataset, record_recipe, space_of
from understudy.tools.dataset.conversion import convert_file
from worlds import pendulum_recipe, random_dataset, real_data


def rich_dataset() -> Dataset:
    """Groups, bytes, wide numbers, masks, extra columns, all kinds of ends."""
    rng = np.random.default_rng(5)
    episodes = []
    for number in range(6):
        steps = int(rng.integers(1, 7))
        mask = rng.random((steps + 1, 4)) < 0.5
        actions = rng.integers(0, 4, steps)
        mask[np.arange(steps), actions] = True
        mask[-1, 0] = True
        observations = {
            "position": rng.standard_normal((steps + 1, 2)),
            "image": rng.integers(0, 255, (steps + 1, 3, 2, 2), np.uint8),
        }
        episodes.append(
            Episode(
                observations,
                actions,
                rng.standard_normal(steps),
                number % 3 == 0,
                number % 3 == 1,
                mask=mask,
                extra={"behaviour_log_prob": rng.standard_normal(steps)},
            )
        )
    return Dataset.from_episodes(episodes, Discrete(4), name="rich", precision="source")


def box_dataset() -> Dataset:
    return random_dataset(count=4, steps=9)


TARGETS = ["store", "flat.npz", "flat.hdf5"]


@pytest.mark.parametrize("make", [rich_dataset, box_dataset])
@pytest.mark.parametrize("first", TARGETS)
@pytest.mark.parametrize("second", TARGETS)
def test_round_trips_are_exact(tmp_path: Path, make: Any, first: str, second: str) -> None:
    dataset = make()
    start = write_store(dataset, tmp_path / "start")
    (tmp_path / "a").mkdir()
    convert_file(str(start), tmp_path / "a" / first)
    done = convert_file(str(tmp_path / "a" / first), tmp_path / "b" / second, space=dataset.spec.action)
    assert done.fingerprint == dataset.fingerprint
    back = us.load_dataset(tmp_path / "b" / second, action_space=dataset.spec.action, precision="source")
    assert back.fingerprint == dataset.fingerprint
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [second]  # no drafts are left


def test_a_minari_dataset_comes_back(tmp_path: Path) -> None:
    dataset = box_dataset()
    start = write_store(dataset, tmp_path / "start")
    done = convert_file(str(start), tmp_path / "minari", minari_id="mine/random-v0")
    back = us.load_dataset(done.path, precision="source")
    assert back.fingerprint == dataset.fingerprint


def test_numbers_are_narrowed_only_when_asked(tmp_path: Path) -> None:
    start = write_store(rich_dataset(), tmp_path / "start")
    convert_file(str(start), tmp_path / "wide")
    convert_file(str(start), tmp_path / "narrow", precision="float32")
    assert open_store(tmp_path / "wide").spec.observation["position"].dtype == "float64"
    assert open_store(tmp_path / "narrow").spec.observation["position"].dtype == "float32"


def test_whole_numbers_too_large_for_float32_are_kept(tmp_path: Path) -> None:
    """2**24 + 1 is the first one that float32 cannot hold."""
    flags = np.arange(6) % 3 == 2
    columns: dict[str, Any] = {
        "observations": 2**24 + np.arange(6)[:, None],
        "actions": np.arange(6) % 2,
        "rewards": np.arange(6),
    }
    np.savez(tmp_path / "x.npz", **columns, terminals=flags)
    convert_file(str(tmp_path / "x.npz"), tmp_path / "y")
    episodes = list(open_store(tmp_path / "y").recording().episodes())
    kept = np.concatenate([episode.observations["state"] for episode in episodes])
    np.testing.assert_array_equal(kept, columns["observations"])


def test_errors_name_what_is_converted(tmp_path: Path) -> None:
    """Not the draft it is written to."""
    columns: dict[str, Any] = {
        "observations": np.full((3, 1), np.nan),
        "actions": np.arange(3),
        "rewards": np.arange(3),
    }
    np.savez(tmp_path / "x.npz", **columns, terminals=[False, False, True])
    with pytest.raises(
        DataError, match=r"^dataset 'x\.npz', episode 0, observation 'state', row 0, column 0: not finite"
    ):
        convert_file(str(tmp_path / "x.npz"), tmp_path / "y")


def test_a_real_recording_is_mended_into_a_store(tmp_path: Path) -> None:
    """Two episodes of HalfCheetah whose time limit was stored as a terminal and whose actions leave the box."""
    source = str(real_data("halfcheetah_cs285.npz"))
    box = Box((-1.0,) * 6, (1.0,) * 6)
    with pytest.raises(DataError, match="actions lie outside the action space"):
        convert_file(source, tmp_path / "refused", space=box)
    assert not (tmp_path / "refused").exists()
    convert_file(source, tmp_path / "mended", space=box, transforms=Transforms(time_limit=1000, actions="clip"))
    mended = open_store(tmp_path / "mended")
    assert mended.index.truncated.all()
    assert not mended.index.terminated.any()
    assert mended.actions.abs().max() <= 1
    np.testing.assert_allclose(sorted(mended.returns()), [4001.93, 4067.67], atol=0.01)


def test_the_best_episodes_go_into_a_file_of_their_own(tmp_path: Path) -> None:
    dataset = random_dataset(count=10)
    start = write_store(dataset, tmp_path / "start")
    done = convert_file(str(start), tmp_path / "best.npz", transforms=Transforms(best_episodes=0.2))
    assert done.episodes == 2
    best = us.load_dataset(tmp_path / "best.npz", action_space=dataset.spec.action)
    assert sorted(best.returns()) == sorted(dataset.returns())[-2:]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"reward": "antmaze_iql"}, "reward: is done while learning, not to files"),
        ({"hide_columns": {"state": [0]}}, "hide_columns: is done while learning"),
        ({"validation": 0.5}, "validation: is held out while learning"),
    ],
)
def test_what_belongs_to_a_run_is_not_done_to_files(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    start = write_store(random_dataset(), tmp_path / "start")
    with pytest.raises(ConfigError, match=told):
        convert_file(str(start), tmp_path / "x", transforms=Transforms.parse(changes))


def test_nothing_is_overwritten_and_endings_are_known(tmp_path: Path) -> None:
    start = write_store(random_dataset(), tmp_path / "start")
    with pytest.raises(DataError, match="already exists"):
        convert_file(str(start), start)
    with pytest.raises(ConfigError, match=r"unknown format: got .csv, expected a folder, .npz or .hdf5"):
        convert_file(str(start), tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("actions", "space"), [(np.array([0, 2, 1]), Discrete(3)), (np.array([[1], [0], [1]], np.uint8), Discrete(2))]
)
def test_whole_numbers_tell_their_own_space(actions: Any, space: ActionSpace) -> None:
    episode = {"observations": np.ones((4, 2)), "actions": actions, "rewards": np.ones(3), "terminated": True}
    assert space_of(open_recording([episode])) == space
    assert us.load_dataset([episode]).spec.action == space


def test_a_mask_tells_of_actions_nobody_took() -> None:
    mask = np.ones((4, 5), bool)
    episode = {"observations": np.ones((4, 2)), "actions": [0, 2, 1], "rewards": np.ones(3), "terminated": True}
    assert us.load_dataset([{**episode, "action_mask": mask}]).spec.action == Discrete(5)


def test_continuous_actions_need_a_space() -> None:
    episode = {"observations": np.ones((4, 2)), "actions": np.ones((3, 1)), "rewards": np.ones(3), "terminated": True}
    with pytest.raises(DataError, match=r"its action space is not known\. Give the environment"):
        us.load_dataset([episode])


def test_a_killed_collection_goes_on_where_it_stopped(tmp_path: Path) -> None:
    recipe = pendulum_recipe(episodes=6)
    whole = make_dataset(recipe)
    child = os.fork()
    if child == 0:
        write, lines = os.write, 0

        def dying(handle: int, content: bytes) -> int:
            nonlocal lines
            lines += bytes(content).startswith(b"[")
            if lines == 4:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
            return write(handle, content)

        os.write = dying  # type: ignore[assignment]
        record_recipe(recipe, tmp_path / "x")
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    left = open_recording(tmp_path / "x")
    assert left.layout == "unfinished store"
    assert left.notes == ("an unfinished recording, read as far as it is whole: 3 episodes",)
    assert record_recipe(recipe, tmp_path / "x").fingerprint == whole.fingerprint
    assert store_recipe(tmp_path / "x")["episodes"] == 6


@pytest.mark.parametrize("name", ["x.pkl", "x.pt", "x.log", "x"])
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04\x95cposix\nsystem\n")
    told = "a pickle may run any code" if name.endswith(("pkl", "pt")) else "unknown kind of file"
    with pytest.raises(DataError, match=told):
        open_recording(tmp_path / name)


def test_a_folder_without_a_dataset_and_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a folder that holds no dataset"):
        open_recording(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        open_recording(tmp_path / "nowhere.npz")

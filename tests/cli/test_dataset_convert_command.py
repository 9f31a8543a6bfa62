"""dataset convert as a shell sees it: what it says, what it leaves, and what happens when it is stopped or killed."""

import json
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import complaint, config_file, understudy

from understudy.core.files import seal
from understudy.core.spec import Box
from understudy.data.formats.readers import open_recording
from understudy.data.stores.store import MANIFEST, open_store, write_store
from understudy.data.transforms import Transforms
from understudy.tools.dataset.conversion import convert_file
from worlds import random_dataset

BOX = Box((-2.0,), (2.0,))
TARGETS = ["store", "flat.npz", "flat.hdf5"]


def many_episodes(path: Path, episodes: int = 60_000) -> Path:
    """Takes some seconds to convert."""
    states = np.random.default_rng(0).standard_normal((episodes, 1)).astype(np.float32)
    flags = np.ones(episodes, bool)
    np.savez(path, observations=states, actions=np.arange(episodes) % 2, rewards=states[:, 0], terminals=flags)
    return path


def flat_file(path: Path, steps: int = 20, **more: Any) -> Path:
    """Rows that no flag ends, of a box of one dimension."""
    numbers = np.arange(steps, dtype=np.float32)
    columns = {"observations": numbers[:, None], "actions": np.zeros((steps, 1), np.float32), "rewards": numbers}
    np.savez(path, **{**columns, "terminals": np.zeros(steps, bool), **more})
    return path


def in_child(act: Callable[[], None], folder: Path) -> tuple[int, Path]:
    """A process that acts; its standard error goes to a file."""
    heard = folder / "stderr"
    child = os.fork()
    if child == 0:
        os.dup2(os.open(heard, os.O_WRONLY | os.O_CREAT), 2)
        try:
            act()
        finally:
            os._exit(99)
    return child, heard


def command(*words: str | Path) -> Callable[[], None]:
    def act() -> None:
        spoken = understudy(*words)
        os.write(2, spoken.err.encode())
        os._exit(spoken.code)

    return act


def await_draft(folder: Path) -> None:
    """Until something was written to a hidden draft."""
    for _ in range(3000):
        if folder.is_dir() and any(path.name.startswith(".") and any(path.rglob("*")) for path in folder.iterdir()):
            return
        time.sleep(0.01)
    raise AssertionError("no draft appeared")


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_killed_conversion_left_is_swept_by_the_next(tmp_path: Path, target: str) -> None:
    slow = many_episodes(tmp_path / "slow.npz")
    out = tmp_path / "out"
    child, _ = in_child(command("dataset", "convert", slow, out / target), tmp_path)
    await_draft(out)
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    left = list(out.iterdir())
    assert left
    assert all(path.name.startswith(f".{target}.") for path in left)
    dataset = random_dataset()
    start = write_store(dataset, tmp_path / "start")
    assert understudy("dataset", "convert", start, out / target).code == 0
    assert [path.name for path in out.iterdir()] == [target]
    assert open_recording(out / target).steps == dataset.steps


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("words", [("store",), ("flat.npz",), ("minari", "--minari", "mine/x-v0")])
def test_told_to_stop_it_leaves_nothing_and_says_so(
    tmp_path: Path, number: int, code: int, words: tuple[str, ...]
) -> None:
    slow = many_episodes(tmp_path / "slow.npz")
    out = tmp_path / "out"
    child, heard = in_child(command("dataset", "convert", slow, out / words[0], *words[1:]), tmp_path)
    await_draft(out)
    os.kill(child, number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    assert list(out.iterdir()) == []
    assert heard.read_text().strip().splitlines()[-1] == f"dataset '{out / words[0]}': stopped. Nothing was written."


def test_a_collection_told_to_stop_keeps_its_episodes(tmp_path: Path) -> None:
    config = config_file(tmp_path / "x.yaml", tmp_path / "run")
    settings = json.loads(config.read_text())
    settings["data"]["recipe"] |= {"episodes": 5000}
    config.write_text(json.dumps(settings))
    child, heard = in_child(command("collect", config, "--out", tmp_path / "data", "--quiet"), tmp_path)
    journal = tmp_path / "data" / "episodes.jsonl"
    for _ in range(3000):
        if journal.exists() and journal.stat().st_size:
            break
        time.sleep(0.01)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143
    assert "stopped. Finished episodes are kept: the same command goes on after them." in heard.read_text()
    assert open_recording(tmp_path / "data").steps >= 10


@pytest.mark.parametrize("words", [("store",), ("flat.npz",), ("flat.hdf5",), ("minari", "--minari", "mine/x-v0")])
@pytest.mark.parametrize("room", [3_000, 60_000])
def test_a_full_disk_names_the_target(tmp_path: Path, words: tuple[str, ...], room: int) -> None:
    """The HDF5 library used to crash the process here."""
    start = write_store(random_dataset(count=200, steps=40), tmp_path / "start")
    out = tmp_path / "out"

    def act() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        command("dataset", "convert", start, out / words[0], *words[1:], "--quiet")()

    child, heard = in_child(act, tmp_path)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert heard.read_text() == f"{out / words[0]}: File too large.\n"
    assert not out.exists() or not [path for path in out.rglob("*") if path.name != "namespace_metadata.json"]


def test_unknown_final_observations_are_dropped_when_asked(tmp_path: Path) -> None:
    source = flat_file(tmp_path / "x.npz", timeouts=np.arange(20) % 10 == 9)
    pendulum = ("--env", "Pendulum-v1", "--quiet")
    words = ("dataset", "convert", source, tmp_path / "minari", "--minari", "mine/x-v0", *pendulum)
    told = complaint(*words, code=1)
    assert "2 episodes without a final observation, which Minari needs." in told
    assert "--drop-unknown-finals" in told
    assert understudy(*words, "--drop-unknown-finals").code == 0
    for target in ("minari/mine/x-v0", *TARGETS):
        if target in TARGETS:
            spoken = understudy("dataset", "convert", source, tmp_path / target, "--drop-unknown-finals", *pendulum)
            assert spoken.code == 0, spoken
        episodes = list(open_recording(tmp_path / target).episodes())
        assert [episode.rewards.tolist() for episode in episodes] == [list(range(9)), list(range(10, 19))]
        assert [episode.observations["state"][-1].tolist() for episode in episodes] == [[9], [19]]
        assert all(episode.final_known and episode.truncated for episode in episodes)


@pytest.mark.parametrize("words", [("store",), ("flat.npz",), ("flat.hdf5",), ("minari", "--minari", "mine/x-v0")])
def test_the_environment_is_remembered(tmp_path: Path, words: tuple[str, ...]) -> None:
    source = flat_file(tmp_path / "x.npz", terminals=np.arange(20) == 19)
    first, second = tmp_path / "a" / words[0], tmp_path / "b" / words[0]
    assert understudy("dataset", "convert", source, first, *words[1:], "--env", "Pendulum-v1").code == 0
    first = first / "mine" / "x-v0" if len(words) > 1 else first
    assert open_recording(first).env == "Pendulum-v1"
    assert understudy("dataset", "convert", first, second, *words[1:]).code == 0
    second = second / "mine" / "x-v0" if len(words) > 1 else second
    assert open_recording(second).env == "Pendulum-v1"
    told = " ".join(understudy("dataset", "check", second).out.split())
    assert "against Pendulum-v1: 1 episode, 20 steps" in told


@pytest.mark.parametrize("word", ["os:system-v0", "x" * 201, "a b", "", 7, None, {"a": 1}, "\x1b[31m"])
def test_a_word_that_is_no_name_is_not_an_environment(tmp_path: Path, word: object) -> None:
    path = write_store(random_dataset(), tmp_path / "a")
    manifest = json.loads((path / MANIFEST).read_text())
    manifest.pop("seal")
    for content in ({**manifest, "env": word}, {**manifest, "recipe": {"env": word}}, {**manifest, "recipe": word}):
        (path / MANIFEST).write_bytes(seal(content))
        assert open_store(path).env == ""
    without = {name: value for name, value in manifest.items() if name != "env"}  # as older stores are
    (path / MANIFEST).write_bytes(seal({**without, "recipe": {"env": "Pendulum-v1"}}))
    assert open_store(path).env == "Pendulum-v1"


def test_one_is_not_many(tmp_path: Path) -> None:
    source = flat_file(tmp_path / "x.npz", 1, terminals=np.ones(1, bool))
    spoken = understudy("dataset", "convert", source, tmp_path / "a", "--env", "Pendulum-v1")
    assert spoken.out.startswith("1 episode, 1 step written to ")
    assert "1 episode, 1 step;" in understudy("dataset", "inspect", tmp_path / "a").out


def test_a_file_without_any_end_is_cut_by_the_clock(tmp_path: Path) -> None:
    source = flat_file(tmp_path / "x.npz")
    told = complaint("dataset", "convert", source, tmp_path / "a", "--env", "Pendulum-v1", code=1)
    assert "set episode_steps (as in episode_steps=1000)" in told
    words = ("dataset", "convert", source, tmp_path / "a", "episode_steps=8", "--env", "Pendulum-v1")
    assert understudy(*words).out.startswith("3 episodes, 20 steps written")
    assert open_store(tmp_path / "a").index.truncated.tolist() == [True, True, False]


def test_a_run_learns_from_a_file_without_any_end(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    source = flat_file(tmp_path / "x.npz", observations=rng.standard_normal((20, 3)).astype(np.float32))
    data = {"path": str(source), "episode_steps": 5}
    config = config_file(tmp_path / "x.yaml", tmp_path / "run", data=data)
    spoken = understudy("train", config, "--quiet")
    assert spoken.code == 0, spoken
    told = (tmp_path / "run" / "config.yaml").read_text()
    assert "episode_steps: 5" in told
    cut = convert_file(
        str(source), tmp_path / "cut", transforms=Transforms(episode_steps=5), space=BOX, precision="float32"
    )
    meta = json.loads((tmp_path / "run" / "meta.json").read_text())
    assert cut.fingerprint in json.dumps(meta) + told


def test_bounds_can_be_given_without_an_environment(tmp_path: Path) -> None:
    source = flat_file(tmp_path / "log.npz", timeouts=np.arange(1, 21) % 10 == 0)
    words = ("dataset", "convert", source, tmp_path / "store", "--action-low", "-3", "--action-high", "3")
    assert understudy(*words).code == 0
    assert open_store(tmp_path / "store").spec.action == Box((-3.0,), (3.0,))
    half = ("dataset", "convert", source, tmp_path / "other", "--action-low", "3")
    assert "one of two is missing: got 3.0 to None" in complaint(*half, code=2)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("word", ["normalize_observations=true", "reward=none", "hide_columns={}"])
def test_what_is_done_while_learning_is_refused_even_as_its_default(word: str, tmp_path: Path) -> None:
    source = flat_file(tmp_path / "log.npz", timeouts=np.arange(1, 21) % 10 == 0)
    words = ("dataset", "convert", source, tmp_path / "store", "--env", "Pendulum-v1", word)
    assert "is done while learning, not to files" in complaint(*words, code=2)


def test_a_folder_of_logs_is_one_dataset(tmp_path: Path) -> None:
    flat_file(tmp_path / "a b.npz")
    flat_file(tmp_path / "c.npz")
    assert "2 episodes, 40 steps" in understudy("dataset", "inspect", tmp_path).out


def test_nan_is_mended_by_the_command_that_check_prints(tmp_path: Path) -> None:
    rewards = np.zeros(20, np.float32)
    rewards[3] = np.nan
    ends = np.arange(1, 21) % 10 == 0
    source = flat_file(tmp_path / "log.npz", rew=rewards, act=np.zeros((20, 1), np.float32), timeouts=ends)
    columns = dict(np.load(source))
    np.savez(source, **{name: columns[name] for name in columns if name not in ("rewards", "actions")})
    spoken = understudy("dataset", "check", source)
    assert spoken.code == 1
    assert "not_finite=drop" in spoken.out
    words = ("--action-low", "-1", "--action-high", "1", "not_finite=drop")
    assert understudy("dataset", "convert", source, tmp_path / "store", *words).code == 0
    assert open_store(tmp_path / "store").episodes == 1


def test_a_table_with_a_map_of_columns(tmp_path: Path) -> None:
    """inspect, check and convert take the same words; bounds are one number or one for each dimension."""
    rows = "\n".join(f"{row % 3},{row},{0.5 * row},{row // 3}" for row in range(9))
    (tmp_path / "logs.csv").write_text(f"valve,temp,r,day\n{rows}\n")
    words = ("--columns", "obs=temp,action=valve,temp,reward=r,episode=day")
    assert "3 episodes, 9 steps" in understudy("dataset", "inspect", tmp_path / "logs.csv", *words).out
    checked = understudy("dataset", "check", tmp_path / "logs.csv", *words)
    assert "PASS: 0 errors" in checked.out
    bounds = ("--action-low", "0,-1", "--action-high", "2,8.5")
    done = understudy("dataset", "convert", tmp_path / "logs.csv", tmp_path / "store", *words, *bounds)
    assert "3 episodes, 9 steps written" in done.out
    assert open_store(tmp_path / "store").spec.action == Box((0.0, -1.0), (2.0, 8.5))
    told = complaint("dataset", "inspect", tmp_path / "logs.csv", "--columns", "obs=tmp", code=1)
    assert "no column 'tmp'. Did you mean 'temp'?" in told
    told = complaint(
        "dataset", "convert", tmp_path / "logs.csv", tmp_path / "again", *words, "--action-low", "x", code=2
    )
    assert "--action-low: wrong value: got 'x'" in told


def test_a_packed_file_is_small_and_the_same_dataset(tmp_path: Path) -> None:
    source = write_store(random_dataset(count=20), tmp_path / "store")
    spoken = understudy("dataset", "convert", source, tmp_path / "x.npz", "--packed")
    assert spoken.code == 0, spoken.err
    assert spoken.out.endswith(f"fingerprint {open_store(source).fingerprint}\n")
    assert open_recording(tmp_path / "x.npz").layout == "packed store"
    assert (tmp_path / "x.npz").stat().st_size < sum(file.stat().st_size for file in source.iterdir())
    assert "--packed: is for .npz files" in complaint(
        "dataset", "convert", source, tmp_path / "y.hdf5", "--packed", code=2
    )

"""A full disk: the error is told, the checkpoint before it stays whole, and with room again the run goes on."""

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from event_files import scalars
from forks import Child, Ending, finish, forks
from small import content, leftovers, short_config
from watchdog import ending_of

from understudy.run.checkpoint import list_checkpoints, load_checkpoint


def told(ending: Ending) -> str:
    """The one sentence of a command that failed."""
    assert ending.code == 1, ending
    assert "Traceback" not in ending.err
    return ending.err.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("whole")
    finish(short_config(folder), folder / "run", no_plots=True)
    return content(folder / "run")


@pytest.mark.parametrize("limit", [2_500, 4_096, 9_000, 12_000, 16_384])
def test_no_file_may_grow(limit: int, whole: dict[str, str], tmp_path: Path) -> None:
    config, run = short_config(tmp_path), tmp_path / "run"
    forks().run("train", config, stop_at=5)
    before = load_checkpoint(run / "checkpoints", 5)
    bytes_before = (before.path / "state.safetensors").read_bytes()
    sentence = told(forks().run("resume", run, "--quiet", file_limit=limit))
    assert "File too large" in sentence
    assert str(run) in sentence
    assert (load_checkpoint(run / "checkpoints", 5).path / "state.safetensors").read_bytes() == bytes_before
    assert all(load_checkpoint(run / "checkpoints", updates) for updates in list_checkpoints(run / "checkpoints"))
    finish(config, run, no_plots=True)
    assert content(run) == whole
    assert leftovers(run) == []


def test_a_failed_save_says_that_the_one_before_is_untouched(tmp_path: Path) -> None:
    config = short_config(tmp_path)
    forks().run("train", config, stop_at=5)
    sentence = told(forks().run("resume", tmp_path / "run", file_limit=9_000))
    assert sentence.startswith(f"checkpoint '{tmp_path / 'run' / 'checkpoints' / '000000008'}': could not be written")
    assert "The checkpoint before it is untouched: make room" in sentence


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    """A file system of its own in place of a folder."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "understudy-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk on which a run's first save fits, its third does not."""
    with mounted(tmp_path / "disk", "112k"):
        yield tmp_path / "disk"


def test_a_disk_without_room(small_disk: Path, whole: dict[str, str]) -> None:
    config, run = short_config(small_disk), small_disk / "run"
    assert "No space left" in told(forks().run("train", config, no_plots=True))
    saved = list_checkpoints(run / "checkpoints")
    assert saved
    assert all(load_checkpoint(run / "checkpoints", updates) for updates in saved)
    assert "No space left" in told(forks().run("resume", run, no_plots=True))
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    finish(config, run, no_plots=True)
    assert content(run) == whole


ENDLESS: dict[str, Any] = {"updates": 10**9, "log_every": 1, "eval_every": 7, "save_every": 10**9, "tensorboard": True}


def check_stopped_by_tensorboard(run: Path, ending: Ending, reason: str) -> None:
    """One sentence that names the file; saved at the update that it tells; and from there the run goes on."""
    sentence = told(ending)
    assert ending.err.count("\n") == 1
    (saved,) = list_checkpoints(run / "checkpoints")
    assert re.fullmatch(
        rf"run '{run}': '{run}/tensorboard/events\.out\.tfevents\.\S+' cannot be written any more \({reason}\)\. "
        rf"Saved at update {saved:,}: make room or mend the folder, then resume\.",
        sentence,
    )
    again = forks().run("resume", run, "--quiet", stop_at=2)
    assert again.code == 128 + signal.SIGTERM, again
    updates = [json.loads(line)["updates"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert updates == list(range(1, saved + 3)), "no number is missing, none is there twice"
    shown = [step for step, _ in scalars(run / "tensorboard")["loss/actor"]]
    assert shown[-2:] == updates[-2:]


def endless(folder: Path) -> Child:
    """A process that trains and has shown its first numbers to TensorBoard."""
    child = forks().start("train", short_config(folder, **ENDLESS), "--quiet")
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size > 500 for path in (folder / "run" / "tensorboard").glob("*")):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return child


def test_the_folder_of_tensorboard_is_deleted_during_a_run(tmp_path: Path) -> None:
    child = endless(tmp_path)
    shutil.rmtree(tmp_path / "run" / "tensorboard")
    check_stopped_by_tensorboard(tmp_path / "run", ending_of(child), "No such file or directory")


def test_no_room_under_tensorboard(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    forks().run("train", short_config(tmp_path, **ENDLESS), stop_at=1)
    shutil.rmtree(run / "checkpoints")
    with mounted(run / "tensorboard", "8k"):
        ending = ending_of(forks().start("resume", run, "--quiet"))
        full = scalars(run / "tensorboard")["loss/actor"]
        assert len(full) > 2
    check_stopped_by_tensorboard(run, ending, "No space left on device")


@pytest.mark.parametrize("limit", [600, 1_500, 4_000])
def test_no_file_may_grow_beside_tensorboard(limit: int, tmp_path: Path) -> None:
    """Whichever file comes to its end first is named, and nobody's traceback is shown."""
    sentence = told(ending_of(forks().start("train", short_config(tmp_path, **ENDLESS), "--quiet", file_limit=limit)))
    assert "File too large" in sentence
    assert str(tmp_path / "run") in sentence


def test_a_run_that_is_deleted_while_it_trains_does_not_come_back(tmp_path: Path) -> None:
    child = endless(tmp_path)
    (tmp_path / "run").rename(tmp_path / "gone")  # in one piece, or it would go on writing between two deletions
    shutil.rmtree(tmp_path / "gone")
    assert "No such file or directory" in told(ending_of(child))
    assert not (tmp_path / "run").exists()

"""A full disk: the error is told, the checkpoint before it stays whole, and with room again the run goes on."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from forks import Ending, finish, forks
from small import content, leftovers, short_config

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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own; a run's first save fits on it, its third does not."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=112k", "understudy-test", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


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

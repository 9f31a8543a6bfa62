"""Damaged checkpoints are refused by name; resume passes them over and ends with the same bytes."""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from forks import finish, forks
from small import content, short_config

from understudy.core.errors import CheckpointError
from understudy.run.checkpoint import load_checkpoint, newest_checkpoint
from understudy.run.policies import find_checkpoint
from understudy.run.policy_file import load_policy_file
from understudy.run.rundir import RunDir

FILES = ("state.safetensors", "manifest.json")


@dataclass(frozen=True)
class World:
    folder: Path
    whole: dict[str, str]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A run that was stopped at update 9, so that checkpoints 4, 8 and 9 are there, and its uninterrupted twin."""
    folder = tmp_path_factory.mktemp("damage")
    finish(short_config(folder, name="whole"), folder / "whole", no_plots=True)
    forks().run("train", short_config(folder, name="stopped"), stop_at=9)
    return World(folder, content(folder / "whole"))


@pytest.fixture
def run(world: World, tmp_path: Path) -> Path:
    shutil.copytree(world.folder / "stopped", tmp_path / "stopped")
    return tmp_path / "stopped"


def refused(run: Path, updates: int = 9) -> str:
    """What is said about a checkpoint that must not load."""
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(run / "checkpoints", updates)
    message = str(error.value)
    assert f"{updates:09d}" in message
    assert "\n" not in message
    return message


def flips(content: bytes, places: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    for place in places:
        yield place, content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :]


@pytest.mark.slow
def test_any_flipped_byte_of_the_manifest(run: Path) -> None:
    file = run / "checkpoints" / "000000009" / "manifest.json"
    original = file.read_bytes()
    for place, damaged in flips(original, iter(range(len(original)))):
        file.write_bytes(damaged)
        assert "manifest.json" in refused(run), f"byte {place}"


def test_flipped_bytes_of_the_tensors(run: Path) -> None:
    file = run / "checkpoints" / "000000009" / "state.safetensors"
    original = file.read_bytes()
    header = 8 + int.from_bytes(original[:8], "little")
    places = random.Random(0)
    within, behind = places.sample(range(header), 200), places.sample(range(header, len(original)), 200)
    for place, damaged in flips(original, iter([*within, *behind])):
        file.write_bytes(damaged)
        assert "state.safetensors" in refused(run), f"byte {place}"


@pytest.mark.parametrize("name", FILES)
def test_truncated_anywhere(run: Path, name: str) -> None:
    file = run / "checkpoints" / "000000009" / name
    original = file.read_bytes()
    edges = {0, 1, 7, 8, 9, len(original) // 2, len(original) - 2, len(original) - 1}
    for size in sorted(edges | set(range(0, len(original), 4096))):
        file.write_bytes(original[:size])
        assert name in refused(run), f"{size} bytes"
    file.write_bytes(original + b"\n")
    assert name in refused(run), "one byte more"


def test_checkpoints_of_other_updates_do_not_pass(run: Path) -> None:
    folder = run / "checkpoints"
    shutil.rmtree(folder / "000000009")
    shutil.copytree(folder / "000000008", folder / "000000009")
    assert "got 8, expected 9" in refused(run)
    shutil.copy(folder / "000000004" / "state.safetensors", folder / "000000008" / "state.safetensors")
    assert "sha256" in refused(run, 8)


def delete_tensors(checkpoint: Path) -> None:
    (checkpoint / "state.safetensors").unlink()


def delete_manifest(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").unlink()


def empty_tensors(checkpoint: Path) -> None:
    (checkpoint / "state.safetensors").write_bytes(b"")


def empty_manifest(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").write_bytes(b"")


def tensors_are_a_directory(checkpoint: Path) -> None:
    delete_tensors(checkpoint)
    (checkpoint / "state.safetensors").mkdir()


def manifest_is_a_directory(checkpoint: Path) -> None:
    delete_manifest(checkpoint)
    (checkpoint / "manifest.json").mkdir()


def checkpoint_is_empty(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


def checkpoint_is_a_file(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.write_bytes(b"not a folder")


def checkpoint_is_a_dead_link(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.symlink_to("nowhere")


Damage = Callable[[Path], None]
DAMAGES: tuple[Damage, ...] = (
    delete_tensors,
    delete_manifest,
    empty_tensors,
    empty_manifest,
    tensors_are_a_directory,
    manifest_is_a_directory,
    checkpoint_is_empty,
    checkpoint_is_a_file,
    checkpoint_is_a_dead_link,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: str(damage.__name__))
def test_the_newest_whole_one_is_found_and_the_broken_one_named(run: Path, damage: Damage) -> None:
    damage(run / "checkpoints" / "000000009")
    found, broken = newest_checkpoint(run / "checkpoints")
    assert found is not None
    assert found.updates == 8
    assert len(broken) == 1
    assert "000000009" in broken[0]
    with pytest.raises(CheckpointError, match="000000009"):
        find_checkpoint(RunDir.open(run), "9")
    with pytest.raises(CheckpointError, match="newest whole one is 8: use --checkpoint 8"):
        find_checkpoint(RunDir.open(run), "last")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: str(damage.__name__))
def test_resume_over_a_broken_save_that_comes_round_again(world: World, run: Path, damage: Damage) -> None:
    """Updates 8 and 9 are damaged: the run goes on from 4 and has to write 8 once more, over the ruins."""
    for updates in ("000000008", "000000009"):
        damage(run / "checkpoints" / updates)
    ending = forks().run("resume", run, no_plots=True)
    assert ending.code == 0, ending.err
    assert ending.err.count("passed over: checkpoint") == 2
    assert "at update 4 of 12" in ending.err
    assert content(run) == world.whole


def test_without_any_whole_checkpoint_the_run_starts_over_only_when_told(world: World, run: Path) -> None:
    for updates in ("000000004", "000000008", "000000009"):
        empty_manifest(run / "checkpoints" / updates)
    assert "000000004" in forks().run("evaluate", run).err
    logs = (run / "metrics.jsonl").read_bytes()
    refused = forks().run("resume", run, no_plots=True)
    assert refused.code == 1
    assert "every checkpoint is broken. To start over" in refused.err
    assert (run / "metrics.jsonl").read_bytes() == logs
    shutil.rmtree(run / "checkpoints")
    ending = forks().run("resume", run, no_plots=True)
    assert ending.code == 0, ending.err
    assert "at update 0 of 12" in ending.err
    assert content(run) == world.whole


@pytest.mark.parametrize("name", ["policy.json", "policy.safetensors"])
def test_a_damaged_policy_is_refused(world: World, tmp_path: Path, name: str) -> None:
    shutil.copytree(world.folder / "whole" / "policy" / "best", tmp_path / "best")
    file = tmp_path / "best" / name
    original = file.read_bytes()
    some = random.Random(1).sample(range(len(original)), 200)
    for place, damaged in flips(original, iter(some)):
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=str(tmp_path / "best")):
            load_policy_file(tmp_path / "best")
        assert damaged != original, place

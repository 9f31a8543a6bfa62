"""Checkpoints: `checkpoints/000020000/{state.safetensors, manifest.json}` and a small file `latest`.

A checkpoint exists only once its folder has its final name, every file carries its sha256, the manifest is
sealed, and nothing in it can run code. Of large state it lists the files, `checkpoints/segments/<sha256>.safetensors`,
which it shares with its neighbours; one of them goes when no checkpoint that is there lists it any more.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

from pydantic import Field
from safetensors.torch import save as save_tensors
from torch import Tensor

from understudy.core.errors import CheckpointError, UnderstudyError
from understudy.core.facts import SIZE_LIMIT, Facts, SealedFacts, Whole
from understudy.core.files import (
    discard,
    read_sealed,
    remove_directory,
    replace_directory,
    seal,
    sha256_bytes,
    write_bytes,
    write_new,
)
from understudy.core.large_state import CapturedRows, StoredRows
from understudy.core.machine_memory import machine_memory
from understudy.core.segments import DIGEST, SegmentFolder
from understudy.core.state import State
from understudy.run.tensor_file import read_tensors

FORMAT = 2
LATEST = "latest"
MANIFEST = "manifest.json"
TENSORS = "state.safetensors"
SEGMENTS = "segments"
"""The folder of large state, beside the checkpoints."""
NUMBERED = re.compile(r"\d{9}")
CARD_FACT = "policy"
"""The fact that says how to rebuild the policy without its algorithm."""
NETWORKS_FACT = "networks"
"""The fact that says where the networks of each role lie."""
LAYOUTS_FACT = "layouts"
"""The fact that says what lies where in their tensors."""


class PolicyFacts(Facts):
    """How to rebuild the policy."""

    kind: str
    spec: dict[str, Any]
    settings: dict[str, Any]


class CheckpointFacts(Facts):
    """What the writer said of itself, as far as it must be said."""

    settings: dict[str, Any]
    updates: Whole
    sources: dict[str, str]
    versions: dict[str, str]
    policy: PolicyFacts
    networks: dict[str, str]
    layouts: dict[str, dict[str, Any]] = Field(default_factory=dict)


class LargeFacts(Facts):
    """What a large state consists of."""

    layout: str
    written: Whole
    segments: list[Annotated[str, Field(pattern=DIGEST)]]


class Manifest(SealedFacts):
    """What `save_checkpoint` writes beside the tensors."""

    FORMAT = FORMAT

    updates: Whole
    scalars: dict[str, bool | Whole | float | str]
    sha256: dict[str, str]
    facts: dict[str, Any]
    large: dict[str, LargeFacts] = Field(default_factory=dict)


@final
@dataclass(frozen=True)
class Checkpoint:
    path: Path
    updates: int
    state: State
    facts: dict[str, Any]
    """What the writer said of itself: settings, versions, code, dataset fingerprint."""


def save_checkpoint(folder: Path, updates: int, state: State, facts: dict[str, Any], keep: int) -> Path:
    """Write a new checkpoint beside the old ones, then point `latest` at it, then drop the oldest."""
    final_path = folder / f"{updates:09d}"
    draft = folder / f".{updates:09d}.draft"
    try:
        folder.mkdir(exist_ok=True)  # where a whole run directory was deleted, nothing of it comes back
        discard(draft)
        draft.mkdir()
        tensors = save_tensors({path: leaf for path, leaf in sorted(state.items()) if isinstance(leaf, Tensor)})
        write_new(draft / TENSORS, tensors)
        large = _keep_large(folder, state)
        manifest = {
            "format": FORMAT,
            "kind": "understudy checkpoint",
            "updates": updates,
            "scalars": {
                path: leaf for path, leaf in state.items() if not isinstance(leaf, Tensor | CapturedRows | StoredRows)
            },
            "sha256": {TENSORS: sha256_bytes(tensors)},
            "facts": facts,
            **({"large": large} if large else {}),
        }
        write_new(draft / MANIFEST, seal(manifest))
        replace_directory(draft, final_path)
        point_latest(folder, updates)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise CheckpointError(
            f"checkpoint '{final_path}'",
            f"could not be written ({error})",
            do="The checkpoint before it is untouched: make room or fix permissions, then resume.",
        ) from error
    _prune(folder, keep, updates)
    collect_segments(folder, state)
    return final_path


def amend_checkpoint(folder: Path, updates: int, facts: dict[str, Any]) -> bool:
    """Say something else of a checkpoint that is there: what an evaluation found that came after it.

    False of one that is a link, and so somebody else's: nothing is written there.
    """
    path = folder / f"{updates:09d}" / MANIFEST
    if path.parent.is_symlink():
        return False
    try:
        write_bytes(path, seal({**read_sealed(path, SIZE_LIMIT), "facts": facts}))
    except (OSError, UnderstudyError) as error:
        raise CheckpointError(
            f"checkpoint '{path.parent}'",
            f"could not be written again ({error})",
            do="Make room or fix permissions, then resume: the evaluation is played again.",
        ) from error
    return True


def _keep_large(folder: Path, state: State) -> dict[str, dict[str, Any]]:
    """Large state by path, once every file of it is there."""
    large = {}
    for path, leaf in state.items():
        if isinstance(leaf, (CapturedRows, StoredRows)):
            kept = leaf.keep(folder / SEGMENTS)
            large[path] = {"layout": kept.layout, "written": kept.written, "segments": list(kept.segments)}
    return large


def point_latest(folder: Path, updates: int) -> None:
    """Make `latest` name this checkpoint."""
    write_bytes(folder / LATEST, f"{updates:09d}\n".encode())


def list_checkpoints(folder: Path) -> list[int]:
    """Update counts of the checkpoints that are there, oldest first; drafts are not."""
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if NUMBERED.fullmatch(entry.name))


def load_checkpoint(folder: Path, updates: int) -> Checkpoint:
    """Read and verify one checkpoint; anything wrong with it is an error, never a guess."""
    path = folder / f"{updates:09d}"
    where = f"checkpoint '{path}'"
    if not path.is_dir():
        there = ", ".join(map(str, list_checkpoints(folder))) or "none"
        raise CheckpointError(where, "no such checkpoint", do=f"There are: {there}.")
    manifest = Manifest.read(path / MANIFEST, where)
    if manifest.updates != updates:
        raise CheckpointError(where, "of another update", got=manifest.updates, expected=updates)
    CheckpointFacts.parse(manifest.facts, f"{where}, facts of {MANIFEST}")
    tensors = read_tensors(path / TENSORS, manifest.sha256.get(TENSORS), where, machine_memory())
    segments = SegmentFolder(folder / SEGMENTS)
    large = {
        name: StoredRows(rows.layout, rows.written, tuple(rows.segments), segments)
        for name, rows in manifest.large.items()
    }
    return Checkpoint(path, updates, {**tensors, **manifest.scalars, **large}, manifest.facts)


def newest_checkpoint(folder: Path, *, large: bool = True) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and a sentence about each broken one that was passed over.

    Who needs the policy only does without `large` state: nothing of it is read.
    """
    broken: list[str] = []
    for updates in reversed(list_checkpoints(folder)):
        try:
            found = load_checkpoint(folder, updates)
            if large:
                _check_large(found)
        except CheckpointError as error:
            broken.append(str(error))
        else:
            return found, broken
    return None, broken


def _check_large(checkpoint: Checkpoint) -> None:
    for path, leaf in checkpoint.state.items():
        if isinstance(leaf, StoredRows):
            try:
                leaf.check()
            except CheckpointError as error:
                raise CheckpointError(f"checkpoint '{checkpoint.path}'", f"{path}: {error}") from error


def _prune(folder: Path, keep: int, newest: int) -> None:
    """Drop the oldest; what lies beyond the newest is broken, and its turn to be replaced will come."""
    for updates in [found for found in list_checkpoints(folder) if found <= newest][:-keep]:
        remove_directory(folder / f"{updates:09d}")
    for entry in folder.iterdir():
        if re.fullmatch(r"\.\d{9}\.draft", entry.name):
            shutil.rmtree(entry, ignore_errors=True)


def collect_segments(folder: Path, state: State) -> None:
    """Remove what no checkpoint lists; nothing, while one of them cannot say what it lists. `state` is told."""
    place = folder / SEGMENTS
    if not place.is_dir():
        return
    named: set[str] = set()
    for updates in list_checkpoints(folder):
        try:
            manifest = Manifest.read(folder / f"{updates:09d}" / MANIFEST, f"checkpoint {updates}")
        except CheckpointError:
            return
        named.update(*(rows.segments for rows in manifest.large.values()))
    for leaf in state.values():
        if isinstance(leaf, CapturedRows):
            leaf.name(place, named)
    SegmentFolder(place, named).collect()

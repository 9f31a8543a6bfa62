"""Packed motions: clips at the control step as one mapped array, a row per frame, under a sealed manifest.

Clips are read, resampled and written one after the other, so that any number of them fits; the folder appears whole or
not at all. Opened, the digest is compared once; then frames are read where they lie. All channels of a frame stand
side by side: a window is one place in memory, or one read from the file where there are too many to be resident.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from understudy.core.drafts import new_folder
from understudy.core.errors import ConfigError, DataError, UnderstudyError
from understudy.core.files import read_sealed, seal, write_new
from understudy.core.spec import LARGEST
from understudy.data.episode import Array
from understudy.data.fingerprint import ColumnFacts
from understudy.data.motions.clip import Channel, Kind, checked_names, near_or_all
from understudy.data.motions.columns import Choice, Column, Columns, HeldRows, StoredRows
from understudy.data.motions.joint_map import joint_map
from understudy.data.motions.motion_set import MotionSet, clip_table
from understudy.data.motions.resampling import Resampled
from understudy.data.motions.settings import MotionSettings
from understudy.data.stores.npy import map_column, npy_header
from understudy.data.stores.store import RESIDENT_BUDGET, FileRows

MANIFEST, ROWS, FORMAT = "motions.json", "frames.npy", 1
MANIFEST_LIMIT = 256 << 20
"""Bytes: a clip takes about a hundred."""
SIZES: dict[Kind, int] = {"number": 1, "rotation": 4, "place": 3}
KINDS = tuple(SIZES)
WHEN_PACKED = ("fps", "stride", "loop", "mirror", "velocities", "quaternions", "up", "layout", "root")
"""Settings that were decided when clips were packed."""


def is_packed(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def pack_clips(
    clips: Iterable[Resampled], path: Path, step: float, recipe: Mapping[str, Any], channels: Iterable[str] = ()
) -> Path:
    """Write clips that are `step` seconds a frame as a new folder at `path`; only these `channels`, or all.

    The first clip decides which there are. One that lacks any of them ends it, and nothing is written.
    """
    if path.exists():
        raise DataError(str(path), "already exists", do="Choose another name or remove it first.")
    wanted = set(channels)
    digest, told = hashlib.sha256(), list[dict[str, Any]]()
    layout: dict[str, Channel] = {}
    with new_folder(path) as draft:
        with (draft / ROWS).open("xb") as file:
            for clip in clips:
                if not layout:
                    layout = {name: one for name, one in clip.channels.items() if not wanted or name in wanted}
                    _check_wanted(wanted, layout, clip)
                    file.write(_header(layout, 0))
                _check_like(clip, layout)
                rows = torch.cat([clip.channels[name].values.float() for name in layout], 1).numpy()
                digest.update(rows.data)
                file.write(rows.data)
                shift = clip.shift.float().tolist()
                told.append({"name": clip.name, "frames": clip.frames, "loop": clip.loop, "shift": shift})
            frames = sum(one["frames"] for one in told)
            file.seek(0)
            file.write(_header(layout, frames))
            file.flush()
            os.fsync(file.fileno())
        card = {
            "format": FORMAT,
            "kind": "understudy motions",
            "step": step,
            "clips": told,
            "channels": [
                {"name": name, "components": list(one.components), "kind": one.kind} for name, one in layout.items()
            ],
            "sha256": digest.hexdigest(),
            "recipe": dict(recipe),
        }
        write_new(draft / MANIFEST, seal(card))
    return path


def _header(layout: Mapping[str, Channel], frames: int) -> bytes:
    return npy_header(np.dtype(np.float32), (frames, sum(len(one.components) for one in layout.values())))


def _check_wanted(wanted: set[str], layout: Mapping[str, Channel], clip: Resampled) -> None:
    for name in sorted(wanted - layout.keys()):
        raise DataError(f"clip '{clip.name}', channel '{name}'", "no such channel", do=near_or_all(name, clip.channels))


def _check_like(clip: Resampled, layout: Mapping[str, Channel]) -> None:
    for name, first in layout.items():
        if name not in clip.channels:
            what, do = "which the clips before it have, is missing", "Say which channels are to be packed."
        elif clip.channels[name].components != first.components:
            what, do = "has other components than in the clips before it", "Say joints=…, or which channels are packed."
        else:
            continue
        raise DataError(f"clip '{clip.name}', channel '{name}'", what, do=do)


@dataclass(frozen=True)
class Manifest:
    """What a packed folder says of itself, checked."""

    step: float
    clips: list[tuple[str, int, bool, tuple[float, ...]]]
    """Name, frames, whether it is looped, and what a round adds to places."""
    channels: dict[str, tuple[tuple[str, ...], Kind]]
    """Components and kind, in the order they stand in a row."""
    rows: ColumnFacts


def open_packed(path: Path, told: Manifest, settings: MotionSettings, weights: Sequence[float]) -> MotionSet:
    """The clips of a packed folder. Joints may still be chosen; the rest was decided when it was packed."""
    where = f"motions '{path}'"
    _check_settings(settings, told.step, where)
    mapped = map_column(path / ROWS, told.rows, f"{where}, {ROWS}", verify=True, judge=_judge(f"{where}, {ROWS}"))
    assert isinstance(mapped, np.memmap)  # there are frames
    values = torch.from_numpy(mapped)
    file = FileRows(path, {Path(ROWS).stem: mapped})
    file.release()
    large = mapped.nbytes > RESIDENT_BUDGET
    rows = StoredRows(partial(file.stretches, Path(ROWS).stem), values) if large else HeldRows(values)
    stored, first = {}, 0
    for name, (components, kind) in told.channels.items():
        stored[name] = Column(rows, components, kind, slice(first, first + len(components)))
        first += len(components)
    chosen = _with_joints(stored, settings, where)
    columns = Columns(chosen, file.release, sha256=told.rows.sha256 if chosen is stored else "")
    names, lengths, looped, shifts = zip(*told.clips, strict=True)
    table = clip_table(names, lengths, looped, weights, torch.tensor(shifts))
    return MotionSet(str(path), columns, table, step=told.step)


def read_manifest(path: Path) -> Manifest:
    """All of it, refused where it is not what `pack_clips` writes."""
    where = f"motions '{path}'"
    try:
        card = read_sealed(path / MANIFEST, MANIFEST_LIMIT)
    except UnderstudyError as error:
        raise DataError(where, f"not a readable store of motions ({error})") from error
    if card.get("format") != FORMAT:
        raise DataError(where, "written in another format", got=card.get("format"), expected=FORMAT)
    try:
        clips = [
            (str(one["name"]), _count(one["frames"]), _truth(one["loop"]), tuple(map(float, one["shift"])))
            for one in card["clips"]
        ]
        channels = {
            str(one["name"]): (
                tuple(map(str, one["components"])),
                next(kind for kind in KINDS if kind == one["kind"]),
            )
            for one in card["channels"]
        }
        if len(channels) != len(card["channels"]):
            raise ValueError("two channels of one name")
        width = sum(len(components) for components, _ in channels.values())
        rows = ColumnFacts("float32", (_count(sum(clip[1] for clip in clips)), width), str(card["sha256"]))
        told = Manifest(float(card["step"]), clips, channels, rows)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, StopIteration) as error:
        raise DataError(where, "its manifest is not readable", got=repr(error)[:200]) from error
    _check_told(told, where)
    return told


def _count(value: object) -> int:
    if type(value) is not int or not 1 <= value <= LARGEST:
        raise ValueError(f"{value!r:.60} is no count")
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r:.60} is neither true nor false")
    return value


def _check_told(told: Manifest, where: str) -> None:
    names = [name for name, *_ in told.clips]
    if not 0 < told.step < 1e6 or not told.channels or len(set(names)) != len(names):
        raise DataError(where, "its manifest describes no clips, or two of one name")
    if any(len(shift) != 3 or not np.isfinite(shift).all() for *_, shift in told.clips):
        raise DataError(where, "a clip's shift is no place")
    for name, (components, kind) in told.channels.items():
        place = f"{where}, channel '{name[:100]}'"
        checked_names(components, "components", place)
        if not components or len(components) % SIZES[kind]:
            raise DataError(place, f"has components that make no {kind}", got=len(components))


def _check_settings(settings: MotionSettings, step: float, where: str) -> None:
    for name in WHEN_PACKED:
        if settings.__dict__[name] != type(settings).model_fields[name].get_default(call_default_factory=True):
            raise ConfigError(f"motions.{name}", "was decided when these clips were packed", do="Pack them anew.")
    for pattern, one in settings.clips.items():
        if one.model_fields_set - {"weight"}:
            raise ConfigError(f"motions.clips.{pattern}", "of packed clips only the weight can be changed")
    if settings.step is not None and abs(settings.step - step) > 1e-9 * step:
        raise ConfigError(
            "motions.step", f"{where} was packed at another step", got=settings.step, expected=step, do="Pack it anew."
        )


def _judge(where: str) -> Any:
    def judge(rows: Array, first: int) -> None:
        if not np.isfinite(rows).all():
            raise DataError(f"{where}, frame {first + int(np.argwhere(~np.isfinite(rows))[0][0])}", "not finite")

    return judge


def _with_joints(stored: dict[str, Column], settings: MotionSettings, where: str) -> dict[str, Column]:
    """The robot's joints among those that were packed."""
    if not settings.joints and not settings.joint_offsets:
        return stored
    known = stored["joint_positions"].components if "joint_positions" in stored else ()
    plan = joint_map(settings, known, (), where)
    found = dict(stored)
    for name, zeros in (("joint_positions", plan.zeros), ("joint_velocities", (0.0,) * len(plan.names))):
        if name in stored:
            place = stored[name].choice
            assert isinstance(place, slice)
            columns = torch.tensor([place.start + known.index(source) for source in plan.sources])
            choice = Choice(columns, torch.tensor(plan.signs), torch.tensor(zeros))
            found[name] = Column(stored[name].rows, plan.names, choice=choice)
    return found

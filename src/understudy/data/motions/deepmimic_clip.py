"""Clips in DeepMimic's format (Peng et al. 2018): JSON text with `Loop` and `Frames`.

    frame = [duration, root position (3), root rotation (4), joint, joint, …]

A ball joint has four numbers, a quaternion, and is a channel of its own (`chest_rotation`); a hinge has one, and is a
joint like others. Whose frames they are is known by their width, or told (`layout`). Durations may differ; the last
frame of a clip that wraps has none where it is the first one, a round later.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.core.files import read_bytes
from understudy.data.motions.clip import WXYZ, XYZ, Channel, Clip, checked_fps, checked_names
from understudy.data.motions.joint_map import BALL
from understudy.data.motions.settings import MotionSettings
from understudy.data.recording import open_at_once

LIMIT = 256 << 20
"""Bytes of a file; an hour of a humanoid has some hundred million."""
SNIFFED = 1 << 16
ROOT = 8
"""Numbers of a frame before those of joints."""
HUMANOID = {"chest": 4, "neck": 4} | {
    f"{side}_{joint}": size
    for side in ("right", "left")
    for joint, size in {"hip": 4, "knee": 1, "ankle": 4, "shoulder": 4, "elbow": 1}.items()
}
QUADRUPED = {f"{leg}_{joint}": 1 for leg in ("FR", "FL", "RR", "RL") for joint in ("hip", "upper_leg", "lower_leg")}
LAYOUTS: dict[int, Mapping[str, int]] = {ROOT + sum(layout.values()): layout for layout in (HUMANOID, QUADRUPED)}
"""Joints of frames of so many numbers: `humanoid3d_*.txt`, and four legs with three hinges each."""
LOOPS = {"wrap": True, "none": False}


def is_deepmimic(path: Path) -> bool:
    """Text that begins as JSON with frames does."""
    with open(path, "rb", opener=open_at_once) as file:
        start = file.read(SNIFFED)
    return start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and re.search(rb'"Frames"\s*:', start) is not None


def read_deepmimic_clip(path: Path, settings: MotionSettings) -> Clip:
    where = f"clip '{path.name}'"
    content = _content(path, where)
    frames = _frames(content.get("Frames"), where)
    word = content.get("Loop", "none")
    if not isinstance(word, str) or word not in LOOPS:
        raise DataError(f"{where}, Loop", "unknown", got=f"{word!r:.60}", expected=" or ".join(LOOPS))
    durations = frames[:, 0]
    if settings.fps is not None:
        durations = np.full(len(frames), 1 / checked_fps(settings.fps, where))
    wrong = ~(np.isfinite(durations) & ((durations > 0) | (np.arange(len(durations)) == len(durations) - 1)))
    if wrong.any() or durations[-1] < 0:
        frame = int(wrong.argmax()) if wrong.any() else len(durations) - 1
        raise DataError(f"{where}, frame {frame}", "lasts no time", got=f"{durations[frame]:g} s")
    times = np.concatenate([[0.0], np.cumsum(durations[:-1])])
    closing = float(durations[-1])
    if closing == 0 and not LOOPS[word] and len(frames) > 1:
        closing = float(durations[-2])  # its last frame is not its first, whatever somebody wants to loop
    return Clip(
        path.stem, where, torch.from_numpy(times), _channels(frames, settings.layout, where), LOOPS[word], closing
    )


def _content(path: Path, where: str) -> dict[str, Any]:
    try:
        content = json.loads(read_bytes(path, LIMIT))
    except FileNotFoundError as error:
        raise DataError(where, "no such file") from error
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(where, f"not readable as JSON ({error})") from error
    if not isinstance(content, dict):
        raise DataError(where, "not a motion", got=type(content).__name__, expected="a JSON object with Frames")
    return content


def _frames(rows: object, where: str) -> NDArray[np.float64]:
    """[n, width]"""
    if not isinstance(rows, list) or not rows:
        raise DataError(f"{where}, Frames", "not a list of frames", got=type(rows).__name__)
    width = len(rows[0]) if isinstance(rows[0], list) else 0
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width or width < ROOT:
            got = f"{len(row)} numbers" if isinstance(row, list) else f"{row!r:.60}"
            expected = f"{max(width, ROOT)} numbers"
            raise DataError(f"{where}, frame {number}", "not a frame like the others", got=got, expected=expected)
        for value in row:
            if type(value) not in (int, float):
                raise DataError(f"{where}, frame {number}", "not a number", got=f"{value!r:.60}")
    try:
        return np.array(rows, np.float64)
    except OverflowError as error:
        raise DataError(f"{where}, Frames", "a number beyond any", got=str(error)) from error


def _channels(frames: NDArray[np.float64], told: Mapping[str, int], where: str) -> dict[str, Channel]:
    layout = _layout(frames.shape[1], told, where)
    values = torch.from_numpy(frames)
    channels = {
        "root_position": Channel(values[:, 1:4].contiguous(), XYZ, "place"),
        "root_rotation": Channel(values[:, 4:8].contiguous(), WXYZ, "rotation"),
    }
    hinges, place = {}, ROOT
    for joint, size in layout.items():
        part = values[:, place : place + size].contiguous()
        if size == 1:
            hinges[joint] = part
        else:
            channels[joint + BALL] = Channel(part, WXYZ, "rotation")
        place += size
    if hinges:
        channels["joint_positions"] = Channel(torch.cat(list(hinges.values()), 1), tuple(hinges))
    return channels


def _layout(width: int, told: Mapping[str, int], where: str) -> Mapping[str, int]:
    """Joints in the order of a frame, with the numbers that each has."""
    checked_names(list(told), "joints", where)
    if told and ROOT + sum(told.values()) == width:
        return told
    if told or width not in LAYOUTS:
        known = [str(ROOT + sum(told.values()))] if told else list(map(str, LAYOUTS))
        raise DataError(
            where,
            "frames of another width than the layout" if told else "whose frames they are is not known",
            got=f"{width} numbers",
            expected=" or ".join(known),
            do="Say which joints follow the root: layout={chest: 4, knee: 1, …}, 4 for a ball joint, 1 for a hinge.",
        )
    return LAYOUTS[width]

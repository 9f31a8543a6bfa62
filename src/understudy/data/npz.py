"""Flat .npz files: observations, actions, rewards, end flags.

Known names: `observations`, `actions`, `rewards`, `terminals` or `terminations`, `timeouts` or
`truncations`, and optionally `next_observations` and `episode_id`. Flat arrays cut their own final
observation off; where `next_observations` holds it, it is put back, otherwise the step is marked.
"""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from understudy.core.errors import DataError, did_you_mean
from understudy.core.spec import Box
from understudy.data.dataset import Dataset
from understudy.data.episode import Array, Episode, check_finite

MEMORY_BUDGET = 16 << 30
SMALL = 64 << 20
EXPANSION_LIMIT = 100
"""Beyond `SMALL`, a file that unpacks to more than this many times its own size is a bomb, not a recording."""
TERMINATED = ("terminals", "terminations", "terminated")
TRUNCATED = ("timeouts", "truncations", "truncated")
REQUIRED = ("observations", "actions", "rewards")
UNREADABLE = (ValueError, OSError, EOFError, NotImplementedError, RuntimeError, OverflowError, MemoryError, TypeError)
"""What zipfile and NumPy raise on damaged files, besides their own errors."""


def read_npz(path: Path, action_space: Box, *, clip_actions: bool = False) -> Dataset:
    """A flat npz as a dataset, boundaries restored."""
    where = f"dataset '{path}'"
    arrays = _load_arrays(path, where)
    actions = arrays["actions"] if arrays["actions"].ndim > 1 else arrays["actions"][:, None]
    check_finite(np.asarray(actions, np.float32), f"{where}, actions")
    if "next_observations" in arrays:
        check_finite(arrays["next_observations"], f"{where}, next_observations")
    if clip_actions:
        actions = np.clip(actions, action_space.low, action_space.high)
    arrays["actions"] = actions
    return Dataset.from_episodes(_episodes(arrays, where), action_space, name=path.name)


def _load_arrays(path: Path, where: str) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check_unpacked_size(sum(info.file_size for info in members), path.stat().st_size, where)
            for info in members:
                _check_header(archive, info, where)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise DataError(where, "no such file") from error
    except (*UNREADABLE, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(where, f"not a readable npz file ({error})") from error
    _check_arrays(arrays, where)
    return arrays


def _check_unpacked_size(unpacked: int, packed: int, where: str) -> None:
    if unpacked > MEMORY_BUDGET:
        raise DataError(where, "too large to read into memory", got=f"{unpacked:,} bytes")
    if unpacked > SMALL and unpacked > EXPANSION_LIMIT * packed:
        raise DataError(where, "refused as a zip bomb", got=f"{packed:,} bytes that unpack to {unpacked:,}")


def _check_arrays(arrays: dict[str, Array], where: str) -> None:
    """What we read is there, numeric, and as long as the observations."""
    for name in REQUIRED:
        if name not in arrays:
            raise DataError(where, f"has no array '{name}'", do=did_you_mean(name, arrays))
    if 0 in {arrays[name].ndim for name in REQUIRED}:
        raise DataError(where, "holds a single number where rows belong")
    rows = len(arrays["observations"])
    if rows == 0:
        raise DataError(where, "has no rows")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*TERMINATED, *TRUNCATED, "rewards", "episode_id"), (rows,))
    shapes |= {"next_observations": arrays["observations"].shape, "actions": (rows, *arrays["actions"].shape[1:])}
    for name in arrays.keys() & (shapes.keys() | {"observations"}):
        array = arrays[name]
        if array.dtype.kind not in "fiub":
            raise DataError(f"{where}, {name}", "not numeric", got=array.dtype, expected="float, integer or bool")
        expected = shapes.get(name, array.shape)
        if array.shape not in {expected, (*expected, 1)}:
            raise DataError(where, f"array '{name}' has the wrong shape", got=array.shape, expected=expected)


def _check_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> None:
    """One member's own header must not promise more than the archive holds, nor anything but numbers."""
    with archive.open(info) as member:
        version = npy_format.read_magic(member)
        read_header = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, _, dtype = read_header(member)
    size = int(np.prod(shape, dtype=np.float64)) * dtype.itemsize
    if dtype.hasobject or size > info.file_size:
        raise DataError(
            f"{where}, array '{info.filename}'", "refused", got=f"{dtype} {shape}", expected="plain numbers"
        )


def _episodes(arrays: dict[str, Array], where: str) -> Iterator[Episode]:
    observations, rewards = arrays["observations"], arrays["rewards"]
    terminated = _flags(arrays, TERMINATED, where)
    truncated = _flags(arrays, TRUNCATED, where) & ~terminated
    starts = _starts(arrays, terminated | truncated, where)
    successors = arrays.get("next_observations")
    for first, end in zip(starts, [*starts[1:], len(rewards)], strict=True):
        rows = slice(first, end)
        seen = observations[rows]
        if successors is not None:
            _check_chain(seen, successors[rows], first, where)
            seen = np.concatenate([seen, successors[end - 1 : end]])
        yield Episode(
            {"state": seen},
            arrays["actions"][rows],
            np.asarray(rewards[rows]).reshape(-1),
            bool(terminated[end - 1]),
            bool(truncated[end - 1]),
            final_known=successors is not None,
        )


def _starts(arrays: dict[str, Array], ends: NDArray[np.bool_], where: str) -> list[int]:
    after_end = np.flatnonzero(ends[:-1]) + 1
    if "episode_id" not in arrays:
        if not ends.any():
            raise DataError(
                where,
                "has no episode boundary: no terminal, no timeout, no episode_id",
                do="Add `timeouts` (True at the last step of each episode) or `episode_id`.",
            )
        return [0, *after_end.tolist()]
    changes = np.flatnonzero(np.diff(np.asarray(arrays["episode_id"], np.int64))) + 1
    inside = np.setdiff1d(after_end, changes)
    if len(inside):
        raise DataError(f"{where}, row {inside[0] - 1}", "ends an episode, but the next row has the same episode_id")
    return [0, *changes.tolist()]


def _flags(arrays: dict[str, Array], names: tuple[str, ...], where: str) -> NDArray[np.bool_]:
    for name in names:
        if name in arrays:
            values = arrays[name].reshape(-1)
            wrong = np.flatnonzero((values != 0) & (values != 1))
            if len(wrong):
                raise DataError(
                    f"{where}, {name}, row {wrong[0]}", "not a flag", got=values[wrong[0]], expected="0 or 1"
                )
            return values.astype(bool)
    return np.zeros(len(arrays["rewards"]), bool)


def _check_chain(observations: Array, successors: Array, first: int, where: str) -> None:
    """Inside an episode, row i's successor is row i+1, up to float32 rounding; what is not finite is told elsewhere."""
    seen, told = np.asarray(observations[1:], np.float64), np.asarray(successors[:-1], np.float64)
    differs = np.isfinite(seen) & (np.abs(seen - told) > 1e-6 * (1.0 + np.abs(told)))
    broken = first + np.flatnonzero(differs.reshape(len(differs), -1).any(1))
    if len(broken):
        raise DataError(
            where,
            f"next_observations of row {broken[0]} is not the observation of row {broken[0] + 1}",
            do="Mark episode ends with `timeouts`, `terminals` or `episode_id`.",
        )

"""Arrays with an axis of environments, [T, N, …], as Stable-Baselines3 keeps its buffers: N streams of T steps.

A stream is read after the other, and ends where the buffer does. `dones` are ends of either kind there, of which
`timeouts` tells those of the clock. We read arrays, never pickles: `docs/data.md` has the lines that save them.
"""

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from understudy.core.errors import DataError
from understudy.data.episode import Array
from understudy.data.formats.columns import NAMES, FileColumn

ACTION_AXES = 3
"""No action of one row is a matrix: three axes are time, environments and numbers."""
WITH_A_ROLE = frozenset(name for names in NAMES.values() for name in names)


def has_env_axis(columns: Mapping[str, FileColumn]) -> bool:
    """Actions are [T, N, A], and everything else of a row begins with [T, N], too."""
    acted = next((columns[name] for name in NAMES["actions"] if name in columns), None)
    if acted is None or len(acted.shape) != ACTION_AXES or 0 in acted.shape:
        return False
    observed = [column for name, column in columns.items() if name.split("/")[0] in NAMES["observations"]]
    return bool(observed) and all(column.shape[:2] == acted.shape[:2] for column in observed)


def without_env_axis(columns: Mapping[str, FileColumn], where: str) -> tuple[dict[str, FileColumn], tuple[str, ...]]:
    """The same rows one environment behind the other, [N·T, …], and a mark where each ends."""
    steps, envs = next(columns[name] for name in NAMES["actions"] if name in columns).shape[:2]
    flat: dict[str, FileColumn] = {}
    for name, column in columns.items():
        if column.shape[:2] == (steps, envs):
            flat[name] = EnvironmentByEnvironment(column)
        elif name.split("/")[0] in WITH_A_ROLE:
            got, expected = list(column.shape), f"[{steps}, {envs}, …], as the actions have"
            raise DataError(where, f"array '{name}' has the wrong shape", got=got, expected=expected)
        else:
            flat[name] = column
    last = np.zeros(steps * envs, bool)
    last[steps - 1 :: steps] = True
    flat.setdefault(NAMES["last"][0], last)
    return flat, (f"Arrays with an axis of {envs} environments: {envs} streams of {steps} steps.",)


@final
class EnvironmentByEnvironment:
    """[T, N, …] as [N·T, …]."""

    def __init__(self, column: FileColumn) -> None:
        self._column = column
        self._steps, envs = column.shape[:2]
        self.shape: tuple[int, ...] = (self._steps * envs, *column.shape[2:])
        self.dtype: np.dtype[Any] = column.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice, /) -> Array:
        first, end, _ = rows.indices(len(self))
        parts = []
        while first < end:
            env, step = divmod(first, self._steps)
            stop = min(self._steps, step + end - first)
            parts.append(np.asarray(self._column[step:stop])[:, env])
            first += stop - step
        return np.concatenate(parts) if parts else np.empty((0, *self.shape[1:]), self.dtype)

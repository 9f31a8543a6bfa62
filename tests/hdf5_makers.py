"""Small HDF5 files in D4RL's layout, whole or spoilt, and a child process to open them in."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np

from understudy.core.errors import UnderstudyError
from understudy.data.episode import Array, Episode

PASSED, REFUSED, ESCAPED = 0, 3, 4


def flat_columns(episodes: int = 3, steps: int = 5, *, successors: bool = True, seed: int = 0) -> dict[str, Array]:
    """Rows of equal episodes; the first one terminates, the others run out of time."""
    rng = np.random.default_rng(seed)
    seen = rng.standard_normal((episodes, steps + 1, 3)).astype(np.float32)
    ended, cut = np.zeros((2, episodes, steps), bool)
    ended[0, -1], cut[1:, -1] = True, True
    columns = {
        "observations": seen[:, :-1].reshape(-1, 3),
        "actions": rng.uniform(-1, 1, (episodes * steps, 2)).astype(np.float32),
        "rewards": rng.standard_normal(episodes * steps).astype(np.float32),
        "terminals": ended.reshape(-1),
        "timeouts": cut.reshape(-1),
    }
    return {**columns, "next_observations": seen[:, 1:].reshape(-1, 3)} if successors else columns


def write_columns(path: Path, columns: dict[str, Any], **settings: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file.create_dataset(name, data=values, **settings)
    return path


def odd_episodes(*, mask: bool = False) -> list[Episode]:
    """Every kind of end, with and without a final observation, of several lengths; groups and further columns."""
    rng = np.random.default_rng(3)
    kinds = [(True, False), (False, True), (False, False)]
    episodes = []
    for number, (ended, cut) in enumerate(kinds * 2):
        steps, known = 1 + number, number < 3
        seen = steps + known
        legal = np.ones((seen, 4), bool)
        legal[1:, 0] = False
        actions = np.zeros(steps, np.int64) if mask else rng.uniform(-1, 1, (steps, 2)).astype(np.float32)
        actions[1:] = actions[1:] + 1 if mask else actions[1:]
        episodes.append(
            Episode(
                {
                    "state": rng.standard_normal((seen, 3)),
                    "image": rng.integers(0, 255, (seen, 40, 33, 3)).astype("u1"),
                },
                actions,
                rng.standard_normal(steps),
                ended,
                cut,
                known,
                legal if mask else None,
                {"behaviour_log_prob": rng.standard_normal(steps), "pose": rng.standard_normal((steps, 2, 2))},
            )
        )
    return episodes


def in_child(act: Callable[[], object], *, memory: int = 0, seconds: int = 30) -> tuple[int, int]:
    """How a child that acts ends (its code, or minus the signal that killed it), and the kilobytes it needed."""
    pid = os.fork()
    if pid == 0:
        os._exit(_acted(act, memory, seconds))
    _, status, used = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), used.ru_maxrss


def _acted(act: Callable[[], object], memory: int, seconds: int) -> int:
    signal.alarm(seconds)
    if memory:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        act()
    except UnderstudyError:
        return REFUSED
    except BaseException:
        return ESCAPED
    return PASSED

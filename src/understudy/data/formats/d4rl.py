"""D4RL's HDF5 files without D4RL: flat columns, of which every boundary rule is our own.

Rows of all episodes follow each other; `terminals` and `timeouts` mark last rows, `next_observations` may be absent,
`infos/*` are per-row extras and `metadata/*` tells of the policy. Files of d4rl-pybullet have a layout of their own.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from understudy.core.errors import DataError
from understudy.core.spec import ActionSpace
from understudy.data.episode import check_flags
from understudy.data.formats.bullet import bullet_recording, is_bullet
from understudy.data.formats.column_map import ColumnMap, mapped
from understudy.data.formats.columns import NAMES, FileColumn
from understudy.data.formats.d4rl_writer import MARK, OWN_INFOS, read_mark
from understudy.data.formats.flat import flat_recording
from understudy.data.formats.hdf5 import Hdf5Group, open_hdf5_root
from understudy.data.formats.hdf5_column import Hdf5Column
from understudy.data.recording import Recording

Layout = Literal["auto", "flat", "pybullet"]
OLD_D3RLPY = "episode_terminals"
"""A column of d3rlpy's MDPDataset, version 1, which has single values beside its columns."""
PARTS = ("observations", "next_observations")
KNOWN_BUGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"^ant[_-]?maze(?!.*(fixed|v1|v2))", re.IGNORECASE),
        "antmaze files of version 0 mark timeouts out of step with the trajectories (D4RL issue 77): use version 2.",
    ),
    (
        re.compile(r"^maze2d", re.IGNORECASE),
        "maze2d: one continuous run whose timeouts mark reached goals, not resets (D4RL issue 85), and its rewards "
        "belong to the observation of their own row, one step late (issue 194): set late_rewards=true.",
    ),
    (
        re.compile(r"^ant[_-]?maze.*u[_-]?maze.*(diverse|multistart_True)", re.IGNORECASE),
        "antmaze-umaze-diverse ends at the goal with a single reward, unlike the other antmaze files (D4RL issue 199).",
    ),
)
"""By file name; told, never mended behind anyone's back."""


def open_d4rl(
    path: Path,
    *,
    layout: Layout = "auto",
    episode_steps: int | None = None,
    columns: ColumnMap = "",
    one_episode: bool = False,
) -> Recording:
    """A flat HDF5 file as a recording.

    `episode_steps` is the transform of that name, which files without any end (HalfCheetah of version 0) need to be
    read at all. `layout` overrules what the content looks like.
    """
    where = f"dataset '{path}'"
    if layout not in {"auto", "flat", "pybullet"}:
        raise DataError(where, "no such layout", got=layout, expected="auto, flat or pybullet")
    root = open_hdf5_root(path, where)
    found, notes = _columns(root)
    if not found:
        raise DataError(
            where,
            "has no columns at its top",
            got=f"groups {', '.join(root.names()[:4])}"[:100] if root.names() else "nothing",
            expected="observations, actions, rewards, …",
            do="Files with a group per episode that are not robomimic's: read them with h5py and give us.load_dataset "
            "a list of episodes.",
        )
    notes += [story for pattern, story in KNOWN_BUGS if pattern.search(path.name)]
    space, env = _marked(root)
    if columns:
        found, said = mapped(found, columns, where)
        notes += said
    elif layout == "pybullet" or (layout == "auto" and OLD_D3RLPY not in root and is_bullet(found, where)):
        return bullet_recording(found, path.name, where, tuple(notes))
    notes += _cluster_notes(found, where)
    return flat_recording(
        found,
        path.name,
        where,
        space=space,
        env=env,
        notes=tuple(notes),
        episode_steps=episode_steps,
        one_episode=one_episode,
    )


def _columns(root: Hdf5Group) -> tuple[dict[str, FileColumn], list[str]]:
    """What is read, checked; what is left, in sentences."""
    found: dict[str, FileColumn] = {}
    notes: list[str] = []
    own = ("version", "discrete_action") if OLD_D3RLPY in root else ()
    for name in root.names():
        if name in own:
            continue
        if root.is_column(name):
            found[name] = root.column(name)
        elif name in PARTS:
            found |= {f"{name}/{path}": column for path, column in root.group(name).columns().items()}
        elif name == "infos":
            found |= _infos(root.group(name), _is_own(root), notes)
        elif not (name == "metadata" and _is_own(root)):
            notes.append(f"'{name}' is not read.")
    return found, notes


def _infos(group: Hdf5Group, own: bool, notes: list[str]) -> dict[str, Hdf5Column]:
    """The behaviour's log-probabilities; everything, where we wrote the file."""
    names = group.names()
    taken = {name: OWN_INFOS.get(name, f"extra/{name}") for name in names if own or name == "action_log_probs"}
    left = [name for name in names if name not in taken]
    if left:
        more = " and more" if len(left) > 8 else ""
        notes.append(f"Infos are not read: {', '.join(left[:8])}{more}.")
    return {title: group.column(name) for name, title in taken.items()}


def _is_own(root: Hdf5Group) -> bool:
    return "metadata" in root and root.is_group("metadata") and MARK in root.group("metadata")


def _marked(root: Hdf5Group) -> tuple[ActionSpace | None, str]:
    """The action space and environment, in files we wrote."""
    return read_mark(root.group("metadata").column(MARK)) if _is_own(root) else (None, "")


def _cluster_notes(columns: Mapping[str, FileColumn], where: str) -> list[str]:
    """AntMaze marks every row at the goal as terminal; each but the first is then an episode of one step."""
    name = next((name for name in NAMES["terminated"] if name in columns), None)
    if name is None:
        return []
    terminal = check_flags(np.asarray(columns[name][:]).reshape(-1), f"{where}, {name}")
    repeated = int((terminal[1:] & terminal[:-1]).sum())
    if not repeated:
        return []
    return [
        f"{repeated} terminal rows follow a terminal row (AntMaze marks every row at the goal): each is an episode of "
        "one step, as in D4RL's own transitions; episode returns and lengths are not those of whole trajectories."
    ]

"""robomimic's HDF5 files: `data/demo_0/{actions, rewards, dones, obs/*, next_obs/*}`, one group per demonstration.

Every observation under `obs` is a group of its own; `columns` chooses among them and joins them
(`obs=robot0_eef_pos,object`). `next_obs` holds the final observation. A done in the middle (success is marked at every
step that has it) ends a piece there, as robomimic's own value learners see it. A list of demonstrations under
`mask/NAME` is chosen with `demos=NAME`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from understudy.core.errors import DataError, did_you_mean
from understudy.core.wording import counted
from understudy.data.episode import Array, Episode, check_flags
from understudy.data.formats.column_map import ColumnMap, split_map
from understudy.data.formats.hdf5 import Hdf5Group, open_hdf5_root
from understudy.data.recording import NO_REWARDS, Recording

DEMO = re.compile(r"demo_(\d+)")
Choice = dict[str, tuple[str, ...]]
"""Members of `obs` by the group they become."""


def is_robomimic(root: Hdf5Group) -> bool:
    return "data" in root and root.is_group("data") and any(map(DEMO.fullmatch, root.group("data").names()))


def open_robomimic(path: Path, columns: ColumnMap = "") -> Recording:
    """The demonstrations of a file, in the order of their numbers."""
    where = f"dataset '{path}'"
    root = open_hdf5_root(path, where)
    data = root.group("data")
    said = split_map(columns, where) if columns else {}
    wanted = said.pop("demos", [])
    demos = sorted((name for name in data.names() if DEMO.fullmatch(name)), key=lambda name: int(name[5:]))
    masks = root.group("mask").names() if "mask" in root and root.is_group("mask") else []
    if wanted:
        demos = _masked(root, wanted, masks, demos, where)
    first = data.group(demos[0])
    if "obs" not in first:
        raise DataError(
            f"{where}, {demos[0]}",
            "has no observations",
            do="Extract them from its states with robomimic's dataset_states_to_obs.",
        )
    choice = _choice(said, first.group("obs").names(), where)
    rewarded = "rewards" in first
    steps = early = 0
    for name in demos:
        steps += len(data.group(name).column("actions"))
        early += int(_dones(data.group(name), where)[:-1].sum())
    notes = [f"Its lists of demonstrations (mask): {', '.join(masks)[:200]}; demos=NAME chooses one."] if masks else []
    if early:
        notes.append(f"{counted(early, 'done')} before the last step of a demonstration: each ends a piece there.")
    if not rewarded:
        notes.append("No rewards: they are read as 0, and only imitation makes sense.")

    def play() -> Iterator[Episode]:
        for name in demos:
            yield from _pieces(data.group(name), choice, f"{where}, {name}")

    return Recording(
        path.name, steps, play, layout="robomimic", notes=tuple(notes), facts={} if rewarded else NO_REWARDS
    )


def _masked(root: Hdf5Group, wanted: Sequence[str], masks: Sequence[str], demos: list[str], where: str) -> list[str]:
    kept: set[str] = set()
    for mask in wanted:
        if mask not in masks:
            raise DataError(f"{where}, demos", f"no list '{mask}'", do=did_you_mean(mask, masks))
        kept |= set(root.group("mask").words(mask))
    found = [name for name in demos if name in kept]
    if not found:
        raise DataError(f"{where}, demos", "no demonstration of these lists is there", got=", ".join(wanted))
    return found


def _choice(said: Mapping[str, Sequence[str]], names: Sequence[str], where: str) -> Choice:
    """Every observation by itself, unless somebody chose."""
    choice: Choice = {}
    for word, wanted in said.items():
        head, _, group = word.partition(".")
        if head not in {"obs", "observations", "observation"}:
            raise DataError(f"{where}, columns", f"no such role '{word}'", expected="obs, obs.GROUP or demos")
        members: list[str] = []
        for pattern in wanted:
            found = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
            if not found:
                raise DataError(f"{where}, columns", f"no observation '{pattern}'", do=did_you_mean(pattern, names))
            members += found
        choice[group or "state"] = tuple(dict.fromkeys(members))
    return choice or {name: (name,) for name in names}


def _dones(demo: Hdf5Group, where: str) -> Array:
    actions = len(demo.column("actions"))
    if "dones" not in demo:
        return np.zeros(actions, bool)
    dones = demo.column("dones").whole().reshape(-1)
    if len(dones) != actions:
        raise DataError(f"{demo.where}, dones", "does not match actions", got=len(dones), expected=actions)
    return check_flags(dones, f"{demo.where}, dones")


def _pieces(demo: Hdf5Group, choice: Choice, where: str) -> Iterator[Episode]:
    """A demonstration, cut behind every done."""
    actions = demo.column("actions").whole()
    rewards = demo.column("rewards").whole() if "rewards" in demo else np.zeros(len(actions), np.float32)
    seen = _observed(demo.group("obs"), choice, len(actions), f"{where}, obs")
    after = _observed(demo.group("next_obs"), choice, len(actions), f"{where}, next_obs") if "next_obs" in demo else {}
    dones = _dones(demo, where)
    ends = np.union1d(np.flatnonzero(dones), [len(actions) - 1]) + 1
    for first, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        rows = slice(first, end)
        ended = bool(dones[end - 1])
        observations = {
            group: np.concatenate([values[rows], after[group][end - 1 : end]]) if after else values[rows]
            for group, values in seen.items()
        }
        yield Episode(observations, actions[rows], rewards.reshape(-1)[rows], ended, not ended, final_known=bool(after))


def _observed(group: Hdf5Group, choice: Choice, steps: int, where: str) -> dict[str, Array]:
    found = {}
    for name, members in choice.items():
        parts = [group.column(member).whole() for member in members]
        for member, part in zip(members, parts, strict=True):
            if part.shape[:1] != (steps,) or (part.ndim != 2 and len(parts) > 1):
                raise DataError(f"{where}, {member}", "wrong shape", got=list(part.shape), expected=f"[{steps}, …]")
        found[name] = np.concatenate(parts, axis=1) if len(parts) > 1 else _vector(parts[0])
    return found


def _vector(values: Array) -> Array:
    return values[:, None] if values.ndim == 1 else values

"""Raw episodes laid end to end, some thousand rows at a time; what is not an episode is set aside with a reason."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.data.episode import Array, Episode
from understudy.data.recording import Recording

BLOCK_ROWS = 8192
BLOCK_BYTES = 8 << 20
BLOCK_EPISODES = 1024
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Fault:
    """One way in which episodes are broken, and the first that is."""

    kind: str
    episode: int
    what: str
    expected: str = ""
    do: str = ""
    count: int = 1


@dataclass(frozen=True)
class EpisodeBlock:
    """Whole episodes, one after the other: S slots of observations, N steps, B episodes."""

    numbers: NDArray[np.int64]
    """[B] which episodes of the recording these are."""
    lengths: NDArray[np.int64]
    final_known: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    observations: Mapping[str, Array]
    """Each group [S, …]: n+1 slots per episode, n where the final one is unknown."""
    actions: Array
    """[N, A] or [N]"""
    rewards: Array
    """[N]"""
    mask: Array | None
    """[S, K]"""
    extra: Mapping[str, Array]
    """Each [N, …]"""
    dtypes: Mapping[str, frozenset[str]]
    """What each column was recorded in; joined, it has the widest of them."""

    @cached_property
    def first_steps(self) -> NDArray[np.int64]:
        """[B]"""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def first_slots(self) -> NDArray[np.int64]:
        """[B]"""
        counts = self.lengths + self.final_known
        return np.cumsum(counts) - counts

    @cached_property
    def step_slots(self) -> NDArray[np.int64]:
        """[N] the slot of each step's observation."""
        return np.arange(len(self.actions)) + np.repeat(self.first_slots - self.first_steps, self.lengths)

    @property
    def last_steps(self) -> NDArray[np.int64]:
        """[B]"""
        return self.first_steps + self.lengths - 1

    def place_of_step(self, row: int) -> tuple[int, int]:
        """(episode, row) of a step."""
        return self._place(row, self.first_steps)

    def place_of_slot(self, row: int) -> tuple[int, int]:
        """(episode, row) of an observation."""
        return self._place(row, self.first_slots)

    def _place(self, row: int, firsts: NDArray[np.int64]) -> tuple[int, int]:
        episode = int(np.searchsorted(firsts, row, side="right")) - 1
        return int(self.numbers[episode]), row - int(firsts[episode])


class Faults:
    """Faults by kind, in the order they were met."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Fault] = {}

    def add(self, fault: Fault) -> None:
        seen = self._by_kind.get(fault.kind)
        self._by_kind[fault.kind] = fault if seen is None else replace(seen, count=seen.count + 1)

    def all(self) -> tuple[Fault, ...]:
        return tuple(self._by_kind.values())


def blocks_of(recording: Recording, faults: Faults, rows: int = BLOCK_ROWS) -> Iterator[EpisodeBlock]:
    """The whole episodes of a recording in blocks of about `rows` steps; broken ones go to `faults` instead."""
    waiting: list[tuple[int, Episode]] = []
    pattern: _Pattern | None = None
    steps = size = 0
    for number, raw in _read(recording, faults):
        episode = raw
        if pattern is None or not pattern.is_plain(raw):
            whole = _arrays(raw, number, faults)
            if whole is None:
                continue
            pattern = pattern or _Pattern.of(whole)
            if not pattern.fits(whole, number, faults):
                continue
            episode = whole
        waiting.append((number, episode))
        steps += len(episode.actions)
        size += len(episode.actions) * pattern.row_bytes
        if steps >= rows or size >= BLOCK_BYTES or len(waiting) >= BLOCK_EPISODES:
            yield _join(waiting)
            waiting, steps, size = [], 0, 0
    if waiting:
        yield _join(waiting)


def _read(recording: Recording, faults: Faults) -> Iterator[tuple[int, Episode]]:
    """Numbered episodes; a file that breaks off in the middle still tells what came before."""
    number = -1
    try:
        for number, episode in enumerate(recording.episodes()):
            yield number, episode
    except DataError as error:
        if number < 0:
            raise
        faults.add(Fault("unreadable", number + 1, str(error)))


def _arrays(raw: Episode, number: int, faults: Faults) -> Episode | None:
    """The episode with its parts as arrays and its counts right, or nothing."""
    try:
        episode = _as_arrays(raw)
    except ValueError:
        faults.add(Fault("not-numeric", number, "holds rows of unequal length"))
        return None
    steps = len(episode.actions) if episode.actions.ndim else 0
    columns = _columns(episode)
    if any(column.dtype.kind not in "fiub" for column in columns):
        kinds = sorted({column.dtype.name for column in columns})
        faults.add(Fault("not-numeric", number, f"holds {', '.join(kinds)}", "float, integer or bool"))
    elif any(column.ndim == 0 for column in columns):
        faults.add(Fault("not-rows", number, "holds a single number where rows belong"))
    elif steps == 0:
        faults.add(Fault("empty", number, "has no steps", do="Drop empty episodes."))
    elif any(0 in column.shape[1:] for column in columns):
        faults.add(Fault("no-width", number, "has a column that is 0 numbers wide", do="Drop the column."))
    elif episode.mask is not None and episode.mask.ndim != 2:
        faults.add(Fault("mask-shape", number, f"has a mask {list(episode.mask.shape)}", "[n, K]"))
    elif episode.actions.ndim > 2:
        faults.add(Fault("action-shape", number, f"has actions {list(episode.actions.shape)}", "[n] or [n, A]"))
    elif episode.rewards.shape != (steps,):
        told = f"has {steps} actions and rewards of shape {list(episode.rewards.shape)}"
        faults.add(Fault("reward-count", number, told, f"[{steps}]"))
    elif not episode.observations:
        faults.add(Fault("no-observations", number, "has no observations"))
    else:
        return _counted(episode, number, faults)
    return None


def _columns(episode: Episode) -> list[Array]:
    masks = [] if episode.mask is None else [episode.mask]
    return [episode.actions, episode.rewards, *episode.observations.values(), *episode.extra.values(), *masks]


def _as_arrays(raw: Episode) -> Episode:
    if all(isinstance(column, np.ndarray) for column in _columns(raw)):
        return raw
    return replace(
        raw,
        actions=np.asarray(raw.actions),
        rewards=np.asarray(raw.rewards),
        observations={name: np.asarray(values) for name, values in raw.observations.items()},
        extra={name: np.asarray(values) for name, values in raw.extra.items()},
        mask=None if raw.mask is None else np.asarray(raw.mask),
    )


def _counted(episode: Episode, number: int, faults: Faults) -> Episode | None:
    """The episode if its columns are as long as they should be; a final observation that is missing is unknown."""
    steps = len(episode.actions)
    if episode.terminated and episode.truncated:
        faults.add(Fault("both-ends", number, "is marked terminated and truncated", do="Clear the truncated flag."))
    for name, values in episode.extra.items():
        if len(values) != steps:
            told = f"has {steps} actions and {len(values)} rows of '{name}'"
            faults.add(Fault("column-count", number, told, f"{steps}"))
            return None
    expected = steps + 1 if episode.final_known else steps
    slots = {len(values) for values in episode.observations.values()}
    masks = slots if episode.mask is None else {len(episode.mask)}
    if slots == masks == {expected}:
        return episode
    if slots == masks == {steps}:
        told = f"has {steps} actions and {steps} observations"
        faults.add(Fault("final-missing", number, told, f"{expected}", "Was the final observation dropped?"))
        return replace(episode, final_known=False)
    kind, rows = ("observation", slots) if slots != {expected} else ("mask", masks)
    told = f"has {steps} actions and {', '.join(map(str, sorted(rows)))} {kind}s"
    faults.add(Fault(f"{kind}-count", number, told, f"{expected}"))
    return None


@dataclass(frozen=True)
class _Pattern:
    """Names and shapes that every episode shares with the first."""

    observations: Shapes
    extra: Shapes
    action: tuple[int, ...]
    mask: tuple[int, ...] | None
    dtype: np.dtype[Any]
    """Of actions."""
    row_bytes: int

    @classmethod
    def of(cls, episode: Episode) -> "_Pattern":
        return cls(
            _shapes(episode.observations),
            _shapes(episode.extra),
            episode.actions.shape[1:],
            None if episode.mask is None else episode.mask.shape[1:],
            episode.actions.dtype,
            sum(column.nbytes // max(1, len(column)) for column in _columns(episode)),
        )

    def is_plain(self, episode: Episode) -> bool:
        """Whether it is whole and just like the first: nearly all are, so this must be quick."""
        actions, both = episode.actions, episode.terminated and episode.truncated
        if self.mask is not None or episode.extra or both or len(episode.observations) != len(self.observations):
            return False
        if not isinstance(actions, np.ndarray) or actions.dtype != self.dtype or actions.shape[1:] != self.action:
            return False
        steps = len(actions)
        slots = steps + 1 if episode.final_known else steps
        if steps == 0 or not _is_column(episode.rewards, (steps,)):
            return False
        for name, shape in self.observations.items():
            values = episode.observations.get(name)
            if values is None or not _is_column(values, (slots, *shape)):
                return False
        return episode.mask is None and not self.extra

    def fits(self, episode: Episode, number: int, faults: Faults) -> bool:
        for kind, here, there in (
            ("observations-differ", _shapes(episode.observations), self.observations),
            ("columns-differ", _shapes(episode.extra), self.extra),
            ("actions-differ", episode.actions.shape[1:], self.action),
            ("masks-differ", None if episode.mask is None else episode.mask.shape[1:], self.mask),
        ):
            if here != there:
                what = f"is of another shape than the first ({kind.partition('-')[0]} {here})"
                faults.add(Fault(kind, number, what, f"{there}"))
                return False
        return True


def _is_column(values: Array, shape: tuple[int, ...]) -> bool:
    return isinstance(values, np.ndarray) and values.shape == shape and values.dtype.kind in "fiub"


def _shapes(columns: Mapping[str, Array]) -> Shapes:
    return {name: values.shape[1:] for name, values in columns.items()}


def _join(waiting: Sequence[tuple[int, Episode]]) -> EpisodeBlock:
    episodes = [episode for _, episode in waiting]
    first = episodes[0]
    return EpisodeBlock(
        np.array([number for number, _ in waiting], np.int64),
        np.array([len(episode.actions) for episode in episodes], np.int64),
        np.array([bool(episode.final_known) for episode in episodes]),
        np.array([bool(episode.terminated) for episode in episodes]),
        np.array([bool(episode.truncated) for episode in episodes]),
        {name: np.concatenate([episode.observations[name] for episode in episodes]) for name in first.observations},
        np.concatenate([episode.actions for episode in episodes]),
        np.concatenate([episode.rewards for episode in episodes]),
        None if first.mask is None else np.concatenate([e.mask for e in episodes if e.mask is not None]),
        {name: np.concatenate([episode.extra[name] for episode in episodes]) for name in first.extra},
        _dtypes(episodes),
    )


def _dtypes(episodes: Sequence[Episode]) -> dict[str, frozenset[str]]:
    first = episodes[0]
    found = {"action": {e.actions.dtype for e in episodes}, "reward": {e.rewards.dtype for e in episodes}}
    for name in first.observations:
        found[f"observation.{name}"] = {episode.observations[name].dtype for episode in episodes}
    for name in first.extra:
        found[f"extra.{name}"] = {episode.extra[name].dtype for episode in episodes}
    return {name: frozenset(dtype.name for dtype in dtypes) for name, dtypes in found.items()}

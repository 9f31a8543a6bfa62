"""A survey: everything one wants to know of a recording before trusting it, from one pass in bounded memory.

Kept per step are two hashes (16 bytes), per episode 27 bytes, and a sample of at most 20,000 steps; everything else is
a running total. Episodes that are broken are set aside as faults, and the survey goes on with the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from understudy.core.spec import ActionSpace, Box, Discrete, space_json
from understudy.data.episode import Array
from understudy.data.recording import Recording
from understudy.tools.dataset.action_tally import (
    Actions,
    BoxActions,
    BoxTally,
    DiscreteTally,
    actions_json,
    chosen,
    fits_space,
    is_discrete,
)
from understudy.tools.dataset.blocks import BLOCK_ROWS, EpisodeBlock, Fault, Faults, blocks_of
from understudy.tools.dataset.column_tally import (
    LARGEST,
    LEAST_ROWS,
    ColumnSurvey,
    ColumnTally,
    Place,
    numbers_json,
    time_column,
)
from understudy.tools.dataset.coverage import WIDEST, Coverage, coverage
from understudy.tools.dataset.row_hash import HashTally, RowSample, combine, hash_rows, hash_runs

FEW_REWARDS = 10
TIMED_EPISODES, TIMED_ROWS = 32, 1000


@dataclass(frozen=True)
class Rewards:
    """The scale of the rewards, beyond their column."""

    distinct: tuple[float, ...] | None
    """Every value there is, if there are at most FEW_REWARDS."""
    zeros: int
    """Steps whose reward is exactly 0."""
    zero_first: int
    """Episodes whose first reward is exactly 0."""


@dataclass(frozen=True)
class Masks:
    """Action masks: which actions were legal."""

    width: int
    """Actions they speak of."""
    legal: float
    """Mean share of legal actions."""
    forbidden: int
    """Steps whose own mask forbids the action taken."""
    first_forbidden: tuple[int, int] | None
    """(episode, row)"""
    empty: int
    """Observations without any legal action, terminal ones aside."""
    first_empty: tuple[int, int] | None


@final
@dataclass(frozen=True)
class Survey:
    """Facts only; `findings` judges them. E whole episodes, broken ones are not among them."""

    name: str
    layout: str
    env: str
    notes: tuple[str, ...]
    facts: Mapping[str, Any]
    space: ActionSpace | None
    """What the actions were measured against."""
    faults: tuple[Fault, ...]
    columns: Mapping[str, ColumnSurvey]
    """`observation.<group>`, `action`, `reward`, `extra.<name>`."""
    numbers: NDArray[np.int64]
    """[E] where in the recording each whole episode stands."""
    lengths: NDArray[np.int64]
    returns: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_known: NDArray[np.bool_]
    actions: Actions | None
    """Nothing if they do not fit the space at all, or there are none."""
    zero_last_actions: int
    """Episodes whose last action is exactly zero in every component."""
    rewards: Rewards
    masks: Masks | None
    coverage: Coverage | None
    distinct_states: int
    """Different observations among those that steps start from."""
    duplicate_steps: int
    """Steps that repeat an earlier one exactly: observation, action, reward and next observation."""
    duplicate_episodes: int
    """Episodes that repeat an earlier one exactly."""
    repeated_observations: int
    """Steps after which everything observed is, to the bit, what it was before."""
    broken: NDArray[np.bool_]
    """[E] whether an episode holds what is not finite elsewhere than in its final observation."""
    broken_finals: int
    """Episodes whose final observation alone is not finite."""
    time_columns: Mapping[str, int]
    """Groups with a column that only counts steps, in every one of the first TIMED_EPISODES episodes."""
    sample: Mapping[str, Array]
    """Some steps, evenly chosen: `action`, `reward` and narrow observation groups [k, …]."""

    @property
    def steps(self) -> int:
        return int(self.lengths.sum())

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @property
    def observations(self) -> dict[str, ColumnSurvey]:
        """Group to its numbers."""
        prefix = "observation."
        return {name.removeprefix(prefix): facts for name, facts in self.columns.items() if name.startswith(prefix)}

    def to_json(self) -> dict[str, Any]:
        """Plain data without the sample; NaN becomes null."""
        arrays = ("numbers", "lengths", "terminated", "truncated", "final_known")
        masks, seen = self.masks, self.coverage
        return {
            "name": self.name,
            "layout": self.layout,
            "env": self.env,
            "notes": list(self.notes),
            "space": None if self.space is None else space_json(self.space),
            "episodes": self.episodes,
            "steps": self.steps,
            "faults": [asdict(fault) for fault in self.faults],
            "columns": {name: column.to_json() for name, column in self.columns.items()},
            "per_episode": {
                **{name: getattr(self, name).tolist() for name in arrays},
                "returns": numbers_json(self.returns),
            },
            "actions": None if self.actions is None else actions_json(self.actions),
            "zero_last_actions": self.zero_last_actions,
            "rewards": asdict(self.rewards),
            "masks": None if masks is None else asdict(masks),
            "coverage": None if seen is None else asdict(seen),
            "distinct_states": self.distinct_states,
            "duplicate_steps": self.duplicate_steps,
            "duplicate_episodes": self.duplicate_episodes,
            "repeated_observations": self.repeated_observations,
            "broken_finals": self.broken_finals,
            "time_columns": dict(self.time_columns),
        }


def survey(recording: Recording, space: ActionSpace | None = None, *, block_rows: int = BLOCK_ROWS) -> Survey:
    """One pass over a recording. `space` (an environment's) goes before the one the file declares."""
    faults = Faults()
    surveyor = _Surveyor(space if space is not None else recording.space)
    for block in blocks_of(recording, faults, block_rows):
        surveyor.add(block)
    return surveyor.finish(recording, faults)


class _Surveyor:
    """Running totals of one pass."""

    def __init__(self, space: ActionSpace | None) -> None:
        self._space = space
        self._columns: dict[str, ColumnTally] = {}
        self._first: dict[str, Place] = {}
        self._episodes: dict[str, list[Array]] = {}
        self._actions: BoxTally | DiscreteTally | None = None
        self._rewards = _RewardTally()
        self._masks = _MaskTally()
        self._states, self._transitions, self._runs = HashTally(), HashTally(), HashTally()
        self._timed: dict[str, list[Array]] = {}
        self._sample = RowSample()
        self._zero_last = self._repeated = self._broken_finals = 0

    def add(self, block: EpisodeBlock) -> None:
        self._tally(block)
        self._add_actions(block)
        self._rewards.add(block)
        if block.mask is not None:
            self._masks.add(block, block.mask)
        self._hash(block)
        self._time(block)
        states = {f"observation.{name}": values[block.step_slots] for name, values in _narrow(block.observations)}
        self._sample.add({**states, "action": block.actions, "reward": block.rewards})
        for name in ("numbers", "lengths", "terminated", "truncated", "final_known"):
            self._episodes.setdefault(name, []).append(getattr(block, name))
        returns = np.add.reduceat(block.rewards, block.first_steps, dtype=np.float64)
        self._episodes.setdefault("returns", []).append(returns)

    def _tally(self, block: EpisodeBlock) -> None:
        """Every column; the first value that is not finite is found while its block is at hand."""
        columns = {f"observation.{name}": values for name, values in block.observations.items()}
        columns |= {"action": block.actions, "reward": block.rewards}
        columns |= {f"extra.{name}": values for name, values in block.extra.items()}
        damaged = []
        for name, values in columns.items():
            tally = self._columns.setdefault(name, ColumnTally(name, values.shape[1:]))
            before, broken = tally.rows, tally.non_finite
            tally.add(values, block.dtypes[name])
            if tally.non_finite > broken:
                damaged.append(name)
            if tally.first is not None and name not in self._first:
                row, column = tally.first[0] - before, tally.first[1]
                place = block.place_of_slot if name.startswith("observation.") else block.place_of_step
                self._first[name] = Place(*place(row), column)
        self._add_broken(block, {name: columns[name] for name in damaged if not name.startswith("extra.")})

    def _add_broken(self, block: EpisodeBlock, damaged: Mapping[str, Array]) -> None:
        """Which episodes are not finite, and which only at their very end."""
        broken, finals = np.zeros(len(block.lengths), bool), np.zeros(len(block.lengths), bool)
        for name, values in damaged.items():
            whole = np.abs(values.reshape(len(values), -1).astype(np.float64)) <= LARGEST
            bad = np.asarray((~whole).any(axis=1))
            if name.startswith("observation."):
                last = (block.first_slots + block.lengths)[block.final_known]
                finals[block.final_known] |= bad[last]
                bad[last] = False
                broken |= np.logical_or.reduceat(bad, block.first_slots)
            else:
                broken |= np.logical_or.reduceat(bad, block.first_steps)
        self._broken_finals += int((finals & ~broken).sum())
        self._episodes.setdefault("broken", []).append(broken)

    def _add_actions(self, block: EpisodeBlock) -> None:
        if self._actions is None and fits_space(self._space, block.actions.shape[1:]):
            if is_discrete(self._space, block.actions):
                self._actions = DiscreteTally(self._space if isinstance(self._space, Discrete) else None)
            else:
                self._actions = BoxTally(self._space if isinstance(self._space, Box) else None)
        if self._actions is not None:
            self._actions.add(block)
        last = block.actions[block.last_steps].reshape(len(block.lengths), -1)
        self._zero_last += int((last == 0).all(axis=1).sum())

    def _hash(self, block: EpisodeBlock) -> None:
        slots = np.zeros(len(block.step_slots) + int(block.final_known.sum()), np.uint64)
        for values in block.observations.values():
            slots = combine(slots, hash_rows(values))
        states = slots[block.step_slots]
        after = slots[np.minimum(block.step_slots + 1, len(slots) - 1)]
        after[block.last_steps[~block.final_known]] = 0
        self._repeated += int((states == after).sum())
        deeds = combine(hash_rows(block.actions), hash_rows(block.rewards))
        transitions = combine(combine(states, after), deeds)
        self._states.add(states)
        self._transitions.add(transitions)
        self._runs.add(hash_runs(transitions, block.first_steps))

    def _time(self, block: EpisodeBlock) -> None:
        """Keep the beginnings of some episodes, for columns that only count."""
        for name, values in block.observations.items():
            kept = self._timed.setdefault(name, [])
            if values.ndim != 2 or values.shape[1] > WIDEST or values.dtype == np.uint8:
                continue
            for first, length in zip(block.first_slots, block.lengths, strict=True):
                if len(kept) >= TIMED_EPISODES:
                    break
                if length >= LEAST_ROWS:
                    kept.append(values[first : first + min(length, TIMED_ROWS)].copy())

    def finish(self, recording: Recording, faults: Faults) -> Survey:
        sample = self._sample.columns()
        episodes = {name: np.concatenate(parts) for name, parts in self._episodes.items()}
        columns = {name: tally.survey(self._first.get(name)) for name, tally in self._columns.items()}
        groups = {name: values for name, values in sample.items() if name.startswith("observation.")}
        timed = {name: time_column(kept) for name, kept in self._timed.items()}
        return Survey(
            recording.name,
            recording.layout,
            recording.env,
            recording.notes,
            recording.facts,
            self._space,
            faults.all(),
            columns,
            episodes.get("numbers", np.zeros(0, np.int64)),
            episodes.get("lengths", np.zeros(0, np.int64)),
            episodes.get("returns", np.zeros(0)),
            episodes.get("terminated", np.zeros(0, bool)),
            episodes.get("truncated", np.zeros(0, bool)),
            episodes.get("final_known", np.zeros(0, bool)),
            self._action_survey(columns, sample),
            self._zero_last,
            self._rewards.survey(),
            self._masks.survey(),
            coverage(groups),
            self._states.distinct(),
            len(self._transitions) - self._transitions.distinct(),
            len(self._runs) - self._runs.distinct(),
            self._repeated,
            episodes.get("broken", np.zeros(0, bool)),
            self._broken_finals,
            {name: column for name, column in timed.items() if column is not None},
            sample,
        )

    def _action_survey(self, columns: Mapping[str, ColumnSurvey], sample: Mapping[str, Array]) -> Actions | None:
        if isinstance(self._actions, BoxTally):
            action = columns["action"]
            box: BoxActions = self._actions.survey(action.minimum, action.maximum, sample["action"])
            return box
        return None if self._actions is None else self._actions.survey()


class _RewardTally:
    def __init__(self) -> None:
        self._distinct: set[float] = set()
        self._zeros = self._zero_first = 0

    def add(self, block: EpisodeBlock) -> None:
        zero = block.rewards == 0
        self._zeros += int(zero.sum())
        self._zero_first += int(zero[block.first_steps].sum())
        if len(self._distinct) <= FEW_REWARDS:
            values = np.unique(block.rewards[np.isfinite(block.rewards)])
            self._distinct |= set(values[: FEW_REWARDS + 1].astype(np.float64).tolist())

    def survey(self) -> Rewards:
        few = tuple(sorted(self._distinct)) if len(self._distinct) <= FEW_REWARDS else None
        return Rewards(few, self._zeros, self._zero_first)


class _MaskTally:
    def __init__(self) -> None:
        self._legal = 0.0
        self._slots = self._forbidden = self._empty = self._width = 0
        self._first_forbidden: tuple[int, int] | None = None
        self._first_empty: tuple[int, int] | None = None

    def add(self, block: EpisodeBlock, mask: Array) -> None:
        legal = mask != 0
        self._legal += float(legal.mean(axis=1).sum())
        self._slots += len(legal)
        self._width = legal.shape[1]
        choices, wrong = chosen(block.actions, legal.shape[1])
        forbidden = wrong | ~legal[block.step_slots, np.where(wrong, 0, choices)]
        empty = ~legal.any(axis=1)
        over = block.final_known & block.terminated
        empty[(block.first_slots + block.lengths)[over]] = False
        if self._first_forbidden is None and forbidden.any():
            self._first_forbidden = block.place_of_step(int(np.flatnonzero(forbidden)[0]))
        if self._first_empty is None and empty.any():
            self._first_empty = block.place_of_slot(int(np.flatnonzero(empty)[0]))
        self._forbidden += int(forbidden.sum())
        self._empty += int(empty.sum())

    def survey(self) -> Masks | None:
        if self._slots == 0:
            return None
        share = self._legal / self._slots
        return Masks(self._width, share, self._forbidden, self._first_forbidden, self._empty, self._first_empty)


def _narrow(groups: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Groups, without images, that together are at most WIDEST columns wide."""
    room = WIDEST
    for name, values in groups.items():
        if values[0].size <= room:
            room -= values[0].size
            yield name, values

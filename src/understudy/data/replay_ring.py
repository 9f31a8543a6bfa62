"""A replay buffer: the newest steps of N environments, as facts, in the order in which they happened.

A row is one step of one environment in its own units: what was seen, what was done, the raw reward, the true successor
(also where an episode ended), and how it ended. Rows lie in the order t·N + n, so the next step of the same environment
is N rows further. A row that is not valid is a barrier: a step that only started an episode, or a place where all
environments began anew. It is never drawn, and nothing reaches across it.

All numbers of a row stand side by side, so a batch is one gather; images and choices are columns of their own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs, Transitions
from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.large_state import LargeState
from understudy.core.protocols import Demand
from understudy.core.spec import ACTION_MASK, Box, Discrete, Group, Spec, recordable
from understudy.core.state import Static
from understudy.data.dataset import n_step_return

Array = NDArray[Any]
NUMBERS, ACTION, FLAGS, SEEN, AFTER, FACT = "numbers", "action", "flags", "seen.", "after.", "fact."
TERMINATED, TRUNCATED, VALID = 1, 2, 4
"""Bits of a row's flags."""
SEGMENT_BYTES = 4 << 20
MOST_SEGMENTS = 4096
NO_FACTS: Mapping[str, Group] = {}
NO_COLUMNS: Mapping[str, Tensor] = {}
COLUMNS = ("row", "td_valid", "discount", "next_action", "next_action_valid")
"""What algorithms may ask of own experience."""


@final
@dataclass(frozen=True)
class RowLayout:
    """Where each part of a step stands in a row."""

    spec: Spec
    facts: Mapping[str, Group] = field(default_factory=dict)
    """What else is kept of a step, each in a column of its own."""

    @cached_property
    def places(self) -> dict[str, slice]:
        """Of every group of floats, within what was seen and within what followed."""
        found, first = {}, 0
        for name, group in self.spec.observation.items():
            if group.dtype != "uint8":
                found[name] = slice(first, first + group.size)
                first += group.size
        return found

    @cached_property
    def seen(self) -> int:
        """Numbers of an observation."""
        return sum(place.stop - place.start for place in self.places.values())

    @cached_property
    def acted(self) -> int:
        """Numbers of an action; choices are a column of their own."""
        return self.spec.action.size if isinstance(self.spec.action, Box) else 0

    @property
    def reward(self) -> int:
        return self.seen + self.acted

    @property
    def after(self) -> int:
        """Where the successor begins."""
        return self.reward + 1

    @cached_property
    def images(self) -> list[str]:
        """Groups of bytes, and the mask."""
        bytes_of = [name for name, group in self.spec.observation.items() if group.dtype == "uint8"]
        return [*bytes_of, *([ACTION_MASK] if self.spec.masked else [])]

    def row(self) -> dict[str, Tensor]:
        """One row, by column."""
        row = {NUMBERS: torch.empty(self.after + self.seen), FLAGS: torch.empty((), dtype=torch.uint8)}
        if not isinstance(self.spec.action, Box):
            row[ACTION] = torch.empty((), dtype=torch.int64)
        for name in self.images:
            row[f"{SEEN}{name}"] = row[f"{AFTER}{name}"] = self._image(name)
        for name, fact in self.facts.items():
            row[f"{FACT}{name}"] = torch.from_numpy(np.empty(fact.shape, fact.dtype))
        return row

    def _image(self, name: str) -> Tensor:
        if name == ACTION_MASK:
            assert isinstance(self.spec.action, Discrete)
            return torch.empty(self.spec.action.count, dtype=torch.bool)
        return torch.empty(self.spec.observation[name].shape, dtype=torch.uint8)


def row_flags(terminated: Tensor, truncated: Tensor, valid: Tensor) -> Array:
    """How a step of N environments ended, [N] each, as one number of each."""
    first, second, third = (part.numpy().view(np.uint8) for part in (terminated, truncated, valid))
    return np.asarray(first | second << 1 | third << 2)


@final
@dataclass
class ReplayRing:
    """The newest steps of `num_envs` environments; rows are added a step of all of them at a time."""

    rows: LargeState
    layout: Static[RowLayout]
    num_envs: Static[int]
    barriers: int = 0
    """Rows ever added that are not valid."""

    @classmethod
    def empty(
        cls, spec: Spec, capacity: int, num_envs: int, *, memory: int = 0, facts: Mapping[str, Group] = NO_FACTS
    ) -> "ReplayRing":
        """Of about `capacity` rows: as many as are whole steps of all environments."""
        recordable(spec.action)
        if capacity < num_envs:
            raise ConfigError(
                "source.buffer_size", "has no room for one step of each environment", got=capacity, expected=num_envs
            )
        layout = RowLayout(spec, facts)
        row = layout.row()
        steps = capacity // num_envs
        few = SEGMENT_BYTES // max(1, num_envs * sum(tensor.nbytes for tensor in row.values()))
        segment = min(steps, max(1, few, -(-steps // MOST_SEGMENTS)))
        rows = LargeState(row, steps * num_envs, segment_rows=segment * num_envs, memory=memory)
        return cls(rows, layout, num_envs)

    def __len__(self) -> int:
        return len(self.rows)

    def add(
        self,
        obs: Obs,
        action: Tensor,
        reward: Tensor,
        after: Mapping[str, Tensor],
        flags: Array,
        facts: Mapping[str, Tensor] = NO_COLUMNS,
    ) -> None:
        """What N environments did: from `obs`, by `action` in their own units, to `after`; `flags` by `row_flags`."""
        self._put(obs, action, reward, after, flags, facts)
        if (flags < VALID).any():
            self.barriers += int((flags < VALID).sum())

    def cut(self, obs: Obs) -> None:
        """All environments begin anew, whatever they were doing: nothing reaches across."""
        if self.rows.written:
            action = torch.zeros(self.num_envs, *([self.layout.acted] if self.layout.acted else []))
            self.add(obs, action, torch.zeros(self.num_envs), obs, np.zeros(self.num_envs, np.uint8))

    def _put(
        self,
        obs: Obs,
        action: Tensor,
        reward: Tensor,
        after: Mapping[str, Tensor],
        flags: Array,
        facts: Mapping[str, Tensor],
    ) -> None:
        layout, arrays, place = self.layout, self._arrays, self.rows.room(self.num_envs)
        numbers = arrays[NUMBERS][place]
        for name, part in layout.places.items():
            numbers[:, part] = obs[name].numpy().reshape(self.num_envs, -1)
            numbers[:, layout.after + part.start : layout.after + part.stop] = (
                after[name].numpy().reshape(self.num_envs, -1)
            )
        if layout.acted:
            numbers[:, layout.seen : layout.reward] = action.numpy()
        else:
            arrays[ACTION][place] = action.numpy()
        numbers[:, layout.reward] = reward.numpy()
        arrays[FLAGS][place] = flags
        for name in layout.images:
            arrays[f"{SEEN}{name}"][place] = obs[name].numpy()
            arrays[f"{AFTER}{name}"][place] = after[name].numpy()
        for name in layout.facts:
            arrays[f"{FACT}{name}"][place] = facts[name].numpy() if facts else 0
        self.rows.commit(self.num_envs)

    @cached_property
    def _arrays(self) -> dict[str, Array]:
        return {name: column.numpy() for name, column in self.rows.columns.items()}

    def check(self, demand: Demand) -> None:
        """An error unless rows can have the columns that an algorithm asks for."""
        masks = ("mask", "next_mask") if self.layout.spec.masked else ()
        for name in demand.columns:
            if name not in (known := (*COLUMNS, *masks)):
                what = f"own experience has no column '{name}'"
                raise ConfigError("source.kind", what, got="replay", do=did_you_mean(name, known))

    def valid(self, slots: Tensor) -> Tensor:
        """Which of these slots [B] may be drawn."""
        return self.rows.columns[FLAGS].index_select(0, slots) >= VALID

    def transitions(self, slots: Tensor, demand: Demand, rewards: Callable[[Tensor], Tensor]) -> Transitions:
        """The steps in `slots` [B] as a batch in environment units, rewards as they are learned from."""
        layout, columns = self.layout, self.rows.columns
        numbers = columns[NUMBERS].index_select(0, slots)
        if demand.horizon == 1:
            final, following, discount = slots, numbers, torch.full(slots.shape, demand.gamma)
            reward = rewards(numbers[:, layout.reward])
        else:
            reward, discount, final = self._windows(slots, demand, rewards)
            following = columns[NUMBERS].index_select(0, final)
        flags = columns[FLAGS].index_select(0, final)
        action = columns[ACTION].index_select(0, slots) if ACTION in columns else self._actions(numbers)
        known = {"discount": discount}
        return Transitions(
            self._observed(numbers, 0, SEEN, slots),
            action,
            reward,
            self._observed(following, layout.after, AFTER, final),
            (flags & TERMINATED).bool(),
            {name: known[name] if name in known else self._extra(name, slots, final) for name in demand.columns},
        )

    def _windows(
        self, slots: Tensor, demand: Demand, rewards: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """n-step rewards [B], what discounts the value behind them [B], and the slot of their last step [B]."""
        columns, (window, lengths) = self.rows.columns, self.stretches(slots, demand.horizon)
        raw = columns[NUMBERS][:, self.layout.reward].index_select(0, window.flatten()).view_as(window)
        reward, discount = n_step_return(rewards(raw), lengths, demand.gamma)
        return reward, discount, window.gather(1, lengths.unsqueeze(1) - 1).squeeze(1)

    def stretches(self, slots: Tensor, horizon: int) -> tuple[Tensor, Tensor]:
        """The slots of the next steps of the same environments [B, horizon], and how many are of the same stretch [B].

        It ends at its horizon, with the episode, before a barrier, or with the newest step there is.
        """
        steps = torch.arange(horizon)
        window = (slots.unsqueeze(1) + self.num_envs * steps) % self.rows.capacity
        flags = self.rows.columns[FLAGS].index_select(0, window.flatten()).view_as(window)
        there = (steps <= self._newer(slots).unsqueeze(1)) & (flags >= VALID)
        goes_on = ((flags & (TERMINATED | TRUNCATED)) == 0) & there
        inside = there & torch.cat([torch.ones_like(there[:, :1]), goes_on[:, :-1].cumprod(1).bool()], 1)
        return window, inside.sum(1).clamp(min=1)

    def begins(self, slots: Tensor) -> Tensor:
        """Which of these steps [B] are the first of their episodes; of one whose past is overwritten, nobody knows."""
        oldest = self._newer(slots) == len(self) // self.num_envs - 1
        before = self.rows.columns[FLAGS].index_select(0, (slots - self.num_envs) % self.rows.capacity)
        fresh = ((before & (TERMINATED | TRUNCATED)) > 0) | (before < VALID)
        return torch.where(oldest, torch.tensor(self.rows.written == len(self)), fresh)

    def _newer(self, slots: Tensor) -> Tensor:
        """Steps of the same environment that were added after those in `slots` [B]."""
        return ((self.rows.written - 1 - slots) % self.rows.capacity) // self.num_envs

    def _actions(self, numbers: Tensor) -> Tensor:
        return numbers[:, self.layout.seen : self.layout.reward]

    def _observed(self, numbers: Tensor, first: int, kind: str, slots: Tensor) -> Obs:
        groups, columns = self.layout.spec.observation, self.rows.columns
        found = {}
        for name, group in groups.items():
            if name in self.layout.places:
                part = self.layout.places[name]
                flat = numbers[:, first + part.start : first + part.stop]
                found[name] = flat if len(group.shape) == 1 else flat.reshape(-1, *group.shape)
            else:
                found[name] = columns[f"{kind}{name}"].index_select(0, slots)
        return found

    def _extra(self, name: str, slots: Tensor, final: Tensor) -> Tensor:
        """A further column of steps whose n-step windows end in `final` (both [B])."""
        columns = self.rows.columns
        if name == "row":
            return slots
        if name == "td_valid":
            return torch.ones(slots.shape, dtype=torch.bool)
        if name in ("mask", "next_mask"):
            kind, place = (SEEN, slots) if name == "mask" else (AFTER, final)
            return columns[f"{kind}{ACTION_MASK}"].index_select(0, place)
        following = (final + self.num_envs) % self.rows.capacity
        if name == "next_action":
            if ACTION in columns:
                return columns[ACTION].index_select(0, following)
            return self._actions(columns[NUMBERS].index_select(0, following))
        goes_on = (columns[FLAGS].index_select(0, final) & (TERMINATED | TRUNCATED)) == 0  # next_action_valid
        return goes_on & (self._newer(final) > 0) & self.valid(following)

"""What flows from a source to an algorithm."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import final

import torch
from torch import Tensor

Obs = dict[str, Tensor]
"""Observations are always named groups, never "a tensor or a dict"."""
POLICY_WEIGHT = "policy_weight"
"""In `Rollout.extra`: what a row counts in the policy's loss [T, N], where not all count 1."""
SAMPLE_WEIGHT = "sample_weight"
"""In `Transitions.extra`, where rows are not drawn alike: what a row counts in the losses of values [B], to make up
for how often it is drawn."""
IMPORTANCE = "importance"
"""In `Transitions.extra`, where rows are weighed: what a row counts in every loss [B], 1 on average over the data."""


@dataclass(frozen=True, slots=True)
class Transitions:
    """A batch of steps; every tensor starts with [B].

    Actions are in policy space ([-1, 1] per dimension), rewards after the run's reward transform,
    observations raw (networks carry their own normaliser). `next_obs` is the true successor, also at a
    time limit; where it is unknown, `extra["td_valid"]` is False.
    """

    obs: Obs
    action: Tensor
    reward: Tensor
    next_obs: Obs
    terminated: Tensor
    extra: Mapping[str, Tensor]
    """Only the columns that the algorithm's `Demand` named."""

    @classmethod
    def joined(cls, parts: Sequence["Transitions"]) -> "Transitions":
        """Rows of several batches of the same columns, in one."""
        first = parts[0]

        def group(of: Callable[[Transitions], Mapping[str, Tensor]]) -> Obs:
            return {name: torch.cat([of(part)[name] for part in parts]) for name in of(first)}

        return cls(
            group(lambda part: part.obs),
            torch.cat([part.action for part in parts]),
            torch.cat([part.reward for part in parts]),
            group(lambda part: part.next_obs),
            torch.cat([part.terminated for part in parts]),
            group(lambda part: part.extra),
        )

    def to(self, device: torch.device) -> "Transitions":
        """The same rows there."""
        if self.reward.device == device:
            return self

        def group(columns: Mapping[str, Tensor]) -> Obs:
            return {name: column.to(device) for name, column in columns.items()}

        plain = (self.action.to(device), self.reward.to(device))
        extra = group(self.extra)
        return Transitions(group(self.obs), *plain, group(self.next_obs), self.terminated.to(device), extra)

    def split(self, rows: int) -> list["Transitions"]:
        """The same rows as several batches of `rows` each, without copying."""
        if len(self.reward) == rows:
            return [self]
        groups = [_split(columns, rows) for columns in (self.obs, self.next_obs, self.extra)]
        columns = [torch.split(column, rows) for column in (self.action, self.reward, self.terminated)]
        return [
            Transitions(obs, action, reward, next_obs, terminated, extra)
            for obs, next_obs, extra, action, reward, terminated in zip(*groups, *columns, strict=False)
        ]


@dataclass(frozen=True, slots=True)
class Sequences:
    """A batch of stretches of episodes, for learners with a memory; every tensor starts with [B, L].

    Columns are those of `Transitions`. What is missing at an episode's end repeats its last step, and is not `valid`.
    """

    obs: Obs
    action: Tensor
    reward: Tensor
    next_obs: Obs
    terminated: Tensor
    valid: Tensor
    """False where nothing is left of the episode."""
    first: Tensor
    """True at the first step of an episode, where a memory starts anew."""
    extra: Mapping[str, Tensor]

    @classmethod
    def folded(cls, rows: Transitions, valid: Tensor, first: Tensor) -> "Sequences":
        """Stretches from their rows one after the other [B·L, …]; `valid` and `first` are [B, L]."""
        count, length = valid.shape

        def fold(columns: Mapping[str, Tensor]) -> Obs:
            return {name: column.view(count, length, *column.shape[1:]) for name, column in columns.items()}

        plain = fold({"action": rows.action, "reward": rows.reward, "terminated": rows.terminated})
        return cls(
            fold(rows.obs),
            plain["action"],
            plain["reward"],
            fold(rows.next_obs),
            plain["terminated"],
            valid,
            first,
            fold(rows.extra),
        )

    @classmethod
    def joined(cls, parts: Sequence["Sequences"]) -> "Sequences":
        """Stretches of several batches of the same columns and length, in one."""
        first = parts[0]

        def group(of: Callable[[Sequences], Mapping[str, Tensor]]) -> Obs:
            return {name: torch.cat([of(part)[name] for part in parts]) for name in of(first)}

        return cls(
            group(lambda part: part.obs),
            torch.cat([part.action for part in parts]),
            torch.cat([part.reward for part in parts]),
            group(lambda part: part.next_obs),
            torch.cat([part.terminated for part in parts]),
            torch.cat([part.valid for part in parts]),
            torch.cat([part.first for part in parts]),
            group(lambda part: part.extra),
        )

    def split(self, count: int) -> list["Sequences"]:
        """The same stretches as several batches of `count` each, without copying."""
        groups = [_split(columns, count) for columns in (self.obs, self.next_obs, self.extra)]
        plain = (self.action, self.reward, self.terminated, self.valid, self.first)
        columns = [torch.split(column, count) for column in plain]
        return [
            Sequences(obs, action, reward, next_obs, terminated, valid, first, extra)
            for obs, next_obs, extra, action, reward, terminated, valid, first in zip(*groups, *columns, strict=False)
        ]


@final
class Successors(Mapping[str, Tensor]):
    """What followed each step [T, N, …], by name: the row after it of `seen` [T + 1, N, …], except at an episode's end.

    Nothing is kept twice. `ends` are the numbers t·N + n of steps that ended an episode [K], in order, and `finals`
    what followed them [K, …]. Whoever asks for a whole group has it put together; `rows` has only what is asked for.
    """

    def __init__(self, seen: Obs, ends: Tensor, finals: Obs) -> None:
        self._seen, self._ends, self._finals = seen, ends, finals

    def __getitem__(self, name: str) -> Tensor:
        following = self._seen[name][1:]
        if not len(self._ends):
            return following
        whole = following.clone()
        whole.flatten(0, 1)[self._ends] = self._finals[name]
        return whole

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Of steps by their numbers [k]."""
        chosen = self._seen[name][1:].flatten(0, 1)[index]
        if len(self._ends):
            place = torch.searchsorted(self._ends, index).clamp(max=len(self._ends) - 1)
            ended = self._ends[place] == index
            chosen[ended] = self._finals[name][place[ended]]
        return chosen

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen)

    def __len__(self) -> int:
        return len(self._seen)


def following_rows(next_obs: Mapping[str, Tensor], name: str, index: Tensor) -> Tensor:
    """What followed some steps of a rollout [k, …], by their numbers t·N + n."""
    if isinstance(next_obs, Successors):
        return next_obs.rows(name, index)
    return next_obs[name].flatten(0, 1)[index]


@dataclass(frozen=True, slots=True)
class Rollout:
    """What N environments did in T steps; every tensor starts with [T, N]. Facts only: no values, no advantages.

    `action` is in policy space, as it was drawn; `log_prob` is what the policy that drew it gave it. `next_obs` is the
    true successor, also where an episode ended: `obs` of the next step is then the first of another one.
    """

    obs: Obs
    action: Tensor
    log_prob: Tensor
    reward: Tensor
    next_obs: Mapping[str, Tensor]
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    """False where nothing happened: some simulators spend a step on starting anew. Nothing may be learned there."""
    carry: tuple[Tensor, ...]
    """What the policy remembered before the first step, [N, …] each; empty for policies without memory."""
    reward_terms: Mapping[str, Tensor] = field(default_factory=dict)
    """What the environments told of their rewards, by name; NaN where one told nothing."""
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """Other facts: what the policy drew besides its actions, by name; what objectives recorded (`objective/fact`); and
    `POLICY_WEIGHT`, where rows have one. `valid` cannot serve as such a weight: it also cuts advantages."""
    anew: bool = False
    """Every environment began a new episode here, although the rollout before did not end one."""

    @property
    def ended(self) -> Tensor:
        """Where an episode ended, for whatever reason [T, N]."""
        return self.terminated | self.truncated

    @property
    def resets(self) -> Tensor:
        """[T, N], true where a memory began empty; the first step begins with `carry`, whatever it is."""
        begins = self.ended | ~self.valid
        return torch.cat([torch.zeros_like(begins[:1]), begins[:-1]])


def _split(columns: Mapping[str, Tensor], rows: int) -> Iterable[Obs]:
    """One dict of long columns as many dicts of short ones; no columns, no end of empty dicts."""
    if not columns:
        return repeat({})
    pieces = zip(*(torch.split(column, rows) for column in columns.values()), strict=True)
    return [dict(zip(columns, parts, strict=True)) for parts in pieces]

"""Who chooses among the skills of a set: always one, a named observation, a threshold, a learnt gate, or a function.

An observation chooses by its largest column, if that is above 0.5 (`one_hot`), or by a whole number (`index`). Where
it chooses nothing, the fallback acts; where there is none, −1 is chosen and `check` says so. A choice may be split in
two by the sign of another observation.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import Carry
from understudy.core.spec import Discrete, Spec
from understudy.nn.deployed import SINGLE_KINDS, Deployed
from understudy.nn.segments import Input
from understudy.nn.skill import find_segment
from understudy.nn.skill_settings import (
    CallableSelector,
    FixedSelector,
    GateSelector,
    ObservationSelector,
    SkillSetSettings,
    SplitSettings,
    ThresholdSelector,
)

HOT = 0.5
"""A column above it is set."""
NOTHING = -1


class Choice(Protocol):
    """Observations [N, …] → numbers of skills [N]."""

    @property
    def inputs(self) -> tuple[Input, ...]: ...

    @property
    def parts(self) -> int:
        """Tensors that it remembers."""

    def initial(self, count: int) -> Carry: ...

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None) -> tuple[Tensor, Carry]: ...

    def greedy_action(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        """In operations that can be traced."""

    def check(self, obs: Obs, chosen: Tensor) -> None:
        """An error where nothing was chosen."""

    def put(self, obs: Obs, rng: torch.Generator) -> None:
        """Write choices into observations that were made up [N, …]."""


class FixedChoice(nn.Module):
    """Always the same."""

    inputs: tuple[Input, ...] = ()
    parts = 0

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def initial(self, count: int) -> Carry:
        return ()

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None) -> tuple[Tensor, Carry]:
        return self.greedy_action(obs, carry)

    def greedy_action(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        some = next(iter(obs.values()))
        return torch.full_like(some.reshape(some.shape[0], -1)[:, 0], self.number, dtype=torch.int64), carry

    def check(self, obs: Obs, chosen: Tensor) -> None:
        """Something always is."""

    def put(self, obs: Obs, rng: torch.Generator) -> None:
        """None are in there."""


class ObservationChoice(nn.Module):
    """What a named observation says."""

    parts = 0
    meaning: Tensor

    def __init__(self, settings: SkillSetSettings, selector: ObservationSelector, spec: Spec) -> None:
        super().__init__()
        self.entry = find_segment(selector.observation, spec, "selector.observation")
        self.one_hot = selector.encoding == "one_hot"
        names = selector.skills or tuple(settings.names)
        if self.one_hot and self.entry.size != len(names):
            raise ConfigError(
                "selector.skills",
                f"one for each column of '{self.entry.name}'",
                got=len(names),
                expected=self.entry.size,
            )
        if not self.one_hot and self.entry.size != 1:
            raise ConfigError("selector.observation", "an index is one column", got=self.entry.size, expected=1)
        numbers = [settings.number(name, "selector.skills") for name in names]
        self.register_buffer("meaning", torch.tensor(numbers, dtype=torch.int64))
        self.fallback = settings.number(selector.fallback, "selector.fallback") if selector.fallback else NOTHING
        self.splits = [self._split(name, split, settings, spec) for name, split in sorted(selector.split.items())]

    def _split(
        self, name: str, split: SplitSettings, settings: SkillSetSettings, spec: Spec
    ) -> tuple[int, int, Input, int]:
        where = f"selector.split.{name}"
        entry, column = find_column(split, spec, where)
        whole, negative = settings.number(name, "selector.split"), settings.number(split.negative, f"{where}.negative")
        return whole, negative, entry, column

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (self.entry, *(entry for _, _, entry, _ in self.splits))

    def initial(self, count: int) -> Carry:
        return ()

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None) -> tuple[Tensor, Carry]:
        return self.greedy_action(obs, carry)

    def greedy_action(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        values = self.entry.of(obs)
        number, there = hot_column(values) if self.one_hot else whole_number(values, len(self.meaning))
        chosen = torch.where(there, self.meaning[number], torch.full_like(number, self.fallback))
        for whole, negative, entry, column in self.splits:
            below = (chosen == whole) & (entry.of(obs)[..., column] < 0)
            chosen = torch.where(below, torch.full_like(chosen, negative), chosen)
        return chosen, carry

    def check(self, obs: Obs, chosen: Tensor) -> None:
        missing = chosen == NOTHING
        if bool(missing.any()):
            row = int(missing.nonzero()[0])
            raise DataError(
                f"observation, row {row}",
                f"the selector chooses nothing ('{self.entry.name}')",
                got=self.entry.of(obs)[row].numpy(force=True),
                expected=f"a column above {HOT}" if self.one_hot else f"0 to {len(self.meaning) - 1}",
                do="Name a skill for this case: selector.fallback.",
            )

    def put(self, obs: Obs, rng: torch.Generator) -> None:
        """Any of the choices there are."""
        values = obs[self.entry.group]
        number = torch.randint(len(self.meaning), (len(values),), generator=rng)
        values[:, self.entry.picked] = torch.eye(len(self.meaning))[number] if self.one_hot else number[:, None].float()


class ThresholdChoice(nn.Module):
    """Which side of a number another one is on; inside the margin, the side it came from."""

    start: Tensor

    def __init__(self, settings: SkillSetSettings, selector: ThresholdSelector, spec: Spec) -> None:
        super().__init__()
        self.entry, self.column = find_column(selector, spec, "selector")
        self.threshold, self.margin = selector.threshold, selector.margin
        self.below = settings.number(selector.below, "selector.below")
        self.above = settings.number(selector.above, "selector.above")
        self.parts = int(self.margin > 0)
        self.register_buffer("start", torch.zeros(1, 1))

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (self.entry,)

    def initial(self, count: int) -> Carry:
        """The side [N, 1]: −1, 1, or 0 where nothing was chosen yet."""
        return (self.start.expand(count, 1).clone(),) if self.parts else ()

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None) -> tuple[Tensor, Carry]:
        return self.greedy_action(obs, carry)

    def greedy_action(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        over = self.entry.of(obs)[..., self.column : self.column + 1].float() - self.threshold
        side = torch.where(over >= 0, torch.ones_like(over), -torch.ones_like(over))
        if carry:
            (before,) = carry
            side = torch.where((over.abs() <= self.margin) & (before != 0), before, side)
        chosen = torch.where(side[:, 0] > 0, torch.full_like(side[:, 0], self.above), float(self.below)).long()
        return chosen, (side,) if carry else ()

    def check(self, obs: Obs, chosen: Tensor) -> None:
        """Something always is."""

    def put(self, obs: Obs, rng: torch.Generator) -> None:
        """Numbers on both sides."""
        values = obs[self.entry.group]
        spread = 2.0 * (self.margin or 1.0)
        drawn = self.threshold + spread * (2.0 * torch.rand(len(values), generator=rng) - 1.0)
        values[:, self.entry.picked][:, self.column] = drawn


class GateChoice(nn.Module):
    """What a policy with one action for each skill chooses."""

    gate: Deployed

    def __init__(self, gate: Deployed, settings: SkillSetSettings, spec: Spec) -> None:
        super().__init__()
        self.gate = gate
        self.parts = len(gate.initial(1))
        count = len(settings.skills)
        if gate.kind not in SINGLE_KINDS or gate.spec.action != Discrete(count) or gate.spec.masked:
            raise ConfigError(
                "selector", "not a gate over these skills", got=gate.spec.action.describe(), expected=f"one of {count}"
            )
        for entry in gate.inputs:
            mine, there = gate.spec.observation[entry.group], spec.observation.get(entry.group)
            if there is None or there.shape != mine.shape:
                raise ConfigError("selector", f"reads a group '{entry.group}' that the set does not see so")

    @property
    def inputs(self) -> tuple[Input, ...]:
        return self.gate.inputs

    def initial(self, count: int) -> Carry:
        return self.gate.initial(count)

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None) -> tuple[Tensor, Carry]:
        return self.gate.act(obs, carry, greedy=greedy, rng=rng)

    def greedy_action(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        return self.gate.greedy_action(obs, carry)

    def check(self, obs: Obs, chosen: Tensor) -> None:
        """Something always is."""

    def put(self, obs: Obs, rng: torch.Generator) -> None:
        """None are in there."""


class CallableChoice(nn.Module):
    """What a function says."""

    inputs: tuple[Input, ...] = ()
    parts = 0

    def __init__(self, choose: Callable[[Obs], Tensor], count: int) -> None:
        super().__init__()
        self.choose, self.count = choose, count

    def initial(self, count: int) -> Carry:
        return ()

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None) -> tuple[Tensor, Carry]:
        return self.greedy_action(obs, carry)

    def greedy_action(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        rows = len(next(iter(obs.values())))
        chosen = torch.as_tensor(self.choose(dict(obs)))
        if tuple(chosen.shape) != (rows,) or chosen.is_floating_point() or chosen.dtype == torch.bool:
            got = f"{list(chosen.shape)} {chosen.dtype}"
            raise DataError("selector", "not a number of a skill for each row", got=got, expected=f"[{rows}] integers")
        return chosen.long(), carry

    def check(self, obs: Obs, chosen: Tensor) -> None:
        wrong = (chosen < 0) | (chosen >= self.count)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise DataError(
                f"observation, row {row}",
                "the selector chooses nothing",
                got=int(chosen[row]),
                expected=f"0 to {self.count - 1}",
            )

    def put(self, obs: Obs, rng: torch.Generator) -> None:
        """Nobody knows what a function looks at."""


def find_column(named: SplitSettings | ThresholdSelector, spec: Spec, where: str) -> tuple[Input, int]:
    """A column of a vector group or of a segment."""
    entry = find_segment(named.observation, spec, f"{where}.observation")
    if not -entry.size <= named.entry < entry.size:
        raise ConfigError(
            f"{where}.entry", "no such column", got=named.entry, expected=f"{-entry.size} to {entry.size - 1}"
        )
    return entry, named.entry % entry.size


def hot_column(values: Tensor) -> tuple[Tensor, Tensor]:
    """The largest column [N] of [N, C], and whether it is set [N]."""
    return values.argmax(-1), values.amax(-1) > HOT


def whole_number(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """[N, 1] as a number from 0 to `count` − 1 [N], and whether it is one [N]."""
    told = values[..., 0]
    there = (told == told.round()) & (told >= 0) & (told <= count - 1)
    return torch.where(there, told, torch.zeros_like(told)).long(), there


def make_choice(
    settings: SkillSetSettings, spec: Spec, gate: Deployed | None, choose: Callable[[Obs], Tensor] | None
) -> FixedChoice | ObservationChoice | ThresholdChoice | GateChoice | CallableChoice:
    """What the settings say."""
    selector = settings.selector
    if isinstance(selector, FixedSelector):
        return FixedChoice(settings.number(selector.skill, "selector.skill"))
    if isinstance(selector, ObservationSelector):
        return ObservationChoice(settings, selector, spec)
    if isinstance(selector, ThresholdSelector):
        return ThresholdChoice(settings, selector, spec)
    if isinstance(selector, GateSelector):
        assert gate is not None
        return GateChoice(gate, settings, spec)
    assert isinstance(selector, CallableSelector)
    assert choose is not None
    return CallableChoice(choose, len(settings.skills))

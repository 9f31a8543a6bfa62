"""Names for columns of a flat group, and what a role sees: groups, or named segments of them.

    spec.segments = {"state": {"base_lin_vel": (0, 3), "gravity": (3, 6), "proprioception": (0, 45)}}
    sees     = ["state.proprioception", "depth"]

A segment is a half-open range of columns. Segments may overlap, so that one name may stand for a part of another; one
role may not see a column twice. Columns that are hidden from a role are left out of whatever it sees.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError, did_you_mean
from understudy.core.spec import Group, Spec


@dataclass(frozen=True)
class Input:
    """One thing a role sees: a group, or a segment of a flat one."""

    name: str
    group: str
    shape: tuple[int, ...]
    image: bool
    """At least three axes, or two of bytes: nothing to normalise column by column, or to flatten unasked."""
    columns: tuple[int, int] | None = None
    visible: tuple[int, ...] | None = None
    """Which of these columns are left where some are hidden, counted from the first of them."""

    @property
    def size(self) -> int:
        return Group(self.shape, "float32").size

    @property
    def picked(self) -> slice | list[int]:
        """Which columns of the group it is, for whoever writes there."""
        start, stop = self.columns or (0, None)
        return slice(start, stop) if self.visible is None else [start + number for number in self.visible]

    def of(self, obs: Obs) -> Tensor:
        """Its values [..., *shape]."""
        if self.group not in obs:
            raise DataError("observation", f"group '{self.group}' is missing", do=did_you_mean(self.group, obs))
        values = obs[self.group]
        values = values if self.columns is None else values[..., slice(*self.columns)]
        values = values if self.visible is None else values[..., list(self.visible)]
        if values.shape[values.dim() - len(self.shape) :] != self.shape:
            raise DataError(
                "observation", f"'{self.name}' has changed its shape", got=list(values.shape), expected=list(self.shape)
            )
        return values


Hidden = Mapping[str, Sequence[int]]
"""Columns of flat groups that a role does not see, by number; −1 is the last."""


def find_inputs(names: Sequence[str], spec: Spec, where: str, hidden: Hidden | None = None) -> tuple[Input, ...]:
    """What `names` mean, in their order, without what is hidden; no names mean every group."""
    known = {f"{group}.{segment}": group for group, named in spec.segments.items() for segment in named}
    inputs = tuple(_find(name, spec, known, where) for name in names or spec.observation)
    for one, other in pairwise(sorted(inputs, key=lambda entry: (entry.group, entry.columns or (0, 0)))):
        if one.group == other.group and _overlap(one, other):
            raise ConfigError(where, f"'{one.name}' and '{other.name}' share columns", do="Name each column once.")
    numbers = hidden_columns(hidden or {}, spec, f"{where.removesuffix('.sees')}.hide")
    left = tuple(_without(entry, numbers[entry.group]) if entry.group in numbers else entry for entry in inputs)
    return tuple(entry for entry in left if entry.size > 0)


def hidden_columns(hidden: Hidden, spec: Spec, where: str) -> dict[str, set[int]]:
    """By group, counted from 0; they must exist."""
    found = {}
    for name, numbers in hidden.items():
        group = spec.observation.get(name)
        if group is None or len(group.shape) != 1:
            raise ConfigError(where, f"no vector group '{name}'", do=did_you_mean(name, spec.observation))
        size = group.size
        if beyond := [number for number in numbers if not -size <= number < size]:
            raise ConfigError(where, f"no such column of '{name}'", got=beyond[0], expected=f"{-size} to {size - 1}")
        found[name] = {number % size for number in numbers}
    return found


def _without(entry: Input, hidden: set[int]) -> Input:
    start, stop = entry.columns or (0, entry.shape[0])
    visible = tuple(number - start for number in range(start, stop) if number not in hidden)
    return entry if len(visible) == stop - start else replace(entry, shape=(len(visible),), visible=visible)


def _find(name: str, spec: Spec, known: Mapping[str, str], where: str) -> Input:
    if name in spec.observation:
        group = spec.observation[name]
        return Input(name, name, group.shape, len(group.shape) > (1 if group.dtype == "uint8" else 2))
    if name not in known:
        raise ConfigError(where, f"no group or segment '{name}'", do=did_you_mean(name, [*spec.observation, *known]))
    group_name = known[name]
    start, stop = spec.segments[group_name][name.removeprefix(f"{group_name}.")]
    return Input(name, group_name, (stop - start,), False, (start, stop))


def _overlap(one: Input, other: Input) -> bool:
    if one.columns is None or other.columns is None:
        return True
    return max(one.columns[0], other.columns[0]) < min(one.columns[1], other.columns[1])

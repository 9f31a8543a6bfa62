"""Names for columns of a flat group, and what a role sees: groups, or named segments of them.

    spec.segments = {"state": {"base_lin_vel": (0, 3), "gravity": (3, 6), "proprioception": (0, 45)}}
    sees     = ["state.proprioception", "depth"]

A segment is a half-open range of columns. Segments may overlap, so that one name may stand for a part of another; one
role may not see a column twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    @property
    def size(self) -> int:
        return Group(self.shape, "float32").size

    def of(self, obs: Obs) -> Tensor:
        """Its values [..., *shape]."""
        if self.group not in obs:
            raise DataError("observation", f"group '{self.group}' is missing", do=did_you_mean(self.group, obs))
        values = obs[self.group]
        values = values if self.columns is None else values[..., slice(*self.columns)]
        if values.shape[values.dim() - len(self.shape) :] != self.shape:
            raise DataError(
                "observation", f"'{self.name}' has changed its shape", got=list(values.shape), expected=list(self.shape)
            )
        return values


def find_inputs(names: Sequence[str], spec: Spec, where: str) -> tuple[Input, ...]:
    """What `names` mean, in their order; no names mean every group."""
    known = {f"{group}.{segment}": group for group, named in spec.segments.items() for segment in named}
    inputs = tuple(_find(name, spec, known, where) for name in names or spec.observation)
    for one, other in pairwise(sorted(inputs, key=lambda entry: (entry.group, entry.columns or (0, 0)))):
        if one.group == other.group and _overlap(one, other):
            raise ConfigError(where, f"'{one.name}' and '{other.name}' share columns", do="Name each column once.")
    return inputs


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

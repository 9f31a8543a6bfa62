"""A mirror of a task: what a state and an action look like from the other side, by settings.

    x′[i] = signs[i]·x[permutation[i]]

of the columns of a group or of a named segment, and of a box of actions; of choices only the order; images are turned
round along one axis. A mirror undoes itself (M∘M = 1): whoever says otherwise is told before the first step, as is
whoever says nothing of a column.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError
from understudy.core.settings import Settings
from understudy.core.spec import ACTION_MASK, FLOATS, ActionSpace, Box, Discrete, Spec
from understudy.nn.segments import Input, find_inputs

SIGNED = (*FLOATS, "int8", "int16", "int32", "int64")


def _a_sign(number: int) -> int:
    if number not in (-1, 1):
        raise ValueError("a sign is -1 or 1")
    return number


Sign = Annotated[int, AfterValidator(_a_sign)]


class MirrorMap(Settings):
    """x′[i] = signs[i]·x[permutation[i]]; where nothing is said nothing changes."""

    permutation: tuple[int, ...] = ()
    """Which column each one changes places with, by number, itself where it stays; empty: all stay."""
    signs: tuple[Sign, ...] = ()
    """−1 where a number changes its sign, after the columns have moved; empty: none does."""
    flip: int | None = None
    """Of an image: the axis that is turned round, counted without the batch's, −1 is the last."""


class MirrorSettings(Settings):
    """M_s of observations and M_a of actions."""

    observations: dict[str, MirrorMap] = Field(default_factory=dict)
    """M_s, by group or `group.segment`; every column of every group is named once (`{}` where nothing changes)."""
    actions: MirrorMap = MirrorMap()
    """M_a, of a box; or the order of choices."""


@dataclass(frozen=True)
class Reflection:
    """x [..., n] → the same, seen from the other side."""

    columns: Tensor
    signs: Tensor
    """[n]."""
    moves: bool
    """Columns change places."""
    signed: bool
    """Some numbers change their signs."""
    axis: int | None = None
    """Of an image, counted from the last."""

    def __call__(self, values: Tensor) -> Tensor:
        if self.axis is not None:
            return values.flip(self.axis)
        moved = values.index_select(-1, self.columns) if self.moves else values
        return moved * self.signs.to(values.dtype) if self.signed else moved


@dataclass(frozen=True)
class Mirror:
    """M_s and M_a of one spec; actions are in policy space."""

    groups: Mapping[str, Reflection]
    actions: Reflection
    """Of a box [..., A], or of numbers that each choice has [..., K]."""
    discrete: bool

    def observations(self, obs: Obs) -> Obs:
        """{name: [..., …]}; what is no observation of the environment stays as it is."""
        return {name: self.groups[name](values) if name in self.groups else values for name, values in obs.items()}

    def action(self, action: Tensor) -> Tensor:
        """[..., A], or choices [...]."""
        return self.actions.columns[action.long()].to(action.dtype) if self.discrete else self.actions(action)


def make_mirror(settings: MirrorSettings, spec: Spec, device: torch.device, where: str) -> Mirror:
    """What the settings say, once it is known to be a mirror of these observations and actions."""
    groups = _group_maps(settings.observations, spec, f"{where}.observations")
    actions = _action_map(settings.actions, spec.action, f"{where}.actions")
    reflections = {name: _reflection(one, device, len(spec.observation[name].shape)) for name, one in groups.items()}
    choices = _reflection(actions, device)
    if spec.masked:
        reflections[ACTION_MASK] = choices
    return Mirror(reflections, choices, isinstance(spec.action, Discrete))


def _reflection(one: MirrorMap, device: torch.device, axes: int = 1) -> Reflection:
    axis = None if one.flip is None else one.flip % axes - axes
    columns = torch.tensor(one.permutation, dtype=torch.long, device=device)
    signs = torch.tensor(one.signs, device=device)
    moves = one.permutation != tuple(range(len(one.permutation)))
    return Reflection(columns, signs, moves, -1 in one.signs, axis)


def _group_maps(told: Mapping[str, MirrorMap], spec: Spec, where: str) -> dict[str, MirrorMap]:
    """One for every group, of all its columns."""
    columns: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in spec.observation}
    images: dict[str, MirrorMap] = {}
    for entry in find_inputs(tuple(told), spec, where) if told else ():
        place, one = f"{where}.{entry.name}", told[entry.name]
        if entry.image:
            images[entry.group] = _image_map(one, entry, place)
            continue
        first = entry.columns[0] if entry.columns else 0
        whole = _whole(one, entry.shape[-1] if entry.shape else 1, place)
        if -1 in whole.signs and spec.observation[entry.group].dtype not in SIGNED:
            raise ConfigError(f"{place}.signs", "its numbers have no sign", got=spec.observation[entry.group].dtype)
        for number, (source, sign) in enumerate(zip(whole.permutation, whole.signs, strict=True)):
            columns[entry.group][first + number] = first + source, sign
    for name, group in spec.observation.items():
        wanted = range(group.shape[-1] if group.shape else 1)
        silent = [] if name in images else [number for number in wanted if number not in columns[name]]
        if silent:
            some = "it" if len(silent) == len(wanted) else f"its columns {', '.join(map(str, silent))}"
            raise ConfigError(
                where, f"nothing is said of '{name}': {some} must be named", do="`{}` is for what does not change."
            )
    maps = {name: [columns[name][number] for number in sorted(columns[name])] for name in columns.keys() - images}
    parts = {name: tuple(zip(*pairs, strict=True)) for name, pairs in maps.items()}
    return images | {name: MirrorMap(permutation=moved, signs=signs) for name, (moved, signs) in parts.items()}


def _whole(one: MirrorMap, size: int, where: str) -> MirrorMap:
    """All columns with their signs, found to undo itself."""
    if one.flip is not None:
        raise ConfigError(f"{where}.flip", "only an image is turned round", got=one.flip, expected="permutation, signs")
    order = one.permutation or tuple(range(size))
    signs = one.signs or (1,) * size
    if sorted(order) != list(range(size)):
        raise ConfigError(
            f"{where}.permutation", "not every column once", got=list(order), expected=f"each of 0 to {size - 1}"
        )
    if len(signs) != size:
        raise ConfigError(f"{where}.signs", "not one for each column", got=len(signs), expected=size)
    for number, source in enumerate(order):
        if order[source] != number:
            raise ConfigError(
                f"{where}.permutation",
                "mirrored twice it is not what it was",
                got=f"column {number} comes from {source}, and {source} from {order[source]}",
                expected=f"{source} from {number}",
            )
        if signs[source] != signs[number]:
            raise ConfigError(
                f"{where}.signs",
                "mirrored twice it is not what it was",
                got=f"{signs[number]} for column {number} and {signs[source]} for {source}, which change places",
                expected="the same sign for both",
            )
    return MirrorMap(permutation=order, signs=signs)


def _image_map(one: MirrorMap, entry: Input, where: str) -> MirrorMap:
    axes = len(entry.shape)
    if one.permutation or one.signs:
        raise ConfigError(where, "an image has no columns to name", got=list(entry.shape), expected="flip, or {}")
    if one.flip is None:
        return one
    if not -axes <= one.flip < axes:
        raise ConfigError(f"{where}.flip", "no such axis", got=one.flip, expected=f"{-axes} to {axes - 1}")
    return one


def _action_map(one: MirrorMap, space: ActionSpace, where: str) -> MirrorMap:
    """Found to leave the box what it is."""
    if isinstance(space, Discrete):
        whole = _whole(one, space.count, where)
        if -1 in whole.signs:
            raise ConfigError(f"{where}.signs", "choices have no sign", got=list(one.signs), expected="a permutation")
        return whole
    if not isinstance(space, Box):
        raise ConfigError(where, "no mirror of these actions", got=space.describe(), expected="a box, or one of n")
    whole = _whole(one, space.size, where)
    for number, (source, sign) in enumerate(zip(whole.permutation, whole.signs, strict=True)):
        ends = sorted((sign * space.low[source], sign * space.high[source]))
        if ends != [space.low[number], space.high[number]]:
            raise ConfigError(
                where,
                f"mirrored, action {number} leaves its range",
                got=f"{ends[0]:g} to {ends[1]:g}",
                expected=f"{space.low[number]:g} to {space.high[number]:g}",
            )
    return whole

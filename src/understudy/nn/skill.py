"""One skill of a set: a frozen policy, what it is shown in the place of what is there, and what becomes of its action.

o_k = c if it is overridden by c, s·o otherwise            the caller's observation is never written to
a   = a_k · skill_scale / env_scale + offset(o)             `action_offset`: f·o; nothing by default
l_k = (a − offset(o)) · env_scale / skill_scale             how it sees a last action, of the step before
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.protocols import Carry
from understudy.core.spec import ACTION_MASK, Box, Group, Spec
from understudy.nn.actor import action_range
from understudy.nn.deployed import SINGLE_KINDS, Deployed
from understudy.nn.segments import Input, find_inputs
from understudy.nn.skill_settings import MixingSettings, Numbers, OverrideSettings, Scale, SkillChanges


class ObservationChange(nn.Module):
    """One group as a skill sees it [N, C]: where(overridden, value + draws·place, scale·(o − offset·shift)).

    What comes out is a tensor of its own.
    """

    scale: Tensor
    overridden: Tensor
    value: Tensor
    place: Tensor
    shift: Tensor

    def __init__(self, columns: int, draws: int, actions: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(columns))
        self.register_buffer("overridden", torch.zeros(columns, dtype=torch.bool))
        self.register_buffer("value", torch.zeros(columns))
        self.register_buffer("place", torch.zeros(draws, columns))
        if actions:
            self.register_buffer("shift", torch.zeros(actions, columns))

    def forward(self, values: Tensor, draws: Tensor | None, offset: Tensor | None) -> Tensor:
        """`draws` [N, D] are those of the whole set, `offset` [N, A] what was added to the skill's last action."""
        values = values if offset is None else values - offset @ self.shift
        given = self.value if draws is None else self.value + draws @ self.place
        return torch.where(self.overridden, given, self.scale * values)


@dataclass(frozen=True)
class Drawn:
    """A segment that is overridden by draws, between what and how often."""

    low: Tensor
    high: Tensor
    redraw: str


class Skill(nn.Module):
    """A frozen policy in the world of its set."""

    policy: Deployed
    action_centre: Tensor
    action_half_range: Tensor
    action_low: Tensor
    action_high: Tensor
    ratio: Tensor
    offset_factors: Tensor

    def __init__(
        self, name: str, policy: Deployed, changes: SkillChanges, mixing: MixingSettings, spec: Spec, first_draw: int
    ) -> None:
        super().__init__()
        self.name, self.policy = name, policy
        self.reset_memory = changes.reset_memory or mixing.reset_memory
        self.start = len(policy.initial(1))
        """How many tensors it remembers."""
        where = f"skills.{name}"
        _check_kind(policy, where)
        own, env = _scales(changes, mixing, policy.spec, spec, where)
        self.register_buffer("ratio", own / env)
        for side, values in action_range(policy.spec).items():
            self.register_buffer(f"action_{side}", values)
        self.offset_inputs, factors = _offsets(changes, spec, f"{where}.action_offset")
        if self.offset_inputs:
            self.register_buffer("offset_factors", factors)
        self.shifted = bool(self.offset_inputs and mixing.last_action)
        """Whether what was added to its last action has to be remembered."""
        self.joined = _joined(policy, changes, spec, where)
        self.groups = _own_groups(policy, self.joined, spec, where)
        self.drawn: list[Drawn] = []
        changed = self._changed(changes, mixing, env / own, spec, first_draw)
        self.changed = sorted(changed)
        self.changes = nn.ModuleList(changed[group] for group in self.changed)

    def _changed(
        self, changes: SkillChanges, mixing: MixingSettings, ratio: Tensor, spec: Spec, first: int
    ) -> dict[str, ObservationChange]:
        """By group."""
        where = f"skills.{self.name}"
        draws = first + _count_draws(changes, spec, f"{where}.overrides")
        found: dict[str, ObservationChange] = {}

        def place(name: str, setting: str) -> tuple[Input, ObservationChange]:
            entry = find_segment(name, spec, setting)
            if entry.group not in found:
                actions = spec.action.size if self.shifted and isinstance(spec.action, Box) else 0
                found[entry.group] = ObservationChange(spec.observation[entry.group].size, draws, actions)
            return entry, found[entry.group]

        for name in mixing.last_action:
            entry, change = place(name, "last_action")
            change.scale[entry.picked] *= _sized(ratio, entry.size, "last_action", f"columns of '{name}' and actions")
            if self.shifted:
                change.shift[:, entry.picked].fill_diagonal_(1.0)
        for name, factor in sorted(changes.observation_scale.items()):
            entry, change = place(name, f"{where}.observation_scale")
            change.scale[entry.picked] *= as_columns(factor, entry.size, f"{where}.observation_scale.{name}")
        if changes.overrides:
            find_inputs(sorted(changes.overrides), spec, f"{where}.overrides")  # which names each column once
        for name, override in sorted(changes.overrides.items()):
            entry, change = place(name, f"{where}.overrides")
            change.overridden[entry.picked] = True
            if override.value is not None:
                change.value[entry.picked] = as_columns(override.value, entry.size, f"{where}.overrides.{name}")
                continue
            low, high = _limits(override, entry.size, f"{where}.overrides.{name}")
            change.place[first : first + entry.size, entry.picked].fill_diagonal_(1.0)
            self.drawn.append(Drawn(low, high, override.redraw))
            first += entry.size
        return found

    @property
    def inputs(self) -> list[Input]:
        """What it reads of the set's observation."""
        direct = [entry for entry in self.policy.inputs if entry.group not in self.joined]
        made = [part for parts in self.joined.values() for part in parts if isinstance(part, Input)]
        return [*direct, *made, *self.offset_inputs]

    def view(self, obs: Obs, draws: Tensor | None, offset: Tensor | None = None) -> Obs:
        """What the skill sees [N, …] of the set's observation, which stays as it is."""
        seen = dict(obs)
        for group, change in zip(self.changed, self.changes, strict=True):
            if group in obs:
                assert isinstance(change, ObservationChange)
                some = None if draws is None else draws[:, : len(change.place)]
                seen[group] = change(obs[group], some, offset)
        made = {group: _cat(parts, seen) for group, parts in self.joined.items()}
        mask = {ACTION_MASK: obs[ACTION_MASK]} if self.policy.spec.masked and ACTION_MASK in obs else {}
        return {**{group: seen[group] for group in self.groups if group in seen}, **made, **mask}

    def act(
        self,
        obs: Obs,
        carry: Carry,
        draws: Tensor | None,
        offset: Tensor | None,
        *,
        greedy: bool,
        rng: torch.Generator | None,
    ) -> tuple[Tensor, Carry]:
        """Actions [N, …] in the environment's units; `offset` [N, A] is that of the step before."""
        action, carry = self.policy.act(self.view(obs, draws, offset), carry, greedy=greedy, rng=rng)
        return action if self.policy.discrete else self._sent(action, obs), carry

    def greedy_action(
        self, obs: Obs, carry: Carry, draws: Tensor | None, offset: Tensor | None
    ) -> tuple[Tensor, Carry]:
        """The same in operations that can be traced."""
        chosen, carry = self.policy.greedy_action(self.view(obs, draws, offset), carry)
        if self.policy.discrete:
            return chosen, carry
        units = self.action_centre + self.action_half_range * chosen
        return self._sent(torch.clamp(units, self.action_low, self.action_high), obs), carry

    def _sent(self, action: Tensor, obs: Obs) -> Tensor:
        scaled = action * self.ratio
        return scaled + self.offset(obs) if self.offset_inputs else scaled

    def offset(self, obs: Obs) -> Tensor:
        """What is added to its action [N, A]."""
        parts = [entry.of(obs).float() * self.offset_factors[row] for row, entry in enumerate(self.offset_inputs)]
        return torch.stack(parts).sum(0)


def restarted(carry: Carry, policy: Deployed, rows: Tensor) -> Carry:
    """A carry whose `rows` [N] are as at the start of an episode."""
    return tuple(
        torch.where(rows.view(-1, *[1] * (part.dim() - 1)), first, part)
        for part, first in zip(carry, policy.initial(1), strict=True)
    )


def find_segment(name: str, spec: Spec, where: str) -> Input:
    """A vector group or a segment of one, whose columns can be changed or read as numbers."""
    (entry,) = find_inputs((name,), spec, where)
    group = spec.observation[entry.group]
    if len(group.shape) != 1 or group.dtype == "uint8":
        raise ConfigError(where, f"'{name}' is no vector", got=f"{list(group.shape)} {group.dtype}", expected="[n]")
    return entry


def as_columns(values: Numbers, size: int, where: str) -> Tensor:
    """One number for each of `size` columns [size]."""
    return _sized(torch.as_tensor(values, dtype=torch.float32), size, where, "columns and numbers")


def _sized(values: Tensor, size: int, where: str, what: str) -> Tensor:
    if values.numel() == 1:
        return values.expand(size)
    if len(values) != size:
        raise ConfigError(where, f"{what} are not as many", got=len(values), expected=size)
    return values


def _limits(override: OverrideSettings, size: int, where: str) -> tuple[Tensor, Tensor]:
    assert override.low is not None
    assert override.high is not None
    least, most = (torch.as_tensor(side, device="cpu") for side in (override.low, override.high))
    low, high = (as_columns(side, size, where) for side in (override.low, override.high))
    if not bool((least <= most).all()):
        raise ConfigError(where, "low is above high", got=f"{override.low} and {override.high}")
    return low, high


def _count_draws(changes: SkillChanges, spec: Spec, where: str) -> int:
    drawn = [name for name, override in changes.overrides.items() if override.drawn]
    return sum(find_segment(name, spec, where).size for name in drawn)


def _scales(changes: SkillChanges, mixing: MixingSettings, mine: Spec, spec: Spec, where: str) -> tuple[Tensor, Tensor]:
    """The skill's scale and the environment's [A], for actions of as many dimensions; [] of choices."""
    if type(mine.action) is not type(spec.action):
        raise _other_actions(mine, spec, where)
    if not isinstance(mine.action, Box) or not isinstance(spec.action, Box):
        if mine.action != spec.action or mine.masked != spec.masked:
            raise _other_actions(mine, spec, where)
        if (changes.action_scale, mixing.action_scale) != (1.0, 1.0):
            raise ConfigError(f"{where}.action_scale", "choices have no scale", got=spec.action.describe())
        return torch.ones(()), torch.ones(())
    size = spec.action.size
    same = (mine.action.low, mine.action.high) == (spec.action.low, spec.action.high)
    if mine.action.size != size or not (same or changes.action_scale != mixing.action_scale):
        raise _other_actions(mine, spec, where)
    env = _scale(mixing.action_scale, torch.ones(size), mixing.action_names, "action_scale")
    return _scale(changes.action_scale, env, mixing.action_names, f"{where}.action_scale"), env


def _other_actions(mine: Spec, spec: Spec, where: str) -> ConfigError:
    return ConfigError(
        where,
        "its actions are not those of the set",
        got=mine.action.describe() + " of those a mask allows" * mine.masked,
        expected=spec.action.describe() + " of those a mask allows" * spec.masked,
        do="Where only their scale differs, say it: action_scale.",
    )


def _scale(scale: Scale, unnamed: Tensor, names: Sequence[str], where: str) -> Tensor:
    """[A]; dimensions that are not named keep what they have."""
    if not isinstance(scale, Mapping):
        return as_columns(scale, len(unnamed), where)
    if len(names) != len(unnamed):
        raise ConfigError("action_names", "one for each dimension of an action", got=len(names), expected=len(unnamed))
    found = unnamed.clone()
    for name, value in scale.items():
        if name not in names:
            raise ConfigError(where, f"no dimension '{name}' of an action", do=did_you_mean(name, names))
        found[list(names).index(name)] = value
    return found


def _offsets(changes: SkillChanges, spec: Spec, where: str) -> tuple[list[Input], Tensor]:
    """What is added to actions, and the factors [S, A]."""
    if not changes.action_offset:
        return [], torch.zeros(0, 0)
    if not isinstance(spec.action, Box):
        raise ConfigError(where, "nothing is added to choices", got=spec.action.describe())
    entries, factors = [], []
    for name, factor in sorted(changes.action_offset.items()):
        entry = find_segment(name, spec, where)
        if entry.size != spec.action.size:
            raise ConfigError(
                where, f"columns of '{name}' and actions are not as many", got=entry.size, expected=spec.action.size
            )
        entries.append(entry)
        factors.append(as_columns(factor, entry.size, f"{where}.{name}"))
    return entries, torch.stack(factors)


def _cat(parts: Sequence[Input | float], obs: Obs) -> Tensor:
    """Segments and constant columns side by side [N, C]."""
    some = next(part for part in parts if isinstance(part, Input)).of(obs).float()
    columns = [
        part.of(obs).float() if isinstance(part, Input) else torch.full_like(some[:, :1], part) for part in parts
    ]
    return torch.cat(columns, dim=-1)


def _joined(policy: Deployed, changes: SkillChanges, spec: Spec, where: str) -> dict[str, tuple[Input | float, ...]]:
    """Groups of the skill that are made of others."""
    made = {}
    for group, names in sorted(changes.inputs.items()):
        place = f"{where}.inputs.{group}"
        if group not in policy.spec.observation:
            raise ConfigError(place, "the skill has no such group", do=did_you_mean(group, policy.spec.observation))
        entries = tuple(find_segment(name, spec, place) if isinstance(name, str) else name for name in names)
        if not any(isinstance(part, Input) for part in entries):
            raise ConfigError(place, "nothing but numbers", expected="a segment of the set's observation among them")
        size = sum(part.size if isinstance(part, Input) else 1 for part in entries)
        wanted = policy.spec.observation[group]
        if wanted.shape != (size,):
            raise ConfigError(place, "does not make the skill's group", got=[size], expected=list(wanted.shape))
        made[group] = entries
    return made


def _own_groups(policy: Deployed, joined: Mapping[str, object], spec: Spec, where: str) -> list[str]:
    """Groups that it reads as they are, all of which must be there and of its shapes."""
    groups = [group for group in dict.fromkeys(entry.group for entry in policy.inputs) if group not in joined]
    wrong = [
        f"{name} {_told(policy.spec.observation[name])}"
        for name in groups
        if name not in spec.observation or _kind(spec.observation[name]) != _kind(policy.spec.observation[name])
    ]
    if wrong:
        there = ", ".join(f"{name} {_told(group)}" for name, group in spec.observation.items())
        raise ConfigError(
            where, "reads what the set does not see", got=", ".join(wrong), expected=there, do="Say its `inputs`."
        )
    return groups


def _kind(group: Group) -> tuple[tuple[int, ...], bool]:
    return group.shape, group.dtype == "uint8"


def _told(group: Group) -> str:
    return f"{list(group.shape)} {group.dtype}"


def _check_kind(policy: Deployed, where: str) -> None:
    if policy.kind not in SINGLE_KINDS:
        raise ConfigError(where, "is itself a set of skills", got=policy.kind, do="Name its skills here instead.")

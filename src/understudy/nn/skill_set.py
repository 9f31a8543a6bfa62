"""A policy of frozen skills, one of which is chosen at each step.

    e_t = one-hot [K] of the skill that is chosen at step t
    w_t = (e_t + e_{t-1} + … + e_{t-L+1}) / L                L: `smoothing`
    a_t = Σ_k w_t[k] · a_k · skill_scale_k / env_scale       inside the box

A named observation chooses, a learnt gate or a function. Where the episode is younger than L, w_t is of fewer choices;
discrete actions are those of the chosen skill.

All skills see every step, each with its own normaliser, memory and changes of what it sees (`nn/skill.py`). Everything
that is remembered is in the carry, all zeros but for skills that begin otherwise: the skills' own carries, the gate's,
the last L choices [N, L, K], what was drawn for overrides [N, D] and added to actions [N, S, A]. So whoever starts an
episode anew clears it all, for that environment alone. Draws follow the stream that `act` is given; without one, as in
an exported file, they are the middle of their range.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError
from understudy.core.protocols import Carry
from understudy.core.spec import Box, Spec
from understudy.nn.actor import action_range
from understudy.nn.deployed import Choosing, Deployed, blank_single
from understudy.nn.prediction import predict, show_policy
from understudy.nn.segments import Input
from understudy.nn.skill import Skill, restarted
from understudy.nn.skill_selectors import Choice, GateChoice, make_choice
from understudy.nn.skill_settings import (
    CallableSelector,
    GateSelector,
    ObservationSelector,
    PolicyShape,
    SkillSetSettings,
)

Choose = Callable[[Obs], Tensor]
"""Observations [N, …] → numbers of skills [N]."""


class Carried(NamedTuple):
    """The parts of a carry."""

    skills: tuple[Carry, ...]
    gate: Carry
    history: Tensor | None
    """The last choices [N, L, K], the newest first; zeros before the first step of an episode."""
    draws: Tensor | None
    """[N, D]."""
    offsets: Tensor | None
    """What was last added to actions of the skills that see a last action without it [N, S, A]."""

    def flat(self) -> Carry:
        rest = tuple(part for part in (self.history, self.draws, self.offsets) if part is not None)
        return (*(part for carry in self.skills for part in carry), *self.gate, *rest)


class SkillSet(nn.Module):
    """Skills, and who chooses among them."""

    kind: ClassVar[str] = "skill_set"
    action_centre: Tensor
    action_half_range: Tensor
    action_low: Tensor
    action_high: Tensor
    draw_low: Tensor
    draw_high: Tensor
    draw_owner: Tensor
    draw_again: Tensor

    def __init__(
        self,
        spec: Spec,
        settings: SkillSetSettings,
        policies: Sequence[Deployed],
        *,
        gate: Deployed | None = None,
        choose: Choose | None = None,
    ) -> None:
        """`policies` in the order of `settings.skills`; `gate` and `choose` where the selector is one."""
        super().__init__()
        self.spec, self.settings = spec, settings
        self.discrete = not isinstance(spec.action, Box)
        if self.discrete and settings.smoothing > 1:
            raise ConfigError("smoothing", "choices cannot be averaged", got=settings.smoothing, expected=1)
        self.skills = nn.ModuleList()
        first = 0
        for policy, entry in zip(policies, settings.skills, strict=True):
            skill = Skill(entry.name, policy, entry, settings, spec, first)
            first += sum(len(drawn.low) for drawn in skill.drawn)
            self.skills.append(skill)
        self.choice: Choice = make_choice(settings, spec, gate, choose)
        for name, values in action_range(spec).items():
            self.register_buffer(f"action_{name}", values)
        self._plan_draws()
        rules = [skill.reset_memory for skill in self.members if skill.start]
        self.remembers = settings.smoothing > 1 or len(self.draw_low) > 0 or "when_selected" in rules
        """Whether earlier choices matter."""
        self.shifted = [number for number, skill in enumerate(self.members) if skill.shifted]

    def _plan_draws(self) -> None:
        drawn = [(number, one) for number, skill in enumerate(self.members) for one in skill.drawn]
        none = torch.zeros(0)
        owners = [torch.full((len(one.low),), number, dtype=torch.int64) for number, one in drawn]
        again = [torch.full((len(one.low),), one.redraw == "selection") for _, one in drawn]
        self.register_buffer("draw_low", torch.cat([none, *(one.low for _, one in drawn)]))
        self.register_buffer("draw_high", torch.cat([none, *(one.high for _, one in drawn)]))
        self.register_buffer("draw_owner", torch.cat([none.long(), *owners]))
        self.register_buffer("draw_again", torch.cat([none.bool(), *again]))

    @classmethod
    def blank(cls, spec: Spec, settings: SkillSetSettings, rng: torch.Generator) -> "SkillSet":
        """One of this shape, to be filled."""
        if isinstance(settings.selector, CallableSelector):
            raise ConfigError("selector", "a function of Python is in no file")
        policies = [_blank(skill.policy, rng, f"skills.{skill.name}") for skill in settings.skills]
        selector = settings.selector
        gate = _blank(selector.policy, rng, "selector") if isinstance(selector, GateSelector) else None
        return cls(spec, settings, policies, gate=gate)

    def chosen_by(self, gate: Deployed) -> "SkillSet":
        """The same skills, among which a policy chooses."""
        selector = GateSelector(policy=shape_of(gate))
        settings = self.settings.model_copy(update={"selector": selector})
        return SkillSet(self.spec, settings, [skill.policy for skill in self.members], gate=gate)

    @property
    def members(self) -> list[Skill]:
        return [skill for skill in self.skills if isinstance(skill, Skill)]

    @property
    def count(self) -> int:
        """K."""
        return len(self.skills)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All that any of them reads, and whoever chooses."""
        entries = [entry for skill in self.members for entry in skill.inputs]
        return tuple({entry.name: entry for entry in (*entries, *self.choice.inputs)}.values())

    def native(self) -> list[Deployed]:
        """Its policies that read the set's own groups, and nothing that is made of them."""
        gate = [self.choice.gate] if isinstance(self.choice, GateChoice) else []
        return [*(skill.policy for skill in self.members if not skill.joined), *gate]

    forward = predict  # `policy(obs)`: actions as NumPy

    def __repr__(self) -> str:
        return show_policy(self, "SkillSet", f"{', '.join(self.settings.names)} by {self.settings.selector.kind}")

    def check_storable(self, where: str) -> None:
        """An error where a function chooses: no file holds that."""
        if isinstance(self.settings.selector, CallableSelector):
            raise ConfigError(
                where,
                "its skills are chosen by a function of Python, which no file can hold",
                expected="a selector of kind fixed, observation or gate",
            )

    def check_exportable(self, where: str) -> None:
        """An error where nothing may be chosen: a set that acts here says so, a file for other runtimes cannot."""
        selector = self.settings.selector
        if isinstance(selector, ObservationSelector) and not selector.fallback:
            raise ConfigError(
                where,
                f"'{selector.observation}' may choose no skill, and a file cannot say so: there is no fallback",
                expected=f"selector.fallback, one of {', '.join(self.settings.names)}",
                do=f"Make the set with one: understudy skills … selector.fallback={self.settings.names[0]}",
            )

    def initial(self, count: int) -> Carry:
        low = self.action_low
        history = low.new_zeros(count, self.settings.smoothing, self.count) if self.remembers else None
        draws = low.new_zeros(count, len(self.draw_low)) if len(self.draw_low) else None
        offsets = low.new_zeros(count, len(self.shifted), *low.shape) if self.shifted else None
        skills = tuple(skill.policy.initial(count) for skill in self.members)
        return Carried(skills, self.choice.initial(count), history, draws, offsets).flat()

    @torch.no_grad()
    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        """Actions [N, …] in environment units, inside the box."""
        here, carried = self._here(obs), self._parts(carry)
        chosen, gate = self.choice.act(here, carried.gate, greedy=greedy, rng=rng)
        self.choice.check(here, chosen)
        return self._acted(here, chosen, carried._replace(gate=gate), greedy, rng)

    @torch.no_grad()
    def act_chosen(
        self, obs: Obs, chosen: Tensor, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None
    ) -> tuple[Tensor, Carry]:
        """The same where somebody else chose [N]."""
        here = self._here(obs)
        return self._acted(here, chosen.to(self.action_low.device), self._parts(carry), greedy, rng)

    def greedy_action(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        """In policy space [N, …], in operations that can be traced; where nothing is chosen, which happens in no
        exported set, the first skill acts."""
        carried = self._parts(carry)
        chosen, gate = self.choice.greedy_action(obs, carried.gate)
        action, carry = self._mixed(obs, chosen.clamp_min(0), carried._replace(gate=gate), None, Skill.greedy_action)
        return action if self.discrete else (action - self.action_centre) / self.action_half_range, carry

    def ratings(self, obs: Obs, carry: Carry) -> Tensor:
        """Of sets that choose [N, K]: what the chosen skill rates its choices by."""
        carried = self._parts(carry)
        chosen, _ = self.choice.greedy_action(obs, carried.gate)
        rated = []
        for skill, memory in zip(self.members, carried.skills, strict=True):
            assert isinstance(skill.policy, Choosing)
            rated.append(skill.policy.ratings(skill.view(obs, carried.draws), memory))
        return _picked(rated, chosen.clamp_min(0))

    def _here(self, obs: Obs) -> Obs:
        return {name: values.to(self.action_low.device) for name, values in obs.items()}

    def _acted(
        self, obs: Obs, chosen: Tensor, carried: Carried, greedy: bool, rng: torch.Generator | None
    ) -> tuple[Tensor, Carry]:
        def run(
            skill: Skill, obs: Obs, memory: Carry, draws: Tensor | None, offset: Tensor | None
        ) -> tuple[Tensor, Carry]:
            return skill.act(obs, memory, draws, offset, greedy=greedy, rng=rng)

        action, carry = self._mixed(obs, chosen, carried, rng, run)
        return action if self.discrete else torch.clamp(action, self.action_low, self.action_high), carry

    def _mixed(
        self,
        obs: Obs,
        chosen: Tensor,
        carried: Carried,
        rng: torch.Generator | None,
        run: Callable[[Skill, Obs, Carry, Tensor | None, Tensor | None], tuple[Tensor, Carry]],
    ) -> tuple[Tensor, Carry]:
        """One step of all skills, and what comes of it."""
        one_hot = (chosen.unsqueeze(-1) == torch.arange(self.count, device=chosen.device)).float()
        before, draws = carried.history, carried.draws
        history = None if before is None else torch.cat([one_hot.unsqueeze(1), before[:, :-1]], dim=1)
        weights = one_hot if history is None else selection_weights(history)
        came = one_hot > 0 if before is None else (one_hot > 0) & (before[:, 0] == 0)
        if draws is not None and before is not None:
            draws = self._drawn(draws, came, before.sum((1, 2)) == 0, rng)
        offsets = {} if carried.offsets is None else dict(zip(self.shifted, carried.offsets.unbind(1), strict=True))
        actions: list[Tensor] = []
        memories: list[Carry] = []
        for number, skill in enumerate(self.members):
            memory = carried.skills[number]
            if memory and skill.reset_memory == "when_selected":
                memory = restarted(memory, skill.policy, came[:, number])
            action, memory = run(skill, obs, memory, draws, offsets.get(number))
            if memory and skill.reset_memory == "all":
                memory = restarted(memory, skill.policy, weights[:, number] == 0)
            actions.append(action)
            memories.append(memory)
        action = _picked(actions, chosen) if self.discrete else _weighted(actions, weights)
        added = [self.members[number].offset(obs) for number in self.shifted]
        shifts = torch.stack(added, dim=1) if added else None
        return action, Carried(tuple(memories), carried.gate, history, draws, shifts).flat()

    def _drawn(self, draws: Tensor, came: Tensor, begun: Tensor, rng: torch.Generator | None) -> Tensor:
        """Draws [N, D] with new ones where an episode begins, or where a skill that wants new ones is selected."""
        due = begun.unsqueeze(-1) | (self.draw_again & came[:, self.draw_owner])
        if rng is None:
            share = torch.full_like(draws, 0.5)
        else:
            share = torch.rand(draws.shape, generator=rng, device=rng.device).to(draws.device)
        return torch.where(due, self.draw_low + (self.draw_high - self.draw_low) * share, draws)

    def _parts(self, carry: Carry) -> Carried:
        rest = list(carry)
        skills = []
        for skill in self.members:
            skills.append(tuple(rest[: skill.start]))
            rest = rest[skill.start :]
        gate = tuple(rest[: self.choice.parts])
        rest = rest[self.choice.parts :]
        history = rest.pop(0) if self.remembers else None
        draws = rest.pop(0) if len(self.draw_low) else None
        return Carried(tuple(skills), gate, history, draws, rest.pop(0) if self.shifted else None)


def selection_weights(history: Tensor) -> Tensor:
    """Shares [N, K] of the last choices [N, L, K], of those that were made."""
    counts = history.sum(1)
    return counts / counts.sum(-1, keepdim=True)


def _weighted(actions: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Σ_k w_k·a_k [N, A]; what a skill without weight says does not matter, whatever it is."""
    total = torch.zeros_like(actions[0])
    for number, action in enumerate(actions):
        weight = weights[:, number].unsqueeze(-1)
        total = total + torch.where(weight > 0, weight * action, torch.zeros_like(action))
    return total


def _picked(parts: Sequence[Tensor], chosen: Tensor) -> Tensor:
    """Of each row that of the chosen skill [N, …]."""
    found = parts[0]
    for number, part in enumerate(parts[1:], 1):
        found = torch.where((chosen == number).view(-1, *[1] * (part.dim() - 1)), part, found)
    return found


def shape_of(policy: Deployed) -> PolicyShape:
    """How a policy is rebuilt."""
    return PolicyShape(kind=policy.kind, spec=policy.spec.to_json(), settings=policy.settings.model_dump(mode="json"))


def _blank(shape: PolicyShape, rng: torch.Generator, where: str) -> Deployed:
    return blank_single(shape.kind, Spec.from_json(f"{where}.spec", shape.spec), shape.settings, rng, where)

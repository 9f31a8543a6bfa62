"""What a policy guesses of what it cannot measure: named segments, predicted from named inputs, inside the policy.

    ŝ = head(perception(o)),  in the units of the target:  μ + σ·(what the head says)

An estimator sees its own inputs through normalisers, encoders and a memory of its own, or it is a head on the actor's
memory (`share_memory`). A target that the actor sees, by itself or as columns of something larger, is `replaced`: where
the policy acts for itself the estimate always stands in its place, and the true value is not read at all. While it
learns, a row is shown the estimate with some probability and the true value otherwise; which it was, and what was
shown, is stored beside the action (`ESTIMATED`, and the groups as they were shown), so that whoever evaluates the
action sees the very same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, Self, final

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.protocols import Carry
from understudy.core.settings import Widths
from understudy.core.spec import Spec
from understudy.nn.activations import Activation
from understudy.nn.mlp import MLP
from understudy.nn.normalization import Normalizer, OnPolicyNormalizerSettings
from understudy.nn.perception import Perception, RoleSettings
from understudy.nn.segments import Input, find_inputs

ESTIMATED = "<estimated>"
"""Beside observations: which rows [...] are shown estimates. They then hold what is shown, and nobody guesses again."""


class EstimateSettings(RoleSettings):
    """What is estimated, from what, and by which network."""

    targets: tuple[str, ...] = Field(min_length=1)
    """Groups, or `group.segment`, that are predicted, in this order; the actor need not see them."""
    replace: tuple[str, ...] | None = None
    """Targets in whose place the actor is shown the estimate; null is every target that the actor sees."""
    step: Literal["this", "next"] = "this"
    """Of which step: `this`, or the `next`, which is the true successor and never another episode's. What is of the
    next replaces nothing."""
    share_memory: bool = False
    """The head reads the actor's memory, and has no inputs of its own; then it replaces nothing."""
    normalize_targets: bool = True
    """The head predicts targets in units of their deviation from their mean so far; estimates have the target's own."""
    sees: tuple[str, ...] = ()
    """Groups, or `group.segment`; nothing said is what the actor sees but for columns of targets."""
    hidden: Widths = (128, 64)
    """Units of each hidden layer; none is a linear map."""
    activation: Activation = "elu"
    """Between layers: `elu`, `relu`, `tanh`, `gelu`, `silu`, `leaky_relu` or `selu`."""
    output_gain: float = Field(1.0, gt=0)
    """Of the last layer where layers start orthogonal."""
    normalizer: OnPolicyNormalizerSettings = OnPolicyNormalizerSettings()
    """How."""

    @model_validator(mode="after")
    def _one_answer(self) -> Self:
        if self.dropout:
            raise ValueError("an estimate is the same whenever it is asked for: dropout is 0")
        if self.step == "next" and self.replace:
            raise ValueError("what is of the next step cannot replace an input of this one: leave replace out")
        if self.share_memory and self.replace:
            raise ValueError("what reads the actor's memory cannot replace what goes into it: leave replace out")
        if self.share_memory and (self.sees or self.hide or self.encoders or self.memory.kind != "none"):
            raise ValueError("with share_memory it sees the actor's memory: leave out sees, hide, encoders and memory")
        return self


@final
@dataclass
class Probability:
    """That a row is shown estimates while the policy learns []; whoever schedules it holds the same tensor."""

    value: Tensor

    def draw(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        """Rows that are. Where it is certain nothing is drawn."""
        likely = float(self.value)
        if 0.0 < likely < 1.0:
            return torch.rand(shape, generator=rng) < likely
        return torch.full(shape, likely > 0.0)


class Estimator(nn.Module):
    """Beside an actor of this perception: observations → estimates [..., size] of all targets, side by side."""

    perception: Perception | None

    def __init__(
        self, spec: Spec, settings: EstimateSettings, actor: Perception, rng: torch.Generator, where: str
    ) -> None:
        super().__init__()
        self.settings = settings
        self.targets = _targets(spec, settings, f"{where}.targets")
        ends = list(accumulate(target.size for target in self.targets))
        self.size = ends[-1]
        self.places = {one.name: slice(end - one.size, end) for one, end in zip(self.targets, ends, strict=True)}
        """Where each target lies among all."""
        self.replaced = _replaced(settings, self.targets, actor.inputs, f"{where}.replace")
        """Targets in whose place the actor is shown estimates."""
        self.covered = tuple(entry for entry in actor.inputs if not _left(entry, self.replaced))
        """Inputs of the actor of which nothing else is left."""
        read = {entry.group for entry in actor.inputs if entry not in self.covered}
        self.widths = {entry.group: spec.observation[entry.group].size for entry in self.covered}
        self.widths = {name: width for name, width in self.widths.items() if name not in read}
        """Columns of groups that need not be there."""
        self.perception = None
        if settings.share_memory:
            _check_memory(actor, where)
        else:
            self.perception = Perception(spec, _own_inputs(settings, self.targets, actor, where), rng, where)
        seen = actor.inputs if self.perception is None else self.perception.inputs
        if settings.step == "this":
            _check_blind(seen, self.targets, f"{where}.{'targets' if settings.share_memory else 'sees'}")
        self.head = MLP((self.perception or actor).size, self.size, settings, rng)
        limits = settings.normalizer.model_copy(update={"clip": None})
        self.normalizer = Normalizer((self.size,), limits)
        self.probability = Probability(torch.ones((), dtype=torch.float64, device="cpu"))
        self.learns_with_policy = False
        """Its parameters are among those of the policy's optimiser."""
        self.learns_alone = False
        """They have an optimiser of their own."""

    @property
    def idle(self) -> bool:
        """A policy acts as it would without it: it replaces nothing, and remembers nothing."""
        return not self.replaced and (self.perception is None or self.perception.memory is None)

    def initial(self, count: int) -> Carry:
        return () if self.perception is None else self.perception.initial(count)

    def random_carry(self, count: int, rng: torch.Generator) -> Carry:
        """A memory that might have been."""
        return () if self.perception is None else self.perception.random_carry(count, rng)

    def true(self, obs: Mapping[str, Tensor]) -> Tensor:
        """The targets themselves [..., size]."""
        return torch.cat([target.of({target.group: obs[target.group]}).float() for target in self.targets], dim=-1)

    def forward(self, seen: Tensor) -> Tensor:
        """Estimates [..., size] from what its perception, or the actor's memory, gave."""
        return self.normalizer.inverse(self.head(seen))

    def look(self, obs: Obs, carry: Carry, resets: Tensor | None) -> Tensor:
        """What its perception makes of rows [..., …], or of sequences [T, N, …] where it remembers."""
        if self.perception is None:
            raise ValueError("this estimator reads the actor's memory: give `forward` what that says")
        return self.perception.sequence(obs, carry, resets)

    def step(self, obs: Obs, carry: Carry, mask: Tensor | None = None) -> tuple[Obs, Carry]:
        """Groups as an actor is shown them at one step [N, …], of rows in the `mask` [N] or of all, and the carry."""
        if self.perception is None or self.idle:
            return {}, carry
        seen, carry = self.perception.step(obs, carry)
        return (self.shown(obs, self(seen), mask) if self.replaced else {}), carry

    def shown(self, obs: Obs, estimate: Tensor, mask: Tensor | None = None) -> Obs:
        """Groups with estimates [..., size] in their places, where the `mask` [...] says so, and the mask; all others
        of `obs` are as they were. Without a mask true values are not read."""
        groups: Obs = {} if mask is None else {ESTIMATED: mask}
        for entry in self.replaced:
            guessed = estimate[..., self.places[entry.name]]
            if mask is not None:
                guessed = torch.where(mask.unsqueeze(-1), guessed, entry.of(obs).float())
            whole = groups.get(entry.group, obs.get(entry.group))
            if whole is None and entry.group in self.widths:
                whole = estimate.new_zeros(*estimate.shape[:-1], self.widths[entry.group])
            if whole is not None:  # whoever reads something else of a group that is missing will tell
                groups[entry.group] = _put(whole, guessed, entry)
        return groups

    @torch.no_grad()
    def observe(self, obs: Obs, valid: Tensor | None = None) -> None:
        """Take observations and targets into the statistics. Once, after learning."""
        if self.perception is not None:
            self.perception.observe(obs, valid)
        if self.settings.normalize_targets:
            self.normalizer.update(self.true(obs), valid)


def _put(whole: Tensor, part: Tensor, entry: Input) -> Tensor:
    """A group [..., columns] with this in the place of one of its segments."""
    start, stop = entry.columns or (0, whole.shape[-1])
    pieces = [whole[..., :start], part, whole[..., stop:]]
    return torch.cat([piece for piece in pieces if piece.shape[-1]], dim=-1)


def _targets(spec: Spec, settings: EstimateSettings, where: str) -> tuple[Input, ...]:
    targets = find_inputs(settings.targets, spec, where)
    for target in targets:
        if len(target.shape) != 1:
            raise ConfigError(where, f"'{target.name}' is no vector", got=list(target.shape), expected="[columns]")
    return targets


def _replaced(
    settings: EstimateSettings, targets: tuple[Input, ...], seen: tuple[Input, ...], where: str
) -> tuple[Input, ...]:
    """Targets of which the actor sees any column, or those that were named."""
    if settings.step == "next" or settings.share_memory:
        return ()
    shared = {target.name for target in targets if any(_common(entry, target) for entry in seen)}
    for name in settings.replace or ():
        if name not in settings.targets:
            raise ConfigError(where, f"'{name}' is not estimated", do=did_you_mean(name, settings.targets))
        if name not in shared:
            raise ConfigError(
                where,
                f"the actor does not see '{name}'",
                got=[entry.name for entry in seen],
                do="Name it among algo.actor.sees, or leave it out here: then it is only estimated.",
            )
    wanted = shared if settings.replace is None else shared & set(settings.replace)
    return tuple(target for target in targets if target.name in wanted)


def _own_inputs(
    settings: EstimateSettings, targets: tuple[Input, ...], actor: Perception, where: str
) -> EstimateSettings:
    """With what it sees written out, where nothing was said: what is left of the actor's inputs."""
    if settings.sees:
        return settings
    hidden = {name: set(numbers) for name, numbers in (settings.hide or actor.settings.hide).items()}
    if settings.step == "this":
        for target in targets:
            hidden[target.group] = hidden.get(target.group, set()) | _columns(target)
    left = tuple(entry.name for entry in actor.inputs if settings.step == "next" or _left(entry, targets))
    if not left:
        raise ConfigError(f"{where}.sees", "the actor sees nothing but what is estimated", do="Say what it sees.")
    return settings.model_copy(
        update={"sees": left, "hide": {name: tuple(sorted(numbers)) for name, numbers in hidden.items()}}
    )


def _check_blind(seen: tuple[Input, ...], targets: tuple[Input, ...], where: str) -> None:
    """What is shown to somebody need not be guessed by him."""
    for entry in seen:
        for target in targets:
            if _common(entry, target):
                raise ConfigError(
                    where,
                    f"it sees what it is to estimate ('{entry.name}' has columns of '{target.name}')",
                    do="Name segments without it, or estimate the next step.",
                )


def _columns(entry: Input) -> set[int]:
    """Of its group, where that is a vector."""
    start, stop = entry.columns or (0, entry.shape[0])
    return set(range(start, stop)) if entry.visible is None else {start + number for number in entry.visible}


def _common(entry: Input, target: Input) -> set[int]:
    """Columns that belong to both."""
    return _columns(entry) & _columns(target) if entry.group == target.group else set()


def _left(entry: Input, targets: tuple[Input, ...]) -> set[int]:
    """Columns, or rows of an image, that belong to none of these."""
    return _columns(entry).difference(*(_common(entry, target) for target in targets))


def _check_memory(actor: Perception, where: str) -> None:
    if actor.memory is None:
        raise ConfigError(
            f"{where}.share_memory", "the actor has no memory", do="Say algo.actor.memory.kind=gru, or leave it out."
        )

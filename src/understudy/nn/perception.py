"""What one role makes of observations: its inputs, normalised, encoded, joined and remembered."""

from collections.abc import Mapping
from typing import ClassVar, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from understudy.core.batch import Obs, following_rows
from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.protocols import Carry, Moments
from understudy.core.spec import Spec
from understudy.nn.encoders import ConvEncoder, EncoderSettings, make_encoder
from understudy.nn.memory import Memory, MemorySettings, Pieces
from understudy.nn.mlp import NetworkSettings
from understudy.nn.normalization import Normalizer, NormalizerSettings
from understudy.nn.segments import Input, find_inputs


class RoleSettings(NetworkSettings):
    """What a network sees, and its shape."""

    FORMER: ClassVar = {"trunk": "hidden"}

    sees: tuple[str, ...] = ()
    """Groups, or `group.segment`; nothing said is every group. A critic may see more than an actor."""
    hide: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Columns of vector groups that are left out of what it sees, by number; `data.hide_columns` hides from all."""
    normalize: bool = True
    """Vectors are normalised by the statistics of the data, or of what has been seen so far; images never are."""
    normalizer: NormalizerSettings = NormalizerSettings()
    """How."""
    encoders: dict[str, EncoderSettings] = Field(default_factory=dict)
    """An encoder for an input, by the input's name; inputs without one go on as they are."""
    memory: MemorySettings = MemorySettings()
    """Between the encoders and the trunk."""


class Perception(nn.Module):
    """Observation groups {name: [..., …]} → [..., size].

    `lent` is another role's: inputs that both see and encode alike then have one encoder and one normaliser. Where the
    loan is `detached`, only its owner trains it.
    """

    def __init__(
        self,
        spec: Spec,
        settings: RoleSettings,
        rng: torch.Generator,
        where: str,
        lent: "Perception | None" = None,
        *,
        detached: bool = False,
    ) -> None:
        super().__init__()
        self.inputs = find_inputs(settings.sees, spec, f"{where}.sees", settings.hide)
        if not self.inputs:
            raise ConfigError(f"{where}.hide", "nothing is left to see")
        self.keys = {entry.name: _key(entry) for entry in self.inputs}
        self.segments = spec.segments
        self.settings = settings
        self.normalizers, self.encoders = nn.ModuleDict(), nn.ModuleDict()
        self.borrowed: set[str] = set()
        self.detached = detached
        _check_encoders(self.inputs, settings, where)
        for entry in self.inputs:
            if lent is not None and lent.encodes(entry, settings):
                self._borrow(entry, lent)
            else:
                self._build(entry, settings, rng, where)
        joined = sum(self._width(entry) for entry in self.inputs)
        self.memory = None if settings.memory.kind == "none" else Memory(joined, settings.memory, rng)
        self.size = joined if self.memory is None else self.memory.size

    def _build(self, entry: Input, settings: RoleSettings, rng: torch.Generator, where: str) -> None:
        if settings.normalize and not entry.image and not _conv(entry, settings):
            self.normalizers[_key(entry)] = Normalizer(entry.shape, settings.normalizer)
        if entry.name in settings.encoders:
            place = f"{where}.encoders.{entry.name}"
            self.encoders[_key(entry)] = make_encoder(entry.shape, settings.encoders[entry.name], rng, place)

    def _borrow(self, entry: Input, lent: "Perception") -> None:
        self.borrowed.add(entry.name)
        for mine, theirs in ((self.normalizers, lent.normalizers), (self.encoders, lent.encoders)):
            if _key(entry) in theirs:
                mine[_key(entry)] = theirs[_key(entry)]

    def encodes(self, entry: Input, settings: RoleSettings) -> bool:
        """It has an encoder for this input, and of the very shape that these settings ask for."""
        mine = self.settings
        wanted = settings.encoders.get(entry.name)
        alike = (mine.normalize, mine.normalizer) == (settings.normalize, settings.normalizer)
        return entry in self.inputs and wanted is not None and mine.encoders.get(entry.name) == wanted and alike

    @property
    def fixed(self) -> bool:
        """Without parameters or memory: what it makes of an observation stays the same until `observe`."""
        return self.memory is None and not self.encoders

    def sees_like(self, settings: RoleSettings) -> bool:
        """Another role with these settings would make the very same of every observation, for good."""
        mine = self.settings
        alike = (mine.sees, mine.hide, mine.normalize, mine.normalizer) == (
            settings.sees,
            settings.hide,
            settings.normalize,
            settings.normalizer,
        )
        return alike and self.fixed and not settings.encoders and settings.memory.kind == "none"

    @torch.no_grad()
    def fit(self, moments: Mapping[str, Moments], count: int) -> None:
        """Statistics of a dataset of so many rows for every normaliser of its own, by group; an outline has none."""
        for entry, normalizer in self.normalised():
            if entry.group in moments and entry.name not in self.borrowed and not normalizer.mean.is_meta:
                known = moments[entry.group]
                mean, std = (entry.of({entry.group: part.unsqueeze(0)}).squeeze(0) for part in (known.mean, known.std))
                normalizer.fit(Moments(mean, std), count)

    def normalizer_of(self, entry: Input) -> Normalizer:
        normalizer = self.normalizers[_key(entry)]
        assert isinstance(normalizer, Normalizer)
        return normalizer

    def normalised(self) -> list[tuple[Input, Normalizer]]:
        """Inputs that have a normaliser, with it."""
        return [(entry, self.normalizer_of(entry)) for entry in self.inputs if _key(entry) in self.normalizers]

    def _width(self, entry: Input) -> int:
        return self.settings.encoders[entry.name].size if entry.name in self.settings.encoders else entry.size

    def initial(self, count: int) -> Carry:
        return () if self.memory is None else self.memory.initial(count)

    def random_carry(self, count: int, rng: torch.Generator) -> Carry:
        """A memory that might have been."""
        return () if self.memory is None else self.memory.random_carry(count, rng)

    @property
    def carried(self) -> int:
        """Tensors of its carry; a policy's may hold more behind them."""
        return 0 if self.memory is None else self.memory.parts

    def look(self, obs: Obs) -> Tensor:
        """Without memory [..., joined]."""
        parts = [self._see(entry, obs) for entry in self.inputs]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def latents(self, obs: Obs) -> dict[str, Tensor]:
        """What each encoder makes of its input [..., size], by the input's name."""
        return {entry.name: self._see(entry, obs) for entry in self.inputs if self.keys[entry.name] in self.encoders}

    def _see(self, entry: Input, obs: Obs) -> Tensor:
        values, key = entry.of(obs), self.keys[entry.name]
        itself = key in self.encoders and key not in self.normalizers  # an encoder knows how, piece by piece
        if values.dtype == torch.float16 and not itself:  # as it was stored
            values = values.float()
        leading = values.shape[: values.dim() - len(entry.shape)]
        if key in self.normalizers:
            values = self.normalizers[key](values)
        if key in self.encoders:
            values = self.encoders[key](values.reshape(-1, *entry.shape))
            values = values.detach() if self.detached and entry.name in self.borrowed else values
        values = values.float()
        return values if values.dim() == len(leading) + 1 else values.reshape(*leading, -1)

    def step(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        """One step of N environments [N, size], and what is remembered after it."""
        joined = self.look(obs)
        return (joined, carry) if self.memory is None else self.memory.step(joined, carry)

    def sequence(self, obs: Obs, carry: Carry = (), resets: Tensor | None = None) -> Tensor:
        """[T, N, size] of steps in order, the carry zero where `resets` [T, N]; without memory any rows [..., size]."""
        joined = self.look(obs)
        return joined if self.memory is None else self.memory.sequence(joined, carry[: self.carried], _given(resets))

    def around(self, obs: Obs, next_obs: Mapping[str, Tensor], carry: Carry, resets: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [T·N + pieces, size] of each step and of what followed each piece; [T·N] which of them follows a step.

        The successor of a step is the next row, except where the carry is reset or the rollout ends: there `next_obs`
        is looked at, with what was remembered until then. Nobody's memory is advanced by that.
        """
        pieces = Pieces.cut(resets)
        beyond = {entry.group: following_rows(next_obs, entry.group, pieces.last) for entry in self.inputs}
        rows = torch.cat([self.look(obs).flatten(0, 1), self.look(beyond)])
        seen = rows if self.memory is None else self.memory.run(rows, pieces, carry, resets)
        return seen, pieces.successors()

    def after(self, obs: Obs, carry: Carry, resets: Tensor) -> Carry:
        """What is remembered after the last of [T, N] steps."""
        return carry if self.memory is None else self.memory.after(self.look(obs), carry, resets)

    @torch.no_grad()
    def observe(self, obs: Obs, valid: Tensor | None = None) -> None:
        """Take observations [..., …] into the statistics, except where `valid` [...] is False. Once, after learning."""
        for entry in self.inputs:
            if _key(entry) in self.normalizers and entry.name not in self.borrowed:
                self.normalizer_of(entry).update(entry.of(obs), valid)
            encoder = self.encoders[_key(entry)] if entry.name in self.settings.encoders else None
            if isinstance(encoder, ConvEncoder) and entry.name not in self.borrowed:
                rows = entry.of(obs).reshape(-1, *entry.shape)
                encoder.observe(rows, None if valid is None else valid.reshape(-1))


def share_perception(
    known: list[Perception],
    spec: Spec,
    settings: RoleSettings,
    rng: torch.Generator,
    where: str,
    lent: Perception | None = None,
) -> Perception:
    """One of those that are `known`, if it sees alike and has nothing to learn; otherwise a new one, known from now on.
    It borrows encoders that are `lent`, and leaves their training to their owner."""
    for one in known:
        if one.sees_like(settings):
            return one
    perception = Perception(spec, settings, rng, where, lent, detached=lent is not None)
    if perception.fixed:
        known.append(perception)
    return perception


def check_borrows(perception: Perception, where: str) -> None:
    """Whoever asked that encoders be shared has some to share; `where` is the critic's place."""
    if not perception.borrowed:
        raise ConfigError(
            f"{where}.share_encoder",
            "there is nothing to share: actor and critic have no encoder of the same input and settings",
            do="Give both the same `encoders` (and `normalizer`), or leave it out.",
        )


class Seen:
    """What networks make of one batch's observations. Those that share a perception which has nothing to learn share
    what it gave; the others look for themselves, whenever they are asked, with gradient."""

    def __init__(self, obs: Obs) -> None:
        self.obs = obs
        self._known: list[tuple[Perception, Tensor]] = []

    def by(self, network: "Perceiving") -> Tensor:
        """[B, size]."""
        perception = network.perception
        if not perception.fixed:
            return perception.look(self.obs)
        for known, state in self._known:
            if known is perception:
                return state
        state = perception.look(self.obs)
        self._known.append((perception, state))
        return state


class Perceiving(Protocol):
    """A network with a perception."""

    @property
    def perception(self) -> Perception: ...


def trained_parameters(network: nn.Module) -> list[nn.Parameter]:
    """All parameters of a network but those it borrowed and does not train."""
    foreign: set[int] = set()
    for part in network.modules():
        if isinstance(part, Perception) and part.detached:
            borrowed = [part.encoders[part.keys[name]] for name in part.borrowed]
            foreign |= {id(parameter) for encoder in borrowed for parameter in encoder.parameters()}
    return [parameter for parameter in network.parameters() if id(parameter) not in foreign]


def _key(entry: Input) -> str:
    """A name that cannot be a module's own, and has no dot."""
    return "of_" + entry.name.replace(".", "/")


def _conv(entry: Input, settings: RoleSettings) -> bool:
    return entry.name in settings.encoders and settings.encoders[entry.name].kind == "conv"


def _check_encoders(inputs: tuple[Input, ...], settings: RoleSettings, where: str) -> None:
    names = [entry.name for entry in inputs]
    for name in settings.encoders:
        if name not in names:
            raise ConfigError(f"{where}.encoders.{name}", "the role does not see this", do=did_you_mean(name, names))
    for entry in inputs:
        if entry.image and entry.name not in settings.encoders:
            raise ConfigError(
                f"{where}.sees",
                f"'{entry.name}' is an image without an encoder",
                got=list(entry.shape),
                do=f"Say {where}.encoders={{{entry.name}: {{kind: conv}}}}, for each role, or leave it out of `sees`.",
            )


def _given(resets: Tensor | None) -> Tensor:
    if resets is None:
        raise ValueError("a network with memory reads sequences [T, N]: say where they start anew (resets)")
    return resets

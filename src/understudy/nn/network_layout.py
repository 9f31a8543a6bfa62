"""What lies where in a network's tensors, layer by layer: for those who compare networks of different shapes.

A multilayer perceptron keeps all its layers in one flat tensor, and a memory its gates in one matrix. Two networks that
differ in one layer differ in the whole of these; unfolded they have most layers in common.

Places along an axis have names where they mean something: a column of an observation, a unit of a memory, what a
distribution reads of a trunk. Those of hidden units are theirs alone.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, NamedTuple, Self

from pydantic import Field
from torch import Tensor, nn

from understudy.core.facts import Facts, Whole
from understudy.nn.actor import Actor
from understudy.nn.critic import ActionValues, QEnsemble
from understudy.nn.distributions import Distribution
from understudy.nn.distributions.beta import Beta
from understudy.nn.distributions.categorical import MultiCategorical
from understudy.nn.distributions.gaussians import (
    Deterministic,
    Gaussian,
    StateGaussian,
    TanhGaussian,
    TanhMeanGaussian,
)
from understudy.nn.encoders import ConvEncoder, VectorEncoder
from understudy.nn.memory import Memory
from understudy.nn.mlp import MLP
from understudy.nn.own_encoder import OwnEncoderSettings
from understudy.nn.perception import Perception
from understudy.nn.plain_mlp import Layout
from understudy.nn.segments import Input
from understudy.nn.value_network import ValueNetwork

FLAT = ".flat"
REST = "the action"
"""What a network reads beside its inputs: a critic's actions. A group of observations may be called `action`."""
Ends = Annotated[list[Whole], Field(min_length=2, max_length=2)]
STATISTICS = ("mean", "variance", "shift", "scale")
"""Of a normaliser, one of each column."""


class Columns(Facts):
    """Some numbers of one thing: of a group, of what an encoder makes of an input, of a memory, of a distribution."""

    of: str
    numbers: list[Whole]
    """None where all are of the thing in their order, however many: an image may have a million."""


class Reading(Facts):
    """What stands along one axis of a tensor."""

    axis: Whole
    """From the last: −1 of a vector, and of a memory's [gates, units, inputs]; −2 of a layer's [inputs, units]."""
    columns: list[Columns]

    def labels(self) -> list[tuple[str, int]]:
        """Of each place along the axis."""
        return [(part.of, number) for part in self.columns for number in part.numbers]

    def told(self) -> str:
        return " and ".join(dict.fromkeys(part.of for part in self.columns))


class NetworkLayout(Facts):
    """Of one network; plain enough to be written into a checkpoint."""

    widths: dict[str, list[Whole]] = Field(default_factory=dict)
    """Of each flat tensor: units from its input to its output."""
    members: dict[str, Whole] = Field(default_factory=dict)
    """Of flat tensors that are stacks of networks: how many."""
    gates: dict[str, Whole] = Field(default_factory=dict)
    """Of each memory's cells."""
    reads: dict[str, Reading] = Field(default_factory=dict)
    """Unfolded tensors that have a place for each number of what is seen: who reads it first, and normalisers."""
    says: dict[str, Reading] = Field(default_factory=dict)
    """Unfolded tensors that have a place for each number of what a network says: its last layer's."""
    segments: dict[str, dict[str, Ends]] = Field(default_factory=dict)
    """What columns of groups are called: from the first of them to the one behind the last."""
    manners: dict[str, str] = Field(default_factory=dict)
    """What stands in no tensor: how layers and encoders compute."""
    complete: bool = False
    """What is not told of `reads` and `says` is of hidden units. Checkpoints of former versions do not tell all."""

    @classmethod
    def of(cls, network: object) -> Self:
        """Of a live network; nothing of a lone tensor."""
        if not isinstance(network, nn.Module):
            return cls()
        parts = dict(network.named_modules())
        flats = {path + FLAT: part for path, part in parts.items() if isinstance(part, MLP)}
        cells = {f"{path}.cells": part for path, part in parts.items() if isinstance(part, Memory)}
        eyes = [part for part in parts.values() if isinstance(part, Perception)]
        segments = {group: named for one in eyes for group, named in one.segments.items()}
        reads: dict[str, Reading] = {}
        says: dict[str, Reading] = {}
        for path, part in parts.items():
            for seer in _seers(part):
                reads |= {_join(path, name): reading for name, reading in seer.reads()}
                says |= {_join(path, name): reading for name, reading in seer.says()}
        return cls(
            widths={path: _widths(part) for path, part in flats.items()},
            members={path: part.members for path, part in flats.items() if part.members is not None},
            gates={path: _gates(part) for path, part in cells.items()},
            reads=reads,
            says=says,
            segments={group: {name: list(ends) for name, ends in named.items()} for group, named in segments.items()},
            manners={path: manner for path, part in parts.items() if (manner := _manner(part))},
            complete=True,
        )

    def column_there(self, other: Self, group: str, number: int) -> int | None:
        """Where the column of a group lies in a network of this other layout: by the narrowest segment that both name,
        else by its number; nowhere if that is another's there."""
        mine, theirs = self.segments.get(group, {}), other.segments.get(group, {})
        both = mine.keys() & theirs.keys()
        name = _narrowest(mine, both, number)
        place = number if name is None else theirs[name][0] + number - mine[name][0]
        return place if _narrowest(theirs, both, place) == name else None

    def places_there(self, one: Reading, other: Reading, there: Self) -> list[int | None]:
        """For each place of an axis here the one of an axis there that means the same, or None."""
        known = {label: place for place, label in enumerate(other.labels())}
        columns = ((of, self.column_there(there, of, number)) for of, number in one.labels())
        return [None if column is None else known.get((of, column)) for of, column in columns]

    def alike(self, one: Reading, other: Reading, there: Self) -> bool:
        """Every place here means what the same place means there."""
        if not (labels := other.labels()):
            return one.columns == other.columns
        return self.places_there(one, other, there) == list(range(len(labels)))

    def differences(self, there: Self) -> list[str]:
        """What the same tensors of both would not mean alike, in words; of what the other does not tell nothing."""
        return [*self.other_manners(there), *self._other_columns(there)]

    def other_manners(self, there: Self) -> list[str]:
        """Parts of both that compute otherwise."""
        both = sorted(self.manners.keys() & there.manners.keys())
        pairs = [(path, self.manners[path], there.manners[path]) for path in both]
        return [f"{path} computes {mine}, there {theirs}" for path, mine, theirs in pairs if mine != theirs]

    def _other_columns(self, there: Self) -> Iterator[str]:
        for verb, mine, theirs in (("reads", self.reads, there.reads), ("gives", self.says, there.says)):
            for path in sorted(mine.keys() & theirs.keys()):
                if not self.alike(mine[path], theirs[path], there):
                    told = mine[path].told(), theirs[path].told()
                    yield f"{path} {verb} {told[0]}, there {told[1] if len({*told}) > 1 else 'in other places'}"

    def unfold(self, state: Mapping[str, object]) -> dict[str, Tensor]:
        """The tensors of a state by layer and gate, as views; what is not of the shape that is told stays whole."""
        return {
            name: view
            for path, leaf in state.items()
            if isinstance(leaf, Tensor)
            for name, view in self._views(path, leaf)
        }

    def _views(self, path: str, leaf: Tensor) -> Iterator[tuple[str, Tensor]]:
        if path in self.widths:
            layout = Layout(self.widths[path], self.members.get(path))
            if layout.size == leaf.numel():
                for number, layer in enumerate(layout.layers(leaf)):
                    yield f"{path.removesuffix(FLAT)}.{number}.weight", layer.weight
                    yield f"{path.removesuffix(FLAT)}.{number}.bias", layer.bias
                return
        owner, _, name = path.rpartition(".")
        gates = self.gates.get(owner, 0)
        if gates > 0 and leaf.dim() and leaf.shape[0] % gates == 0:
            yield f"{owner}.{_kind(gates)}.{name}", leaf.view(gates, -1, *leaf.shape[1:])
        else:
            yield path, leaf


def _narrowest(segments: Mapping[str, list[int]], names: Collection[str], number: int) -> str | None:
    """Which of these segments the column is of."""
    found = [(stop - start, name) for name in names for start, stop in [segments[name]] if start <= number < stop]
    return min(found)[1] if found else None


class _Seer(NamedTuple):
    """A network of a perception and layers behind it, by the names they have in it."""

    perception: tuple[str, Perception]
    trunk: tuple[str, MLP]
    said: list[Columns]
    """By its last layer; nothing where nobody knows."""
    statistics: str = ""
    """A normaliser of what it says."""

    def reads(self) -> Iterator[tuple[str, Reading]]:
        (place, perception), (trunk, layers) = self.perception, self.trunk
        for entry in perception.inputs:
            yield from _eye(f"{place}.", entry, perception)
        columns = [_joined(entry, perception) for entry in perception.inputs]
        if (memory := perception.memory) is not None:
            kind = _kind(_gates(memory))
            yield f"{place}.memory.cells.{kind}.weight_ih_l0", Reading(axis=-1, columns=columns)
            last = f"{kind} memory, layer {memory.cells.num_layers - 1}"
            columns = [Columns(of=last, numbers=list(range(memory.size)))]
        rest = _widths(layers)[0] - sum(len(part.numbers) for part in columns)
        actions = [Columns(of=REST, numbers=list(range(rest)))] if rest else []
        yield f"{trunk}.0.weight", Reading(axis=-2, columns=[*columns, *actions])
        for name in STATISTICS if self.statistics else ():
            yield f"{self.statistics}.{name}", Reading(axis=-1, columns=self.said)

    def says(self) -> Iterator[tuple[str, Reading]]:
        trunk, layers = self.trunk
        last = len(_widths(layers)) - 2
        for name in ("weight", "bias") if self.said else ():
            yield f"{trunk}.{last}.{name}", Reading(axis=-1, columns=self.said)


def _seers(part: nn.Module) -> Iterator[_Seer]:
    """What a module itself sees and says, not a module inside it; but an estimator is where its actor is."""
    inner = dict(part.named_children())
    perception, trunk = inner.get("perception"), inner.get("trunk")
    if isinstance(perception, Perception) and isinstance(trunk, MLP):
        yield _Seer(("perception", perception), ("trunk", trunk), _said(part))
    if isinstance(part, Actor) and (estimator := part.estimator) is not None:
        own = estimator.perception
        eyes = ("perception", part.perception) if own is None else ("estimator.perception", own)
        targets = [_columns(target) for target in estimator.targets]
        yield _Seer(eyes, ("estimator.head", estimator.head), targets, "estimator.normalizer")


def _eye(place: str, entry: Input, perception: Perception) -> Iterator[tuple[str, Reading]]:
    """Of the normaliser and the encoder of an input."""
    key, seen = perception.keys[entry.name], [_columns(entry)]
    for name in STATISTICS if key in perception.normalizers else ():
        yield f"{place}normalizers.{key}.{name}", Reading(axis=-1, columns=seen)
    encoder = dict(perception.encoders.named_children()).get(key)
    if isinstance(encoder, VectorEncoder):
        yield f"{place}encoders.{key}.mlp.0.weight", Reading(axis=-2, columns=seen)
    elif isinstance(encoder, ConvEncoder):
        last = Columns(of=f"channels of {encoder.places} places", numbers=[])
        yield f"{place}encoders.{key}.output.0.weight", Reading(axis=-2, columns=[last])
    elif encoder is not None:  # one's own: who knows which of its tensors reads which column
        whole = Columns(of=_columns_told(entry), numbers=[])
        for name in encoder.state_dict():
            yield f"{place}encoders.{key}.{name}", Reading(axis=-1, columns=[whole])


def _columns(entry: Input) -> Columns:
    """Of its group, by number."""
    columns = range(entry.size) if entry.columns is None else range(*entry.columns)
    numbers = columns if entry.visible is None else [columns.start + number for number in entry.visible]
    return Columns(of=entry.group, numbers=list(numbers))


def _columns_told(entry: Input) -> str:
    if entry.visible is not None:
        return f"{entry.group} {_columns(entry).numbers}"
    return entry.group if entry.columns is None else f"{entry.group} {list(entry.columns)}"


def _joined(entry: Input, perception: Perception) -> Columns:
    """As it is, or as its encoder makes it."""
    if (encoder := perception.settings.encoders.get(entry.name)) is None:
        return _columns(entry)
    maker = encoder.name if isinstance(encoder, OwnEncoderSettings) else encoder.kind
    return Columns(of=f"{entry.name}, encoded by {maker}", numbers=list(range(encoder.size)))


def _said(network: nn.Module) -> list[Columns]:
    """What the numbers of a trunk's last layer are."""
    if isinstance(network, Actor):
        return _said_of(network.distribution)
    if isinstance(network, ActionValues):
        each = network.quantiles
        count = each if network.one_hot else each * network.count
        return [Columns(of=f"values, {each} of each", numbers=list(range(count)))]
    return [Columns(of="value", numbers=[0])] if isinstance(network, (ValueNetwork, QEnsemble)) else []


def _said_of(distribution: Distribution) -> list[Columns]:
    if isinstance(distribution, MultiCategorical):
        return [
            Columns(of=f"choice {factor}", numbers=list(range(count)))
            for factor, count in enumerate(distribution.counts)
        ]
    names = next((names for kind, names in SAID if isinstance(distribution, kind)), ("choice",))
    each = distribution.outputs // len(names)
    return [Columns(of=name, numbers=list(range(each))) for name in names]


SAID: tuple[tuple[type[nn.Module], tuple[str, ...]], ...] = (
    (Gaussian, ("mean",)),
    (StateGaussian, ("mean", "log σ")),
    (TanhMeanGaussian, ("mean before tanh",)),
    (Deterministic, ("mean before tanh",)),
    (TanhGaussian, ("mean before tanh", "log σ before tanh")),
    (Beta, ("α", "β")),
)
"""What distributions read of a trunk, side by side."""


def _manner(part: nn.Module) -> str:
    """How it computes, beside what its tensors and their shapes tell."""
    if isinstance(part, MLP):
        return part.activation
    if isinstance(part, (VectorEncoder, ConvEncoder)):
        facts = part.settings.model_dump(mode="json", exclude={"hidden", "size", "shape"})
        return json.dumps(facts, sort_keys=True)
    return ""


def _widths(network: MLP) -> list[int]:
    weights = network.layout.shapes[::2]
    return [weights[0][-2], *(shape[-1] for shape in weights)]


def _kind(gates: int) -> str:
    return "lstm" if gates == 4 else "gru"


def _gates(memory: Memory) -> int:
    return 4 if memory.parts == 2 else 3


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name

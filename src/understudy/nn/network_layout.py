"""What lies where in a network's tensors, layer by layer: for those who compare networks of different shapes.

A multilayer perceptron keeps all its layers in one flat tensor, and a memory its gates in one matrix. Two networks that
differ in one layer differ in the whole of these; unfolded they have most layers in common.
"""

from collections.abc import Iterator, Mapping
from typing import Self

from pydantic import Field
from torch import Tensor, nn

from understudy.core.facts import Facts, Whole
from understudy.nn.encoders import VectorEncoder
from understudy.nn.memory import Memory
from understudy.nn.mlp import MLP
from understudy.nn.perception import Perception
from understudy.nn.plain_mlp import Layout
from understudy.nn.segments import Input

FLAT = ".flat"
REST = "action"
"""What a network reads beside its inputs: a critic's actions."""
STATISTICS = ("mean", "variance", "shift", "scale")
"""Of a normaliser, one of each column."""


class Columns(Facts):
    """Some numbers of one thing: of a group, or of what an encoder makes of an input."""

    of: str
    numbers: list[Whole]


class Reading(Facts):
    """What stands along one axis of a tensor."""

    axis: Whole
    """From the last: −1 of a vector, and of a memory's [gates, units, inputs]; −2 of a layer's [inputs, units]."""
    columns: list[Columns]

    def labels(self) -> list[tuple[str, int]]:
        """Of each place along the axis."""
        return [(part.of, number) for part in self.columns for number in part.numbers]


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

    @classmethod
    def of(cls, network: object) -> Self:
        """Of a live network; nothing of a lone tensor."""
        if not isinstance(network, nn.Module):
            return cls()
        parts = dict(network.named_modules())
        flats = {path + FLAT: part for path, part in parts.items() if isinstance(part, MLP)}
        cells = {f"{path}.cells": part for path, part in parts.items() if isinstance(part, Memory)}
        return cls(
            widths={path: _widths(part) for path, part in flats.items()},
            members={path: part.members for path, part in flats.items() if part.members is not None},
            gates={path: _gates(part) for path, part in cells.items()},
            reads=_reads(parts),
        )

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


def _reads(parts: Mapping[str, nn.Module]) -> dict[str, Reading]:
    """What the network itself sees, not a network inside it."""
    perception, trunk = parts.get("perception"), parts.get("trunk")
    if not isinstance(perception, Perception):
        return {}
    reads = {}
    for entry in perception.inputs:
        key, seen = perception.keys[entry.name], [_columns(entry)]
        if key in perception.normalizers:
            for name in STATISTICS:
                reads[f"perception.normalizers.{key}.{name}"] = Reading(axis=-1, columns=seen)
        if key in perception.encoders and isinstance(perception.encoders[key], VectorEncoder):
            reads[f"perception.encoders.{key}.mlp.0.weight"] = Reading(axis=-2, columns=seen)
    joined = [_joined(entry, perception) for entry in perception.inputs]
    if perception.memory is not None:
        cells = f"perception.memory.cells.{_kind(_gates(perception.memory))}"
        reads[f"{cells}.weight_ih_l0"] = Reading(axis=-1, columns=joined)
    elif isinstance(trunk, MLP):
        rest = _widths(trunk)[0] - sum(len(part.numbers) for part in joined)
        actions = [Columns(of=REST, numbers=list(range(rest)))] if rest else []
        reads["trunk.0.weight"] = Reading(axis=-2, columns=[*joined, *actions])
    return reads


def _columns(entry: Input) -> Columns:
    """Of its group, by number."""
    columns = range(entry.size) if entry.columns is None else range(*entry.columns)
    numbers = columns if entry.visible is None else [columns.start + number for number in entry.visible]
    return Columns(of=entry.group, numbers=list(numbers))


def _joined(entry: Input, perception: Perception) -> Columns:
    """As it is, or as its encoder makes it."""
    if (encoder := perception.settings.encoders.get(entry.name)) is None:
        return _columns(entry)
    return Columns(of=f"{entry.name}, encoded", numbers=list(range(encoder.size)))


def _widths(network: MLP) -> list[int]:
    weights = network.layout.shapes[::2]
    return [weights[0][-2], *(shape[-1] for shape in weights)]


def _kind(gates: int) -> str:
    return "lstm" if gates == 4 else "gru"


def _gates(memory: Memory) -> int:
    return 4 if memory.parts == 2 else 3

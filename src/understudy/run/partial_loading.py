"""A network that takes over what it can from another of a different shape, and says tensor by tensor what it did.

Tensors are compared layer by layer (nn.network_layout), by the names they have after `init_keys`:

- `matched`: of the same name and shape, and taken over;
- `resized`: of the same name and another shape, or of the same shape and read from other columns. With `overlap` the
  block that both have is taken over: columns of observations by their names and numbers, wherever they stand, units by
  their place; what was there already pays no heed to columns that it never saw. With `skip` they begin anew;
- `missing`: here alone, and begin anew;
- `unexpected`: there alone, and left out.

A normaliser is one thing: where its columns have changed it begins anew, or with `overlap` keeps what it knows of those
that it knew; if there are others, it believes the next rollout.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from understudy.core.errors import CheckpointError
from understudy.core.state import State, capture, restore
from understudy.core.wording import counted
from understudy.nn.network_layout import NetworkLayout, Reading
from understudy.nn.normalization import Normalizer

Mismatch = Literal["refuse", "skip", "overlap"]
STREAM = ".stream"
"""Random streams (dropout's) belong to a run, not to its networks."""
NORMALIZERS = ".normalizers."


@final
@dataclass(frozen=True)
class Part:
    """A network of another run: its tensors, and what lies where in them."""

    state: State
    layout: NetworkLayout

    @classmethod
    def of(cls, network: nn.Module | Tensor) -> "Part":
        return cls(capture(network), NetworkLayout.of(network))


@final
@dataclass(frozen=True)
class LoadReport:
    """What became of each tensor, by name."""

    matched: tuple[str, ...]
    resized: tuple[str, ...]
    """With both shapes, the other's first."""
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    overlap: bool
    """Of those that were resized the common block was taken over."""

    def told(self) -> str:
        named = {
            "resized, common block taken" if self.overlap else "resized, begin anew": self.resized,
            "missing, begin anew": self.missing,
            "unexpected, left out": self.unexpected,
        }
        parts = [f"{what}: {', '.join(names)}" for what, names in named.items() if names]
        return "; ".join([counted(len(self.matched), "tensor"), *parts])

    def facts(self) -> dict[str, Any]:
        """For meta.json."""
        return {what: list(found) if isinstance(found, tuple) else found for what, found in vars(self).items()}


def load_partially(
    network: nn.Module | Tensor,
    theirs: Part,
    keys: Mapping[str, str],
    mismatch: Mismatch,
    where: str,
    *,
    dry: bool = False,
) -> LoadReport:
    """Give a network what fits of another's tensors; an error if nothing does. `dry` only says what would be done."""
    mine = Part.of(network)
    if not theirs.layout.widths:  # a checkpoint that does not say: where it is of our shape, it is as ours
        theirs = Part(theirs.state, mine.layout)
    here = mine.layout.unfold(mine.state)
    there = {rename(path, keys): leaf for path, leaf in theirs.layout.unfold(theirs.state).items()}
    here, there = ({path: leaf for path, leaf in one.items() if not path.endswith(STREAM)} for one in (here, there))
    both = here.keys() & there.keys()
    reads, theirs_read = mine.layout.reads, {rename(path, keys): one for path, one in theirs.layout.reads.items()}
    moved = {path for path in both if reads.get(path) != theirs_read.get(path)}
    resized = {path for path in both if here[path].shape != there[path].shape or path in moved}
    broken = {_owner(path) for path in resized if NORMALIZERS in path}
    overlap = mismatch == "overlap"
    resized |= set() if overlap else {path for path in both if _owner(path) in broken}
    report = LoadReport(
        tuple(sorted(both - resized)),
        tuple(f"{path} {list(there[path].shape)} → {list(here[path].shape)}" for path in sorted(resized)),
        tuple(sorted(here.keys() - there.keys())),
        tuple(sorted(there.keys() - here.keys())),
        overlap,
    )
    if not report.matched and not (overlap and resized):
        raise CheckpointError(
            where,
            "has nothing that this network could take over",
            got=report.told(),
            do="Name what is what: init_keys.",
        )
    if dry:
        return report
    for path in report.matched:
        here[path].copy_(there[path])
    for path in sorted(resized) if overlap else ():
        if path in reads and path in theirs_read:
            copy_columns(here[path], there[path], reads[path], theirs_read[path], silent=NORMALIZERS not in path)
        else:
            copy_block(here[path], there[path])
    for owner in broken if overlap else ():
        columns = theirs_read.get(f"{owner}.mean", Reading(axis=-1, columns=[])).labels()
        if not set(reads[f"{owner}.mean"].labels()).issubset(columns):
            here[f"{owner}.count"].clamp_(max=1.0)
    restore(network, mine.state, where)
    for part in network.modules() if isinstance(network, nn.Module) else ():
        if isinstance(part, Normalizer):
            part.settle()
    return report


@torch.no_grad()
def copy_block(mine: Tensor, theirs: Tensor) -> None:
    """Write the block that both have, from the first element on; nothing where one has more axes."""
    if mine.dim() == theirs.dim():
        block = tuple(slice(min(pair)) for pair in zip(mine.shape, theirs.shape, strict=True))
        mine[block] = theirs[block]


@torch.no_grad()
def copy_columns(mine: Tensor, theirs: Tensor, reads: Reading, read: Reading, *, silent: bool) -> None:
    """The same of tensors with a place for each column that is read, by the columns' names.

    Columns that the other did not read count nothing for the units it had, if they are `silent`.
    """
    labels, known = reads.labels(), {label: place for place, label in enumerate(read.labels())}
    whole = [len(labels), len(known)] == [one.shape[reads.axis] if one.dim() else 0 for one in (mine, theirs)]
    if mine.dim() != theirs.dim() or reads.axis != read.axis or not whole:
        return
    rows, others = mine.movedim(reads.axis, 0), theirs.movedim(reads.axis, 0)
    common = [place for place, label in enumerate(labels) if label in known]
    block = rows[common]
    copy_block(block, others[[known[labels[place]] for place in common]])
    rows[common] = block
    if silent:
        new = [place for place, label in enumerate(labels) if label not in known]
        block = rows[new]
        copy_block(block, torch.zeros_like(block[:, : others.shape[1]]))
        rows[new] = block


def rename(path: str, keys: Mapping[str, str]) -> str:
    """What a tensor is called here. `keys`: beginnings of names there and here, or patterns with as many `*` each."""
    for theirs, mine in keys.items():
        if "*" in theirs:
            pattern = "(.*)".join(re.escape(piece) for piece in theirs.split("*"))
            if found := re.fullmatch(pattern, path):
                pieces = mine.split("*")
                return "".join(f"{piece}{word}" for piece, word in zip(pieces, (*found.groups(), ""), strict=False))
        elif path == theirs or path.startswith(f"{theirs}."):
            return mine + path.removeprefix(theirs)
    return path


def _owner(path: str) -> str:
    return path.rpartition(".")[0]

"""A network that takes over what it can from another of a different shape, and says tensor by tensor what it did.

Tensors are compared layer by layer (nn.network_layout), by the names they have after `init_keys`:

- `matched`: of the same name and shape, and taken over;
- `resized`: of the same name and another shape, or of the same shape and of other columns. With `overlap` the block
  that both have is taken over: columns of observations by their names and numbers, what a policy says by what it is,
  wherever it stands, units by their place; what was there already pays no heed to columns that it never saw. With
  `skip` they begin anew;
- `foreign`: of the same name, and nothing of it means what it means here (a trunk that read a memory, and one that
  reads observations): they begin anew;
- `missing`: here alone, and begin anew;
- `unexpected`: there alone, and left out.

A normaliser is one thing: where its columns have changed it begins anew, or with `overlap` keeps what it knows of those
that it knew; if there are others, it believes the next rollout.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from understudy.core.errors import CheckpointError
from understudy.core.state import State, capture, restore
from understudy.core.wording import counted
from understudy.nn.network_layout import STATISTICS, Columns, NetworkLayout, Reading
from understudy.nn.normalization import Normalizer

Mismatch = Literal["refuse", "skip", "overlap"]
STREAM = ".stream"
"""Random streams (dropout's) belong to a run, not to its networks."""
ACTION_RANGE = ("action_centre", "action_half_range", "action_low", "action_high")
"""What actions there are is the environment's to say."""
UNITS = "hidden units"
NORMALIZERS = ".normalizers."
WEIGHTS = ("weight", "weight_ih_l0")


@final
@dataclass(frozen=True)
class Part:
    """A network of another run: its tensors, and what lies where in them."""

    state: State
    layout: NetworkLayout

    @classmethod
    def of(cls, network: nn.Module | Tensor) -> "Part":
        return cls(capture(network), NetworkLayout.of(network))

    def unfolded(self) -> dict[str, Tensor]:
        """Its tensors layer by layer, without what is a run's own."""
        views = self.layout.unfold(self.state)
        return {path: leaf for path, leaf in views.items() if not path.endswith(STREAM) and path not in ACTION_RANGE}


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
    foreign: tuple[str, ...] = ()
    """Of the same name, and of other things; with what they are of."""
    notes: tuple[str, ...] = ()
    """What else is to be known: what could not stay as it was, and what stays although the config would have it
    otherwise."""

    @property
    def taken(self) -> tuple[str, ...]:
        """Names of what was taken over, wholly or in part."""
        return (*self.matched, *(name.partition(" ")[0] for name in self.resized if self.overlap))

    def told(self) -> str:
        named = {
            "resized, common block taken" if self.overlap else "resized, begin anew": self.resized,
            "of something else, begin anew": self.foreign,
            "missing, begin anew": self.missing,
            "unexpected, left out": self.unexpected,
        }
        parts = [f"{what}: {', '.join(names)}" for what, names in named.items() if names]
        return "; ".join([counted(len(self.matched), "tensor"), *parts, *self.notes])

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
    mine, overlap = Part.of(network), mismatch == "overlap"
    if not theirs.layout.widths:  # a checkpoint that does not say: where it is of our shape, it is as ours
        theirs = Part(theirs.state, mine.layout)
    here, there = mine.unfolded(), {rename(path, keys): leaf for path, leaf in theirs.unfolded().items()}
    there, layout = _regrouped(here, there, mine.layout, renamed(theirs.layout, keys))
    both = here.keys() & there.keys()
    compared = {path: Comparison.of(path, here[path], there[path], mine.layout, layout) for path in both}
    foreign = {path: one.foreign for path, one in compared.items() if one.foreign}
    resized = {path for path, one in compared.items() if not one.same and not one.foreign}
    owners = {_owner(path) for path in both if path.endswith(".mean") and path in mine.layout.reads}
    gone, broken = ({_owner(path) for path in some} & owners for some in (foreign, resized))
    reasons = {_owner(path): why for path, why in foreign.items()}
    foreign |= {path: reasons[_owner(path)] for path in both if _owner(path) in gone}
    resized |= set() if overlap else {path for path in both if _owner(path) in broken}
    resized -= foreign.keys()
    report = LoadReport(
        tuple(sorted(both - resized - foreign.keys())),
        tuple(f"{path} {list(there[path].shape)} → {list(here[path].shape)}" for path in sorted(resized)),
        tuple(sorted(here.keys() - there.keys())),
        tuple(sorted(there.keys() - here.keys())),
        overlap,
        tuple(f"{path} ({why})" for path, why in sorted(foreign.items())),
        tuple(mine.layout.other_manners(layout)),
    )
    if not report.taken:
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
        copy_named(here[path], there[path], compared[path].names)
    for owner in broken if overlap else ():
        if any(place is None for names in compared[f"{owner}.mean"].names for place in names.there):
            here[f"{owner}.count"].clamp_(max=1.0)
    restore(network, mine.state, where)
    for part in network.modules() if isinstance(network, nn.Module) else ():
        if isinstance(part, Normalizer):
            part.settle()
    return report


def _regrouped(
    here: Mapping[str, Tensor], there: Mapping[str, Tensor], mine: NetworkLayout, theirs: NetworkLayout
) -> tuple[dict[str, Tensor], NetworkLayout]:
    """Tensors there, and what lies where in them, with statistics as the normalisers here have them: those of a group
    are also those of its segments, and the other way round."""
    known = {
        (_role(path), *label): (_owner(path), place)
        for path, reading in theirs.reads.items()
        if _role(path) and _is_normalizer(_owner(path), there, len(reading.labels()))
        for place, label in enumerate(reading.labels())
    }
    added: dict[str, Tensor] = {}
    reads = dict(theirs.reads)
    used: set[str] = set()
    for path, reading in mine.reads.items():
        labels = [(of, mine.column_there(theirs, of, number)) for of, number in reading.labels()]
        found = {label: known[key] for label in labels if (key := (_role(path), *label)) in known}
        if not _role(path) or path in there or not found:
            continue
        owner = _owner(path)
        used |= {other for other, _ in found.values()}
        columns = [Columns(of=of, numbers=[number]) for of, number in found if number is not None]
        for name in STATISTICS:
            added[f"{owner}.{name}"] = torch.stack([there[f"{other}.{name}"][place] for other, place in found.values()])
            reads[f"{owner}.{name}"] = Reading(axis=-1, columns=columns)
        added[f"{owner}.count"] = torch.stack([there[f"{other}.count"] for other, _ in found.values()]).amin()
    left = {path: leaf for path, leaf in there.items() if _owner(path) not in used or path in here}
    return {**left, **added}, theirs.model_copy(update={"reads": reads})


def _is_normalizer(owner: str, there: Mapping[str, Tensor], columns: int) -> bool:
    """It has all that a normaliser of so many columns has."""
    shapes = {f"{owner}.count": (), **{f"{owner}.{name}": (columns,) for name in STATISTICS}}
    return all(path in there and there[path].shape == shape for path, shape in shapes.items())


def _role(path: str) -> str:
    """Whose normaliser has this mean of a column; nothing of other tensors."""
    place, found, _ = path.partition(NORMALIZERS)
    return place if found and path.endswith(".mean") else ""


@final
@dataclass(frozen=True)
class Names:
    """Where the places along one axis of a tensor lie along that of another: there[i] is that of i here, or None."""

    axis: int
    """From the last."""
    there: list[int | None]
    silent: bool = False
    """What was there already pays no heed to places that it did not have."""


@final
@dataclass(frozen=True)
class Comparison:
    """Of a tensor here with one of the same name there."""

    same: bool
    """Of the same shape, and every place means the same."""
    names: tuple[Names, ...] = ()
    """Of axes whose places have names that are not all the same."""
    foreign: str = ""
    """Why nothing of the other means what it means here; empty where something does."""

    @classmethod
    def of(cls, path: str, here: Tensor, there: Tensor, mine: NetworkLayout, theirs: NetworkLayout) -> "Comparison":
        names = []
        for verb, ours, others in (("reads", mine.reads, theirs.reads), ("gives", mine.says, theirs.says)):
            one, other = ours.get(path), others.get(path)
            if other is None and (one is None or not theirs.complete):
                continue
            if one is not None and other is not None and mine.alike(one, other, theirs):
                continue
            found = None if one is None or other is None else _names(one, other, mine, theirs)
            if found is None or not _fits(found, other, here, there):
                told = [UNITS if reading is None else reading.told() for reading in (one, other)]
                return cls(same=False, foreign=f"{verb} {told[0]}, there {told[1]}")
            names.append(replace(found, silent=verb == "reads" and path.endswith(WEIGHTS)))
        return cls(here.shape == there.shape and not names, tuple(names))


def _names(one: Reading, other: Reading, mine: NetworkLayout, theirs: NetworkLayout) -> Names | None:
    """Nothing where they have no place in common."""
    there = mine.places_there(one, other, theirs)
    common = one.axis == other.axis and any(place is not None for place in there)
    return Names(one.axis, there) if common else None


def _fits(names: Names, other: Reading | None, here: Tensor, there: Tensor) -> bool:
    """Every place has a name, and the axis is there."""
    if other is None or not here.dim() == there.dim() >= -names.axis > 0:
        return False
    return here.shape[names.axis] == len(names.there) and there.shape[names.axis] == len(other.labels())


@torch.no_grad()
def copy_named(mine: Tensor, theirs: Tensor, names: Sequence[Names] = ()) -> None:
    """Write the block that both have: along axes with names by these, along others from the first place on; nothing
    where one tensor has more axes."""
    if mine.dim() != theirs.dim():
        return
    sizes = [range(min(pair)) for pair in zip(mine.shape, theirs.shape, strict=True)]
    here, there = [list(size) for size in sizes], [list(size) for size in sizes]
    for named in names:
        pairs = [(place, other) for place, other in enumerate(named.there) if other is not None]
        here[named.axis], there[named.axis] = ([pair[side] for pair in pairs] for side in (0, 1))
    mine[_grid(here)] = theirs[_grid(there)].to(mine.dtype)
    for named in names:
        if named.silent:
            new = [place for place, other in enumerate(named.there) if other is None]
            mine[_grid([*here[: named.axis], new, *here[len(here) + named.axis + 1 :]])] = 0.0


def _grid(places: Sequence[list[int]]) -> tuple[Tensor, ...]:
    """An index of these places along each axis."""
    axes = range(len(places))
    return tuple(
        torch.tensor(some, dtype=torch.long).view([-1 if axis == other else 1 for other in axes])
        for axis, some in enumerate(places)
    )


def renamed(layout: NetworkLayout, keys: Mapping[str, str]) -> NetworkLayout:
    """What it tells of tensors by the names they have here."""
    reads, says = ({rename(path, keys): one for path, one in told.items()} for told in (layout.reads, layout.says))
    manners = {rename(path, keys): manner for path, manner in layout.manners.items()}
    return layout.model_copy(update={"reads": reads, "says": says, "manners": manners})


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

"""The closed inventory of what a checkpoint must hold.

Every field of an algorithm or source is stateful by its type, or marked `Static[…]`; a field that is neither
refuses to be captured, so nothing can be forgotten silently. `capture` gives a flat tree of paths: copies, but of
`LargeState` a list of the files that hold it. `restore` compares the whole tree first and changes nothing unless
everything fits.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints, runtime_checkable

import torch
from torch import Tensor, nn

from understudy.core.errors import CheckpointError, InventoryError
from understudy.core.large_state import CapturedRows, LargeState, StoredRows
from understudy.core.segments import SegmentFolder

CPU = torch.device("cpu")
Scalar = bool | int | float | str
Leaf = Tensor | Scalar | CapturedRows | StoredRows
State = dict[str, Leaf]


class _StaticMark:
    """What `Static[…]` leaves in an annotation."""


Kind = TypeVar("Kind")
Static = Annotated[Kind, _StaticMark]
"""A field that is not state: settings, data at rest, aliases of stateful tensors, or what follows from the state."""


@runtime_checkable
class KnownLate(Protocol):
    """Something that learns what its fields say only when they are read: where its simulators stand, for instance."""

    def update_state(self) -> None:
        """Bring the fields up to date."""


@dataclass(frozen=True)
class _Slot:
    """A place in a live object: how to read it and how to write it."""

    path: str
    read: Callable[[], Leaf]
    write: Callable[[Leaf], None]
    refusal: Callable[[Leaf], str] = lambda new: ""
    """Why what has the right shape cannot be written; empty if it can."""


def capture(owner: object) -> State:
    """Copies of everything that moves in `owner`, by path; of large states what they consist of."""
    return {slot.path: _copy(slot.read()) for slot in _slots(owner, "")}


def place_large_state(owner: object, folder: Path) -> None:
    """Let every large state in `owner` write its segments into `folder` from now on."""
    for slot in _slots(owner, ""):
        leaf = slot.read()
        if isinstance(leaf, CapturedRows):
            leaf.owner.folder = SegmentFolder(folder)


def footprint(owner: object) -> int:
    """Bytes of everything that moves in `owner`."""
    leaves = (slot.read() for slot in _slots(owner, ""))
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))


def check_fits(owner: object, state: State, where: str) -> None:
    """Raise with every difference by path, unless `state` could be written into `owner`, which may be an outline."""
    _fitting_slots(owner, state, where)


def restore(owner: object, state: State, where: str) -> None:
    """Write `state` into `owner`, or raise with every difference by path and change nothing."""
    for path, slot in _fitting_slots(owner, state, where).items():
        slot.write(state[path])


def _fitting_slots(owner: object, state: State, where: str) -> dict[str, _Slot]:
    slots = {slot.path: slot for slot in _slots(owner, "", state)}
    differences = [f"missing {path}" for path in slots.keys() - state.keys()]
    differences += [f"unexpected {path}" for path in state.keys() - slots.keys()]
    for path in slots.keys() & state.keys():
        here, there = _shape(slots[path].read()), _shape(state[path])
        if here != there:
            differences.append(f"{path} is {there} in the file and {here} in the program")
        elif reason := slots[path].refusal(state[path]):
            differences.append(f"{path} {reason}")
    if differences:
        shown = "; ".join(sorted(differences)[:12]) + ("; …" if len(differences) > 12 else "")
        raise CheckpointError(
            where,
            f"does not fit this run, {len(differences)} differences: {shown}",
            do="Nothing was changed. Use the settings the checkpoint was written with.",
        )
    return slots


def module_paths(owner: object) -> dict[int, str]:
    """Where each module in `owner` lies, its parts included, and each tensor outside of modules, by their `id`."""
    if isinstance(owner, Tensor):
        return {id(owner): ""}
    if isinstance(owner, nn.Module):
        return {id(part): name for name, part in owner.named_modules()}
    inner: list[tuple[str, object]] = []
    if isinstance(owner, dict):
        inner = [(str(key), owner[key]) for key in sorted(owner)]
    elif isinstance(owner, (list, tuple)):
        inner = [(str(number), part) for number, part in enumerate(owner)]
    elif is_dataclass(owner) and not isinstance(owner, type):
        inner = [(name, vars(owner)[name]) for name in _moving_fields(type(owner))]
    return {known: _join(name, path) for name, part in inner for known, path in module_paths(part).items()}


def nonfinite(state: State) -> list[str]:
    """Paths of floating tensors that hold NaN or infinity."""
    return [
        path
        for path, leaf in state.items()
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and not bool(leaf.isfinite().all())
    ]


def _slots(value: object, path: str, coming: State | None = None) -> Iterator[_Slot]:
    """`coming` is what shall be written, where something is."""
    if isinstance(value, nn.Module):
        yield from _module_slots(value, path)
    elif isinstance(value, Tensor):
        yield _Slot(path, value.detach, lambda new: _copy_into(value, new))
    elif isinstance(value, torch.Generator):
        yield _Slot(path, value.get_state, lambda new: _set_generator(value, new), _no_generator_state)
    elif isinstance(value, LargeState):
        yield _Slot(path, value.capture, lambda new: value.restore(_rows(new)), lambda new: value.refusal(_rows(new)))
    elif isinstance(value, torch.optim.Optimizer):
        yield from _optimizer_slots(value, path, coming)
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from _slots(value[key], _join(path, key), coming)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _slots(item, _join(path, str(index)), coming)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _dataclass_slots(value, path, coming)
    else:
        raise InventoryError(path, f"{type(value).__name__} is neither stateful nor marked Static[…]")


def _dataclass_slots(value: object, path: str, coming: State | None) -> Iterator[_Slot]:
    if isinstance(value, KnownLate):
        value.update_state()
    owner: type = type(value)
    for name in _moving_fields(owner):
        yield from _field_slots(value, name, _join(path, name), coming)


@cache
def _moving_fields(owner: type) -> list[str]:
    hints = get_type_hints(owner, include_extras=True)
    return [entry.name for entry in fields(owner) if not _is_static(hints[entry.name])]


def _is_static(hint: object) -> bool:
    return get_origin(hint) is Annotated and _StaticMark in get_args(hint)


def _field_slots(owner: object, name: str, path: str, coming: State | None) -> Iterator[_Slot]:
    value = getattr(owner, name)
    if isinstance(value, (bool, int, float, str)):
        yield _Slot(path, lambda: cast(Scalar, getattr(owner, name)), lambda new: setattr(owner, name, new))
    else:
        yield from _slots(value, path, coming)


def _optimizer_slots(optimizer: torch.optim.Optimizer, path: str, coming: State | None) -> Iterator[_Slot]:
    """One of torch's: what its steps have left, by the number of the parameter, and its groups' numbers.

    Nothing is there before the first step; so where something is to be written, that says what there will be.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    kept = {f"{number}.{name}" for number, one in enumerate(parameters) for name in optimizer.state.get(one, {})}
    begun = _join(path, "begun")
    yield _Slot(begun, lambda: len(optimizer.state), lambda new: optimizer.state.clear())  # before those that follow
    if coming is not None:
        prefix = f"{_join(path, 'state')}."
        kept = {stored.removeprefix(prefix) for stored in coming if stored.startswith(prefix)}
    for entry in sorted(kept):
        number, _, name = entry.partition(".")
        if number.isdecimal() and int(number) < len(parameters):
            yield from _moment_slots(optimizer, parameters[int(number)], name, _join(path, "state", entry), coming)
    for place, group in enumerate(optimizer.param_groups):
        for name, value in sorted(group.items()):
            if isinstance(value, (bool, int, float, Tensor)):
                read, write = partial(group.__getitem__, name), partial(_put, group, name)
                yield _Slot(_join(path, "groups", str(place), name), read, write)


def _moment_slots(
    optimizer: torch.optim.Optimizer, parameter: Tensor, name: str, path: str, coming: State | None
) -> Iterator[_Slot]:
    """One number or tensor of one parameter; one that is new here is no larger than the parameter."""
    live = optimizer.state.get(parameter, {})
    held = live[name] if name in live else (coming or {})[path]
    if held is None:
        return
    if not isinstance(held, (bool, int, float, Tensor)):
        kept = f"{type(optimizer).__name__} keeps a {type(held).__name__} for '{name}', which no checkpoint can hold"
        raise InventoryError(path, kept, do="Use torch.optim.Adam, or understudy.parts.optim.Adam.")
    if isinstance(held, Tensor) and name not in live and held.numel() > max(parameter.numel(), 1):
        held = parameter.detach()  # which is not what is coming, and is told

    yield _Slot(path, lambda: held, lambda new: _put(optimizer.state[parameter], name, new, parameter.device))


def _put(owner: dict[str, Any], name: str, new: Leaf, device: torch.device = CPU) -> None:
    """A copy, where the one before was; what is new and no mere number lies where its parameter does."""
    if isinstance(new, Tensor):
        before = owner.get(name)
        new = new.to(before.device if isinstance(before, Tensor) else device if new.shape else CPU, copy=True)
    owner[name] = new


def _module_slots(module: nn.Module, path: str) -> Iterator[_Slot]:
    for name, part in module.named_modules():
        loose = [key for key, value in vars(part).items() if isinstance(value, Tensor)]
        if part._non_persistent_buffers_set or loose:
            what = f"tensor '{loose[0]}' is no parameter or buffer" if loose else "non-persistent buffers"
            raise InventoryError(_join(path, name), f"{what}: it would be missing from a checkpoint")
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        yield from _slots(tensor, _join(path, name))
    for name, part in module.named_modules():
        for attribute, value in vars(part).items():
            if isinstance(value, torch.Generator):
                yield from _slots(value, _join(path, name, attribute))


def _join(*names: str) -> str:
    return ".".join(name for name in names if name)


def _copy(leaf: Leaf) -> Leaf:
    return leaf.detach().to("cpu", copy=True).contiguous() if isinstance(leaf, Tensor) else leaf


def _shape(leaf: Leaf) -> str:
    if isinstance(leaf, (CapturedRows, StoredRows)):
        return leaf.layout
    return f"{leaf.dtype} {list(leaf.shape)}" if isinstance(leaf, Tensor) else type(leaf).__name__


def _rows(leaf: Leaf) -> CapturedRows | StoredRows:
    assert isinstance(leaf, (CapturedRows, StoredRows))
    return leaf


@torch.no_grad()
def _copy_into(target: Tensor, new: Leaf) -> None:
    assert isinstance(new, Tensor)
    target.copy_(new)


def _no_generator_state(state: Leaf) -> str:
    try:
        _set_generator(torch.Generator(), state)
    except RuntimeError:
        return "is no state of a random generator"
    return ""


def _set_generator(generator: torch.Generator, new: Leaf) -> None:
    assert isinstance(new, Tensor)
    generator.set_state(new)

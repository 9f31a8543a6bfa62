"""The inventory is closed: nothing is forgotten, and a misfit changes nothing."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from understudy.core.errors import CheckpointError
from understudy.core.state import Leaf, State, Static, capture, nonfinite, restore


class Noisy(nn.Module):
    """A module with a generator and a buffer."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.rng = torch.Generator().manual_seed(5)


@dataclass
class Thing:
    network: Noisy
    moments: dict[str, Tensor]
    pair: tuple[Tensor, Tensor]
    rng: torch.Generator
    updates: int
    rate: float
    name: str
    warm: bool
    settings: Static[object] = field(default_factory=object)


def thing(seed: int = 0) -> Thing:
    torch.manual_seed(seed)
    moments = {"b": torch.randn(2), "a": torch.randn(1)}
    pair = (torch.randn(2), torch.randn(2).double())
    return Thing(Noisy(), moments, pair, torch.Generator().manual_seed(seed), seed, 0.5 + seed, f"n{seed}", seed > 0)


def same(one: State, other: State) -> bool:
    def equal(a: Leaf, b: Leaf) -> bool:
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return a.dtype == b.dtype and torch.equal(a, b)
        return type(a) is type(b) and a == b

    return one.keys() == other.keys() and all(equal(one[path], other[path]) for path in one)


def test_what_is_no_state_of_a_generator_changes_nothing() -> None:
    old, state = thing(1), capture(thing(2))
    before = capture(old)
    with pytest.raises(CheckpointError, match=r"1 differences: network\.rng is no state of a random generator"):
        restore(old, {**state, "network.rng": torch.zeros_like(torch.Generator().get_state())}, "here")
    assert same(capture(old), before)


def test_the_inventory_names_everything_that_moves() -> None:
    assert set(capture(thing())) == {
        "network.layer.weight",
        "network.layer.bias",
        "network.mean",
        "network.rng",
        "moments.a",
        "moments.b",
        "pair.0",
        "pair.1",
        "rng",
        "updates",
        "rate",
        "name",
        "warm",
    }


def test_restore_gives_back_every_leaf() -> None:
    source, target = thing(1), thing(0)
    torch.rand(3, generator=source.rng)
    torch.rand(3, generator=source.network.rng)
    state = capture(source)
    restore(target, state, "checkpoint 'x'")
    assert same(capture(target), state)
    assert target.updates == 1
    assert target.warm is True
    assert torch.equal(torch.rand(4, generator=target.rng), torch.rand(4, generator=source.rng))
    assert torch.equal(torch.rand(4, generator=target.network.rng), torch.rand(4, generator=source.network.rng))


def test_a_capture_is_a_copy() -> None:
    live = thing()
    state = capture(live)
    with torch.no_grad():
        live.network.layer.weight.add_(1)
    live.updates += 1
    assert not same(capture(live), state)


def test_static_fields_stay() -> None:
    source, target = thing(1), thing(0)
    settings = target.settings
    restore(target, capture(source), "x")
    assert target.settings is settings


def _without(state: State, path: str) -> State:
    return {name: leaf for name, leaf in state.items() if name != path}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: _without(s, "moments.a"), "missing moments.a"),
        (lambda s: {**s, "extra": torch.zeros(1)}, "unexpected extra"),
        (lambda s: {**s, "pair.0": torch.zeros(3)}, r"pair.0 is torch.float32 \[3\] in the file"),
        (lambda s: {**s, "pair.1": torch.zeros(2)}, r"pair.1 is torch.float32 \[2\] in the file and torch.float64"),
        (lambda s: {**s, "updates": 1.0}, "updates is float in the file and int in the program"),
        (lambda s: {**s, "updates": True}, "updates is bool in the file"),
        (lambda s: {**s, "rate": torch.zeros(1)}, "rate is torch.float32"),
        (lambda s: {**s, "rng": torch.zeros(4, dtype=torch.uint8)}, "rng is torch.uint8"),
    ],
)
def test_a_misfit_is_told_and_changes_nothing(change: Any, told: str) -> None:
    target = thing(0)
    before = capture(target)
    with pytest.raises(CheckpointError, match=told):
        restore(target, change(capture(thing(1))), "checkpoint 'x'")
    assert same(capture(target), before)


def test_all_differences_are_told_up_to_a_dozen() -> None:
    with pytest.raises(CheckpointError, match=r"13 differences: missing moments.a; missing moments.b; .*…"):
        restore(thing(), {}, "checkpoint 'x'")


@pytest.mark.parametrize("value", [None, object(), {1, 2}, b"bytes", 3j, [1, 2], {"count": 1}, lambda: 0])
def test_what_is_neither_stateful_nor_static_is_refused(value: object) -> None:
    @dataclass
    class Holder:
        secret: Any

    with pytest.raises(TypeError, match=r"secret.* is neither stateful nor marked Static"):
        capture(Holder(value))


def test_non_persistent_buffers_are_refused() -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2), persistent=False)

    @dataclass
    class Holder:
        network: Forgetful

    with pytest.raises(TypeError, match="non-persistent"):
        capture(Holder(Forgetful()))


def test_nonfinite_leaves_are_named() -> None:
    state: State = {"a": torch.tensor([1.0, float("nan")]), "b": torch.tensor([float("inf")]), "c": torch.ones(1)}
    assert nonfinite({**state, "d": torch.tensor([3]), "e": 2}) == ["a", "b"]

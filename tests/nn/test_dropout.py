"""Dropout draws from a stream of its own."""

import pytest
import torch

from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.nn.dropout import Dropout


def test_share_and_scale() -> None:
    dropped = Dropout(0.25, stream(0, "init"))(torch.ones(100_000))
    assert float((dropped == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert dropped.unique().tolist() == pytest.approx([0.0, 4 / 3])


def test_evaluation_changes_nothing_and_draws_nothing() -> None:
    layer = Dropout(0.5, stream(0, "init")).eval()
    before = layer.stream.get_state()
    assert torch.equal(layer(torch.ones(50)), torch.ones(50))
    assert torch.equal(layer.stream.get_state(), before)


def test_same_stream_same_units_whatever_the_global_generator_did() -> None:
    first, second = Dropout(0.5, stream(0, "init")), Dropout(0.5, stream(0, "init"))
    torch.manual_seed(1)
    left = [first(torch.ones(50)) for _ in range(3)]
    torch.manual_seed(2)
    right = [second(torch.ones(50)) for _ in range(3)]
    assert torch.equal(torch.stack(left), torch.stack(right))
    assert not torch.equal(left[0], left[1])


def test_two_layers_drop_different_units() -> None:
    rng = stream(0, "init")
    first, second = Dropout(0.5, rng), Dropout(0.5, rng)
    assert not torch.equal(first(torch.ones(50)), second(torch.ones(50)))


def test_a_restored_layer_goes_on_where_it_was() -> None:
    layer, other = Dropout(0.5, stream(0, "init")), Dropout(0.5, stream(9, "init"))
    layer(torch.ones(50))
    restore(other, capture(layer), "test")
    assert torch.equal(layer(torch.ones(50)), other(torch.ones(50)))

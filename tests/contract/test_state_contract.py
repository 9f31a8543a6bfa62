"""Captured, restored, seeded: the same bits where they should be, others where they should not."""

from typing import Any

import pytest
import torch

from learners import Learning, differences, networks, outlined, start, tiny_algorithm
from understudy.core.errors import CheckpointError
from understudy.core.state import capture, check_fits, footprint, restore
from worlds import learning_from

pytestmark = pytest.mark.parametrize("name", learning_from("offline"))

NETWORKS: list[dict[str, Any]] = [{}, {"layer_norm": True, "dropout": 0.1}]


@pytest.mark.parametrize("network", NETWORKS)
def test_a_fresh_build_takes_over_every_bit(name: str, network: dict[str, Any]) -> None:
    """Also one of another seed that has learned for a while; rows follow from the run's seed, which is a setting."""
    config = tiny_algorithm(name, network)
    old, new = start(config, seed=1), Learning(start(config, seed=2).algorithm, start(config, seed=1).source)
    old.update(5)
    new.update(20)
    assert differences(capture(old), capture(new)) != []
    restore(new, capture(old), "test")
    assert differences(capture(old), capture(new)) == []
    for learning in (old, new):
        learning.update(5)
    assert differences(capture(old), capture(new)) == []


@pytest.mark.parametrize("network", NETWORKS)
def test_an_outline_has_the_shape_of_everything_and_takes_no_memory(name: str, network: dict[str, Any]) -> None:
    """So a checkpoint, and the memory there is, can be compared before anything is built."""
    config = tiny_algorithm(name, network)
    learning = start(config)
    outline = outlined(config, learning.source.data.spec)
    check_fits(outline, capture(learning.algorithm), "test")
    parameters = [part for role in networks(outline).values() for part in role.parameters()]
    assert parameters
    assert all(part.is_meta for part in parameters)
    assert footprint(outline) == footprint(learning.algorithm)
    other = start(tiny_algorithm(name, {**network, "hidden": [16, 17]}))
    with pytest.raises(CheckpointError, match="does not fit"):
        check_fits(outline, capture(other.algorithm), "test")


def test_a_capture_is_a_copy(name: str) -> None:
    learning = start(tiny_algorithm(name))
    state = capture(learning)
    again = capture(learning)
    learning.update()
    assert differences(state, again) == []
    assert differences(state, capture(learning)) != []


def test_going_back_and_replaying_gives_the_same(name: str) -> None:
    learning = start(tiny_algorithm(name, {"dropout": 0.1}))
    learning.update(2)
    point = capture(learning)
    learning.update(4)
    first = capture(learning)
    restore(learning, point, "test")
    learning.update(4)
    assert differences(first, capture(learning)) == []


def test_another_shape_is_refused_and_changes_nothing(name: str) -> None:
    small, large = start(tiny_algorithm(name)), start(tiny_algorithm(name, {"hidden": [17, 16]}))
    before = capture(large)
    with pytest.raises(CheckpointError, match="Nothing was changed"):
        restore(large, capture(small), "test")
    assert differences(before, capture(large)) == []


def test_the_seed_decides_everything(name: str) -> None:
    config = tiny_algorithm(name, {"dropout": 0.1})
    first, again, other = (start(config, seed=seed) for seed in (4, 4, 5))
    assert differences(capture(first), capture(again)) == []
    born_apart = differences(capture(first), capture(other))
    trunks = {path for path in capture(first) if path.startswith("algorithm.policy.") and path.endswith("trunk.flat")}
    assert trunks
    assert trunks <= set(born_apart)
    batch, same, another = (learning.batch() for learning in (first, again, other))
    assert torch.equal(batch.action, same.action)
    assert not torch.equal(batch.action, another.action)
    for learning in (first, again, other):
        learning.update(5)
    assert differences(capture(first), capture(again)) == []
    assert trunks <= set(differences(capture(first), capture(other)))

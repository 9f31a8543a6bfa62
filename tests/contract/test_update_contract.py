"""One update: finite, and it moves what it should and nothing else."""

import gc
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from learners import differences, networks, start, tiny_algorithm
from understudy.core.protocols import Demand, Metrics
from understudy.core.state import State, capture, nonfinite, restore
from worlds import learning_from

pytestmark = pytest.mark.parametrize("name", learning_from("offline"))

NETWORKS: list[dict[str, Any]] = [{}, {"layer_norm": True, "dropout": 0.1}]
NOT_STATE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, CodeType)


def clone(batch: Any) -> list[Tensor]:
    columns = [*batch.obs.values(), batch.action, batch.reward, *batch.next_obs.values(), batch.terminated]
    return [column.clone() for column in [*columns, *batch.extra.values()]]


def check_metrics(metrics: Metrics) -> None:
    assert metrics
    for name, value in metrics.items():
        room, slash, word = name.partition("/")
        assert room
        assert slash
        assert word
        assert isinstance(value, Tensor)
        assert value.shape == ()
        assert not value.requires_grad
        assert value.grad_fn is None
        assert bool(value.isfinite())
    assert any(name.startswith("loss/") for name in metrics)


@pytest.mark.parametrize("network", NETWORKS)
def test_metrics_are_flat_detached_finite_scalars(name: str, network: dict[str, Any]) -> None:
    learning = start(tiny_algorithm(name, network))
    for _ in range(3):
        check_metrics(learning.update())
    assert nonfinite(capture(learning)) == []


def parameters(algorithm: Any) -> dict[str, Tensor]:
    """Everything that is trained, by path: parameters that ask for gradients."""
    return {
        f"{field}.{path}": parameter
        for field, network in networks(algorithm).items()
        for path, parameter in network.named_parameters()
        if parameter.requires_grad
    }


def buffers(algorithm: Any) -> dict[str, Tensor]:
    """Everything that is fixed when the run is built: normaliser statistics and action ranges."""
    return {
        f"{field}.{path}": buffer
        for field, network in networks(algorithm).items()
        for path, buffer in network.named_buffers()
    }


def copies(tensors: dict[str, Tensor]) -> State:
    return {path: tensor.detach().clone() for path, tensor in tensors.items()}


@pytest.mark.parametrize("network", NETWORKS)
def test_everything_that_is_trained_moves_and_nothing_fixed_does(name: str, network: dict[str, Any]) -> None:
    learning = start(tiny_algorithm(name, network))
    before, fixed = copies(parameters(learning.algorithm)), copies(buffers(learning.algorithm))
    learning.update(2)
    assert differences(before, copies(parameters(learning.algorithm))) == sorted(before)
    assert differences(fixed, copies(buffers(learning.algorithm))) == []
    assert any(path.startswith("policy.") and path.endswith("action_half_range") for path in fixed)
    assert any("normalizers" in path for path in fixed)


def test_a_batch_is_only_read(name: str) -> None:
    learning = start(tiny_algorithm(name))
    batch = learning.batch()
    before = clone(batch)
    learning.algorithm.update(batch)
    assert all(torch.equal(old, new) for old, new in zip(before, clone(batch), strict=True))


def test_the_demand_is_enough(name: str) -> None:
    """A batch with the demanded columns and no others is all an update needs."""
    learning = start(tiny_algorithm(name))
    demand = learning.algorithm.demand
    assert isinstance(demand, Demand)
    batch = learning.batch()
    assert set(batch.extra) == set(demand.columns)
    check_metrics(learning.algorithm.update(batch).metrics)


def test_updates_touch_no_global_generator(name: str) -> None:
    learning = start(tiny_algorithm(name, {"dropout": 0.1}))
    before = torch.get_rng_state()
    learning.update(3)
    start(tiny_algorithm(name), seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def reachable(root: object) -> Iterator[object]:
    """Every object that can be reached from `root` without passing through code or classes."""
    seen: set[int] = set()
    queue = [root]
    while queue:
        thing = queue.pop()
        if id(thing) in seen or isinstance(thing, NOT_STATE):
            continue
        seen.add(id(thing))
        yield thing
        queue += gc.get_referents(thing)


def poison(tensor: Tensor) -> None:
    tensor.detach().fill_(torch.nan if tensor.is_floating_point() else 77)


@pytest.mark.parametrize("network", NETWORKS)
def test_the_inventory_is_complete(name: str, network: dict[str, Any]) -> None:
    """Every tensor in reach is captured, is an alias of one that is, or does not matter.

    Proof: overwrite all of them, restore what was captured, and go on as if nothing had happened.
    """
    config = tiny_algorithm(name, network)
    straight, poisoned = start(config), start(config)
    for learning in (straight, poisoned):
        learning.update(3)
    saved = capture(poisoned)
    tensors = {id(thing): thing for thing in reachable(poisoned.algorithm) if isinstance(thing, Tensor)}
    assert {id(tensor) for tensor in parameters(poisoned.algorithm).values()} <= tensors.keys()
    assert {id(tensor) for tensor in buffers(poisoned.algorithm).values()} <= tensors.keys()
    for tensor in tensors.values():
        poison(tensor)
    restore(poisoned, saved, "test")
    for learning in (straight, poisoned):
        learning.update(3)
    assert differences(capture(straight), capture(poisoned)) == []


def test_every_generator_in_reach_is_captured(name: str) -> None:
    learning = start(tiny_algorithm(name, {"dropout": 0.1}))
    generators = [thing for thing in reachable(learning.algorithm) if isinstance(thing, torch.Generator)]
    assert generators
    for generator in generators:
        before = capture(learning.algorithm)
        generator.manual_seed(12345)
        assert len(differences(before, capture(learning.algorithm))) == 1


def test_every_network_may_be_optimised_otherwise(name: str) -> None:
    """AdamW, clipped gradients and a schedule: finite, and not what it would have been."""
    config = tiny_algorithm(name)
    groups = [field for field in type(config).model_fields if field.endswith("optimizer")]
    assert groups
    other = {"kind": "adamw", "weight_decay": 0.1, "max_grad_norm": 1e-3, "schedule": "linear"}
    plain = start(config)
    plain.update(2)
    for group in groups:
        changed = start(tiny_algorithm(name, **{group: other}))
        check_metrics(changed.update(2))
        if not (name == "discrete_cql" and group == "actor_optimizer"):  # a greedy policy has none of its own
            assert differences(capture(plain.algorithm), capture(changed.algorithm))

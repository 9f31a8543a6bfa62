"""A live algorithm with its source, small, and without a run directory around it."""

from dataclasses import dataclass, is_dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from nobody import Nobody
from understudy import Dataset, Transitions
from understudy.algorithms import find_algorithm
from understudy.core.protocols import MAIN, BuildContext, Demand, Metrics, Policy
from understudy.core.rng import stream
from understudy.core.settings import Settings
from understudy.core.spec import Spec
from understudy.core.state import State
from understudy.data.experience import LoggedExperience
from understudy.data.transforms import Transforms
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.mlp import NetworkSettings
from understudy.sources import SourceInputs, find_source
from understudy.sources.offline import OfflineSource
from worlds import random_choices, random_dataset, takes_boxes

CPU, META = torch.device("cpu"), torch.device("meta")
NORMALIZED = Transforms(normalize_observations=True)


@final
@dataclass
class Learning:
    """What a run moves, and nothing else."""

    algorithm: Any
    source: OfflineSource

    def update(self, times: int = 1) -> Metrics:
        metrics: Metrics = {}
        for _ in range(times):
            metrics = self.algorithm.update(self.batch()).metrics
        return metrics

    def batch(self) -> Transitions:
        return self.source.next(self.algorithm.policy)


def network_fields(config: type[Settings]) -> list[str]:
    """Settings that are the shape of a network."""
    kinds = {name: field.annotation for name, field in config.model_fields.items()}
    return [name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, NetworkSettings)]


def tiny_algorithm(name: str, network: dict[str, Any] | None = None, **changes: Any) -> Settings:
    """Any algorithm's settings, with networks of a few units and a policy that waits for one update at most."""
    config = find_algorithm(name).Config
    shape = {"hidden": [16, 16], **(network or {})}
    delay = {"policy_delay": 2} if "policy_delay" in config.model_fields else {}
    return config.parse({"name": name, **dict.fromkeys(network_fields(config), shape), **delay, **changes}, "algo")


def start(
    config: Settings,
    dataset: Dataset | None = None,
    *,
    seed: int = 0,
    updates: int = 100,
    batch_size: int = 32,
) -> Learning:
    """A fresh algorithm on a dataset, as `build_learner` would make it."""
    name = config.model_dump()["name"]
    data = dataset or (random_dataset() if takes_boxes(name) else random_choices())
    logged = {MAIN: LoggedExperience.of(data, NORMALIZED)}
    context = BuildContext(data.spec, updates, seed, CPU, data=logged, policies=frozen(config, data.spec, seed))
    algorithm: Any = find_algorithm(name).build(config, context)
    return Learning(algorithm, offline_source(data, algorithm.demand, batch_size, seed))


def frozen(config: Settings, spec: Spec, seed: int = 0) -> dict[str, Policy]:
    """A small policy of this seed for every role in which the algorithm asks one."""
    roles = find_algorithm(config.model_dump()["name"]).needs(config).policies
    shape = ActorSettings(hidden=(16, 16))
    return {role: Actor(spec, shape, stream(seed, f"frozen/{role}")).train(False) for role in roles}


def source_of(kind: str, dataset: Dataset, demand: Demand | None = None, seed: int = 0, **settings: Any) -> Any:
    """A source of a dataset, as a run would build it for somebody who asks for this."""
    module = find_source(kind)
    data = {MAIN: LoggedExperience.of(dataset)}
    inputs = SourceInputs(dataset.spec, seed, CPU, demand or Demand(), Nobody(), data=data)
    return module.build(module.Config.parse({"kind": kind, **settings}, "source"), inputs)


def offline_source(
    dataset: Dataset, demand: Demand | None = None, batch_size: int = 32, seed: int = 0, **settings: Any
) -> OfflineSource:
    source = source_of("offline", dataset, demand, seed, batch_size=batch_size, **settings)
    assert isinstance(source, OfflineSource)
    return source


def outlined(config: Settings, spec: Spec, num_envs: int = 0) -> Any:
    """An algorithm on torch's `meta` device, where tensors have shapes and no numbers."""
    with META:
        context = BuildContext(spec, 100, 0, META, num_envs=num_envs, policies=frozen(config, spec))
        return find_algorithm(config.model_dump()["name"]).build(config, context)


def networks(algorithm: Any) -> dict[str, nn.Module]:
    """Everything with parameters, by path, in the algorithm or in its branches."""
    found = {}
    for field, value in vars(algorithm).items():
        if isinstance(value, nn.Module):
            found[field] = value
        elif isinstance(value, dict):
            for key, branch in value.items():
                inner = vars(branch).items() if is_dataclass(branch) else ()
                found |= {f"{field}.{key}.{name}": part for name, part in inner if isinstance(part, nn.Module)}
    return found


def differences(left: State, right: State) -> list[str]:
    """Paths whose leaves differ in any bit, or are on one side only."""
    paths = sorted(left.keys() | right.keys())
    return [path for path in paths if path not in left or path not in right or not _same(left[path], right[path])]


def _same(left: object, right: object) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and _bits(left) == _bits(right)
    return type(left) is type(right) and left == right


def _bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()

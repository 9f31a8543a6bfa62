"""A live algorithm with its source, small, and without a run directory around it."""

from dataclasses import dataclass, is_dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from understudy import Dataset, RunConfig, Transitions
from understudy.algorithms import find_algorithm
from understudy.core.protocols import Blueprint, Metrics
from understudy.core.settings import Settings
from understudy.core.spec import Spec
from understudy.core.state import State
from understudy.nn.mlp import NetworkSettings
from understudy.run.build import build_learner
from understudy.run.offline import OfflineLearner
from understudy.run.progress import SILENT, Reporter
from understudy.sources.offline import OfflineSource
from worlds import random_choices, random_dataset, takes_boxes

CPU, META = torch.device("cpu"), torch.device("meta")


@final
@dataclass
class Learning:
    """What a run moves, and nothing else."""

    algorithm: Any
    source: OfflineSource

    def update(self, times: int = 1) -> Metrics:
        metrics: Metrics = {}
        for _ in range(times):
            metrics = self.algorithm.update(self.batch())
        return metrics

    def batch(self) -> Transitions:
        return self.source.next(self.algorithm.policy)


def network_fields(config: type[Settings]) -> list[str]:
    """Settings that are the shape of a network."""
    kinds = {name: field.annotation for name, field in config.model_fields.items()}
    return [name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, NetworkSettings)]


def tiny_algorithm(name: str, network: dict[str, Any] | None = None, **changes: Any) -> Settings:
    """Any algorithm's settings, with networks of a few units."""
    config = find_algorithm(name).Config
    shape = {"hidden": [16, 16], **(network or {})}
    return config.parse({"name": name, **dict.fromkeys(network_fields(config), shape), **changes}, "algo")


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
    algorithm: Any = find_algorithm(name).build(config, Blueprint(data.spec, data.moments(), updates, seed, CPU))
    return Learning(algorithm, OfflineSource.build(data, algorithm.demand, batch_size, seed, CPU))


def outlined(config: Settings, spec: Spec, environments: int = 0) -> Any:
    """An algorithm on torch's `meta` device, where tensors have shapes and no numbers."""
    with META:
        blueprint = Blueprint(spec, {}, 100, 0, META, environments=environments)
        return find_algorithm(config.model_dump()["name"]).build(config, blueprint)


def offline_learner(config: RunConfig, reporter: Reporter = SILENT) -> OfflineLearner:
    """What a run that learns from data moves."""
    learner = build_learner(config, reporter)
    assert isinstance(learner, OfflineLearner)
    return learner


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

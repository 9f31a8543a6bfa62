"""Numbers that environments tell in `info`, as one number per episode: what a return does not say of the task.

`is_success` (Fetch, and what Stable-Baselines3 reads) counts as it stands in the last step, `success` (AntMaze, Adroit,
Meta-World) if it was ever there; whatever else is wanted is named in a config's `eval_info`, with how it is summed up.
"""

from collections.abc import Mapping
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from understudy.core.spec import Spec
from understudy.data.success import SUCCESS
from understudy.envs.vector.contract import Step
from understudy.run.task_metrics import TaskMetrics

Summary = Literal["final", "mean", "max", "min", "sum"]


def wanted_info(asked: Mapping[str, Summary]) -> dict[str, Summary]:
    """What an evaluation looks for: what was asked, and success."""
    return {**SUCCESS, **asked}


def told_names(asked: Mapping[str, Summary] | None, metrics: TaskMetrics | None) -> tuple[str, ...]:
    """The numbers of infos that an evaluation reads."""
    measured = () if metrics is None else metrics.info_names
    return tuple(dict.fromkeys((*wanted_info(asked or {}), *measured)))


def info_number(value: Any) -> float:
    """A number or a flag as it was told; NaN for anything else."""
    if isinstance(value, (bool, int, float, np.bool_, np.number)):
        return float(value) if not isinstance(value, np.complexfloating) else float("nan")
    if isinstance(value, (np.ndarray, Tensor)) and value.ndim == 0 and str(value.dtype).find("complex") < 0:
        return info_number(value.item())
    return float("nan")


@final
class InfoTally:
    """Sums up what is told while episodes are played; a step that tells nothing of a name (NaN) changes nothing."""

    def __init__(self, wanted: Mapping[str, Summary], count: int) -> None:
        self._wanted, self._count = wanted, count
        self._sums: dict[str, Tensor] = {}
        self._steps: dict[str, Tensor] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._wanted)

    def add(self, extras: Mapping[str, Tensor], counts: Tensor) -> None:
        """`extras` [N] by name, of which rows count where `counts` [N]."""
        for name, how in self._wanted.items():
            if name in extras:
                values = extras[name].detach().cpu().double()
                self._add(name, how, values, counts & ~values.isnan())

    def _add(self, name: str, how: Summary, values: Tensor, counts: Tensor) -> None:
        if name not in self._sums:
            self._sums[name] = torch.zeros(self._count, dtype=torch.float64)
            self._steps[name] = torch.zeros(self._count, dtype=torch.int64)
        before, steps = self._sums[name], self._steps[name]
        if how == "final":
            joined = values
        elif how in ("max", "min"):
            joined = torch.where(steps > 0, (torch.maximum if how == "max" else torch.minimum)(before, values), values)
        else:
            joined = before + values
        self._sums[name] = torch.where(counts, joined, before)
        self._steps[name] = steps + counts

    def told(self, episodes: int) -> dict[str, tuple[float, ...]]:
        """By name, one number of each of the first episodes; NaN of one that never told it."""
        found = {}
        for name, values in self._sums.items():
            steps = self._steps[name][:episodes]
            shares = values[:episodes] / (steps.clamp(min=1) if self._wanted[name] == "mean" else 1)
            if bool((steps > 0).any()):
                found[name] = tuple(torch.where(steps > 0, shares, torch.nan).tolist())
        return found


@final
class EpisodeTally:
    """All that is told and measured of episodes beside their returns."""

    def __init__(
        self, asked: Mapping[str, Summary] | None, metrics: TaskMetrics | None, spec: Spec, count: int
    ) -> None:
        self.names = told_names(asked, metrics)
        self._info = InfoTally(wanted_info(asked or {}), count)
        self._tasks = {} if metrics is None else metrics.tallies(spec, count)

    def add(self, step: Step, action: Tensor, counts: Tensor) -> None:
        self._info.add(step.extras, counts)
        for task in self._tasks.values():
            task.add(step, action, counts)

    def told(self, episodes: int) -> dict[str, tuple[float, ...]]:
        return self._info.told(episodes)

    def measured(self, episodes: int) -> dict[str, tuple[float, ...]]:
        """Task metrics by name, where any of the first episodes gave a number."""
        found = {name: task.told()[:episodes] for name, task in self._tasks.items()}
        return {name: tuple(values.tolist()) for name, values in found.items() if not bool(values.isnan().all())}


def describe_info(told: Mapping[str, tuple[float, ...]], asked: Mapping[str, Summary]) -> dict[str, Any]:
    """For a line of eval.jsonl: `eval/<name>_<how>`, the mean over episodes that told it; and `eval/success_rate`.

    An episode that never spoke of success, where others did, had none.
    """
    record: dict[str, Any] = {}
    for name, values in told.items():
        if name in SUCCESS and "eval/success_rate" not in record:
            record["eval/success_rate"] = float(np.mean(np.nan_to_num(np.asarray(values), nan=0.0) > 0))
        if name in asked:
            record[f"eval/{name}_{asked[name]}"] = float(np.nanmean(np.asarray(values)))
    return record

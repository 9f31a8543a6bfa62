"""What a run is worth in a search: the last evaluations of one of its metrics, or an offline criterion by name.

Never the best of its curve: the largest of many noisy numbers says more of the noise than of the policy, and a search
takes the largest of them once more.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np

from understudy.core.errors import ConfigError, did_you_mean
from understudy.run.config import ACTION_ERROR, RunConfig
from understudy.run.evaluation import evaluated_numbers
from understudy.run.history import measured
from understudy.run.run import Run
from understudy.tools.ope.evaluation import offline_value


class Criterion(Protocol):
    """One number per run."""

    @property
    def name(self) -> str: ...

    @property
    def lowest(self) -> bool:
        """Less is better."""
        ...

    @property
    def along_the_way(self) -> bool:
        """Every evaluation of a run that is not finished tells it, so that trials can be pruned by it."""
        ...

    def check(self, config: RunConfig) -> None:
        """An error if runs of this config could not be measured."""
        ...

    def value(self, run: Run) -> float:
        """Of a finished run; NaN if nothing could be said."""
        ...


@final
@dataclass(frozen=True)
class LastEvaluations:
    """The mean of the last evaluations of the metric that a run is judged by (`best` in its config)."""

    name: str
    lowest: bool
    last: int = 1
    along_the_way: bool = True

    def check(self, config: RunConfig) -> None:
        if not config.eval_every:
            raise ConfigError("eval_every", "is 0, and trials are judged by their evaluations", do="Give eval_every=….")
        if self.last > (planned := -(-config.updates // config.eval_every)):
            raise ConfigError(
                "--last", "more evaluations than a trial has", got=self.last, expected=f"at most {planned}"
            )

    def value(self, run: Run) -> float:
        return last_mean(run.evaluations(), run.config, self.last)


def last_mean(evaluations: list[dict[str, Any]], config: RunConfig, last: int) -> float:
    """Mean over the last evaluations that gave a number; NaN if none did."""
    values = [measured(record, config) for record in evaluations[-last:]]
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


@final
@dataclass(frozen=True)
class FittedQ:
    """What fitted Q evaluation, trained afresh on the run's own data and in the same way for all, expects of its last
    policy (`understudy ope`)."""

    name: str = "fqe"
    lowest: bool = False
    along_the_way: bool = False

    def check(self, config: RunConfig) -> None:
        if config.data is None:
            raise ConfigError("--metric", "fqe judges from data, and this config reads none", do="Give data.path=….")

    def value(self, run: Run) -> float:
        return offline_value(run.path, out=run.path / KEPT).value


KEPT = "fqe"
"""Where a run keeps what it was judged to be worth, so that it is judged once."""
CRITERIA: Mapping[str, Callable[[], Criterion]] = {"fqe": FittedQ}
"""Criteria that are no metric of an evaluation, by the name that `--metric` gives them."""


def criterion_of(metric: str, config: RunConfig, last: int) -> Criterion:
    """By what the runs of a config are compared: `metric`, or what they are judged by anyway."""
    if metric in CRITERIA:
        return CRITERIA[metric]()
    if metric and not metric.startswith("eval/"):
        known = [*CRITERIA, *([ACTION_ERROR] if config.env is None else evaluated_numbers(config))]
        means = [name for name in known if name == f"eval/{metric}_mean"]
        do = did_you_mean(means[0] if means else f"eval/{metric}", known)
        raise ConfigError("--metric", "no such metric", got=f"'{metric}'", do=do)
    return LastEvaluations(config.best_metric, config.best_lowest, last)

"""What a run is worth in a search: the last evaluations of one of its metrics, or an offline criterion by name.

Never the best of its curve: the largest of many noisy numbers says more of the noise than of the policy, and a search
takes the largest of them once more.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, final

import numpy as np

from understudy.core.errors import ConfigError, DivergenceError, did_you_mean
from understudy.data.dataset import Dataset
from understudy.run.config import ACTION_ERROR, RunConfig
from understudy.run.evaluation import evaluated_numbers
from understudy.run.history import measured
from understudy.run.run import Run
from understudy.tools.ope.evaluation import check_data, evaluate_offline
from understudy.tools.ope.settings import Settings

FQE = KEPT = "fqe"
"""As `--metric` calls it; and where a run keeps what it was judged to be worth, so that it is judged once."""
FQE_NUMBERS = ("gamma", "learning_rate", "polyak")
FQE_SETTINGS = ("updates", "seeds", "batch_size", *FQE_NUMBERS)
"""What may be said of it."""


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

    def check(self, config: RunConfig, dataset: Dataset | None = None) -> None:
        """An error if runs of this config, that learn from this, could not be measured."""
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

    def check(self, config: RunConfig, dataset: Dataset | None = None) -> None:
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

    name: str = FQE
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of `evaluate_offline`, where they are not its own: `fqe:updates=5000,seeds=1`."""
    lowest: bool = False
    along_the_way: bool = False

    def check(self, config: RunConfig, dataset: Dataset | None = None) -> None:
        if config.data is None:
            raise ConfigError("--metric", "fqe judges from data, and this config reads none", do="Give data.path=….")
        if dataset is not None:
            check_data(Settings(**self.settings), dataset)

    def value(self, run: Run) -> float:
        best = evaluate_offline(run.path, out=run.path / KEPT, progress=False, **self.settings).best
        if best.diverged:  # what it says is no value
            raise DivergenceError(f"run '{run.path}'", "critics that judge its policy diverged")
        return best.estimate.value


def fitted_q(words: str) -> FittedQ:
    """`fqe`, or with settings of its own: `fqe:updates=5000,seeds=1`."""
    settings: dict[str, Any] = {}
    for word in filter(None, words.removeprefix(FQE).removeprefix(":").split(",")):
        key, _, text = (part.strip() for part in word.partition("="))
        if key not in FQE_SETTINGS:
            do = did_you_mean(key, FQE_SETTINGS)
            raise ConfigError("--metric", "no such setting of fqe", got=f"'{word}'", do=do)
        settings[key] = _number(text, key)
    Settings(**settings).checked()
    return FittedQ(words, settings)


def _number(text: str, key: str) -> int | float:
    try:
        return float(text) if key in FQE_NUMBERS else int(text)
    except ValueError as error:
        raise ConfigError(f"--metric fqe: {key}", "wrong value", got=f"'{text}'", expected="a number") from error


def is_offline(metric: str) -> bool:
    """No metric of an evaluation, but a criterion by its name."""
    return metric.partition(":")[0] == FQE


def criterion_of(metric: str, config: RunConfig, last: int) -> Criterion:
    """By what the runs of a config are compared: `metric`, or what they are judged by anyway."""
    if is_offline(metric):
        return fitted_q(metric)
    if metric and not metric.startswith("eval/"):
        known = [FQE, *([ACTION_ERROR] if config.env is None else evaluated_numbers(config))]
        means = [name for name in known if name == f"eval/{metric}_mean"]
        do = did_you_mean(means[0] if means else f"eval/{metric}", known)
        raise ConfigError("--metric", "no such metric", got=f"'{metric}'", do=do)
    return LastEvaluations(config.best_metric, config.best_lowest, last)

"""What came of an evaluation: every episode's return and length, an interval, a score; and the one number that is shown
of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from understudy.core.rng import derived_seed
from understudy.core.wording import counted
from understudy.data.scores import normalized_score, normalized_spread
from understudy.run.config import ACTION_ERROR, RETURN, RunConfig
from understudy.run.episode_info import Summary, describe_info, wanted_info

RESAMPLES = 2000


@final
@dataclass(frozen=True, repr=False)
class Evaluation:
    """What a policy earned: a return and a length for every episode."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    reference: str | tuple[float, float] | None = None
    info: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """What the environment told of each episode in its `info`, by name: success, and what `eval_info` asked for."""
    asked: Mapping[str, Summary] = field(default_factory=dict)
    """What was asked for beside success, and how it was summed up."""
    seconds: float = field(default=0.0, compare=False)
    """The clock's, of all episodes together."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Further numbers, such as those of held-out episodes. Where there is no environment, they are all there is."""
    measured: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Task metrics of each episode by name (`eval_metrics`); NaN of one that gave no number."""
    approximation: str = ""
    """Why a score is only near to that of the benchmark it is named after; empty of most environments."""

    @property
    def mean(self) -> float:
        """NaN where nothing was played."""
        return float(np.mean(self.returns)) if self.returns else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        return bootstrap_interval(np.asarray(self.returns)) if self.returns else (float("nan"), float("nan"))

    @property
    def score(self) -> float | None:
        return None if self.reference is None else normalized_score(self.reference, self.mean)

    @property
    def success_rate(self) -> float | None:
        """The share of episodes that succeeded; None where the environment does not tell."""
        found = describe_info(self.info, {}).get("eval/success_rate")
        return None if found is None else float(found)

    @property
    def untold(self) -> tuple[str, ...]:
        """What was asked for, and the environment never told."""
        return tuple(name for name in self.asked if name not in self.info)

    @property
    def steps_per_second(self) -> float:
        """Steps of environments."""
        return sum(self.lengths) / max(self.seconds, 1e-9)

    def __repr__(self) -> str:
        if not self.returns:
            told = ", ".join(f"{name.removeprefix('eval/')} {value:.4g}" for name, value in self.metrics.items())
            return f"Evaluation(on held-out episodes: {told})"
        low, high = self.interval
        about = " (an approximation)" if self.approximation else ""
        score = "" if self.score is None else f", score {self.score:.1f}{about}"
        success = "" if self.success_rate is None else f", success {self.success_rate:.0%}"
        count = counted(len(self.returns), "episode")
        return f"Evaluation(return {self.mean:.4g} over {count}, 95 % {low:.4g} to {high:.4g}{score}{success})"

    def notes(self) -> Iterator[str]:
        """What there is to say beside the return, one line each."""
        if self.approximation:
            yield self.approximation
        if self.success_rate is not None:
            yield f"success rate {self.success_rate:.1%}"
        told = describe_info(self.info, self.asked) | self._task_metrics()
        told.pop("eval/success_rate", None)
        told |= {name: value for name, value in self.metrics.items() if name.startswith("eval/")}
        yield from (f"{name.removeprefix('eval/')} {value:.4g}" for name, value in told.items())
        if not self.lengths:
            return
        spread = f"lengths {min(self.lengths):,} to {max(self.lengths):,}, mean {np.mean(self.lengths):,.1f}"
        yield f"{spread}  ({self.seconds / len(self.lengths):.2g} s per episode, {self.steps_per_second:,.0f} steps/s)"

    def _task_metrics(self) -> dict[str, float]:
        return {f"eval/{name}": float(np.nanmean(values)) for name, values in self.measured.items()}

    def to_json(self) -> dict[str, Any]:
        """All but what the clock decides."""
        if not self.returns:
            return dict(self.metrics)
        low, high = self.interval
        record = {
            "eval/return_mean": self.mean,
            "eval/return_std": float(np.std(self.returns)),
            "eval/return_low": low,
            "eval/return_high": high,
            "eval/length_mean": float(np.mean(self.lengths)),
            "eval/length_std": float(np.std(self.lengths)),
            **describe_info(self.info, self.asked),
            **self._task_metrics(),
            "returns": list(self.returns),
            "lengths": list(self.lengths),
        }
        if self.reference is not None:
            record["eval/score"] = normalized_score(self.reference, self.mean)
            record["eval/score_std"] = normalized_spread(self.reference, float(np.std(self.returns)))
        about = {"eval/approximate": 1.0} if self.approximation else {}
        return {**record, **about, **self.metrics}


def evaluated_numbers(config: RunConfig) -> list[str]:
    """What an evaluation in an environment may tell, by name; of success, if that speaks of it."""
    silent = dict.fromkeys(wanted_info(config.eval_info), (0.0,))
    measured = dict.fromkeys(config.task_metrics, (0.0,))
    told = Evaluation((0.0,), (0,), config.world.reference, silent, config.eval_info, measured=measured).to_json()
    return [name for name in told if name.startswith("eval/")]


def headline(record: Mapping[str, Any]) -> str:
    """The one number of an evaluation or a result that is shown while a run trains, and after it."""
    if RETURN in record:
        return f"return {record[RETURN]:.1f}"
    return f"action error {record[ACTION_ERROR]:.3g}" if ACTION_ERROR in record else "not evaluated"


def bootstrap_interval(values: NDArray[np.float64], level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean, with a fixed stream: the same values give the same interval."""
    rng = np.random.default_rng(derived_seed(0, "bootstrap"))
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)

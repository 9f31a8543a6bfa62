"""One trial, run to its end: a run for each seed, in a directory of its own, begun or gone on with.

A trial that falls behind is pruned. With one seed, where the median of the trials before it was better at the same
update (Optuna's MedianPruner). With several, within a run by the same rule, against the run of the same seed of each
complete trial; and between runs where Wilcoxon's signed-rank test says that its seeds do worse than the same seeds of
the best trial (Optuna's WilcoxonPruner; at p < 0.1 it takes four seeds before it can say so).
"""

import errno
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, final

from understudy.core.errors import DivergenceError, RunError, UnderstudyError
from understudy.core.stopping import StoppedError
from understudy.run.callbacks import Callback
from understudy.run.config import RunConfig
from understudy.run.history import measured
from understudy.run.identity import NoWayOnError
from understudy.run.loop import InterruptedRunError
from understudy.run.progress import SILENT
from understudy.run.run import Run
from understudy.run.rundir import RunDir
from understudy.run.session import resume, train
from understudy.tools.experiments.work import HOPELESS, check_same_run
from understudy.tools.trials import Watch
from understudy.tools.tuning.study import MEDIAN_OF, STARTUP_TRIALS, VALUES, WARM_UP, Claim, Study

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class NoRoomError(RunError):
    """Nothing can be written: no fault of a trial."""


STOPPED = (InterruptedRunError, StoppedError, NoRoomError)
"""What leaves a run as it is, for the same command to go on with."""


@final
@dataclass(frozen=True)
class Work:
    """How trials are worked on, beside what they are."""

    retries: int = 2
    """Attempts after the first, at what may come to another end."""
    beat: Callback | None = None
    """Hears of every run, to show how far it is."""


class PrunedError(Exception):
    """A trial that is not worth going on with, and why."""


def run_trial(study: Study, claim: Claim, work: Work) -> None:
    """Work on a trial until it is told to the study, or has failed once more. A signal and a full disk go on up, and so
    leave it to be claimed again."""
    try:
        with told_if_full(study.folder):
            value = _value(study, claim, work)
        study.complete_trial(claim, value)
    except PrunedError as pruned:
        study.prune_trial(claim, str(pruned))
    except DivergenceError as error:  # the sampler shall know that this is no place to look
        study.prune_trial(claim, f"diverged: {error}")
    except STOPPED:
        raise
    except Exception as error:
        _note_failure(study, claim, error, work.retries)
    finally:
        claim.release()


@contextmanager
def told_if_full(folder: Path) -> Iterator[None]:
    """What fails inside because nothing can be written ends the search, and not one trial after the other."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError) and cause.errno in NO_ROOM:
                do = "Make room, and the same command goes on."
                raise NoRoomError(f"tuning '{folder}'", f"nothing can be written ({cause})", do=do) from error
            cause = cause.__cause__
        raise


def _note_failure(study: Study, claim: Claim, error: Exception, retries: int) -> None:
    reason = told(error)
    if study.add_failure(claim, reason) > retries or isinstance(error, HOPELESS):
        study.fail_trial(claim, reason)


def told(error: Exception) -> str:
    return str(error) if isinstance(error, UnderstudyError) else f"{type(error).__name__}: {error}"


def _value(study: Study, claim: Claim, work: Work) -> float:
    """Mean over the seeds of what the criterion says of them."""
    plan, values = study.plan, dict[str, float]()
    for number, seed in enumerate(plan.search_seeds()):
        place = claim.folder / str(seed)
        config = plan.run_config(claim.words, seed, place, f"trial {claim.number}")
        watch = Watch(_judge(study, claim, config, seed), config) if plan.criterion.along_the_way else None
        run = finish(config, work, watch)
        value = plan.criterion.value(run)
        if math.isnan(value):
            raise RunError(f"run '{place}'", f"{plan.criterion.name} gave no number", do=f"See {place}/eval.jsonl.")
        values[str(seed)] = value
        study.note(claim, VALUES, values)
        if plan.seeds > 1:
            study.report(claim, value, number)
            if number + 1 < plan.seeds and study.should_prune(claim):
                raise PrunedError(f"worse than the best after {number + 1} of {plan.seeds} seeds")
    return sum(values.values()) / len(values)


def finish(config: RunConfig, work: Work, watch: Watch | None = None) -> Run:
    """A run that has reached its end, from wherever it is; `watch` may find it not worth that."""
    run, heard = RunDir(config.out), [one for one in (watch, work.beat) if one is not None]
    given: dict[str, Any] = {"callbacks": heard, "reporter": SILENT}
    begun = run.config_file.exists() and check_same_run(run, config)
    if begun and run.finished:
        return Run(run.path)
    if begun and watch is not None and (lines := run.evaluations()):
        for line in lines[:-1]:
            watch.hear(line["updates"], line)  # it went on after those
        _go_on_unless(watch.hear(lines[-1]["updates"], lines[-1]), lines[-1]["updates"])
    try:
        done = resume(run.path, **given) if begun else train(config, **given)
    except NoWayOnError:
        done = train(config, overwrite=True, **given)
    _go_on_unless(watch is not None and watch.pruned and not done.finished, run.result["updates"])
    return done


def _go_on_unless(pruned: bool, updates: int) -> None:
    if pruned:
        raise PrunedError(f"behind the median at update {updates:,}")


def _judge(study: Study, claim: Claim, config: RunConfig, seed: int) -> "OneSeed | SeedOfSeveral":
    if study.plan.seeds == 1:
        return OneSeed(study, claim)
    others = [study.trial_folder(row.number) / str(seed) for row in study.complete()]
    curves = [curve_of(place, config) for place in others]
    return SeedOfSeveral(claim.number, curves, config.updates // WARM_UP, lowest=study.plan.criterion.lowest)


@final
class OneSeed:
    """The only run of a trial is reported to Optuna at its updates."""

    def __init__(self, study: Study, claim: Claim) -> None:
        self.number = claim.number
        self._study, self._claim = study, claim

    def report(self, value: float, step: int) -> None:
        self._study.report(self._claim, value, step)

    def should_prune(self) -> bool:
        return self._study.should_prune(self._claim)

    def set_user_attr(self, key: str, value: Any) -> None:
        self._study.note(self._claim, key, value)


@final
class SeedOfSeveral:
    """One run of several is compared with the runs of its seed: to Optuna each seed is one step."""

    def __init__(self, number: int, curves: Sequence[Mapping[int, float]], warm_up: int, *, lowest: bool) -> None:
        self.number = number
        self._curves, self._warm_up, self._lowest = curves, warm_up, lowest
        self._own: dict[int, float] = {}

    def report(self, value: float, step: int) -> None:
        self._own[step] = value

    def should_prune(self) -> bool:
        return falls_behind(self._own, self._curves, self._warm_up, lowest=self._lowest)

    def set_user_attr(self, key: str, value: Any) -> None:
        """Nothing is kept."""


def falls_behind(
    own: Mapping[int, float], others: Sequence[Mapping[int, float]], warm_up: int, *, lowest: bool
) -> bool:
    """Whether the best of a curve so far {updates: value} is worse than the median of the others at its last update;
    as Optuna's MedianPruner has it."""
    step = max(own)
    there = [curve[step] for curve in others if not math.isnan(curve.get(step, math.nan))]
    if step < warm_up or len(others) < STARTUP_TRIALS or len(there) < MEDIAN_OF:
        return False
    sign = -1.0 if lowest else 1.0
    known = [sign * value for value in own.values() if not math.isnan(value)]
    return not known or max(known) < median(sign * value for value in there)


def curve_of(place: Path, config: RunConfig) -> dict[int, float]:
    """What evaluations said of a run, by updates."""
    return {line["updates"]: measured(line, config) for line in RunDir(place).evaluations()}

"""The second step: the best of a search again, on seeds that it never saw, beside the config as it was given.

A search takes the largest of many noisy numbers, so its best looks better than it is. Fresh seeds know nothing of the
choice: their mean is what the settings are worth, and they decide who wins.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from understudy.core.lock import hold_file, release
from understudy.core.wording import counted
from understudy.run.run import Run
from understudy.run.rundir import RunDir
from understudy.tools.experiments.sequential import BETTER, Design, decide
from understudy.tools.experiments.statistics import Estimate, difference, interval, mean, paired_interval
from understudy.tools.experiments.work import HOPELESS
from understudy.tools.tuning.plan import GIVEN
from understudy.tools.tuning.study import WORKED_ON, Study, TrialRow, hold_folder
from understudy.tools.tuning.trial import STOPPED, Work, finish, told, told_if_full

CONFIRMED = "confirmed"
FEWEST = 4
"""Fresh seeds of which a permutation test of two can say anything at the level of 5 %."""
FAILED_RUNS, GIVEN_UP, FRESH_WORKERS = "failed_runs", "given_up", "fresh_workers"
"""Of the study: attempts that failed, by their place; those that would fail again; who is at which."""


@final
@dataclass(frozen=True)
class Candidate:
    """Settings that are tried on fresh seeds."""

    name: str
    """The trial's number, or what the config itself is called."""
    words: tuple[str, ...]
    search_value: float | None
    """What the search said of it."""

    @property
    def title(self) -> str:
        return "as given" if self.name == GIVEN else f"trial {self.name}"


@final
@dataclass(frozen=True)
class Confirmed:
    """What came of it."""

    candidate: Candidate
    values: Mapping[str, float]
    """One number per fresh seed."""
    failures: Mapping[str, str]
    """Seeds that gave none, and why."""

    @property
    def estimate(self) -> Estimate:
        """Mean over seeds with its interval; NaN of one that failed on any of them: what it is worth nobody knows."""
        if self.failures or not self.values:
            return Estimate(math.nan, math.nan, math.nan)
        return interval(mean, [self.scores()])

    def scores(self) -> Any:
        return np.array(list(self.values.values()), np.float64)

    def to_json(self) -> dict[str, Any]:
        estimate = self.estimate
        numbers = {"mean": estimate.value, "low": estimate.low, "high": estimate.high}
        known = {name: value for name, value in numbers.items() if math.isfinite(value)}
        told = {"name": self.candidate.name, "settings": list(self.candidate.words), "seeds": dict(self.values)}
        return {**told, "search_value": self.candidate.search_value, **known, "failures": dict(self.failures)}


@final
@dataclass(frozen=True)
class FreshRun:
    """One run of a candidate."""

    candidate: Candidate
    seed: int
    place: Path


def candidates(study: Study, top: int) -> list[Candidate]:
    """The best of a search and, to compare with, the config as it is."""
    complete = study.complete()
    own = next((row for row in study.rows() if row.number == 0 and study.own_settings() is not None), None)
    others = [row for row in complete if own is None or row.words != own.words]
    given = next((row.value for row in complete if own is not None and row.number == 0), None)
    best = [Candidate(str(row.number), row.words, row.value) for row in distinct(others)[:top]]
    return [*best, Candidate(GIVEN, (), given)] if top else []


def distinct(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """The first of all that tried the same."""
    found: dict[tuple[str, ...], TrialRow] = {}
    for row in rows:
        found.setdefault(row.words, row)
    return list(found.values())


def fresh_runs(study: Study, chosen: Sequence[Candidate], fresh: int) -> list[FreshRun]:
    """All there is to do, seed by seed, so that the first numbers of all are there early."""
    folder = study.folder / CONFIRMED
    seeds = study.plan.fresh_seeds(fresh)
    return [FreshRun(one, seed, folder / one.name / str(seed)) for seed in seeds for one in chosen]


def work_off_fresh(study: Study, runs: Sequence[FreshRun], work: Work) -> None:
    """Every run that nobody works on, to its end."""
    while (claimed := _claim(study, runs, work.retries)) is not None:
        run, handle = claimed
        try:
            config = study.plan.run_config(run.candidate.words, run.seed, run.place, run.candidate.title)
            with told_if_full(study.folder):
                study.plan.criterion.value(finish(config, work))  # what takes long to judge is judged by who has it
        except STOPPED:
            raise
        except Exception as error:
            _add_failure(study, run, told(error), again=not isinstance(error, HOPELESS))
        finally:
            release(handle)


def blame_fresh(study: Study, runs: Sequence[FreshRun], worker: str, reason: str) -> bool:
    """A worker died: that counts as an attempt at the run that it was in the middle of. False if there is none."""
    workers = dict(study.optuna.user_attrs.get(FRESH_WORKERS, {}))
    held = [run for run in runs if workers.get(_key(run)) == worker and not RunDir(run.place).finished]
    for run in held:
        _add_failure(study, run, reason)
    return bool(held)


def _claim(study: Study, runs: Sequence[FreshRun], retries: int) -> tuple[FreshRun, int] | None:
    with hold_folder(study.folder):
        for run in unfinished(study, runs, retries):
            run.place.mkdir(parents=True, exist_ok=True)
            try:
                handle = hold_file(run.place.with_name(f".{run.seed}{WORKED_ON}"))
            except BlockingIOError:
                continue
            workers = study.optuna.user_attrs.get(FRESH_WORKERS, {})
            study.optuna.set_user_attr(FRESH_WORKERS, {**workers, _key(run): study.worker})
            return run, handle
    return None


def unfinished(study: Study, runs: Sequence[FreshRun], retries: int) -> list[FreshRun]:
    failed, given_up = failed_runs(study), study.optuna.user_attrs.get(GIVEN_UP, [])
    left = [run for run in runs if _key(run) not in given_up and len(failed.get(_key(run), ())) <= retries]
    return [run for run in left if not RunDir(run.place).finished]


def failed_runs(study: Study) -> dict[str, list[str]]:
    return dict(study.optuna.user_attrs.get(FAILED_RUNS, {}))


def _add_failure(study: Study, run: FreshRun, reason: str, *, again: bool = True) -> None:
    with hold_folder(study.folder):
        failed = failed_runs(study)
        study.optuna.set_user_attr(FAILED_RUNS, {**failed, _key(run): [*failed.get(_key(run), []), reason]})
        if not again:
            study.optuna.set_user_attr(GIVEN_UP, [*study.optuna.user_attrs.get(GIVEN_UP, []), _key(run)])


def _key(run: FreshRun) -> str:
    return f"{run.candidate.name}/{run.seed}"


def confirmed(study: Study, runs: Sequence[FreshRun]) -> list[Confirmed]:
    """What fresh seeds said, the best first; those that failed on one come last."""
    failed, criterion = failed_runs(study), study.plan.criterion
    found: dict[str, Confirmed] = {}
    for run in runs:
        known = found.get(run.candidate.name, Confirmed(run.candidate, {}, {}))
        values, failures = dict(known.values), dict(known.failures)
        value, reason = _judged(study, run) if RunDir(run.place).finished else (math.nan, "")
        if math.isfinite(value):
            values[str(run.seed)] = value
        else:
            known_reason = next(reversed(failed.get(_key(run), [])), f"{criterion.name} gave no number")
            failures[str(run.seed)] = reason or known_reason
        found[run.candidate.name] = Confirmed(run.candidate, values, failures)
    return ranked(list(found.values()), lowest=criterion.lowest)


def ranked(found: Sequence[Confirmed], *, lowest: bool) -> list[Confirmed]:
    """The best first; of equals the config as it is."""
    sign = 1.0 if lowest else -1.0

    def rank(one: Confirmed) -> tuple[bool, float, bool]:
        return bool(one.failures), sign * _known(one.estimate.value), one.candidate.name != GIVEN

    return sorted(found, key=rank)


def _judged(study: Study, run: FreshRun) -> tuple[float, str]:
    """What a finished run is worth; why nobody can say."""
    try:
        return study.plan.criterion.value(Run(run.place)), ""
    except STOPPED:
        raise
    except Exception as error:
        return math.nan, told(error)


def _known(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def verdict(found: Sequence[Confirmed], *, lowest: bool, seeds: int) -> list[str]:
    """What a search has come to, in sentences: how its best shrank, who wins on fresh seeds, and whether that is more
    than the config was worth anyway."""
    return list(_sentences(found, lowest=lowest, seeds=seeds))


def _sentences(found: Sequence[Confirmed], *, lowest: bool, seeds: int) -> Iterator[str]:
    sign = 1.0 if lowest else -1.0
    tried = [one for one in found if one.candidate.search_value is not None]
    if tried:
        best = min(tried, key=lambda one: sign * (one.candidate.search_value or 0.0))
        failed = f"failed on {len(best.failures)} of"
        now = failed if best.failures else f"became {shown(best.estimate)} on"
        value = number(best.candidate.search_value or 0.0)
        yield f"The search's {value} ({best.candidate.title}) {now} {counted(seeds, 'fresh seed')}."
    winner = found[0]
    if winner.failures:
        yield "Every one of the best failed on a fresh seed: nothing is confirmed."
        return
    if tried and winner is not best and winner.estimate.value != best.estimate.value:
        yield f"On these, {winner.candidate.title} is the best: {shown(winner.estimate)}."
    given = next((one for one in found if one.candidate.name == GIVEN), None)
    if given is winner:
        yield "Nothing that was searched does better than the config as it was given."
    elif given is not None and not given.failures:
        yield _gain(winner, [one for one in found if not one.failures], lowest=lowest)


def _gain(winner: Confirmed, whole: Sequence[Confirmed], *, lowest: bool) -> str:
    """How much better the winner is than the config, and whether that may be chance: a permutation test says so, of
    all who were tried, because the winner was chosen among them."""
    given = next(one for one in whole if one.candidate.name == GIVEN)
    gain = paired_interval(
        difference(mean), *([one.scores()] for one in ((given, winner) if lowest else (winner, given)))
    )
    told = f"The config as it was given: {shown(given.estimate)}; {winner.candidate.title} is better by "
    seeds = len(given.values)
    if seeds == 1:
        return f"{told}{number(gain.value)}, and one seed each cannot say whether by chance."
    if _told_apart(winner, whole, lowest=lowest):
        return f"{told}{shown(gain)}."
    more = f": it takes {FEWEST} to tell" if seeds < FEWEST else ": these seeds do not tell them apart"
    return f"{told}{number(gain.value)}, which may be chance{more}."


def _told_apart(winner: Confirmed, whole: Sequence[Confirmed], *, lowest: bool) -> bool:
    scores = {one.candidate.name: {"": one.scores()} for one in whole}
    pairs = [(name, GIVEN) for name in scores if name != GIVEN]
    design = Design(group=len(winner.values), looks=1)
    decisions = decide(scores, design, pairs=pairs, lowest_is_best=lowest)
    return decisions.of(winner.candidate.name, GIVEN).verdict == BETTER


def number(value: float) -> str:
    """With as many digits as its size deserves."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 10 else f"{value:.3g}"


def shown(estimate: Estimate) -> str:
    if not math.isfinite(estimate.low):
        return number(estimate.value)
    return f"{number(estimate.value)} (95 % {number(estimate.low)} to {number(estimate.high)})"

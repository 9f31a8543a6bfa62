"""A search in its folder: Optuna's study in a journal of JSON lines, and who works on which trial.

Any process may be killed at any moment. What it wrote is in the journal, whose torn last line the next writer cuts off;
the trial that it held is free again, because the kernel lets go of its lock, and whoever takes it goes on with its
runs, to the bit. Nothing waits for a heartbeat, and nothing is pickled: only Optuna's Redis backend keeps snapshots.
"""

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

from understudy.core.errors import RunError
from understudy.core.lock import hold_file, release
from understudy.core.rng import derived_seed
from understudy.tools.trials import import_optuna
from understudy.tools.tuning.plan import Plan
from understudy.tools.tuning.space import word_of

JOURNAL, TRIALS = "journal.log", "trials"
GIVING_OUT, WORKED_ON = ".giving-out", ".worker"
"""Files that are locked: by whoever takes work from a search, and by whoever works on a trial."""
PAUSE = 0.01
STARTUP_TRIALS, MEDIAN_OF = 5, 3
"""Finished trials before one is pruned, and those that must have come as far as it has."""
WARM_UP = 2
"""One part in so many of its updates a trial learns before it can be pruned: curves that cross do so early."""
HOPELESS_TRIALS = 3
"""If so many fail first, and none does not, so would all others."""
FEWEST_TO_WEIGH, TRIALS_PER_SETTING = 40, 10
"""Complete trials before it is said which setting mattered: of fewer, even mere chance seems to have a reason."""
SAMPLER_SEEDS = 2**32
FAILURES, REASON, VALUES, WORKER = "failures", "reason", "values", "worker"
"""What a trial keeps beside its settings: why attempts failed, why it ended, one number per seed, who is at it."""

State = Literal["complete", "pruned", "failed", "running"]


@final
@dataclass(frozen=True)
class TrialRow:
    """One trial as it stands."""

    number: int
    state: State
    settings: Mapping[str, str]
    """What was tried, as a command line would carry it."""
    value: float | None
    """Mean over its seeds; of one that is not complete nothing."""
    seeds: Mapping[str, float]
    """One number per seed that is finished."""
    reason: str
    """Why it was pruned, or failed."""
    failures: tuple[str, ...]
    """Attempts that did not come to an end."""
    seconds: float

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(f"{key}={word}" for key, word in self.settings.items())


@final
@dataclass(frozen=True)
class Claim:
    """A trial that one process works on; nobody else does while it lives."""

    number: int
    trial_id: int
    words: tuple[str, ...]
    folder: Path
    handle: int

    def release(self) -> None:
        release(self.handle)


class KernelLock:
    """Optuna's lock of a journal, held by a process and not by a file that outlives it. Whoever gets it finds whole
    lines."""

    def __init__(self, path: Path) -> None:
        self._path, self._handle = path, -1

    def acquire(self) -> bool:
        self._handle = hold_patiently(self._path)
        _cut_torn_line(self._path)
        return True

    def release(self) -> None:
        release(self._handle)


def hold_patiently(path: Path) -> int:
    """The lock of a file, waited for; those who have it are done in milliseconds."""
    while True:
        with suppress(BlockingIOError):
            return hold_file(path)
        time.sleep(PAUSE)


def _cut_torn_line(path: Path) -> None:
    """What a process was writing when it was killed."""
    with path.open("rb+") as file:
        end = size = file.seek(0, os.SEEK_END)
        while end:
            file.seek(start := max(end - 4096, 0))
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end != size:
            file.truncate(end)


@contextmanager
def quietly() -> Iterator[None]:
    """Optuna tells a log of its own of every trial, and warns of what is meant."""
    logging = import_optuna("tune").logging
    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)


@final
class Study:
    """The trials of a plan."""

    def __init__(self, folder: Path, plan: Plan, worker: str = "") -> None:
        """`worker` is how whoever started this process calls it."""
        self.folder, self.plan, self.worker, self._optuna = folder, plan, worker, import_optuna("tune")
        self._storage = self._opened(folder / JOURNAL)
        with hold_folder(folder):
            self.optuna = self._optuna.create_study(
                storage=self._storage,
                study_name="search",
                direction="minimize" if plan.criterion.lowest else "maximize",
                pruner=self._pruner(),
                load_if_exists=True,
            )

    @classmethod
    def open(cls, folder: Path, worker: str = "") -> "Study":
        return cls(folder, Plan.read(folder), worker)

    def _opened(self, journal: Path) -> Any:
        """The journal, as far as whole lines of it go."""
        where = f"tuning '{self.folder}'"
        if os.path.lexists(journal) and (journal.is_symlink() or not journal.is_file()):
            raise RunError(where, f"{JOURNAL} is no file of its own", do="Choose another --out.")
        backend = self._optuna.storages.journal.JournalFileBackend(str(journal), KernelLock(journal))
        try:
            return self._optuna.storages.JournalStorage(backend)
        except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError) as error:
            raise RunError(where, f"{JOURNAL} is damaged ({error})", do="Choose another --out.") from error

    def _pruner(self) -> Any:
        """Several seeds are told apart as instances of one problem are; a single one by how far it has come."""
        pruners = self._optuna.pruners
        if self.plan.seeds > 1:
            return pruners.WilcoxonPruner(p_threshold=0.1)
        if not self.plan.criterion.along_the_way:
            return pruners.NopPruner()
        warm_up = self.plan.base.updates // WARM_UP
        return pruners.MedianPruner(STARTUP_TRIALS, n_warmup_steps=warm_up, n_min_trials=MEDIAN_OF)

    def rows(self) -> list[TrialRow]:
        return [self._row(trial) for trial in self.optuna.get_trials(deepcopy=False)]

    def complete(self) -> list[TrialRow]:
        """Those with a value, the best first; of equals the first."""
        sign = 1.0 if self.plan.criterion.lowest else -1.0
        found = [(row, row.value) for row in self.rows() if row.state == "complete" and row.value is not None]
        return [row for row, _ in sorted(found, key=lambda pair: (sign * pair[1], pair[0].number))]

    def _row(self, trial: Any) -> TrialRow:
        states: dict[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        state = states.get(trial.state.name, "running")
        told = trial.user_attrs
        return TrialRow(
            trial.number,
            state,
            {key: word_of(trial.params[key]) for key in self.plan.dimensions if key in trial.params},
            trial.value if state == "complete" else None,
            told.get(VALUES, {}),
            told.get(REASON, ""),
            tuple(told.get(FAILURES, ())),
            trial.duration.total_seconds() if trial.duration is not None else 0.0,
        )

    def claim(self, trials: int) -> Claim | None:
        """A trial that nobody works on: one whose process died or that is to be tried again, or, if there are fewer
        than `trials`, a new one. None where there is nothing left to begin."""
        with hold_folder(self.folder):
            known = self.optuna.get_trials(deepcopy=False)
            for trial in known:
                if not trial.state.is_finished() and (claim := self._held(trial)) is not None:
                    return claim
            if len(known) >= trials or hopeless([row.state for row in map(self._row, known)]):
                return None
            return self._held(self._asked(len(known)))

    def _held(self, trial: Any) -> Claim | None:
        folder = self.trial_folder(trial.number)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = hold_file(folder / WORKED_ON)
        except BlockingIOError:
            return None
        self._storage.set_trial_user_attr(trial._trial_id, WORKER, self.worker)
        return Claim(trial.number, trial._trial_id, self._row(trial).words, folder, handle)

    def _asked(self, number: int) -> Any:
        """The next trial, written down whole or not at all, whenever this process dies.

        What is drawn depends on its number and on the trials before it, and not on how often somebody began anew; the
        first is the config as it is, where that lies in the space.
        """
        distributions = {key: one.distribution(self._optuna) for key, one in self.plan.dimensions.items()}
        drawn = (self.own_settings() if number == 0 else None) or self._drawn(number, distributions)
        trials, running = self._optuna.trial, self._optuna.trial.TrialState.RUNNING
        self.optuna.add_trial(trials.create_trial(state=running, params=drawn, distributions=distributions))
        return self.optuna.get_trials(deepcopy=False)[number]

    def _drawn(self, number: int, distributions: Mapping[str, Any]) -> dict[str, Any]:
        """What the sampler makes of the trials so far, in a copy of them."""
        seed = derived_seed(self.plan.base.seed, "tune", number) % SAMPLER_SEEDS
        direction, sampler = self.optuna.direction, self._optuna.samplers.TPESampler(seed=seed)
        copy = self._optuna.create_study(direction=direction, sampler=sampler)
        copy.add_trials(self.optuna.get_trials(deepcopy=False))
        return dict(copy.ask(distributions).params)

    def own_settings(self) -> dict[str, Any] | None:
        """The config's own place in the space, if it has one."""
        found = {key: one.position(self.plan.base) for key, one in self.plan.dimensions.items()}
        return None if None in found.values() else found

    def trial_folder(self, number: int) -> Path:
        return self.folder / TRIALS / str(number)

    def report(self, claim: Claim, value: float, step: int) -> None:
        self._storage.set_trial_intermediate_value(claim.trial_id, step, float(value))

    def should_prune(self, claim: Claim) -> bool:
        return bool(self.optuna.pruner.prune(self.optuna, self._storage.get_trial(claim.trial_id)))

    def note(self, claim: Claim, key: str, value: object) -> None:
        self._storage.set_trial_user_attr(claim.trial_id, key, value)

    def add_failure(self, claim: Claim, reason: str) -> int:
        """Attempts at a trial that failed, this one among them."""
        failures = [*self._storage.get_trial(claim.trial_id).user_attrs.get(FAILURES, []), reason]
        self.note(claim, FAILURES, failures)
        return len(failures)

    def complete_trial(self, claim: Claim, value: float) -> None:
        self.optuna.tell(claim.number, value)

    def prune_trial(self, claim: Claim, reason: str) -> None:
        self.note(claim, REASON, reason)
        self.optuna.tell(claim.number, state=self._optuna.trial.TrialState.PRUNED)

    def fail_trial(self, claim: Claim, reason: str) -> None:
        self.note(claim, REASON, reason)
        self.optuna.tell(claim.number, state=self._optuna.trial.TrialState.FAIL)

    def blame_worker(self, worker: str, reason: str, retries: int) -> bool:
        """A worker died: that counts as an attempt at the trial that it was in the middle of. False if it was not."""
        with hold_folder(self.folder):
            for trial in self.optuna.get_trials(deepcopy=False):
                if trial.state.is_finished() or trial.user_attrs.get(WORKER) != worker:
                    continue
                if (claim := self._held(trial)) is not None:
                    if self.add_failure(claim, reason) > retries:
                        self.fail_trial(claim, reason)
                    claim.release()
                    return True
        return False

    def importances(self) -> dict[str, float]:
        """The share of each setting in what made trials good; nothing where too few are complete to say."""
        values = [row.value for row in self.complete()]
        few = len(values) < max(FEWEST_TO_WEIGH, TRIALS_PER_SETTING * len(self.plan.dimensions))
        if few or len(self.plan.dimensions) < 2 or len(set(values)) < 2:
            return {}
        found = self._optuna.importance.get_param_importances(self.optuna)
        return {key: float(share) for key, share in found.items()}


def hopeless(states: Sequence[State]) -> bool:
    """Enough have failed, and none has come to another end."""
    return states.count("failed") >= HOPELESS_TRIALS and not {"complete", "pruned"} & set(states)


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """One process at a time gives out work."""
    handle = hold_patiently(folder / GIVING_OUT)
    try:
        yield
    finally:
        release(handle)

"""An experiment from its question to its answer: what `understudy bench` and `us.Experiment` both do."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from understudy.core.arguments import as_count, as_truth
from understudy.core.errors import ConfigError, RunError, did_you_mean
from understudy.core.wording import counted
from understudy.run.identity import differing_settings
from understudy.run.overrides import override_words, plain_data
from understudy.run.progress import Reporter, reporter_for
from understudy.run.rundir import RunDir
from understudy.run.suites import Suite, Task, find_task, load_suite
from understudy.tools.experiments.ablation import Differences
from understudy.tools.experiments.board import board_of
from understudy.tools.experiments.forecast import Forecast, forecast
from understudy.tools.experiments.launcher import Launcher, LocalLauncher
from understudy.tools.experiments.manager import Manager, Standing, usual_jobs
from understudy.tools.experiments.plan import Narrowing, Plan, make_plan
from understudy.tools.experiments.planned_looks import check_looks, keep_looks
from understudy.tools.experiments.results import Result, Results, lowest_is_best, read_result
from understudy.tools.experiments.sequential import UNDECIDED, Decision, Decisions, Design, decide
from understudy.tools.experiments.table import Scores, Table
from understudy.tools.experiments.verdict import verdict


@final
class Experiment:
    """Methods × tasks × seeds: `us.Experiment("pendulum-quick").run().table()`.

    What is compared is a suite (its name, a YAML file, or a mapping like one), of which `methods` and `tasks` choose;
    or methods by the names that tables call them, `{"IQL": "iql", "τ 0.9": {"config": "iql", "settings":
    {"algo.expectile": 0.9}}}`, or a suite that has no tasks (`baselines`), and `tasks`, mappings as in a suite or ids
    of the library's; or, on data of one's own, `data` and `env`. `settings` (or `overrides`, as `key=value`) are those
    of every run, and have the last word. Runs lie in `<out>/<method>/<task>/<seed>`. Making it finds what is wrong, and
    begins nothing; with `only_read` nor will running be asked for, and runs of other versions can be looked at.
    `accept_versions` goes on with unfinished runs that other versions began, and bits may differ. `against` is the
    method that all others are held against, and none against another, as the arms of an ablation against their base.
    """

    def __init__(
        self,
        what: str | Path | Suite | Mapping[str, Any],
        tasks: Sequence[str | Mapping[str, Any]] = (),
        seeds: int | Sequence[int] | None = None,
        *,
        methods: Sequence[str] = (),
        data: str | Path | Sequence[str | Path] = (),
        env: str = "",
        settings: Mapping[str, Any] | None = None,
        overrides: Sequence[str] = (),
        out: str | Path | None = None,
        name: str = "experiment",
        only_read: bool = False,
        accept_versions: bool = False,
        against: str = "",
    ) -> None:
        whole, narrowed = _suite_of(what, tasks, name)
        words = [*overrides, *override_words(settings or {}), *([f"env.id={env}"] if env else [])]
        places = [data] if isinstance(data, (str, Path)) else list(data)
        if not whole.tasks and len(places) == 1:
            words, places = [*words, f"data.path={places[0]}"], []
        wishes = Narrowing(
            [methods] if isinstance(methods, str) else methods,
            narrowed,
            seeds,
            words,
            [str(place) for place in places],
            None if out is None else Path(out),
            only_read,
            as_truth(accept_versions, "accept_versions"),
        )
        self.plan: Plan = make_plan(whole, wishes)
        self.pairs: Sequence[tuple[str, str]] = _pairs(self.plan, against)
        """That are compared; every two methods if none are named."""
        self.decisions: Decisions | None = None
        """Of the sequential test, once it was asked."""
        self.forecasts: Sequence[Forecast] = ()
        if only_read:
            self._check_unmixed()

    def run(
        self,
        jobs: int | None = None,
        *,
        until_decided: bool = False,
        progress: bool = True,
        reporter: Reporter | None = None,
        launcher: Launcher | None = None,
    ) -> "Experiment":
        """Work off what is not finished, so many runs at once (as many as there are cores, if nothing is said).

        `until_decided` adds seeds, as many again as were asked for, until the sequential test tells apart all that are
        compared or says that it cannot. Stopped or killed, the same call goes on. Runs that fail for good are an error
        once all others are done.
        """
        jobs = usual_jobs(self.plan) if jobs is None else as_count(jobs, "jobs")
        speaker, worker = reporter_for(progress, reporter), launcher or LocalLauncher()
        design = self._design() if as_truth(until_decided, "until_decided") else None
        self.say_notices(speaker)
        if design is not None:
            keep_looks(self.plan.out, design)
        self._work_off(worker, jobs, speaker)
        while design is not None and not (looked := self._decided(design)).settled:
            told = len(self.plan.notices)
            speaker.say(self._add_seeds(looked))
            self.say_notices(speaker, told)
            self._work_off(worker, jobs, speaker)
        return self

    def say_notices(self, reporter: Reporter, told: int = 0) -> None:
        """What is worth knowing of runs that lie there, but for the first so many sentences."""
        for notice in self.plan.notices[told:]:
            reporter.say(f"note: {notice}")

    def look(self) -> "Experiment":
        """What the sequential test says of seeds that are there, those that it added among them; nothing is run."""
        design = self._design()
        check_looks(self.plan.out, design)
        while not (looked := self._decided(design)).settled and self._finished:
            self._add_seeds(looked)
        return self

    @property
    def _finished(self) -> bool:
        return all(RunDir(run.directory).finished for run in self.plan.runs)

    def _work_off(self, launcher: Launcher, jobs: int, reporter: Reporter) -> None:
        manager = Manager(self.plan, launcher, jobs, reporter, board_of(reporter, jobs))
        standings = manager.run()
        failed = [standing for standing in standings if standing.state == "failed"]
        if failed:
            others = "The others are finished (--table shows them). " if len(failed) < len(standings) else ""
            raise RunError(
                f"experiment '{self.plan.out}'",
                f"{counted(len(failed), 'run')} of {len(standings)} failed",
                do=f"{others}The same command tries again.\n{_told_failures(failed)}",
            )
        self._check_measured()
        self._check_unmixed()

    def _design(self) -> Design:
        """Of the sequential test: groups of as many seeds as were asked for."""
        where = f"suite '{self.plan.suite.name}'"
        seeds = {run.seed for run in self.plan.runs}
        if len(self.plan.methods) < 2:
            raise ConfigError(where, "nothing to decide", got="one method", expected="two or more")
        if len(self.plan.runs) != len(seeds) * len(self.plan.methods) * len(self.plan.tasks):
            what = "methods are for different tasks, and cannot be ranked over all of them"
            raise ConfigError(where, what, do="Choose tasks that all of them are for: --tasks.")
        if seeds != set(range(len(seeds))):
            raise ConfigError("seeds", "come in groups here", got=sorted(seeds), expected="a number: the first group's")
        design = Design(group=len(seeds), by_spread=not self.one_scale)
        if (most := design.ways(len(self.plan.tasks))) < 2 / design.alpha:
            what = f"groups of {counted(design.group, 'seed')} can be dealt in {most} ways in all, too few to decide by"
            raise ConfigError("seeds", what, expected="2 or more")
        return design

    def _decided(self, design: Design) -> Decisions:
        scores = self.scores()
        self.decisions = decide(scores, design, pairs=self.pairs, lowest_is_best=self.lowest_is_best)
        self.forecasts = forecast(scores, design, pairs=self.pairs)
        return self.decisions

    def _add_seeds(self, looked: Decisions) -> str:
        """Plan the next group of what is undecided; a sentence about it."""
        known = len(self.plan.runs)
        cells = dict.fromkeys((run.method, run.task) for run in self.plan.runs)
        self.plan = self.plan.with_seeds({cell: looked.wanted[cell[0]] for cell in cells if cell[0] in looked.wanted})
        undecided = [pair for pair in looked.pairs if pair.verdict == UNDECIDED]
        more = counted(len(self.plan.runs) - known, "run")
        return f"{_told_pairs(undecided, self.pairs)}. {more} more until the next look."

    def _check_measured(self) -> None:
        """What all are judged by is known of all."""
        for run in self.results.runs:
            if np.isnan(run.last(self.plan.metric)):
                known = {name for line in run.evaluations for name in line if name.startswith("eval/")}
                raise RunError(
                    f"run '{run.path}'",
                    "did not measure what decides",
                    got=f"'{self.plan.metric}'",
                    expected=", ".join(sorted(known)) or "an evaluation",
                    do="Name one of these as the suite's metric.",
                )

    def _check_unmixed(self) -> None:
        """The seeds of a cell are of one experiment, and what methods learned a task from is the same data."""
        known: dict[tuple[str, str], Result] = {}
        learned: dict[str, tuple[Result, str]] = {}
        for run in self.results.runs:
            first = known.setdefault((run.method, run.task), run)
            if run.experiment != first.experiment:
                raise RunError(
                    f"experiment '{self.plan.out}'",
                    f"'{first.path}' and '{run.path}' are of different experiments: {_told_differences(first, run)}",
                    do=REMOVE,
                )
            for name, fingerprint in run.learned_from.items():
                before, content = learned.setdefault(name, (run, fingerprint))
                if content != fingerprint:
                    raise RunError(
                        f"experiment '{self.plan.out}'",
                        f"'{before.path}' and '{run.path}' learned from different data: it has changed in between",
                        do=REMOVE,
                    )

    @property
    def overlooked(self) -> list[Path]:
        """Runs of its methods and tasks that lie there with seeds that it does not have."""
        places = dict.fromkeys(run.directory.parent for run in self.plan.runs)
        planned = {run.directory for run in self.plan.runs}
        there = sorted(path for place in places for path in place.glob("*") if path.name.isdecimal())
        return [path for path in there if path not in planned and RunDir(path).config_file.exists()]

    @property
    def results(self) -> Results:
        """Of its runs, finished or not, as far as they are begun."""
        begun = [run.directory for run in self.plan.runs if RunDir(run.directory).config_file.exists()]
        return Results([read_result(path) for path in begun])

    def scores(self) -> Scores:
        """Method → task → one number per seed, of finished runs."""
        measured = self.results.scores(self.plan.metric)
        planned = dict.fromkeys((run.method, run.task) for run in self.plan.runs)
        nothing = np.zeros(0)
        table: dict[str, dict[str, NDArray[np.float64]]] = {method: {} for method in self.plan.methods}
        for method, task in planned:
            table[method][task] = measured.get(method, {}).get(task, nothing)
        return table

    @property
    def lowest_is_best(self) -> bool:
        return lowest_is_best(self.plan.runs[0].config, self.plan.metric)

    @property
    def one_scale(self) -> bool:
        """Scores and rates are; returns of different tasks are not."""
        return len(self.plan.tasks) == 1 or self.plan.metric.endswith(("score", "_rate"))

    def table(self) -> Table:
        """Mean, interval and number of seeds, method by method and task by task."""
        return Table(self.plan.metric, self.scores(), together=self.one_scale)

    def differences(self) -> Differences:
        """Of all others to the method that they are held `against`."""
        if not self.pairs:
            raise ConfigError("against", "nobody said to what there are differences", do="Give it when you make it.")
        base = self.pairs[0][1]
        return Differences(self.plan.metric, self.scores(), self.lowest_is_best, base, self.one_scale)

    def verdict(self) -> str:
        """Who is better, in a sentence that claims no more than the seeds bear out."""
        if self.pairs:
            return self.differences().verdict(self.decisions, self.forecasts)
        return verdict(
            self.scores(),
            lowest_is_best=self.lowest_is_best,
            decisions=self.decisions,
            forecasts=self.forecasts,
            one_scale=self.one_scale,
        )


def _pairs(plan: Plan, against: str) -> list[tuple[str, str]]:
    if not against:
        return []
    if against not in plan.methods:
        raise ConfigError("against", f"there is no '{against}'", do=did_you_mean(against, plan.methods))
    others = [method for method in plan.methods if method != against]
    if not others:
        raise ConfigError("against", f"nothing is held against '{against}'", got="one method", expected="two or more")
    if len({(run.method, run.task) for run in plan.runs}) < len(plan.methods) * len(plan.tasks):
        what = "methods are for different tasks, and cannot all be held against one"
        raise ConfigError("against", what, do="Choose tasks that all of them are for.")
    return [(method, against) for method in others]


def _told_failures(failed: Sequence[Standing]) -> str:
    """A line for each reason, with the first run that it ended."""
    first: dict[str, Standing] = {}
    for standing in failed:
        first.setdefault(standing.reason, standing)
    counts = Counter(standing.reason for standing in failed)
    more = {why: f" (and {counted(count - 1, 'other')})" if count > 1 else "" for why, count in counts.items()}
    return "\n".join(f"  {one.planned.directory}{more[why]}: {why}" for why, one in first.items())


REMOVE = "Remove one of them, or choose another place (--out), and run it again."
NOT_SETTINGS = ("fingerprint", "sha256", "compile", "seed")


def _told_differences(one: Result, other: Result) -> str:
    """What differs in what two runs of one cell are."""
    differing = differing_settings(one.config, other.config)
    told = [f"{key} is {a} and {b}" for key, (a, b) in differing.items() if not key.endswith(NOT_SETTINGS)]
    return "; ".join(told) or "the data has changed in between"


def _told_pairs(pairs: Sequence[Decision], against: Sequence[tuple[str, str]]) -> str:
    if against:
        return f"not told from {against[0][1]} yet: {'; '.join(pair.a for pair in pairs)}"
    return f"not told apart yet: {'; '.join(f'{pair.a} and {pair.b}' for pair in pairs)}"


def _suite_of(
    what: str | Path | Suite | Mapping[str, Any], tasks: Sequence[str | Mapping[str, Any]], name: str
) -> tuple[Suite, list[str]]:
    """What is compared on what, and the tasks that are chosen of it."""
    given = [tasks] if isinstance(tasks, (str, Mapping)) else tasks
    if isinstance(what, Mapping) and "methods" not in what:
        facts = {"name": name, "about": "", "methods": plain_data(what), "tasks": _known_tasks(given)}
        return Suite.parse(facts, "methods"), []
    if isinstance(what, Mapping):
        suite = Suite.parse(plain_data({"name": name, "about": "", "tasks": [], **what}), "suite")
    else:
        suite = what if isinstance(what, Suite) else load_suite(str(what))
    if suite.tasks or not given:
        if not all(isinstance(task, str) for task in given):
            do = "Choose of them by name, or give methods alone."
            raise ConfigError("tasks", f"suite '{suite.name}' has its own", do=do)
        return suite, [str(task) for task in given]
    return Suite.parse({**suite.model_dump(), "tasks": _known_tasks(given)}, "tasks"), []


def _known_tasks(tasks: Sequence[str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """As they stand in a suite: mappings, or ids of the library's."""
    known = [find_task(task)[1] if isinstance(task, str) else Task.parse(plain_data(task), "tasks") for task in tasks]
    return [task.model_dump() for task in known]

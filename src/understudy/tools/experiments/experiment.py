"""An experiment from its question to its answer: what `understudy bench` and `us.Experiment` both do."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from understudy.core.arguments import as_count, as_truth
from understudy.core.errors import ConfigError, RunError
from understudy.core.wording import counted
from understudy.run.overrides import override_words, plain_data
from understudy.run.progress import Reporter, reporter_for
from understudy.run.rundir import RunDir
from understudy.run.suites import Suite, Task, find_task, load_suite
from understudy.tools.experiments.board import board_of
from understudy.tools.experiments.forecast import Forecast, forecast
from understudy.tools.experiments.launcher import Launcher, LocalLauncher
from understudy.tools.experiments.manager import Manager, usual_jobs
from understudy.tools.experiments.plan import Narrowing, Plan, make_plan
from understudy.tools.experiments.results import Results, read_result
from understudy.tools.experiments.sequential import UNDECIDED, Decisions, Design, decide
from understudy.tools.experiments.table import Scores, Table
from understudy.tools.experiments.verdict import verdict


@final
class Experiment:
    """Methods × tasks × seeds: `us.Experiment("pendulum-quick").run().table()`.

    What is compared is a suite (its name, a YAML file, or a mapping like one), of which `methods` and `tasks` choose;
    or methods by the names that tables call them, `{"IQL": "iql", "τ 0.9": {"config": "iql", "settings":
    {"algo.expectile": 0.9}}}`, and `tasks`, mappings as in a suite or ids of the library's; or, on data of one's own,
    `data` and `env`. `settings` (or `overrides`, as `key=value`) are those of every run, and
    have the last word. Runs lie in
    `<out>/<method>/<task>/<seed>`. Making it finds what is wrong, and begins nothing;
    with `only_read` nor will running be asked for, and runs of other versions can be looked at.
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
    ) -> None:
        whole, narrowed = _suite_of(what, tasks, name)
        words = [*overrides, *override_words(settings or {}), *([f"env.id={env}"] if env else [])]
        places = [data] if isinstance(data, (str, Path)) else list(data)
        if not whole.tasks and len(places) == 1:
            words, places = [*words, f"data.path={places[0]}"], []
        wishes = Narrowing(
            methods,
            narrowed,
            seeds,
            words,
            [str(place) for place in places],
            None if out is None else Path(out),
            only_read,
        )
        self.plan: Plan = make_plan(whole, wishes)
        self.decisions: Decisions | None = None
        """Of the sequential test, once it was asked."""
        self.forecasts: Sequence[Forecast] = ()

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

        `until_decided` adds seeds, as many again as were asked for, until the sequential test tells all methods apart
        or says that it cannot. Stopped or killed, the same call goes on. Runs that fail for good are an error once all
        others are done.
        """
        jobs = usual_jobs(self.plan) if jobs is None else as_count(jobs, "jobs")
        speaker, worker = reporter_for(progress, reporter), launcher or LocalLauncher()
        design = self._design() if as_truth(until_decided, "until_decided") else None
        for notice in self.plan.notices:
            speaker.say(f"note: {notice}")
        self._work_off(worker, jobs, speaker)
        while design is not None and not (looked := self._look(design)).settled:
            speaker.say(self._add_seeds(looked))
            self._work_off(worker, jobs, speaker)
        return self

    def _work_off(self, launcher: Launcher, jobs: int, reporter: Reporter) -> None:
        manager = Manager(self.plan, launcher, jobs, reporter, board_of(reporter, jobs))
        standings = manager.run()
        failed = [standing for standing in standings if standing.state == "failed"]
        if failed:
            told = "\n".join(f"  {standing.planned.directory}: {standing.reason}" for standing in failed)
            raise RunError(
                f"experiment '{self.plan.out}'",
                f"{counted(len(failed), 'run')} of {len(standings)} failed",
                do=f"The others are finished (--table shows them). The same command tries again.\n{told}",
            )
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
        return Design(group=len(seeds), by_spread=not self.one_scale)

    def _look(self, design: Design) -> Decisions:
        scores = self.scores()
        self.decisions = decide(scores, design, lowest_is_best=self.lowest_is_best)
        self.forecasts = forecast(scores, design)
        return self.decisions

    def _add_seeds(self, looked: Decisions) -> str:
        """Plan the next group of what is undecided; a sentence about it."""
        known = len(self.plan.runs)
        cells = dict.fromkeys((run.method, run.task) for run in self.plan.runs)
        self.plan = self.plan.with_seeds({cell: looked.wanted[cell[0]] for cell in cells if cell[0] in looked.wanted})
        undecided = [f"{pair.a} and {pair.b}" for pair in looked.pairs if pair.verdict == UNDECIDED]
        more = counted(len(self.plan.runs) - known, "run")
        return f"not told apart yet: {'; '.join(undecided)}. {more} more until the next look."

    def _check_unmixed(self) -> None:
        """The seeds of a cell are of one experiment: same settings, same data."""
        known: dict[tuple[str, str], Any] = {}
        for run in self.results.runs:
            first = known.setdefault((run.method, run.task), run)
            if run.experiment != first.experiment:
                raise RunError(
                    f"experiment '{self.plan.out}'",
                    f"'{first.path}' and '{run.path}' are of different experiments: the data has changed in between",
                    do="Remove one of them, or choose another place (--out), and run it again.",
                )

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
        config = self.plan.runs[0].config
        return config.best_lowest if self.plan.metric == config.best_metric else self.plan.metric.endswith("_error")

    @property
    def one_scale(self) -> bool:
        """Scores and rates are; returns of different tasks are not."""
        return len(self.plan.tasks) == 1 or self.plan.metric.endswith(("score", "_rate"))

    def table(self) -> Table:
        """Mean, interval and number of seeds, method by method and task by task."""
        return Table(self.plan.metric, self.scores(), together=self.one_scale)

    def verdict(self) -> str:
        """Who is better, in a sentence that claims no more than the seeds bear out."""
        scores, lowest = self.scores(), self.lowest_is_best
        return verdict(scores, lowest_is_best=lowest, decisions=self.decisions, forecasts=self.forecasts)


def _suite_of(
    what: str | Path | Suite | Mapping[str, Any], tasks: Sequence[str | Mapping[str, Any]], name: str
) -> tuple[Suite, list[str]]:
    """What is compared on what, and the tasks that are chosen of it."""
    ids = [task for task in tasks if isinstance(task, str)]
    if isinstance(what, Suite):
        return what, ids
    if isinstance(what, (str, Path)):
        return load_suite(str(what)), ids
    if "methods" in what:
        return Suite.parse(plain_data({"name": name, "about": "", "tasks": [], **what}), "suite"), ids
    known = [find_task(task)[1] if isinstance(task, str) else Task.parse(plain_data(task), "tasks") for task in tasks]
    facts = {"name": name, "about": "", "methods": plain_data(what), "tasks": [task.model_dump() for task in known]}
    return Suite.parse(facts, "methods"), []

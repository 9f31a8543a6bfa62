"""`understudy tune`: search, then the best again on fresh seeds; stopped or killed at any time, the same command goes
on."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, final

from understudy.core.arguments import as_count, as_path, as_text
from understudy.core.errors import ConfigError, MissingPackageError, RunError, told_with
from understudy.core.lock import lock_folder, release
from understudy.core.protocols import MAIN
from understudy.core.stopping import StoppedError
from understudy.core.wording import counted
from understudy.run.build import check_config, settled_data
from understudy.run.config import ConfigLike, RunConfig
from understudy.run.loop import InterruptedRunError
from understudy.run.preflight import preflight
from understudy.run.progress import Reporter, reporter_for
from understudy.tools.experiments.launcher import Launcher
from understudy.tools.trials import import_optuna
from understudy.tools.tuning.confirm import candidates, fresh_runs, unfinished
from understudy.tools.tuning.on_ray import ray_for
from understudy.tools.tuning.outcome import Tuning, conclude
from understudy.tools.tuning.plan import PLAN, Plan
from understudy.tools.tuning.progress import Board, FreshBoard, SearchBoard
from understudy.tools.tuning.study import Study, hopeless, quietly
from understudy.tools.tuning.trial import Work
from understudy.tools.tuning.worker import Orders, work_off
from understudy.tools.tuning.workers import GO_ON, LocalWorkers, Workers

FOLDER = "tune"
WAIT = 0.5
"""Seconds between two looks at what another process still has in its hands."""


@final
@dataclass(frozen=True)
class Hands:
    """Who works."""

    jobs: int
    launcher: Launcher
    own: bool
    """This process itself, and no other."""


def tune(
    config: ConfigLike,
    space: object = None,
    *,
    trials: int = 20,
    jobs: int | None = None,
    on: str = "here",
    seeds: int = 1,
    metric: str = "",
    last: int = 1,
    top: int = 3,
    fresh: int = 5,
    retries: int = 2,
    out: str | Path = "",
    data: str | Path | None = None,
    env: str | None = None,
    progress: bool = True,
    reporter: Reporter | None = None,
    **settings: Any,
) -> Tuning:
    """Search settings of a config, then try the best again on seeds that the search never saw, which decide.

    `space`: a dict or a YAML file of `key: {low, high, log}` or `key: {choices: […]}`; that of the algorithm if none
    is given. Every trial is `seeds` ordinary runs in OUT/trials, judged by the mean of their `last` evaluations of
    `metric` (what the config is judged by anyway, if none is named). The `top` best, and the config as it is, are
    trained anew on `fresh` seeds. `jobs` processes share the work, of this machine (one, if nothing is said) or of a
    Ray cluster (as many as it has cores for): `on="ray"`, which is one of our own, `"ray=HOST:PORT"` or `"ray=auto"`.
    What fails is tried again up to `retries` times.
    Stopped or killed, the same call goes on. `settings` are those of `train`, the same for all trials.
    """
    given = {"data.path": _as_word(data, "data"), "env.id": _as_word(env, "env")}
    words = {**{key: word for key, word in given.items() if word}, **settings}
    seeds, last = as_count(seeds, "seeds"), as_count(last, "last")
    check_packages(seeds)
    plan = Plan.make(config, space, words, metric=metric, last=last, seeds=seeds)
    orders = Orders(
        as_count(trials, "trials"), as_count(top, "top", 0), as_count(fresh, "fresh"), as_count(retries, "retries", 0)
    )
    wished = None if jobs is None else as_count(jobs, "jobs")
    return search(plan, orders, out, jobs=wished, on=as_text(on, "on"), reporter=reporter_for(progress, reporter))


def _as_word(value: object, where: str) -> str:
    """What worker processes and later calls can be told in words."""
    if value is None:
        return ""
    if not isinstance(value, (str, Path)):
        do = "Write the data to a file (us.write_store), register the environment, or use us.train_trial."
        raise ConfigError(where, "a search tells its runs of it in words", got=type(value).__name__, do=do)
    return str(value)


def check_packages(seeds: int) -> None:
    """What a search needs beside the library."""
    import_optuna("tune")
    if seeds > 1:
        try:
            import_module("scipy.stats")
        except ImportError as error:
            do = "Run: pip install 'understudy-rl[tune]'"
            raise MissingPackageError("tune", f"several seeds need scipy ({error})", do=do) from error


def search(plan: Plan, orders: Orders, out: str | Path, *, jobs: int | None, on: str, reporter: Reporter) -> Tuning:
    """Both steps of a plan, from wherever they are."""
    folder = as_path(out, "out") if str(out) else Path(plan.home) / FOLDER
    _check_place(folder)
    plan.check_same(folder)
    ray = ray_for(on, plan)  # nothing is begun where nobody answers
    jobs = jobs or (1 if ray is None else ray.room(plan.base.threads))
    launcher = LocalWorkers() if ray is None else ray
    with closing(launcher):
        return _searched(plan, orders, folder, Hands(jobs, launcher, ray is None and jobs == 1), reporter)


def _searched(plan: Plan, orders: Orders, folder: Path, hands: Hands, reporter: Reporter) -> Tuning:
    begun = (folder / PLAN).exists()
    plan = Plan.read(folder) if begun else plan
    built = _built(plan, reporter) if plan.is_sealed or not begun else plan.base
    if not begun:
        _check_trials(plan)
    folder.mkdir(parents=True, exist_ok=True)
    handle = lock_folder(folder, RunError, f"tuning '{folder}'", "Wait for it, stop it, or choose another --out.")
    try:
        plan.check_same(folder)  # somebody else may have been faster
        if not (folder / PLAN).exists():
            plan.sealed(built).write(folder)
        with quietly():
            return _worked_off(Study.open(folder), orders, hands, reporter)
    except InterruptedRunError as error:
        raise StoppedError(f"tuning '{folder}'", error.exit_code - 128, GO_ON) from None
    finally:
        release(handle)


def _check_place(folder: Path) -> None:
    """Nothing of somebody else's lies there."""
    if (folder / PLAN).exists() or not folder.exists():
        return
    if not folder.is_dir() or any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise RunError(f"tuning '{folder}'", "exists already and is no search", do="Choose another --out.")


def _check_trials(plan: Plan) -> None:
    """Each end of a range and each choice, in what can be checked without data: an environment that nobody knows, a
    device that is not here."""
    for key, dimension in plan.dimensions.items():
        for word in dimension.words():
            with told_with(f"{plan.space_name}: {key}={word}"):
                check_config(plan.run_config([f"{key}={word}"], plan.base.seed, Path("trial"), ""))


def _built(plan: Plan, reporter: Reporter) -> RunConfig:
    """The config, which is built once as it is, with its data and its environment: what is wrong with it is told now,
    and so is data that is not what the search was begun with."""
    base, learner = preflight(settled_data(plan.base), reporter, {})
    with closing(learner):
        plan.criterion.check(base, learner.data[MAIN].recorded if MAIN in learner.data else None)
    return base


def _worked_off(study: Study, orders: Orders, hands: Hands, reporter: Reporter) -> Tuning:
    _search(study, orders, hands, reporter)
    if orders.top and study.complete():
        _confirm(study, Orders(**{**orders.__dict__, "fresh_only": True}), hands, reporter)
    return conclude(study, orders)


def _search(study: Study, orders: Orders, hands: Hands, reporter: Reporter) -> None:
    """The first step."""
    rows = study.rows()
    trials = max(orders.trials, len(rows))
    if rows:
        ended = sum(row.state != "running" for row in rows)
        reporter.say(f"going on in {study.folder}: {ended} of {trials} trials have ended")

    def left() -> int:
        states = [row.state for row in study.rows()]
        return 0 if hopeless(states) else trials - sum(state != "running" for state in states)

    _by(hands, study, orders, left, SearchBoard(study, trials, reporter), reporter)


def _confirm(study: Study, orders: Orders, hands: Hands, reporter: Reporter) -> None:
    """The second step."""
    runs = fresh_runs(study, candidates(study, orders.top), orders.fresh)
    if not unfinished(study, runs, orders.retries):
        return
    best = len(runs) // orders.fresh - 1
    named = "the best trial" if best == 1 else f"the best {best} trials"
    reporter.say(f"{named} and the config as it is, on {counted(orders.fresh, 'fresh seed')}")
    board = FreshBoard(runs, study.plan.base.updates)
    _by(hands, study, orders, lambda: len(unfinished(study, runs, orders.retries)), board, reporter)


def _by(hands: Hands, study: Study, orders: Orders, left: Callable[[], int], board: Board, reporter: Reporter) -> None:
    """Work done here, or by processes of its own, and shown meanwhile."""
    with reporter.board(board.lines, board.sentence) as board.show:
        _work(hands, study, orders, left, board)
        board.read()


def _work(hands: Hands, study: Study, orders: Orders, left: Callable[[], int], board: Board) -> None:
    board.look(now=True)
    if hands.own:
        work = Work(orders.retries, board)
        while left():
            work_off(study, orders, work)
            if left():
                time.sleep(WAIT)  # somebody else, who is ending, has the rest in their hands
    else:
        Workers(study, orders, hands.jobs, hands.launcher, left).run(board.look)

"""understudy tune: search settings, and say what the best are worth on fresh seeds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.learn import ActionHigh, ActionLow, Columns, ConfigName, Quiet, with_data_options
from understudy.core.errors import ConfigError
from understudy.core.stopping import stoppable
from understudy.core.wording import counted

if TYPE_CHECKING:
    from understudy.tools.tuning.outcome import Tuning

SHOWN = 10
"""Trials in the table; tuning.json has all."""


def register(app: typer.Typer) -> None:
    app.command()(tune)


def tune(
    config: ConfigName,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SPACE] [KEY=VALUE]...",
            help="What is searched: a .yaml file of `key: {low, high, log}` or `key: {choices: [...]}`, or a name of "
            "`understudy list spaces`; that of the algorithm if none is given. And settings for all trials.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option("--trials", "-n", help="Trials of the search, pruned ones among them.")] = 20,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", help="Processes that share the work: 1, or what a Ray cluster has cores for."),
    ] = None,
    on: Annotated[
        str, typer.Option("--on", help="Where they are: here, or ray (ray=HOST:PORT: an existing cluster).")
    ] = "here",
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each trial, each with a seed of its own.")] = 1,
    metric: Annotated[
        str,
        typer.Option("--metric", help="What decides: eval/score …, or fqe, from data; by default what `best` says."),
    ] = "",
    last: Annotated[int, typer.Option("--last", help="Evaluations at a run's end whose mean it is judged by.")] = 1,
    top: Annotated[int, typer.Option("--top", help="The best so many are tried again on fresh seeds; 0: none.")] = 3,
    fresh: Annotated[int, typer.Option("--fresh", help="Seeds they are tried on, none of which the search saw.")] = 5,
    retries: Annotated[int, typer.Option("--retries", help="Further attempts at a trial that crashed.")] = 2,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where it lies; beside the config's runs.")] = None,
    columns: Columns = "",
    action_low: ActionLow = "",
    action_high: ActionHigh = "",
    quiet: Quiet = False,
) -> None:
    """Search settings, then train the best again on seeds that the search never saw, which decide. Stopped or killed,
    the same command goes on.

    understudy tune iql/pendulum --trials 30 --seeds 3 --jobs 2
    """
    from understudy.run.progress import Reporter
    from understudy.tools.tuning.plan import Plan
    from understudy.tools.tuning.search import check_packages, search
    from understudy.tools.tuning.worker import Orders
    from understudy.tools.tuning.workers import GO_ON

    space, settings = _sorted_words(with_data_options(words, columns, action_low, action_high))
    counts = {
        "--trials": trials,
        "--jobs": 1 if jobs is None else jobs,
        "--seeds": seeds,
        "--last": last,
        "--fresh": fresh,
    }
    for option, count in (*counts.items(), ("--top", top + 1), ("--retries", retries + 1)):
        if count < 1:
            raise ConfigError(option, "too small", got=count - (option in ("--top", "--retries")))
    check_packages(seeds)
    plan = Plan.make(config, space, settings, metric=metric, last=last, seeds=seeds)
    orders = Orders(trials, top, fresh, retries)
    with stoppable(f"tuning of '{config}'", GO_ON):
        made = search(plan, orders, out or "", jobs=jobs, on=on, reporter=Reporter(quiet=quiet))
    if not quiet:
        print("\n".join(_told(made)))


def _sorted_words(words: list[str]) -> tuple[str, list[str]]:
    """The space, if one is named, and the settings."""
    spaces = [word for word in words if "=" not in word]
    if len(spaces) > 1:
        raise ConfigError(f"'{spaces[1]}'", "a second space, or a setting without its value", expected="key=value")
    settings = [word for word in words if "=" in word]
    if out := next((word for word in settings if word.startswith("out=")), ""):
        raise ConfigError("out", "is a run's directory", do=f"That of the search is given as --out {out[4:] or 'DIR'}.")
    return next(iter(spaces), ""), settings


def _told(made: "Tuning") -> list[str]:
    """Trials, what fresh seeds said, what mattered, and what to do with it."""
    from understudy.tools.tuning.outcome import BEST, PLOTS

    lines = ["", *_trial_table(made)]
    if made.confirmed:
        lines += ["", *_fresh_table(made)]
    if made.importances:
        shares = ", ".join(f"{key.removeprefix('algo.')} {share:.0%}" for key, share in made.importances.items())
        lines += ["", f"what mattered in the search: {shares}"]
    picture = made.path / PLOTS / "history.png"
    return [*lines, "", *made.verdict, "", f"pictures: {picture.parent}  train it: understudy train {made.path / BEST}"]


def _trial_table(made: "Tuning") -> list[str]:
    from understudy.tools.tuning.confirm import number
    from understudy.tools.tuning.progress import columns, short

    ended = sorted(made.trials, key=lambda row: (row.state != "complete", _order(made, row.value)))
    counts = {state: sum(row.state == state for row in made.trials) for state in ("pruned", "failed")}
    others = "".join(f", {count} {state}" for state, count in counts.items() if count)
    lines = [f"{counted(len(made.trials), 'trial')}{others}, by {made.metric}"]
    rows = [
        [str(row.number), number(row.value), *(short(word) for word in row.settings.values())]
        for row in ended
        if row.value is not None
    ]
    keys = [key.removeprefix("algo.") for key in ended[0].settings]
    return [*lines, *columns([["trial", "value", *keys], *rows[:SHOWN]])]


def _order(made: "Tuning", value: float | None) -> float:
    sign = 1.0 if made.lowest else -1.0
    return 0.0 if value is None else sign * value


def _fresh_table(made: "Tuning") -> list[str]:
    from understudy.tools.tuning.confirm import number, shown
    from understudy.tools.tuning.progress import columns

    rows = [["on fresh seeds", "search", "mean", "seeds"]]
    for one in made.confirmed:
        searched = "" if one.candidate.search_value is None else number(one.candidate.search_value)
        told = next(iter(one.failures.values()), "") if one.failures else shown(one.estimate)
        rows.append([one.candidate.title, searched, told, "  ".join(number(value) for value in one.values.values())])
    return columns(rows)

"""bench, compare and ablate: many runs that answer one question."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.learn import Overrides, Quiet
from understudy.cli.streams import OUT, edge

if TYPE_CHECKING:
    from understudy.tools.experiments.experiment import Experiment

NO_EDGE = 10_000
BASELINES = "baselines"
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Runs at once; as many as there are cores for, if absent.")
]
Methods = Annotated[str, typer.Option("--methods", help="Only these, with commas between them.")]
Tasks = Annotated[str, typer.Option("--tasks", help="Only these, with commas between them.")]
Seeds = Annotated[str, typer.Option("--seeds", help="How many (5), or which (0,3,4).")]
Data = Annotated[
    list[str] | None, typer.Option("--data", help="A folder in which data of tasks is looked for, or TASK=PATH.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Where it lies; runs/<suite>, if absent.")]
UntilDecided = Annotated[
    bool, typer.Option("--until-decided", help="Add groups of seeds until the ranking is settled, or cannot be.")
]
TableOnly = Annotated[bool, typer.Option("--table", help="Run nothing: show what is there.")]


def register(app: typer.Typer) -> None:
    app.command()(bench)
    app.command()(compare)
    app.command(hidden=True)(work)


def bench(
    suite: Annotated[str, typer.Argument(help="A suite by name (understudy list suites) or a path to a .yaml file.")],
    overrides: Overrides = None,
    jobs: Jobs = None,
    methods: Methods = "",
    tasks: Tasks = "",
    seeds: Seeds = "",
    data: Data = None,
    out: Out = None,
    until_decided: UntilDecided = False,
    table: TableOnly = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on tasks: run what is not finished of a suite, and say what came out.

    Stop it, kill it, run it again: it goes on. Example: understudy bench pendulum-quick --seeds 5
    """
    from understudy.tools.experiments.experiment import Experiment

    experiment = Experiment(
        suite,
        _listed(tasks),
        _seeds(seeds),
        methods=_listed(methods),
        data=data or [],
        overrides=overrides or [],
        out=out,
    )
    _work_off(experiment, jobs, until_decided=until_decided, table=table, quiet=quiet)


def compare(
    overrides: Overrides = None,
    jobs: Jobs = None,
    methods: Methods = "",
    seeds: Seeds = "",
    out: Out = None,
    until_decided: UntilDecided = False,
    table: TableOnly = False,
    quiet: Quiet = False,
) -> None:
    """Compare the usual methods on data of your own: understudy bench baselines, in a word.

    Example: understudy compare data.path=logs.npz env.id=Pendulum-v1 updates=20000
    """
    bench(BASELINES, overrides, jobs, methods, "", seeds, None, out, until_decided, table, quiet)


def work(directory: Annotated[Path, typer.Argument(help="Where the run lies, or shall lie.")]) -> None:
    """Train or resume the run that standard input describes (YAML, everything written out); print its outcome as JSON.

    This is what other machines are asked to do. It can be killed at any moment, and be asked again.
    """
    from understudy.tools.experiments.work import FINISHED, Outcome, train_or_resume

    told = train_or_resume(str(directory), sys.stdin.read())
    print(told)
    if Outcome.from_json(told).outcome != FINISHED:
        raise typer.Exit(1)


def _work_off(experiment: "Experiment", jobs: int | None, *, until_decided: bool, table: bool, quiet: bool) -> None:
    from understudy.run.progress import Reporter

    if not table:
        experiment.run(jobs, until_decided=until_decided, reporter=Reporter(quiet=quiet))
    for line in experiment.table().lines(edge(OUT, NO_EDGE)):
        print(line)
    print(experiment.verdict())
    print(f"runs: {experiment.plan.out}")


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _seeds(text: str) -> int | list[int] | None:
    from understudy.core.errors import ConfigError

    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError as error:
        raise ConfigError("--seeds", "wrong value", got=f"'{text}'", expected="5, or 0,3,4") from error
    return None if not numbers else numbers if "," in text else numbers[0]

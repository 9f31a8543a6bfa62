"""bench, compare and ablate: many runs that answer one question."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.learn import Overrides, Quiet
from understudy.cli.streams import OUT, edge

if TYPE_CHECKING:
    from understudy.tools.experiments.experiment import Experiment
    from understudy.tools.experiments.launcher import Launcher

HERE, RAY, SLURM = "here", "ray", "slurm"
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
On = Annotated[
    str, typer.Option("--on", help="Where runs run: here, ray (ray=HOST:PORT: an existing cluster), or slurm.")
]
SlurmOptions = Annotated[
    list[str] | None, typer.Option("--slurm", help="An option of sbatch: partition=gpu, time=08:00:00, mem=8G …")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Of --on slurm: write the script, and submit nothing.")]
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
    on: On = "here",
    slurm: SlurmOptions = None,
    dry_run: DryRun = False,
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
    if table or on != SLURM:
        _refuse_slurm_words(on, slurm, dry_run=dry_run)
        _work_off(experiment, jobs, on, until_decided=until_decided, table=table, quiet=quiet)
    else:
        _send_to_slurm(experiment, jobs, slurm or [], until_decided=until_decided, dry_run=dry_run, quiet=quiet)


def compare(
    overrides: Overrides = None,
    jobs: Jobs = None,
    methods: Methods = "",
    seeds: Seeds = "",
    out: Out = None,
    until_decided: UntilDecided = False,
    on: On = "here",
    slurm: SlurmOptions = None,
    dry_run: DryRun = False,
    table: TableOnly = False,
    quiet: Quiet = False,
) -> None:
    """Compare the usual methods on data of your own: understudy bench baselines, in a word.

    Example: understudy compare data.path=logs.npz env.id=Pendulum-v1 updates=20000
    """
    where = on, slurm, dry_run
    bench(BASELINES, overrides, jobs, methods, "", seeds, None, out, until_decided, *where, table, quiet)


def work(directory: Annotated[Path, typer.Argument(help="Where the run lies, or shall lie.")]) -> None:
    """Train or resume the run that standard input describes (YAML, everything written out); print its outcome as JSON.

    This is what other machines are asked to do. It can be killed at any moment, and be asked again.
    """
    from understudy.tools.experiments.work import FINISHED, Outcome, train_or_resume

    told = train_or_resume(str(directory), sys.stdin.read())
    print(told)
    if Outcome.from_json(told).outcome != FINISHED:
        raise typer.Exit(1)


def _work_off(
    experiment: "Experiment", jobs: int | None, on: str, *, until_decided: bool, table: bool, quiet: bool
) -> None:
    from understudy.run.progress import Reporter

    if not table:
        jobs, launcher = _place(experiment, jobs, on)
        reporter = Reporter(quiet=quiet)
        experiment.run(jobs, until_decided=until_decided, reporter=reporter, launcher=launcher)
    for line in experiment.table().lines(edge(OUT, NO_EDGE)):
        print(line)
    print(experiment.verdict())
    print(f"runs: {experiment.plan.out}")


def _place(experiment: "Experiment", jobs: int | None, on: str) -> "tuple[int | None, Launcher | None]":
    """How many runs at once, and who launches them; None is what this machine does by itself."""
    from understudy.core.errors import ConfigError, did_you_mean

    kind, _, address = on.partition("=")
    if on == HERE:
        return jobs, None
    if kind != RAY or on == f"{RAY}=":
        raise ConfigError("--on", "no such place", got=f"'{on}'", do=did_you_mean(kind, (HERE, RAY, SLURM)))
    from understudy.tools.experiments import on_ray

    launcher = on_ray.RayLauncher(address or on_ray.HERE)
    threads = max((run.config.threads for run in experiment.plan.runs), default=1)
    return jobs or launcher.room(threads), launcher


def _send_to_slurm(
    experiment: "Experiment", jobs: int | None, options: list[str], *, until_decided: bool, dry_run: bool, quiet: bool
) -> None:
    from understudy.core.errors import ConfigError
    from understudy.run.progress import Reporter
    from understudy.tools.experiments.on_slurm import options_from, send

    if until_decided:
        what = "looks at results between groups of seeds, and --on slurm does not wait for them"
        raise ConfigError("--until-decided", what, do="Use --on ray, or send groups of seeds yourself.")
    print(send(experiment.plan, options_from(options), jobs, Reporter(quiet=quiet), dry_run=dry_run))


def _refuse_slurm_words(on: str, options: list[str] | None, *, dry_run: bool) -> None:
    from understudy.core.errors import ConfigError

    if on != SLURM and (options or dry_run):
        raise ConfigError("--slurm" if options else "--dry-run", "is for --on slurm", got=f"--on {on}")


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _seeds(text: str) -> int | list[int] | None:
    from understudy.core.errors import ConfigError

    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError as error:
        raise ConfigError("--seeds", "wrong value", got=f"'{text}'", expected="5, or 0,3,4") from error
    return None if not numbers else numbers if "," in text else numbers[0]

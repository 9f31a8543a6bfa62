"""bench, compare and ablate: many runs that answer one question."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.elsewhere import DryRun, On, Place, SlurmOptions, work_off
from understudy.cli.learn import ActionHigh, ActionLow, Columns, ConfigName, Overrides, Quiet, with_data_options
from understudy.cli.streams import OUT, edge
from understudy.core.wording import counted, folded

if TYPE_CHECKING:
    from understudy.tools.experiments.experiment import Experiment

NO_EDGE = 10_000
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
    bool, typer.Option("--until-decided", help="Add groups of seeds until all is told apart, or cannot be.")
]
AcceptVersions = Annotated[
    bool, typer.Option("--accept-versions", help="Go on with runs that other versions or code began (bits may differ).")
]
TableOnly = Annotated[bool, typer.Option("--table", help="Run nothing: show what is there.")]


def register(app: typer.Typer) -> None:
    app.command()(bench)
    app.command()(compare)
    app.command()(ablate)
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
    accept_versions: AcceptVersions = False,
    table: TableOnly = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on tasks: run what is not finished of a suite, and say what came out.

    Stop it, kill it, run it again: it goes on. Example: understudy bench pendulum-quick --seeds 5
    """
    from understudy.tools.experiments.experiment import Experiment

    place = Place(on, slurm, dry_run)
    place.check()
    experiment = Experiment(
        suite,
        [tasks] if tasks else [],
        _seeds(seeds),
        methods=[methods] if methods else [],
        data=data or [],
        overrides=overrides or [],
        out=out,
        only_read=table,
        accept_versions=accept_versions,
    )
    if _done(experiment, jobs, place, table=table, until_decided=until_decided, quiet=quiet):
        for line in experiment.table().lines(edge(OUT, NO_EDGE)):
            print(line)
        _conclude(experiment)


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
    accept_versions: AcceptVersions = False,
    table: TableOnly = False,
    columns: Columns = "",
    action_low: ActionLow = "",
    action_high: ActionHigh = "",
    quiet: Quiet = False,
) -> None:
    """Compare the usual methods on data of your own: understudy bench baselines, in a word.

    Example: understudy compare data.path=logs.npz env.id=Pendulum-v1 updates=20000
    """
    from understudy.tools.experiments.baselines import baselines_for

    words = with_data_options(overrides, columns, action_low, action_high)
    suite, chosen = baselines_for(words, methods)
    rest = on, slurm, dry_run, accept_versions, table, quiet
    bench(suite, words, jobs, chosen, "", seeds, None, out, until_decided, *rest)


def ablate(
    config: ConfigName,
    overrides: Overrides = None,
    jobs: Jobs = None,
    arms: Annotated[str, typer.Option("--arms", help="Only these changes, with commas between them.")] = "",
    seeds: Seeds = "",
    changes: Annotated[str, typer.Option("--changes", help="A .yaml file that declares others.")] = "",
    out: Out = None,
    until_decided: UntilDecided = False,
    on: On = "here",
    slurm: SlurmOptions = None,
    dry_run: DryRun = False,
    accept_versions: AcceptVersions = False,
    table: TableOnly = False,
    columns: Columns = "",
    action_low: ActionLow = "",
    action_high: ActionHigh = "",
    quiet: Quiet = False,
) -> None:
    """Change one thing at a time about a config, and say what each is worth. Example: understudy ablate iact/pendulum

    What is changed is declared for IACT, CIQL, IQL and PPO; of others, by --changes.
    """
    from understudy.tools.experiments.ablation import BASE, ablation_suite
    from understudy.tools.experiments.experiment import Experiment

    place = Place(on, slurm, dry_run)
    place.check()
    suite, words = ablation_suite(config, with_data_options(overrides, columns, action_low, action_high), changes)
    chosen = [BASE, arms] if arms else []
    experiment = Experiment(
        suite,
        (),
        _seeds(seeds),
        methods=chosen,
        overrides=words,
        out=out,
        only_read=table,
        accept_versions=accept_versions,
        against=BASE,
    )
    if _done(experiment, jobs, place, table=table, until_decided=until_decided, quiet=quiet):
        for line in experiment.differences().lines():
            print(folded(line, edge(OUT, NO_EDGE)))
        _conclude(experiment)


def work(directory: Annotated[Path, typer.Argument(help="Where the run lies, or shall lie.")]) -> None:
    """Train or resume the run that standard input describes (YAML, everything written out); print its outcome as JSON.

    This is what other machines are asked to do. It can be killed at any moment, and be asked again.
    """
    from understudy.tools.experiments.work import FINISHED, Outcome, train_or_resume

    told = train_or_resume(str(directory), sys.stdin.read())
    print(told)
    if Outcome.from_json(told).outcome != FINISHED:
        raise typer.Exit(1)


def _done(
    experiment: "Experiment", jobs: int | None, place: Place, *, table: bool, until_decided: bool, quiet: bool
) -> bool:
    """Whether there is something to show: what is there, or what has been run."""
    from understudy.run.progress import Reporter

    if not table:
        return work_off(experiment, jobs, place, until_decided=until_decided, quiet=quiet)
    if until_decided:
        experiment.look()
    notes = list(experiment.plan.notices)
    if more := experiment.overlooked:
        most = max(int(path.name) for path in more) + 1
        notes.append(f"{counted(len(more), 'run')} with other seeds there: --seeds {most} counts them")
    for note in notes:
        Reporter(quiet=quiet).say(f"note: {note}")
    return True


def _conclude(experiment: "Experiment") -> None:
    from shlex import quote

    out = str(experiment.plan.out)
    way = f"runs: {out}" + (f"  a page of them: understudy report {quote(out)}" if experiment.results.runs else "")
    for line in (experiment.verdict(), way):
        print(folded(line, edge(OUT, NO_EDGE)))


def _seeds(text: str) -> int | list[int] | None:
    from understudy.core.errors import ConfigError

    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError as error:
        raise ConfigError("--seeds", "wrong value", got=f"'{text}'", expected="5, or 0,3,4") from error
    return numbers if "," in text else numbers[0] if numbers else None

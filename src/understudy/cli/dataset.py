"""understudy dataset …: look at data, check it, mend it, make it wrong on purpose, fetch it."""

import json
import sys
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.learn import Columns, Quiet, RunPath
from understudy.cli.streams import OUT, edge
from understudy.core.errors import ConfigError, UnderstudyError
from understudy.core.stopping import stoppable
from understudy.core.wording import counted

if TYPE_CHECKING:
    from understudy.tools.dataset.conversion import Converted

PIPE_WIDTH = 100
"""Of tables where nobody says how wide the screen is."""
Data = Annotated[
    str,
    typer.Argument(help="A file or folder of any known kind, the id of a local Minari dataset, or a name of the list."),
]
Target = Annotated[Path, typer.Argument(help="A new folder (native store), .npz or .hdf5 (D4RL) file.")]
Environment = Annotated[str, typer.Option("--env", help="The environment whose action space the data should have.")]
MinariId = Annotated[str, typer.Option("--minari", help="Write a Minari dataset of this id under TARGET.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")]


def register(app: typer.Typer) -> None:
    commands = typer.Typer(
        help="Look at datasets, check, convert and fetch them.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for command in (inspect, check, convert, corrupt, download):
        commands.command()(command)
    commands.command("list")(list_datasets)
    commands.command("from-run")(from_run)
    app.add_typer(commands, name="dataset")


def inspect(
    data: Data,
    env: Environment = "",
    reference: Annotated[
        str, typer.Option("--reference", help="Scores on this id's scale (understudy list datasets), or LOW,HIGH.")
    ] = "",
    columns: Columns = "",
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw histograms to this .png file.")] = None,
    as_json: AsJson = False,
) -> None:
    """What is in a dataset, on one screen: columns, returns, lengths, actions, coverage, and what to look at."""
    from rich.console import Console

    from understudy.cli.dataset_screens import inspection_screen
    from understudy.data.formats.readers import open_recording
    from understudy.run.loading import space_of_env
    from understudy.tools.dataset.inspection import inspect_recording, read_range
    from understudy.tools.dataset.plots import draw_survey

    with stoppable(f"dataset '{data}'", "It was only read."):
        recording = open_recording(data, columns=columns)
        space, scale = space_of_env(env) if env else None, read_range(reference) if reference else None
        seen = inspect_recording(recording, space, scale)
    drawn = "" if plot is None else f"drawn: {draw_survey(seen.survey, plot)}"
    if as_json:
        print(json.dumps(seen.to_json(), allow_nan=False))
        return
    console = Console(file=sys.stdout, width=edge(OUT, PIPE_WIDTH), highlight=False)
    console.print(inspection_screen(seen, unicode=not console.options.ascii_only))
    if drawn:
        print(drawn)


def list_datasets() -> None:
    """Datasets that come with the library, and what Minari publishes (understudy dataset download fetches one)."""
    from understudy.data.formats.minari.published import minari_datasets, minari_families
    from understudy.data.formats.minari.reader import minari_root
    from understudy.data.ladders import shipped_ladders

    for ladder in shipped_ladders().values():
        for name, level in ladder.levels.items():
            score = ladder.score(level)
            told = f", return {level.return_mean:.0f}" + ("" if score is None else f", score {score:.1f}")
            size = f"{counted(level.steps, 'step')}, {counted(level.episodes, 'episode')}"
            print(f"{f'{ladder.name}/{name}':<32}  {size}{told}, {ladder.facts.env} (comes with understudy)")
    here = _local(minari_root())
    for name, published in minari_datasets().items():
        mark = " (here)" if name in here else ""
        size = f"{counted(published.steps, 'step')}, {counted(published.episodes, 'episode')}"
        print(f"{name + mark:<32}  {size}, {published.env}")
    for name in sorted(here - minari_datasets().keys()):
        print(f"{name} (here)")
    for family in minari_families():
        print(f"{family.ids}: {family.count} more")


def _local(root: Path, depth: int = 4) -> set[str]:
    """Ids of the Minari datasets under a folder; names only, nothing is opened."""
    if depth == 0 or not root.is_dir():
        return set()
    found = set()
    for folder in root.iterdir():
        if (folder / "data" / "metadata.json").is_file():
            found.add(folder.name)
        elif folder.is_dir() and not folder.is_symlink():
            found |= {f"{folder.name}/{name}" for name in _local(folder, depth - 1)}
    return found


def check(
    data: Data,
    env: Annotated[
        str,
        typer.Option(
            "--env", help="The environment the data should come from; absent: what the file says, if anything."
        ),
    ] = "",
    columns: Columns = "",
    as_json: AsJson = False,
) -> None:
    """Check a dataset, and replay some of its steps in the environment.

    Exit code 0: passed, 1: failed, 2: not checked (the command or the environment is wrong, or cannot be made here).
    """
    from understudy.run.progress import Reporter
    from understudy.tools.dataset.check import check_file
    from understudy.tools.dataset.reference_env import open_world

    if env:
        try:
            open_world(env)
        except UnderstudyError as error:
            if as_json:
                print(json.dumps({"data": data, "env": env, "passed": None, "error": str(error)}))
            else:
                print(error, file=sys.stderr)
            raise typer.Exit(2) from error
    with stoppable(f"dataset '{data}'", "It was only read."):
        report = check_file(data, env, Reporter(), columns)
    if as_json:
        print(json.dumps(report.to_json(data), allow_nan=False))
    else:
        from rich.console import Console

        from understudy.cli.dataset_screens import by_hand, check_screen, verdict

        console = Console(file=sys.stdout, width=edge(OUT, PIPE_WIDTH), highlight=False)
        for line in check_screen(report, min(console.width, PIPE_WIDTH)):
            console.print(line, soft_wrap=True)
        if command := report.command(data):
            rest = by_hand(report)
            print(f"\nTo mend it{f' (but for {rest} that no setting mends)' if rest else ''}:\n  {command}")
            if report.outcome is not None:
                print(fill(report.outcome.sentence(), min(console.width, 100)))
        console.print()
        console.print(verdict(report))
    raise typer.Exit(0 if report.passed else 1)


def convert(
    source: Data,
    target: Target,
    changes: Annotated[list[str] | None, typer.Argument(help="Transforms, as key=value.")] = None,
    env: Environment = "",
    columns: Columns = "",
    action_low: Annotated[
        str, typer.Option("--action-low", help="Without --env: least action, or one for each dimension: 0,0.")
    ] = "",
    action_high: Annotated[
        str, typer.Option("--action-high", help="Without --env: greatest action, or one for each dimension.")
    ] = "",
    float32: Annotated[bool, typer.Option("--float32", help="Halve float64 columns; they are kept otherwise.")] = False,
    minari: MinariId = "",
    packed: Annotated[
        bool, typer.Option("--packed", help="Of an .npz: compressed, each observation once; NumPy reads it still.")
    ] = False,
    drop_unknown_finals: Annotated[
        bool,
        typer.Option("--drop-unknown-finals", help="Leave out last steps whose next observation was not recorded."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Mend a dataset and write it anew. Example: understudy dataset convert old.hdf5 new time_limit=1000"""
    from understudy.data.transforms import Transforms
    from understudy.run.loading import box_of, space_of_env
    from understudy.run.overrides import apply_override
    from understudy.run.progress import Reporter
    from understudy.tools.dataset.conversion import convert_file

    words: dict[str, object] = {}
    for change in changes or []:
        if change.startswith("data."):
            raise ConfigError(change, "transforms have no 'data.' here", do=f"Say {change.removeprefix('data.')}.")
        apply_override(words, change)
    with stoppable(f"dataset '{target}'", "Nothing was written."):
        transforms = Transforms.parse(words)
        low, high = _bound("--action-low", action_low), _bound("--action-high", action_high)
        bounds = box_of(source, low, high, transforms.episode_steps, columns)
        done = convert_file(
            source,
            target,
            space=space_of_env(env) if env else bounds,
            transforms=transforms,
            columns=columns,
            precision="float32" if float32 else "source",
            minari_id=minari,
            packed=packed,
            env=env,
            drop_unknown_finals=drop_unknown_finals,
            reporter=Reporter(quiet=quiet),
        )
    if not quiet:
        _tell_written(done)


def from_run(
    run: RunPath,
    target: Target,
    checkpoint: Annotated[str, typer.Option("--checkpoint", "-c", help="last, best, or a number of updates.")] = "last",
    minari: MinariId = "",
    quiet: Quiet = False,
) -> None:
    """Write the replay buffer of a run as a dataset: all that it has seen so far, or had at a kept checkpoint."""
    from understudy.run.progress import Reporter
    from understudy.run.replay_data import replay_recording
    from understudy.tools.dataset.conversion import target_kind, write_recording

    kind = target_kind(target, minari)
    with stoppable(f"dataset '{target}'", "Nothing was written."):
        recording = replay_recording(run, checkpoint)
        done = write_recording(recording, target, kind, minari_id=minari, reporter=Reporter(quiet=quiet))
    if not quiet:
        _tell_written(done)


def _bound(name: str, text: str) -> tuple[float, ...] | float | None:
    """`0,-1` is one for each dimension, `0` one for all."""
    try:
        numbers = tuple(float(word) for word in text.split(",")) if text else ()
    except ValueError as error:
        raise ConfigError(
            name, "wrong value", got=repr(text), expected="a number, or one for each dimension"
        ) from error
    return (numbers if len(numbers) > 1 else numbers[0]) if numbers else None


def download(
    dataset: Annotated[
        str, typer.Argument(help="A Minari id (D4RL/pen/human-v2), or D4RL's own name (hopper-medium-v2).")
    ],
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder to keep it in; Minari's own, or this one, if absent.")
    ] = None,
    server: Annotated[str, typer.Option("--from", help="Another server with D4RL's folders.")] = "",
    sha256: Annotated[str, typer.Option("--sha256", help="Refuse D4RL's file unless it has this digest.")] = "",
    quiet: Quiet = False,
) -> None:
    """Fetch a dataset: Minari's with Minari's own downloader, D4RL's from its server. Nothing else uses the network."""
    from understudy.data.formats.minari.published import download_minari
    from understudy.run.progress import Reporter
    from understudy.tools.dataset.download import SERVER, d4rl_files, download_d4rl

    if dataset in d4rl_files() or "/" not in dataset:
        with stoppable(f"dataset '{dataset}'", "What came is kept: the same command goes on."):
            file, digest = download_d4rl(
                dataset, root or Path(), server=server or SERVER, sha256=sha256, reporter=Reporter(quiet=quiet)
            )
        print(f"downloaded to {file}  sha256 {digest}")
        return
    if server or sha256:
        raise ConfigError("--from and --sha256", "are for D4RL's files", do="Leave them out for Minari's.")
    with stoppable(f"dataset '{dataset}'", "The same command fetches it anew."):
        folder = download_minari(dataset, root)
    print(f"downloaded to {folder}")


def corrupt(
    source: Data,
    target: Target,
    settings: Annotated[list[str], typer.Argument(help="kind=… share=…, and strength=… seed=… where wanted.")],
    env: Environment = "",
    minari: MinariId = "",
    quiet: Quiet = False,
) -> None:
    """Make a share of the rows wrong. Example: understudy dataset corrupt data wrong kind=reward_flip share=0.3

    Kinds: reward_noise, reward_flip, reward_swap, reward_attack, action_noise, action_replace, dynamics_shuffle.
    """
    from understudy.data.corruption import Corruption
    from understudy.data.transforms import Transforms
    from understudy.run.loading import space_of_env
    from understudy.run.overrides import apply_override
    from understudy.run.progress import Reporter
    from understudy.tools.dataset.conversion import corrupt_file

    words: dict[str, object] = {}
    for setting in settings:
        apply_override(words, setting)
    for word in words:
        if word in Transforms.model_fields:
            raise ConfigError(word, "is a transform", do="Mend the data first, with understudy dataset convert.")
    with stoppable(f"dataset '{target}'", "Nothing was written."):
        done, told = corrupt_file(
            source,
            target,
            Corruption.parse(words),
            space=space_of_env(env) if env else None,
            minari_id=minari,
            env=env,
            reporter=Reporter(quiet=quiet),
        )
    if not quiet:
        print(told)
        _tell_written(done)


def _tell_written(done: "Converted") -> None:
    size = f"{counted(done.episodes, 'episode')}, {counted(done.steps, 'step')}"
    print(f"{size} written to {done.path}, fingerprint {done.fingerprint}")

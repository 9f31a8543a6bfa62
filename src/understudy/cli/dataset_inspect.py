"""dataset inspect, dataset list: what is in a dataset, and which datasets there are."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from understudy.core.stopping import stoppable

Data = Annotated[str, typer.Argument(help="A file or folder of any known kind, or the id of a local Minari dataset.")]
Environment = Annotated[str, typer.Option("--env", help="The environment whose action space the data should have.")]


def register(app: typer.Typer) -> None:
    app.command()(inspect)
    app.command("list")(list_datasets)


def inspect(
    data: Data,
    env: Environment = "",
    reference: Annotated[
        str, typer.Option("--reference", help="Scores on this id's scale (understudy list datasets), or LOW,HIGH.")
    ] = "",
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw histograms to this .png file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """What is in a dataset, on one screen: columns, returns, lengths, actions, coverage, and what to look at."""
    from rich.console import Console

    from understudy.cli.inspection_screen import screen
    from understudy.data.formats.readers import open_recording
    from understudy.run.loading import space_of_env
    from understudy.tools.dataset.inspection import inspect as look
    from understudy.tools.dataset.inspection import read_range
    from understudy.tools.dataset.plots import draw_survey

    with stoppable(f"dataset '{data}'", "It was only read."):
        recording = open_recording(data)
        seen = look(recording, space_of_env(env) if env else None, read_range(reference) if reference else None)
    drawn = "" if plot is None else f"drawn: {draw_survey(seen.survey, plot)}"
    if as_json:
        print(json.dumps(seen.to_json(), allow_nan=False))
        return
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 100, highlight=False)
    console.print(screen(seen, unicode=not console.options.ascii_only))
    if drawn:
        print(drawn)


def list_datasets() -> None:
    """Datasets on this machine, and what Minari publishes (understudy dataset download fetches one)."""
    from understudy.data.catalogue import minari_datasets, minari_families
    from understudy.data.formats.minari.reader import minari_root

    here = _local(minari_root())
    print(f"{'dataset':<44} {'steps':>10} {'episodes':>9}  environment")
    for name, published in minari_datasets().items():
        mark = " (here)" if name in here else ""
        print(f"{name + mark:<44} {published.steps:>10,} {published.episodes:>9,}  {published.env}")
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

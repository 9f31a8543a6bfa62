"""report: what came of runs, as a page to send to somebody."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.learn import Quiet
from understudy.core.errors import UnderstudyError
from understudy.core.stopping import stoppable


def register(app: typer.Typer) -> None:
    app.command()(report)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders with runs below them.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write it: .html, .md or .csv.")] = Path("report.html"),
    format: Annotated[str, typer.Option("--format", help="html, md, csv, or all beside each other.")] = "",
    metric: Annotated[
        str, typer.Option("--metric", "-m", help="return, score, success, length, or any number of evaluations.")
    ] = "",
    videos: Annotated[float, typer.Option("--videos", help="Megabytes of films in the page; 0: none.")] = 8.0,
    show: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    watching: Annotated[
        bool, typer.Option("--watch", help="Write it again whenever runs go on, until Ctrl-C.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write what came of runs as one HTML file: a verdict, tables, curves, settings; it loads nothing and prints."""
    from understudy.tools.report.writing import Report, how_to_touch, watch
    from understudy.tools.report.writing import report as write

    with stoppable("report", "It stands as it was last written."):

        def once(watched: bool) -> Report:
            return write(runs, out, metric=metric, format=format, videos=videos, watched=watched)

        changes = watch(runs)
        if watching:
            next(changes)  # what changes while it is written is a change
        written = once(watching)
        if not quiet:
            _tell(written.sentence, *written.notes, *filter(None, [how_to_touch()]))
            _tell(*(f"written to {path}" for path in written.paths))
        if show:
            _open(written.paths[0])
        if watching:
            _go_on(changes, once)


def _go_on(changes: Iterator[None], once: Callable[[bool], object]) -> None:
    """Runs that cannot be told of for now, as while they are replaced, end no watch. What is left at the end does not
    read itself again: it may be sent to somebody."""
    try:
        for _ in changes:
            try:
                once(True)
            except UnderstudyError as error:
                _tell(f"not written again: {error}")
    except KeyboardInterrupt:
        with suppress(UnderstudyError):
            once(False)
        raise


def _tell(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


def _open(path: Path) -> None:
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        print(f"no browser here; open {path.resolve()}")

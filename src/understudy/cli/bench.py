"""bench and what belongs to it: many runs that answer one question."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command(hidden=True)(work)


def work(directory: Annotated[Path, typer.Argument(help="Where the run lies, or shall lie.")]) -> None:
    """Train or resume the run that standard input describes (YAML, everything written out); print its outcome as JSON.

    This is what other machines are asked to do. It can be killed at any moment, and be asked again.
    """
    from understudy.tools.experiments.work import FINISHED, Outcome, train_or_resume

    told = train_or_resume(str(directory), sys.stdin.read())
    print(told)
    if Outcome.from_json(told).outcome != FINISHED:
        raise typer.Exit(1)

"""All commands of `understudy`, under one roof."""

import os
from typing import Annotated

import typer

from understudy.cli import (
    bench,
    checkpoint,
    collect,
    dataset,
    describe,
    explain,
    learn,
    looking,
    motion,
    ope,
    report,
    skills,
    tune,
)

app = typer.Typer(
    name="understudy",
    help="Learn control policies from experience that others already had.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
learn.register(app)
collect.register(app)
looking.register(app)
report.register(app)
ope.register(app)
checkpoint.register(app)
describe.register(app)
explain.register(app)
dataset.register(app)
motion.register(app)
skills.register(app)
tune.register(app)
bench.register(app)


def tell_version(wanted: bool) -> None:
    """Ours and torch's, which is not imported for that."""
    if wanted:
        from importlib.metadata import version

        import understudy

        print(f"understudy {understudy.__version__}, torch {version('torch')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback when something goes wrong.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the versions of understudy and torch.", callback=tell_version)
    ] = False,
) -> None:
    """Learn control policies from experience that others already had."""
    if "WORLD_SIZE" in os.environ:  # ranks import torch
        check_shareable(context.invoked_subcommand or "")


def check_shareable(command: str) -> None:
    """Several processes share one run; a suite or a search begun by each of them would get in its own way."""
    from understudy.core.errors import ConfigError
    from understudy.core.ranks import process_share

    size = process_share().size
    if size > 1 and command not in ("train", "resume"):
        do = "Start it without torchrun, or unset RANK and WORLD_SIZE."
        what = f"its {size} processes share one run"
        raise ConfigError("torchrun", what, got=f"`{command}`", expected="`train` or `resume`", do=do)

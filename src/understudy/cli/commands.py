"""All commands of `understudy`, under one roof."""

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
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback when something goes wrong.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the versions of understudy and torch.", callback=tell_version)
    ] = False,
) -> None:
    """Learn control policies from experience that others already had."""

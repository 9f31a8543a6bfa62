"""understudy dataset …: look at data, check it, mend it, fetch it. Each command lives in a file of its own."""

import typer

from understudy.cli import dataset_check, dataset_convert, dataset_corrupt, dataset_inspect

PARTS = (dataset_inspect, dataset_check, dataset_convert, dataset_corrupt)
"""Files with a `register(app)`: a new command adds its file here."""


def register(app: typer.Typer) -> None:
    commands = typer.Typer(
        help="Look at datasets, check, convert and fetch them.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for part in PARTS:
        part.register(commands)
    app.add_typer(commands, name="dataset")

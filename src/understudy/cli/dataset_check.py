"""dataset check: can this data be trusted, and did it come from this environment?"""

import json
import sys
from typing import Annotated

import typer

from understudy.core.stopping import stoppable

Data = Annotated[str, typer.Argument(help="A file or folder of any known kind, or the id of a local Minari dataset.")]
Environment = Annotated[
    str,
    typer.Option("--env", help="The environment the data should come from; absent: what the file says, if anything."),
]


def register(app: typer.Typer) -> None:
    app.command()(check)


def check(
    data: Data,
    env: Environment = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Check a dataset, and replay some of its steps in the environment. Exit code 0: passed, 1: failed."""
    from understudy.run.progress import Reporter
    from understudy.tools.dataset.check import check_file

    with stoppable(f"dataset '{data}'", "It was only read."):
        report = check_file(data, env, Reporter())
    if as_json:
        print(json.dumps(report.to_json(data), allow_nan=False))
    else:
        from rich.console import Console

        from understudy.cli.check_screen import by_hand, screen, verdict

        console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 100, highlight=False)
        for line in screen(report, min(console.width, 100)):
            console.print(line, soft_wrap=True)
        if command := report.command(data):
            rest = by_hand(report)
            print(f"\nTo mend it{f' (but for {rest} that no setting mends)' if rest else ''}:\n  {command}")
        console.print()
        console.print(verdict(report))
    raise typer.Exit(0 if report.passed else 1)

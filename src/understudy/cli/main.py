"""The command's words, and what happens when something goes wrong: one sentence, an exit code, no traceback."""

import sys
import traceback
from typing import Annotated

import typer

from understudy.cli import dataset, describe, learn
from understudy.core.errors import UnderstudyError

app = typer.Typer(
    name="understudy",
    help="Learn control policies from experience that others already had.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
learn.register(app)
describe.register(app)
dataset.register(app)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback when something goes wrong.")] = False,
) -> None:
    """Learn control policies from experience that others already had."""


def main() -> None:
    """Entry point of the command."""
    try:
        app([word for word in sys.argv[1:] if word != "--debug"], prog_name="understudy")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except Exception as error:
        sys.exit(_report(error, debug="--debug" in sys.argv))


def _report(error: Exception, *, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    elif isinstance(error, UnderstudyError):
        print(error, file=sys.stderr)
    elif isinstance(error, OSError):
        print(f"{error.filename or 'system'}: {error.strerror or error}.", file=sys.stderr)
    elif isinstance(error, MemoryError):
        print("memory: not enough of it for this. Use a smaller batch or a memory-mapped store.", file=sys.stderr)
    else:
        print(f"Unexpected {type(error).__name__}: {error}. Run again with --debug and report it.", file=sys.stderr)
    return error.exit_code if isinstance(error, UnderstudyError) else 1

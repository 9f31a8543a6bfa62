"""The command, and what happens when something goes wrong: one sentence, an exit code, no traceback."""

import faulthandler
import sys
import traceback
from contextlib import suppress

from understudy.cli.stopping import stoppable
from understudy.core.errors import UnderstudyError


def main() -> None:
    """Entry point of the command."""
    with suppress(AttributeError, OSError, RuntimeError, ValueError):  # no stderr to write to
        faulthandler.enable()  # a crash of native code cannot be caught: at least it says where it was
    try:
        with stoppable("understudy", ""):
            from understudy.cli.commands import app  # takes its time, in which Ctrl-C shall be heard

            app([word for word in sys.argv[1:] if word != "--debug"], prog_name="understudy")
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

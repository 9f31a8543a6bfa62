"""The command, and what happens when something goes wrong: one sentence, an exit code, no traceback."""

import re
import sys
import traceback

from understudy.cli.stopping import stoppable
from understudy.core.errors import UnderstudyError
from understudy.core.machine_memory import told_bytes

ALLOCATION = re.compile(r"(?:tried|Tried) to allocate (\d+) bytes")
"""How torch's allocator tells that it got nothing."""


def main() -> None:
    """Entry point of the command."""
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
    elif isinstance(error, MemoryError) or ALLOCATION.search(str(error)):
        print(_out_of_memory(error), file=sys.stderr)
    else:
        print(f"Unexpected {type(error).__name__}: {error}. Run again with --debug and report it.", file=sys.stderr)
    return error.exit_code if isinstance(error, UnderstudyError) else 1


def _out_of_memory(error: Exception) -> str:
    """Who asked for how much, as far as that is known."""
    asked = ALLOCATION.search(str(error))
    told = f"{told_bytes(int(asked[1]))} at once" if asked else str(error).partition("\n")[0].rstrip(".")
    return (
        f"memory: not enough of it for this{f': got a request for {told}' if told else ''}. "
        "Use a smaller batch, network or rollout, fewer environments, or a memory-mapped store."
    )

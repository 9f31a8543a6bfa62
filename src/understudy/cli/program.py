"""From words to an exit code; and what happens when something goes wrong: one sentence, no traceback."""

import faulthandler
import re
import sys
from contextlib import suppress

from understudy.cli.streams import OutputError, open_streams
from understudy.core.errors import UnderstudyError
from understudy.core.machine_memory import told_bytes

ALLOCATION = re.compile(r"(?:tried|Tried) to allocate (\d+) bytes")
"""How torch's allocator tells that it got nothing."""


def run(words: list[str]) -> int:
    """Run the command; what to exit with."""
    try:
        open_streams()
        with suppress(AttributeError, OSError, RuntimeError, ValueError):  # no stderr to write to
            faulthandler.enable()  # a crash of native code cannot be caught: at least it says where it was
        from understudy.cli.commands import app

        try:
            app([word for word in words if word != "--debug"], prog_name="understudy")
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.stdout.flush()  # here, where a failure is told, and not when Python is gone
    except Exception as error:
        return _report(error, debug="--debug" in words)
    return 0


def _report(error: Exception, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    elif isinstance(error, OutputError) and error.unheard:
        pass
    elif isinstance(error, UnderstudyError):
        print(error, file=sys.stderr)
    elif isinstance(error, OSError):
        print(f"{error.filename or 'system'}: {error.strerror or error}.", file=sys.stderr)
    elif isinstance(error, UnicodeEncodeError):
        told = f"has letters that no file's name may have in this locale ({error.encoding}). Set PYTHONUTF8=1."
        print(f"{error.object!a}: {told}", file=sys.stderr)
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

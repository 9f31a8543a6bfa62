"""The entry point. It imports nothing that Python has not imported itself, so that Ctrl-C is heard from its start."""

import os
import sys


def main() -> None:
    """Entry point of the command."""
    try:
        import atexit
        import gc
        import signal

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
            atexit.register(signal.signal, number, signal.SIG_IGN)  # the exit code is known by then
        atexit.register(gc.freeze)  # or Python would look through all of torch once more: a second and longer
    except KeyboardInterrupt:
        end(2)
    from understudy.cli.program import run

    sys.exit(run(sys.argv[1:]))


def end(number: int, frame: object = None) -> None:
    """What a signal does unless the command has things to put in order, and when it is asked to leave them.

    No exception: imports are full of callbacks that drop one, and torch's can crash of it.
    """
    try:
        os.write(2, b"understudy: stopped.\n")
    finally:
        os._exit(128 + number)

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
    """What a signal does where nothing is to be put in order: before the command, after it, and while what was to be
    put in order is being abandoned. No exception: there is nobody to catch it."""
    try:
        os.write(2, b"understudy: stopped.\n")
    finally:
        os._exit(128 + number)

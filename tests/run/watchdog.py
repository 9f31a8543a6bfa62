"""Processes that must end by themselves, and are killed if they do not."""

import signal
from threading import Timer

from forks import Child, Ending

SECONDS = 60.0


def ending_of(child: Child) -> Ending:
    """How a child ended; killed, if it waited for ever."""
    watchdog = Timer(SECONDS, child.kill, [signal.SIGKILL])
    watchdog.start()
    try:
        return child.wait()
    finally:
        watchdog.cancel()

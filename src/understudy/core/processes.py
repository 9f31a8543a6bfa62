"""What a process owes to the one that started it: not to outlive it, however that ends."""

import ctypes
import os
import select
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1
HINTS = {
    "SIGKILL": "Was there too little memory?",
    "SIGALRM": "An environment has set an alarm (signal.alarm, setitimer) that nobody waited for.",
}
"""What may have ended a process."""


def die_with(parent: int) -> None:
    """Have the kernel kill this process with the thread that started it, which must be the last one of `parent`."""
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):  # a C library without it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before that
        os._exit(1)


def end_with(handle: int) -> None:
    """For a thread: end this process when the other end of a line hangs up, whatever the main thread does."""
    watch = select.poll()
    watch.register(handle, 0)
    watch.poll()
    os._exit(1)


def ending(code: int) -> str:
    """How a process ended, in a word or two."""
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

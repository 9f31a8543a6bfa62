"""Ctrl-C and SIGTERM while a command writes: what it began is put in order, and one sentence says so."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from understudy.core.errors import UnderstudyError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RETRY_SECONDS = 0.02


class StoppedError(UnderstudyError):
    """A command that was told to stop; its exit code is that of a shell: 128 and the signal."""

    def __init__(self, where: str, number: int, do: str) -> None:
        super().__init__(where, "stopped", do=do)
        self.exit_code = 128 + number


class _Signal(BaseException):
    """No Exception: nobody on the way may take it for a failure of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stoppable(where: str, do: str) -> Iterator[None]:
    """What runs inside is unwound by either signal, so that drafts are removed; `do` says what is left."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise _Signal(number)

    def again(number: int, frame: FrameType | None) -> None:
        raise _Signal(received[-1])

    def unheard(event: "sys.UnraisableHookArgs") -> None:
        """Python drops what is raised inside a callback (imports have many): it is raised once more, elsewhere."""
        if isinstance(event.exc_value, _Signal):
            signal.signal(signal.SIGALRM, again)  # only now: until then the alarm is that of whoever sets one
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
        else:
            hook(event)

    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    hook, sys.unraisablehook = sys.unraisablehook, unheard
    try:
        for number in SIGNALS:
            signal.signal(number, stop)
        yield
    except _Signal as stopped:
        raise StoppedError(where, stopped.number, do) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:  # somebody took it for a failure of their own and went on
        raise StoppedError(where, received[-1], do)

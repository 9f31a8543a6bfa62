"""Ctrl-C and SIGTERM: what was begun is put in order, and one sentence says so.

Listeners are nested, and each hears one signal: who asks again while the inner one is still busy is heard by the one
around it, which has less to put in order.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from understudy.core.errors import UnderstudyError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RETRY_SECONDS = 0.02

Handler = Callable[[int, FrameType | None], Any] | int | None


class StoppedError(UnderstudyError):
    """What was told to stop; its exit code is that of a shell: 128 and the signal."""

    def __init__(self, where: str, number: int, do: str) -> None:
        super().__init__(where, "stopped", do=do)
        self.exit_code = 128 + number
        self.number = number


class StopSignal(KeyboardInterrupt):
    """No Exception: nobody on the way may take it for a failure of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def nothing() -> None:
    pass


@contextmanager
def stoppable(where: str, do: str | Callable[[], str] = "", at_once: Callable[[], None] = nothing) -> Iterator[None]:
    """What runs inside is unwound by either signal, so that drafts are removed; `do` says what is left.

    `at_once` is called before anything is unwound.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        listen(before)
        at_once()
        raise StopSignal(number)

    def again(number: int, frame: FrameType | None) -> None:
        raise StopSignal(received[-1])

    def unheard(event: "sys.UnraisableHookArgs") -> None:
        """Python drops what is raised inside a callback (imports have many): it is raised once more, elsewhere."""
        if isinstance(event.exc_value, StopSignal):
            listen({signal.SIGALRM: again})  # only now: until then the alarm is that of whoever sets one
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
        else:
            hook(event)

    def stopped(error: BaseException | None) -> StoppedError | None:
        """Whatever went wrong after a signal went wrong because of it."""
        if isinstance(error, StoppedError):
            return error
        number = error.number if isinstance(error, StopSignal) else next(iter(received), 0)
        return StoppedError(where, number, do if isinstance(do, str) else do()) if number else None

    before = {number: signal.getsignal(number) for number in SIGNALS}
    alarm = {signal.SIGALRM: signal.getsignal(signal.SIGALRM)}
    hook, sys.unraisablehook = sys.unraisablehook, unheard
    try:
        listen(dict.fromkeys(SIGNALS, stop))
        yield
    except BaseException as error:
        if (ending := stopped(error)) is None or ending is error:
            raise
        raise ending from error
    finally:
        listen(before)
        signal.setitimer(signal.ITIMER_REAL, 0)
        listen(alarm)
        sys.unraisablehook = hook
    if (ending := stopped(None)) is not None:  # somebody took it for a failure of their own and went on
        raise ending


def listen(handlers: Mapping[signal.Signals, Handler]) -> None:
    """Put handlers in place; None is one that is not Python's, and stays."""
    for number, handler in handlers.items():
        if handler is not None:
            signal.signal(number, handler)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collects Ctrl-C and SIGTERM while inside; the loop looks at the list between updates.

    Who asks twice wants it now: that one is heard by whoever listened before.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            listen(before)
            signal.raise_signal(number)
        received.append(number)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    listen(dict.fromkeys(SIGNALS, note))
    try:
        yield received
    finally:
        listen(before)

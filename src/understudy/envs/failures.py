"""Failures of simulators in one voice: what was raised, and where in their code.

Whatever a simulator raises is its failure, also what is no Exception (`sys.exit`, a panic of native code), unless the
handler of a signal raised it: being stopped is nobody's failure. Where Python's own handler stands for Ctrl-C, which
leaves no trace of itself, every KeyboardInterrupt counts as one.
"""

import inspect
import signal
import traceback
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType
from typing import Any, NoReturn

import gymnasium

from understudy.core.errors import RunError, UnderstudyError
from understudy.core.stopping import StopSignal

LONGEST_WORDS = 300
"""Of what an exception says."""


def raise_failure(where: str, what: str, error: BaseException, env: object = None) -> NoReturn:
    """Raise in place of `error` what it means: a failure of `env`, unless it is an error of ours or an interruption."""
    if isinstance(error, UnderstudyError) or interrupts(error):
        raise error
    raise RunError(where, f"{what} ({describe_exception(error, env)})") from error


def interrupts(error: BaseException) -> bool:
    """Whether somebody stops this process; it may have been raised inside a simulator, but not by it."""
    if isinstance(error, Exception):
        return False
    if isinstance(error, StopSignal):  # whose handler may be gone already: each hears one signal
        return True
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return True
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _code(handler: Any) -> CodeType | None:
    """What runs when a handler is called, if it is written in Python."""
    if callable(handler) and not inspect.isroutine(handler):
        handler = type(handler).__call__
    if inspect.ismethod(handler):
        handler = handler.__func__
    return handler.__code__ if inspect.isfunction(handler) else None


def describe_exception(error: BaseException, env: object = None) -> str:
    """`ValueError: no such wheel, at robot.py:12`: in one line, with the place in the code of `env` if it was there."""
    said = ""
    with suppress(Exception):  # an exception may fail to say anything
        said = " ".join(str(error).split())
    if len(said) > LONGEST_WORDS:
        said = f"{said[:LONGEST_WORDS]}…"
    place = _place(error, env)
    return type(error).__name__ + (f": {said}" if said else "") + (f", at {place}" if place else "")


def _place(error: BaseException, env: object) -> str:
    """The innermost line of the environment's own code, or the innermost of all below the one that called it."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)][1:]
    own = set(_files(env))
    found = [line for line in lines if line[0] in own] or lines
    return f"{found[-1][0]}:{found[-1][1]}" if found else ""


def _files(env: object) -> Iterator[str]:
    """Where an environment and what it is wrapped in are written, except what Gymnasium itself wraps it in."""
    while isinstance(env, gymnasium.Env):
        if not type(env).__module__.startswith("gymnasium.wrappers."):
            with suppress(TypeError, OSError):  # written nowhere
                yield inspect.getfile(type(env))
        env = env.env if isinstance(env, gymnasium.Wrapper) else None

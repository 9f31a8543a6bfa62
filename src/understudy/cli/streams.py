"""Standard output and standard error of the command: no letter stops it, and no listener that has gone. Where they have
an edge, no line runs past it and no word is cut by it.

What cannot be written to standard output is an error in one sentence; a reader that has gone needs none. What cannot be
written to standard error is dropped: progress is no reason to end a run.
"""

import errno
import io
import os
import sys
from typing import TYPE_CHECKING

from understudy.core.errors import UnderstudyError
from understudy.core.wording import folded

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

OUT, ERR = 1, 2
PIPE_CODE = 141
"""What a shell says of a command that a closed pipe ended."""


class OutputError(UnderstudyError):
    """Standard output does not take what the command says."""

    def __init__(self, error: OSError) -> None:
        super().__init__("standard output", f"cannot be written ({error.strerror})")
        self.unheard = error.errno == errno.EPIPE
        if self.unheard:
            self.exit_code = PIPE_CODE


class _Output(io.FileIO):
    """A handle to write to, until the first write that fails. No OSError leaves it: libraries on the way have ways of
    their own to end a program that meets one."""

    broken = False

    def write(self, content: "ReadableBuffer", /) -> int:
        if not self.broken:
            try:
                return super().write(content)
            except OSError as error:
                self.broken = True
                if self.fileno() == OUT:
                    raise OutputError(error) from None
        return memoryview(content).nbytes


class _Text(io.TextIOWrapper):
    """Lines are folded where there is an edge. What moves the cursor knows where it is."""

    _within_line = False

    def write(self, text: str, /) -> int:
        width = edge(self.fileno())
        if width and "\x1b" not in text and "\r" not in text:
            begun, *lines = text.split("\n")
            first = begun if self._within_line else folded(begun, width)
            super().write("\n".join([first, *(folded(line, width) for line in lines)]))
        else:
            super().write(text)
        self._within_line = not text.endswith("\n") if text else self._within_line
        return len(text)


def edge(handle: int, otherwise: int = 0) -> int:
    """Letters of a line of a terminal, as COLUMNS or it says; a pipe or a file has no edge, whatever COLUMNS says:
    GNU readline sets it in every process that is started from an interactive one."""
    try:
        width = os.get_terminal_size(handle).columns
    except OSError:
        return otherwise
    wished = os.environ.get("COLUMNS", "")
    return int(wished) if wished.isdecimal() and int(wished) > 0 else width or otherwise


def open_streams() -> None:
    """Put ours in the place of Python's, unless somebody else's are there."""
    _hold_handles()
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(OUT, sys.stdout, "replace")
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(ERR, sys.stderr, "backslashreplace")


def _stream(handle: int, before: io.TextIOBase | object, errors: str) -> io.TextIOWrapper:
    output = _Output(handle, "w", closefd=False)
    encoding = before.encoding if isinstance(before, io.TextIOWrapper) else "utf-8"
    lines = handle == ERR or output.isatty()
    return _Text(io.BufferedWriter(output), encoding, errors, line_buffering=lines)


def _hold_handles() -> None:
    """A standard handle that is closed would be given to the next file that is opened, and hear what is printed."""
    for handle in range(ERR + 1):
        try:
            os.fstat(handle)
        except OSError:
            # Not to be written to, as the closed one was not.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)

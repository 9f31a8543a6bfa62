"""A terminal of any width: what a command shows there, without what moves the cursor."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress

from understudy.cli.program import run

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FRAMES = re.compile(r"[─-╿]+")
"""Lines of tables, and bars."""


def shown(width: int, *commands: Sequence[str]) -> list[str]:
    """The lines of commands, run in one fork of this process, on a terminal of that many letters."""
    child, terminal = pty.fork()
    if child == 0:
        code = 70
        try:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
            for name in ("COLUMNS", "LINES", "NO_COLOR"):
                os.environ.pop(name, None)
            os.environ["TERM"] = "xterm"
            for name, handle in {"stdout": 1, "stderr": 2}.items():
                vars(sys).update({name: open(handle, "w", closefd=False)})  # noqa: SIM115
                vars(sys)[f"__{name}__"] = vars(sys)[name]
            for words in commands:
                code = run(list(words))
                sys.stderr.flush()
        finally:
            os._exit(code)
    chunks = []
    with suppress(OSError):  # how a terminal says that nobody is there any more
        while chunk := os.read(terminal, 1 << 16):
            chunks.append(chunk)
    os.close(terminal)
    os.waitpid(child, 0)
    text = ESCAPES.sub("", b"".join(chunks).decode())
    return [line.rstrip() for line in re.split(r"[\r\n]+", text)]


def words_of(lines: list[str]) -> set[str]:
    return {word for line in lines for word in FRAMES.sub(" ", line).split()}

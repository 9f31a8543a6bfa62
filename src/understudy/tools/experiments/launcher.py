"""Who does the work: processes of this machine here, elsewhere others; the manager knows only this seam."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Protocol, final

from understudy.core.errors import RunError
from understudy.core.files import write_all
from understudy.core.processes import HINTS
from understudy.tools.experiments.work import FAILED, STOPPED, Outcome

HOST = ("-m", "understudy.tools.experiments.host")
ENDING_SECONDS = 10.0


class Launcher(Protocol):
    """Runs work on something. What it is handed and what it hands back is text, or an `Outcome` made of it. Which work
    that is, whoever makes one knows: of experiments it is `train_or_resume`.

    A handle is a number that is never used twice. Work that dies without a word comes back as one that failed and may
    be tried again. When the process that holds a launcher dies, so does its work, at the latest when it was saved;
    what outlives it for a while is protected from a second worker by the lock of the run's directory.
    """

    def submit(self, directory: str, config: str) -> int:
        """Have the work done that two words describe: `train_or_resume(directory, config)`."""

    def poll(self, seconds: float) -> Mapping[int, Outcome]:
        """What ended since it was last asked, by handle; waits so long at most if nothing did."""

    def cancel(self, handle: int) -> None:
        """Have it save and stop; its outcome is polled as any other."""

    def close(self) -> None:
        """End what still runs, at once."""


@final
class LocalLauncher:
    """Processes of this machine, forked from one host process that has imported all that a run needs.

    A run then begins in milliseconds, in a process of its own: what crashes takes nothing with it.
    """

    def __init__(self) -> None:
        self._handles = 0
        self._running: dict[int, tuple[str, str]] = {}
        self._read = bytearray()
        self._host: subprocess.Popen[bytes] | None = None
        self._line: IO[bytes] | None = None
        """On which the host answers."""

    def submit(self, directory: str, config: str) -> int:
        self._handles += 1
        self._running[self._handles] = (directory, config)
        self._tell({"job": self._handles, "directory": directory, "config": config})
        return self._handles

    def poll(self, seconds: float) -> Mapping[int, Outcome]:
        if not self._running or self._line is None or not select.select([self._line], [], [], seconds)[0]:
            return {}
        if not (some := os.read(self._line.fileno(), 1 << 16)):
            return self._lost()
        self._read += some
        *lines, rest = bytes(self._read).split(b"\n")
        self._read = bytearray(rest)
        return dict(self._ended(line) for line in lines)

    def cancel(self, handle: int) -> None:
        if handle in self._running:
            self._tell({"job": handle, "cancel": True})

    def close(self) -> None:
        if self._host is not None:
            self._host.kill()  # and the kernel, or the end of its line, whatever it has forked
            self._host.wait(ENDING_SECONDS)
            for stream in filter(None, (self._host.stdin, self._line)):
                with suppress(OSError):
                    stream.close()
        self._host = self._line = None
        self._running.clear()

    def _tell(self, message: dict[str, object]) -> None:
        host = self._host or self._started()
        assert host.stdin is not None
        with suppress(BrokenPipeError):  # it died: `poll` will find that out
            write_all(host.stdin.fileno(), json.dumps(message).encode() + b"\n")

    def _started(self) -> subprocess.Popen[bytes]:
        """In a session of its own: a Ctrl-C at the terminal is for this process, which knows what to do about it."""
        answers, line = os.pipe()
        self._line = os.fdopen(answers, "rb", buffering=0)
        try:
            self._host = subprocess.Popen(
                [sys.executable, *HOST, str(line)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(line,),
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise RunError("workers", f"no process could be started ({error})") from error
        finally:
            os.close(line)  # ours, so that its end is heard when the host ends
        return self._host

    def _ended(self, line: bytes) -> tuple[int, Outcome]:
        told = json.loads(line)
        handle: int = told["job"]
        del self._running[handle]
        if "outcome" in told:
            return handle, Outcome.from_json(told["outcome"])
        how, words = told["died"], told["words"]
        reason = " ".join(filter(None, [f"its process ended with {how}.", HINTS.get(how, ""), words]))
        return handle, Outcome(STOPPED if told["cancelled"] else FAILED, reason, retry=True)

    def _lost(self) -> Mapping[int, Outcome]:
        """The host is gone, and with it all that it had forked."""
        lost = dict.fromkeys(self._running, Outcome(FAILED, "the process that starts runs is gone", retry=True))
        self.close()
        self._read.clear()
        return lost

"""A process of its own that answers messages: forked, so that it knows all that this one knows, and never longer alive.

It ends when it is told to, and at once when this process ends, however that happens: a thread of it sees that its line
hung up, and on Linux the kernel kills it, also where native code lets no thread run. Signals that stop a run are not
for it: this process saves, and then ends it. Nothing is pickled; a message is a letter, a length and bytes. What its
code prints comes out on stderr.
"""

import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn, Protocol, final

import torch

from understudy.core import errors
from understudy.core.errors import ConfigError, RunError, UnderstudyError
from understudy.core.processes import HINTS, die_with, end_with, ending

DONE, FAILED, QUIT = b"d", b"f", b"q"
"""Letters of answers, and the one that ends a process; others mean what the servant makes of them."""
HEADER = struct.Struct("<cQ")
STOPS = (signal.SIGINT, signal.SIGTERM)
CLOSING, SILENT = 10.0, 1.0
"""Seconds a process has for closing what it holds, and if it owes an answer."""
SOON = 5e-5
"""Seconds in which an answer is looked for before this process lets itself be woken, which takes about as long."""
KINDS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, UnderstudyError)
}


class Servant(Protocol):
    """What a process does."""

    def answer(self, letter: bytes, content: bytes) -> bytes: ...

    def close(self) -> None: ...


@final
class Line:
    """Messages to the process at the other end. Reading may be interrupted anywhere: nothing read is lost."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._read = bytearray()
        self._watch = select.poll()
        self._watch.register(end, select.POLLIN)

    def send(self, letter: bytes, content: bytes = b"") -> None:
        self.end.sendall(HEADER.pack(letter, len(content)) + content)

    def receive(self) -> tuple[bytes, bytes]:
        """The next message; EOFError where nobody is left to send one."""
        read, size = self._read, HEADER.size
        while len(read) < size:
            self._take()
        letter, length = HEADER.unpack_from(read)
        while len(read) < size + length:
            self._take()
        content = bytes(read[size : size + length])
        del read[: size + length]
        return letter, content

    def look(self, seconds: float) -> None:
        """Look for a message again and again, so long at most."""
        look, until = self._watch.poll, time.perf_counter() + seconds
        while not look(0) and time.perf_counter() < until:
            pass

    def _take(self) -> None:
        some = self.end.recv(1 << 16)
        if not some:
            raise EOFError
        self._read += some


@final
class WorkerProcess:
    """Calls `start` in a new process and lets what it gives answer. `held` says in errors what is lost with it.

    `siblings` are the processes that were started before: a copy of their lines would keep them alive.
    """

    def __init__(
        self, start: Callable[[], Servant], where: str, held: str, siblings: Sequence["WorkerProcess"] = ()
    ) -> None:
        self._where, self._held = where, held
        here, there = socket.socketpair()
        self._line = Line(here)

        def serve() -> None:
            for end in (here, *(sibling._line.end for sibling in siblings)):
                end.close()
            _serve(start, Line(there), where)

        self._process = _fork(serve, where)
        there.close()
        self._ending = ""
        self._owes = True
        """It has not answered yet; at first that it has started."""

    def ask(self, letter: bytes, content: bytes = b"") -> None:
        """Without waiting for the answer."""
        try:
            self._line.send(letter, content)
        except OSError as error:
            raise self._lost() from error
        self._owes = True

    def answer(self) -> bytes:
        """Wait for it; what failed over there is raised here."""
        try:
            self._line.look(SOON)
            letter, content = self._line.receive()
        except (EOFError, OSError) as error:
            raise self._lost() from error
        self._owes = False
        if letter == FAILED:
            raise _error(content)
        return content

    def settle(self) -> None:
        """Forget an answer that nobody waited for, because somebody else failed or was interrupted meanwhile."""
        if self._owes:
            with suppress(UnderstudyError):
                self.answer()

    def _lost(self) -> RunError:
        self._ending = self._ending or self._wait(CLOSING)
        told = f"the process of {self._held} is gone ({self._ending})"
        return RunError(self._where, told, do=HINTS.get(self._ending, ""))

    def dismiss(self) -> None:
        """Ask it to end; do not wait."""
        with suppress(OSError):
            self._line.end.send(HEADER.pack(QUIT, 0), socket.MSG_DONTWAIT)

    def end(self) -> None:
        """Wait until it has ended; what does not end is killed."""
        self._ending = self._ending or self._wait(SILENT if self._owes else CLOSING)
        self._line.end.close()

    def _wait(self, seconds: float) -> str:
        """How it ended."""
        deadline = time.monotonic() + seconds
        try:
            while (found := os.waitpid(self._process, os.WNOHANG))[0] == 0:
                if time.monotonic() > deadline:
                    os.kill(self._process, signal.SIGKILL)
                    found = os.waitpid(self._process, 0)
                    break
                time.sleep(0.001)
        except ChildProcessError:  # somebody else waits for all children of this process
            return "nobody knows how"
        return ending(os.waitstatus_to_exitcode(found[1]))


def end_all(workers: Sequence[WorkerProcess], owner: int) -> None:
    """End the processes, all at the same time; a fork of their owner leaves them alone."""
    if os.getpid() != owner:
        return
    for worker in workers:
        worker.dismiss()
    for worker in workers:
        worker.end()


def check_fork(where: str) -> None:
    if sys.platform == "win32":
        raise ConfigError(where, "this system cannot fork processes", got=sys.platform, expected="1 worker")


def _fork(serve: Callable[[], None], where: str) -> int:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # what is in the buffer now is not for the other process to say
    parent, main = os.getpid(), threading.current_thread() is threading.main_thread()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        process = os.fork()
        if process == 0:
            _become(serve, parent if main else 0)
    except OSError as error:
        raise RunError(where, f"no process could be started ({error})") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _become(serve: Callable[[], None], parent: int) -> NoReturn:
    """What a new process does, and nothing after it: neither exit handlers nor finalisers of the old one."""
    code = 1
    try:
        if parent:
            die_with(parent)
        gc.freeze()
        signal.set_wakeup_fd(-1)
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        torch.set_num_threads(1)  # the other threads of the pool were not forked
        with suppress(OSError):
            os.dup2(2, 1)
        sys.stdout = sys.stderr
        serve()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve(start: Callable[[], Servant], line: Line, where: str) -> None:
    threading.Thread(target=end_with, args=(line.end.fileno(),), daemon=True).start()
    with suppress(EOFError, ConnectionError):
        try:
            servant = start()
        except BaseException as error:
            line.send(FAILED, _told(error, where))
            return
        line.send(DONE)
        while (message := line.receive())[0] != QUIT:
            try:
                answer = servant.answer(*message)
            except BaseException as error:
                line.send(FAILED, _told(error, where))
            else:
                line.send(DONE, answer)
        servant.close()


def _told(error: BaseException, where: str) -> bytes:
    """An error as bytes: its nearest class that is ours, its text, and where it was raised."""
    trace = "".join(traceback.format_exception(error))
    if not isinstance(error, UnderstudyError):
        error = RunError(where, f"failed in a process of its own ({type(error).__name__}: {error})")
    kind = next(kind for kind in type(error).__mro__ if kind.__name__ in KINDS)
    return json.dumps([kind.__name__, str(error), trace]).encode()


def _error(content: bytes) -> UnderstudyError:
    kind, text, trace = json.loads(content)
    error = KINDS[kind].__new__(KINDS[kind], text)  # the sentence is made already
    error.add_note(f"In another process:\n{trace}")
    return error

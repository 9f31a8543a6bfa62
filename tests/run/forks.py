"""Real `understudy` processes in milliseconds: children of a server that has imported torch already."""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Unpack, final

from faults import Faults

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Ending:
    """How a process ended: its exit code (minus the signal that killed it) and its last words."""

    code: int
    out: str
    err: str
    memory: int
    """Bytes it had resident at most, those of the server it was forked from included."""


@final
@dataclass(frozen=True)
class Child:
    server: "ForkServer"
    pid: int
    talk: Path

    def kill(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 600.0) -> Ending:
        """How it ended; what lasts longer is killed."""
        killer = threading.Timer(seconds, self.kill, [signal.SIGKILL])
        killer.start()
        code, memory = self.server.ask({"wait": self.pid})
        killer.cancel()
        return Ending(code, (self.talk / "out").read_text(), (self.talk / "err").read_text(), memory)


@final
class ForkServer:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "fork_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._folder.name,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._jobs = 0

    def start(self, *argv: str | Path, **faults: Unpack[Faults]) -> Child:
        """A process that runs `understudy <argv>` and meets these faults."""
        self._jobs += 1
        talk = Path(self._folder.name) / str(self._jobs)
        talk.mkdir()
        for name in ("out", "err"):
            (talk / name).touch()  # a child may be killed before it can open them
        (pid,) = self.ask({"argv": list(map(str, argv)), "faults": faults, "talk": str(talk)})
        return Child(self, pid, talk)

    def run(self, *argv: str | Path, **faults: Unpack[Faults]) -> Ending:
        return self.start(*argv, **faults).wait()

    def ask(self, request: dict[str, Any]) -> list[int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: list[int] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


@cache
def forks() -> ForkServer:
    """The server of this test process."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def go_on(config: Path, run: Path, **faults: Unpack[Faults]) -> Ending:
    """Train, or resume where a run was born already: what a person does after a crash."""
    return forks().run(*next_words(config, run), **faults)


def next_words(config: Path, run: Path) -> list[str]:
    words = ["resume", str(run)] if (run / "config.yaml").exists() else ["train", str(config)]
    return [*words, "--quiet"]


def finish(config: Path, run: Path, **faults: Unpack[Faults]) -> None:
    """Go on until the run is finished, and insist that it ends well."""
    ending = go_on(config, run, **faults)
    assert ending.code == 0, ending.err
    assert (run / "result.json").exists()

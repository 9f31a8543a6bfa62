"""Ctrl-C while an update is compiled, which takes half a minute: heard at once, and no compiler is left behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import write_settings

from processes import all_gone
from understudy.run.compiler import COMPILERS
from worlds import tiny_settings

SECONDS = 5.0
"""Within which it must have ended: a tenth of what compiling takes on the same machine, and torch is slow to leave."""

pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in COMPILERS) or not Path("/proc/self/stat").exists(),
    reason="torch.compile needs a C++ compiler, and the test needs /proc",
)


def started_by(process: int) -> list[int]:
    """Programs that a process runs."""
    tasks = Path("/proc", str(process), "task").glob("*/children")
    return [int(number) for task in tasks for number in task.read_text().split()]


def await_compiler(child: subprocess.Popen[str]) -> list[int]:
    """A C++ compiler and what it runs."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and child.poll() is None:
        for compiler in started_by(child.pid):
            if inner := started_by(compiler):
                return [compiler, *inner]
        time.sleep(0.01)
    raise AssertionError(f"no compiler was started, exit code {child.poll()}")


@pytest.mark.slow
def test_a_stop_while_compiling(tmp_path: Path) -> None:
    """Once as a terminal does it, which tells the compilers, too: that they died of it is not that they failed."""
    run = tmp_path / "run"
    config = write_settings(tmp_path / "run.yaml", tiny_settings("bc", run, compile="auto", updates=100_000))
    for send in (os.killpg, os.kill):
        child = subprocess.Popen(
            [sys.executable, "-m", "understudy", "train", str(config)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
            start_new_session=True,
        )
        compilers = await_compiler(child)
        asked = time.monotonic()
        send(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
        assert time.monotonic() - asked < SECONDS
        assert child.returncode == 128 + signal.SIGINT
        assert said.splitlines()[-1] == f"run '{run}': stopped. Nothing was begun: the same command starts it."
        assert "Traceback" not in said
        assert "compile: on, 100,000 updates repay the half minute it takes" in said
        assert "compiling, about half a minute\n" in said
        assert all_gone(compilers, 1.0)
        assert not run.exists()

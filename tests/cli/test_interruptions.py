"""Ctrl-C at any time: one sentence and exit code 130, also while Python still imports half of the world."""

import ast
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import understudy


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that takes a few seconds to check."""
    rng, rows = np.random.default_rng(0), 400_000
    path = tmp_path_factory.mktemp("log") / "log.npz"
    np.savez(
        path,
        observations=rng.standard_normal((rows, 20)).astype(np.float32),
        actions=rng.uniform(-1, 1, (rows, 4)).astype(np.float32),
        rewards=rng.standard_normal(rows),
        terminals=np.zeros(rows, bool),
        timeouts=np.arange(rows) % 100 == 99,
    )
    return path


def _stopped(child: subprocess.Popen[str], number: signal.Signals, log: Path) -> None:
    out, err = child.communicate(timeout=60)
    assert out == ""
    assert err.splitlines()[-1] in ("understudy: stopped.", f"dataset '{log}': stopped. It was only read.")
    assert "Traceback" not in err
    assert child.returncode == 128 + number


def _checking(script: str, log: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", script + "; main()", "dataset", "check", str(log)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("number", "wait"), [(signal.SIGINT, 0.0), (signal.SIGINT, 0.3), (signal.SIGTERM, 0.3)])
def test_a_check_that_is_stopped_at_some_time(log: Path, number: signal.Signals, wait: float) -> None:
    child = _checking("from understudy.cli.main import main; print('here', flush=True)", log)
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"
    time.sleep(wait + 0.05)
    child.send_signal(number)
    _stopped(child, number, log)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_check_that_is_stopped_as_it_opens_the_file(log: Path, number: signal.Signals) -> None:
    hook = (
        "import os, sys; from understudy.cli.main import main; file = os.path.abspath(sys.argv[-1]);"
        "at_file = lambda event, what: event == 'open' and str(what[0]) == file;"
        f"sys.addaudithook(lambda event, what: at_file(event, what) and os.kill(os.getpid(), {int(number)}))"
    )
    _stopped(_checking(hook, log), number, log)


def test_a_signal_inside_a_callback_is_not_lost() -> None:
    """Python drops exceptions of weak references' callbacks, and imports are full of those."""
    script = (
        "import os, signal, time, weakref\n"
        "from understudy.core.stopping import stoppable\n"
        "class Thing: pass\n"
        "def callback(reference): os.kill(os.getpid(), signal.SIGINT); time.sleep(0.05)\n"
        "with stoppable('test', ''):\n"
        "    thing = Thing(); reference = weakref.ref(thing, callback); del thing\n"
        "    time.sleep(5); print('went on')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert "test: stopped." in done.stderr
    assert "went on" not in done.stdout


def test_nothing_is_imported_before_the_command_listens() -> None:
    """Otherwise a second of torch would go by before anybody hears Ctrl-C, or twenty milliseconds of the rest."""
    script = "import sys; before = {*sys.modules}; import understudy.cli.main; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {name.split(".")[0] for name in done.stdout.split()} == {"understudy"}


AT_IMPORT = """
import os, signal, sys
left = int(sys.argv.pop(1))
def hook(event, facts):
    global left
    left -= event == "import" and "understudy.cli.main" in sys.modules
    if left == 0 and event == "import":
        left = -1
        os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(hook)
from understudy.cli.main import main
main()
"""
"""Ctrl-C as the entry point's n-th module is looked for."""


def test_ctrl_c_at_every_import() -> None:
    endings = []
    for number in [*range(1, 25), *range(25, 200, 25), 10**6]:
        words = [sys.executable, "-c", AT_IMPORT, str(number), "--help"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        endings.append((done.returncode, done.stdout, done.stderr))
    assert set(endings[:-1]) == {(128 + signal.SIGINT, "", "understudy: stopped.\n")}
    assert endings[-1][0] == 0


def test_ctrl_c_when_all_is_done_but_python_itself() -> None:
    """The exit code is that of the command: nothing is left to stop."""
    script = (
        "import atexit, os, signal, sys\n"
        "from understudy.cli.main import main\n"
        "class Last:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid()): kill(pid, 2); kill(pid, 15)\n"
        "sys.last = Last()\n"
        "main()\n"
    )
    words = [sys.executable, "-c", script, "list", "configs"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_names_are_where_their_list_says() -> None:
    assert understudy.__file__ is not None
    tree = ast.parse(Path(understudy.__file__).read_text(encoding="utf-8"))
    typed = {
        (node.module, name.name) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names
    }
    listed = {(home, name) for home, names in understudy.HOMES.items() for name in names.split()}
    assert {pair for pair in typed if str(pair[0]).startswith("understudy.")} == listed
    assert {name for _, name in listed} == set(understudy.__all__) - {"ratios", "statistics"}
    assert all(getattr(understudy, name) is not None for name in understudy.__all__)
    with pytest.raises(AttributeError, match="module 'understudy' has no attribute 'trian'"):
        understudy.trian  # noqa: B018

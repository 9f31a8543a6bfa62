"""The command inside the test process: no second import of torch, everything else as a shell would see it."""

import contextlib
import io
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.cli.main import main
from worlds import PENDULUM_RECIPE, tiny_settings


@dataclass(frozen=True)
class Spoken:
    """Exit code, standard output and standard error of one command."""

    code: int
    out: str
    err: str


def understudy(*words: str | Path) -> Spoken:
    """Run `understudy <words>` here and now."""
    out, err = io.StringIO(), io.StringIO()
    argv, code = sys.argv, 0
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    sys.argv = ["understudy", *map(str, words)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = argv
        for number, handler in before.items():
            signal.signal(number, handler)
    return Spoken(code, out.getvalue(), err.getvalue())


def complaint(*words: str | Path, code: int) -> str:
    """What a command that must fail says: nothing on stdout, one message without traceback on stderr."""
    spoken = understudy(*words)
    assert spoken.code == code, spoken
    assert spoken.out == ""
    assert "Traceback" not in spoken.err
    assert "Unexpected" not in spoken.err
    return spoken.err


def config_file(path: Path, out: Path, algorithm: str = "iql", **changes: Any) -> Path:
    """A small run of the pendulum as a YAML file (JSON is YAML, and has no aliases)."""
    recipe = {**PENDULUM_RECIPE, "episodes": 2}
    settings = tiny_settings(algorithm, out, **{"data": {"recipe": recipe}, "updates": 20, "eval_every": 10, **changes})
    path.write_text(json.dumps(settings), encoding="utf-8")
    return path

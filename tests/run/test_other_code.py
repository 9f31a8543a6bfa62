"""A run goes on only with the code that began it: the library's sources and those of an algorithm from elsewhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small import write_settings

import understudy
from worlds import tiny_settings

PACKAGE = Path(understudy.__file__).parent
SERVER = """
import json, os, sys
import torch, gymnasium, pydantic, numpy, safetensors.torch, typer, rich.console, matplotlib.pyplot
for line in sys.stdin:
    site, words, told = json.loads(line)
    child = os.fork()
    if child == 0:
        sys.stdout, sys.stderr = open(os.devnull, "w"), open(told, "w")
        sys.path[:0] = [site]
        sys.argv = ["understudy", *words]
        from understudy.cli.main import main
        import understudy.run.loop as loop
        assert loop.__file__.startswith(site)
        loop.draw_run = lambda run: None
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Every line becomes a process that imports the library anew, from the place it is told; torch is there already."""
PARROT = """
from typing import Literal
from parrot.habits import RATE
from understudy.algorithms import bc
class Config(bc.Config):
    name: Literal["parrot"] = "parrot"
    learning_rate: float = RATE
needs = bc.needs
build = bc.build
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the library in it, and a package with an algorithm, as pip would leave them."""
    site = tmp_path / "site"
    shutil.copytree(PACKAGE, site / "understudy", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "parrot").mkdir()
    for name, text in (("__init__", ""), ("habits", "RATE = 1e-3\n"), ("cloning", PARROT)):
        (site / "parrot" / f"{name}.py").write_text(text)
    (site / "parrot-1.0.dist-info").mkdir()
    (site / "parrot-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot\nVersion: 1.0\n")
    entry = "[understudy.algorithms]\nparrot = parrot.cloning\n"
    (site / "parrot-1.0.dist-info" / "entry_points.txt").write_text(entry)
    return site


def append(file: Path, line: str) -> str:
    """Add a line to a file; what was there before."""
    original = file.read_text()
    file.write_text(f"{original}\n{line}\n")
    return original


def test_changed_code_of_the_same_version_needs_consent(site: Path, tmp_path: Path) -> None:
    run, told = tmp_path / "run", tmp_path / "told"
    settings = tiny_settings("bc", run, updates=4, log_every=2, eval_every=4, save_every=2)
    settings["algo"]["name"] = "parrot"
    config = write_settings(tmp_path / "run.yaml", settings)
    environment = {**os.environ, "PYTHONPATH": ""}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as server:

        def understudy_says(*words: str | Path) -> tuple[int, str]:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps([str(site), list(map(str, words)), str(told)]) + "\n")
            server.stdin.flush()
            return int(server.stdout.readline()), told.read_text()

        code, error = understudy_says("train", config, "--quiet")
        assert code == 0, error
        parrot = append(site / "parrot" / "habits.py", "# changed")
        append(site / "understudy" / "losses" / "policy.py", "# changed")
        code, error = understudy_says("resume", run, "updates=6", "--quiet")
        assert code == 1
        assert " was written with other versions (the source code of parrot, sha256 " in error
        assert ", the source code of understudy, sha256 " in error
        assert error.endswith("or accept it: understudy resume --accept-versions.\n")
        assert json.loads((run / "result.json").read_text())["updates"] == 4
        (site / "parrot" / "habits.py").write_text(parrot)
        code, error = understudy_says("resume", run, "updates=6", "--accept-versions")
        assert code == 0, error
        assert "accepted other versions: the source code of understudy, sha256 " in error
        assert "parrot" not in error
        append(site / "understudy" / "cli" / "main.py", "# says things otherwise")
        code, error = understudy_says("resume", run, "updates=8", "--quiet")
        assert (code, error) == (0, "")
        assert server.stdin is not None
        server.stdin.close()

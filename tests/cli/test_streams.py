"""Where the command speaks to: terminals of another alphabet, pipes that nobody reads, full disks, closed handles."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from command_line import config_file

from understudy.algorithms import algorithm_names

COMMAND = [sys.executable, "-m", "understudy"]
MANY = """
import json, sys
from understudy.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["understudy", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"{words}: {end.code}")
"""
"""One process, many commands: torch is imported once."""
LATIN = {"PYTHONIOENCODING": "latin-1"}
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def in_another_alphabet(settings: dict[str, str], commands: list[list[str]]) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-c", MANY, json.dumps(commands, ensure_ascii=False)]
    return subprocess.run(words, capture_output=True, env={**os.environ, **settings}, check=False)


def test_no_letter_stops_a_command(tmp_path: Path) -> None:
    """All that print; and file names are bytes, which need not be letters at all."""
    config = str(config_file(tmp_path / "small.yaml", tmp_path / "run", "bc", updates=4, eval_every=4, eval_episodes=1))
    data = str(tmp_path / "dätä-γ-\udcff")
    done = in_another_alphabet(
        LATIN,
        [
            ["--help"],
            *(["list", kind] for kind in ("algorithms", "configs", "suites", "tasks", "datasets", "envs")),
            *(["explain", name] for name in sorted(algorithm_names())),
            ["check", config],
            ["train", config],
            ["collect", config, "--out", data],
            ["dataset", "inspect", data],
            ["dataset", "check", data],
            ["dataset", "convert", data, str(tmp_path / "é\udcff.npz")],
            ["dataset", "corrupt", data, str(tmp_path / "ω"), "kind=reward_flip", "share=0.3"],
            ["dataset", "list"],
            ["export", str(tmp_path / "run"), "--format", "torchscript", "--out", str(tmp_path / "λ")],
        ],
    )
    assert done.returncode == 0, done.stderr
    assert "state [batch, 3] ? action [batch, 1]" in done.stdout.decode("latin-1")
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_no_letter_stops_a_command_in_the_simplest_locale(tmp_path: Path) -> None:
    config = str(config_file(tmp_path / "small.yaml", tmp_path / "run"))
    data = str(tmp_path / "dätä")
    done = in_another_alphabet(
        ASCII, [["explain", "iql"], ["collect", config, "--out", data], ["dataset", "inspect", data]]
    )
    assert done.returncode == 0, done.stderr
    config = str(config_file(tmp_path / "small.yaml", tmp_path / "läuft"))
    done = in_another_alphabet(ASCII, [["train", config]])  # this name is no file's there
    assert done.returncode == 1
    assert done.stderr.startswith(rf"'{tmp_path}/l\xe4uft".encode())
    assert b"Set PYTHONUTF8=1." in done.stderr


@contextmanager
def unread_pipe() -> Iterator[int]:
    """A pipe whose reader has gone, as that of `understudy … | head -1` has."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


def speak(words: list[str], out: int | IO[bytes], *, shell: str = "") -> tuple[int, str]:
    """Exit code and last words of a command that speaks to `out`."""
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", *COMMAND, *words]
    done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [["--help"], ["dataset", "--help"], ["list", "configs"]])
def test_an_output_that_takes_nothing(words: list[str]) -> None:
    with unread_pipe() as pipe:
        assert speak(words, pipe) == (141, "")
    with Path("/dev/full").open("wb") as full:
        assert speak(words, full) == (1, "standard output: cannot be written (No space left on device).\n")
    told = (1, "standard output: cannot be written (Bad file descriptor).\n")
    assert speak(words, subprocess.PIPE, shell=">&-") == told


def test_nothing_else_gets_the_number_of_a_closed_output(tmp_path: Path) -> None:
    """What is printed by a library or a child would end up in the file that has it."""
    config = config_file(tmp_path / "small.yaml", tmp_path / "run")
    script = (
        "import os, sys\n"
        "from understudy.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        "taken = os.open('new', os.O_WRONLY | os.O_CREAT)\n"
        "sys.exit(code or 100 * (taken < 3))\n"
    )
    words = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", script]
    words += ["collect", str(config), "--out", "data", "--quiet"]
    assert subprocess.run(words, cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "data" / "manifest.json").exists()


def test_progress_that_nobody_hears_ends_nothing(tmp_path: Path) -> None:
    config = config_file(tmp_path / "small.yaml", tmp_path / "run", "bc", updates=4, eval_every=4)
    with unread_pipe() as pipe:
        words = [*COMMAND, "train", str(config)]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=pipe, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("finished: mean return ")
    assert (tmp_path / "run" / "result.json").exists()

"""`understudy report`: what it writes and says, and that a watched page goes on until it is stopped."""

import csv
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import complaint, understudy

import understudy as us
from written_runs import write_run, write_study


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("runs"), {"ours": [-900, -300, -120], "theirs": [-900, -700, -600]})


def test_every_format_is_written_beside_the_others(runs: Path, tmp_path: Path) -> None:
    spoken = understudy("report", runs, "--format", "all", "--out", tmp_path / "a.html")
    assert spoken.code == 0, spoken
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.html", "a.md"]
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["seed"], float(row["last"]), int(row["best_updates"])) for row in rows] == [
        (method, str(seed), last + seed, 30) for method, last in (("ours", -120), ("theirs", -600)) for seed in range(3)
    ]
    assert len({row["experiment"] for row in rows}) == 1
    text = (tmp_path / "a.md").read_text()
    assert "| ours | −119.0 \\[−120.0, −118.0\\] (3) |" in text
    assert spoken.out.splitlines()[0] == us.report(runs, tmp_path / "b.md").sentence
    assert understudy("report", runs, "--quiet", "--out", tmp_path / "c.csv").out == ""
    assert "no such format: got pdf" in complaint("report", runs, "--out", tmp_path / "a.pdf", code=2)
    assert "holds no run" in complaint("report", tmp_path, code=1)


@pytest.mark.slow
def test_a_watched_page_is_written_again_until_it_is_stopped(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", [-9, -4], finished=False)
    out = tmp_path / "r.html"
    command = [sys.executable, "-m", "understudy", "report", str(tmp_path / "runs"), "--watch", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(out, "1 run, 1 seed")
        assert "data-reload" in out.read_text().partition("<style")[0]
        write_run(tmp_path / "runs" / "b", [-9, -4], seed=1)
        wait_for(out, "2 runs, 2 seeds")
        shutil.move(tmp_path / "runs", tmp_path / "aside")
        time.sleep(5)
        shutil.move(tmp_path / "aside", tmp_path / "runs")
        write_run(tmp_path / "runs" / "c", [-9, -4], seed=2)
        wait_for(out, "3 runs, 3 seeds")
        process.send_signal(signal.SIGINT)
        spoken, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "not written again: " in spoken
    assert err == "report: stopped. It stands as it was last written.\n"
    assert "data-reload" not in out.read_text().partition("<style")[0], "what is left may be sent to somebody"


def wait_for(path: Path, text: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"'{text}' never came"
        time.sleep(0.1)

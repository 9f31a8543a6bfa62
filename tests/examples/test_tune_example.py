"""The tuning example, run as a person would run it, only shorter."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "tune_ppo.py"


def test_it_ends_with_every_trial_and_the_command_that_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "1"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:6]] == [["trial", str(number)] for number in range(6)]
    assert sum((tmp_path / f"runs/ppo/pendulum/0-trial-{number}").is_dir() for number in range(6)) == 6
    run = lines[-1].split("resume ")[1].split()[0]
    assert (tmp_path / run / "result.json").is_file()

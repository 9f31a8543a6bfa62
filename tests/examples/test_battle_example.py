"""The battle example, run as a person would run it, only shorter."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "battle.py"
SHORT = ["updates=40", "log_every=20", "eval_every=40", "eval_episodes=2", "data.recipe.episodes=8"]


def test_it_ends_with_a_table_of_data_bc_and_iql(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path), *SHORT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split()[:2] for line in done.stdout.splitlines()[-3:]]
    assert rows == [["data", "8"], ["bc", "200"], ["iql", "200"]]
    assert (tmp_path / "iql" / "result.json").is_file()

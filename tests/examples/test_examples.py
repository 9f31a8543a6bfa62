"""Every example and the demo, run as a person would run them, only shorter."""

import subprocess
import sys
from pathlib import Path

import pytest

LONGER = [pytest.param(name, marks=pytest.mark.slow) for name in ("cql/pendulum", "td3bc/pendulum")]
SMALL = ["bc/pendulum", *LONGER, "discrete_cql/cartpole", "iql/battle"]
EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = ["updates=40", "log_every=20", "eval_every=40", "eval_episodes=2", "data.recipe.episodes=8"]


@pytest.mark.parametrize("config", SMALL)
def test_it_trains_evaluates_and_predicts(config: str, tmp_path: Path) -> None:
    script = EXAMPLES / "train_evaluate_predict.py"
    done = subprocess.run(
        [sys.executable, str(script), config, f"out={tmp_path / 'run'}", *SHORT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for word in ("learned:", "evaluated:", "action:", f"understudy resume {tmp_path / 'run'}"):
        assert word in done.stdout
    assert (tmp_path / "run" / "result.json").is_file()


def test_demo_ends_with_table_picture_and_next_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py"), "--out", str(tmp_path / "demo"), "--steps", "40"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for word in ("data", "BC", "IQL", "95 % interval", "picture:", "understudy train", "understudy resume"):
        assert word in done.stdout
    assert (tmp_path / "demo" / "learning_curve.png").read_bytes().startswith(b"\x89PNG")

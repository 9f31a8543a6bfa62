"""The logs that docs/logs.md learns from: what the page says of them is so, and its words for their columns fit."""

import subprocess
import sys
from pathlib import Path

import understudy as us

ROOT = Path(__file__).parents[2]
WORDS = "obs=temp,humidity,action=valve,fan,reward=-cost"


def test_its_days_are_those_of_the_page(tmp_path: Path) -> None:
    script = ROOT / "examples" / "heater_logs.py"
    subprocess.run([sys.executable, str(script), str(tmp_path / "days")], capture_output=True, check=True)
    page = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")
    header, first = (tmp_path / "days" / "2024-01-01.csv").read_text(encoding="utf-8").splitlines()[:2]
    assert f"{header}\n{first}\n" in page
    assert page.count(WORDS) >= 3
    transforms = us.Transforms(not_finite="cut")
    box = us.Box((0.0, 0.0), (10.0, 1.0))
    dataset = us.load_dataset(tmp_path / "days", columns=WORDS, action_space=box, transforms=transforms)
    assert (dataset.episodes, dataset.steps) == (46, 3784 - 6)
    assert "days: 40 episodes, 3,784 steps" in page
    assert "of 46 episodes" in page

"""The page of one's own worlds: its examples run as they stand, the first is the script, and it learns."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = (ROOT / "examples" / "own_simulator.py").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "worlds.md").read_text(encoding="utf-8")
BLOCKS = [block.partition("```")[0] for block in PAGE.split("```python\n")[1:]]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("understudy.run.loop.draw_run", lambda run: None)  # takes longer than all the rest


def played(code: str, folder: Path) -> dict[str, object]:
    script = folder / "example.py"
    script.write_text(code, encoding="utf-8")
    return runpy.run_path(str(script))


def test_a_simulator_of_less_than_forty_lines_is_trained_evaluated_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert SCRIPT.endswith(BLOCKS[0]), "the page shows the script"
    assert len([line for line in SCRIPT.splitlines() if line]) < 40
    run = played(BLOCKS[0], tmp_path)["run"]
    last = run.evaluations()[-1]["eval/return_mean"]  # type: ignore[attr-defined]
    assert last > -20.0, "standing still earns -76"
    assert Path(capsys.readouterr().out.split("exported:")[1].strip()).is_file()


def test_a_simulator_that_saves_everything_goes_on_to_the_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played(BLOCKS[1], tmp_path)
    assert capsys.readouterr().out.strip().endswith("True")


def test_masks_of_one_s_own_are_heeded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) == 3
    played(BLOCKS[2], tmp_path)
    assert capsys.readouterr().out.strip()[-1] in "013", "what the last line's mask allows"

"""Pictures of a search: every trial is in sight, and choices can be told apart."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from understudy.tools.tuning.confirm import Candidate, Confirmed
from understudy.tools.tuning.plan import GIVEN, Plan
from understudy.tools.tuning.plots import draw_history, draw_slices
from understudy.tools.tuning.study import TrialRow
from worlds import tiny_settings

pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")

SCHEDULES = [{"kind": "adam"}, {"kind": "adamw", "weight_decay": 0.001}, {"kind": "adamw", "weight_decay": 0.01}]
WORDS = ["{kind: adam}", "{kind: adamw, weight_decay: 0.001}", "{kind: adamw, weight_decay: 0.01}"]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """What is drawn, in place of files."""
    drawn: list[Figure] = []
    monkeypatch.setattr("understudy.tools.tuning.plots.save_figure", lambda figure, path: drawn.append(figure))
    return drawn


def row(number: int, state: Any, value: float | None) -> TrialRow:
    return TrialRow(number, state, {"algo.optimizer": WORDS[number % 3]}, value, {}, "", (), 0.0)


def test_every_trial_is_in_sight_and_choices_can_be_told_apart(figures: list[Figure], tmp_path: Path) -> None:
    plan = Plan.make(tiny_settings("bc", tmp_path / "run"), {"algo.optimizer": {"choices": SCHEDULES}}, {})
    rows = [row(0, "pruned", None), row(1, "complete", 3.0), row(2, "complete", 5.0), row(3, "failed", None)]
    found = [
        Confirmed(Candidate("2", (), 5.0), {"1": 3.0, "2": 4.0}, {}),
        Confirmed(Candidate(GIVEN, (), None), {}, {}),
    ]
    draw_history(plan, rows, found, Path("unused"))
    draw_slices(plan, rows, found, Path("unused"))
    history, slices = figures
    left, right = history.axes[0].get_xlim()
    assert left < 0 < 3 < right
    named = {text.get_text() for text in history.legends[0].get_texts()}
    assert {"pruned", "failed"} < named
    labels = [label.get_text() for label in slices.axes[0].get_xticklabels()]
    assert len(set(labels)) == 3
    assert max(map(len, labels)) <= 18

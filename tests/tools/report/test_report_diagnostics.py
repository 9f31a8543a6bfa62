"""Diagnostics: what is declared is logged, what matters comes first, and what nobody declared comes, too."""

import json
from pathlib import Path

import pytest

from understudy.algorithms import algorithm_names
from understudy.objectives import PLUGINS
from understudy.tools.report.diagnostics import ALGORITHMS, MEANINGS, OBJECTIVES, diagnostics
from understudy.tools.report.reading import gather
from understudy.tools.report.study import study
from written_runs import write_run, write_study

SOURCES = [path.read_text() for path in (Path(__file__).parents[3] / "src" / "understudy").rglob("*.py")]
"""Everything that could log a number, and what is declared of it."""


def test_every_algorithm_and_objective_says_what_to_look_at() -> None:
    assert set(ALGORITHMS) == set(algorithm_names())
    assert set(OBJECTIVES) == set(PLUGINS.names())


def test_what_is_declared_by_name_is_logged_by_somebody() -> None:
    code = [text for text in SOURCES if "MEANINGS = {" not in text]
    names = {name for patterns in (*ALGORITHMS.values(), *OBJECTIVES.values(), (*MEANINGS,)) for name in patterns}
    for name in (name for name in names if "*" not in name):
        group, _, last = name.partition("/")
        assert any(f'"{name}"' in text or (f"{group}/" in text and last in text) for text in code), name


def test_charts_are_in_the_order_that_is_declared(tmp_path: Path) -> None:
    falling = {"methods": {"a": [-9.0, -5.0, -2.0]}, "metrics": {"zebra/stripes": 3.0}}
    write_study(tmp_path, seeds=2, **falling)  # type: ignore[arg-type]
    write_run(tmp_path / "moves", [-8, -4, -3], seed=7, method="a", metrics={"alarm/diverging": 0.0})
    panels = diagnostics(study(gather([tmp_path])))["Pendulum-v1"]
    assert [panel.title for panel in panels] == ["loss/critic", "value/q"]
    (line,) = panels[1].lines
    assert line.x.tolist() == [10, 20, 30]
    assert line.y.tolist() == [(-9 - 8 - 8) / 3, (-5 - 4 - 4) / 3, (-2 - 1 - 3) / 3]
    assert line.low is not None
    assert line.low.tolist() == [-9, -5, -3]


def test_of_long_logs_of_unequal_length_means_are_of_the_same_seeds_from_point_to_point(tmp_path: Path) -> None:
    """Of each log some lines are read: were they others in each, a mean would leap from seed to seed."""
    for seed, lines in enumerate((1000, 730)):
        run = write_run(tmp_path / str(seed), [-9, -5], seed=seed, finished=seed == 0, updates=1000)
        logged = ({"updates": at, "value/q": 100.0 * seed + at / 1000} for at in range(1, lines + 1))
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in logged))
    (panel,) = diagnostics(study(gather([tmp_path])))["Pendulum-v1"]
    (line,) = panel.lines
    assert line.low is not None
    assert line.high is not None
    both = line.x <= 700
    assert both.sum() > 30
    assert (line.high - line.low)[both].tolist() == pytest.approx([100.0] * int(both.sum()))
    assert line.y[both] - line.x[both] / 1000 == pytest.approx(50.0)
    assert line.x[-1] == 1000
    assert (~both).sum() > 10

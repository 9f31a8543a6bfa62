"""Pictures of runs: titles, units, axes, no empty panels; drawn from any log, while a run trains, and for little of its
time."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from small import short_settings

from understudy.core.errors import RunError
from understudy.run import plots
from understudy.run.config import parse_config
from understudy.run.plots import PALETTE, Points, SparinglyDrawn, as_float, common_axis, curve, draw_curves, draw_run
from understudy.run.rundir import RunDir


def evaluation(updates: int, value: float, **further: Any) -> dict[str, Any]:
    interval = {"eval/return_low": value - 1, "eval/return_high": value + 1}
    told = {"eval/return_mean": value, **interval, "eval/return_std": 1.0, "eval/length_mean": 10.0}
    return {"updates": updates, **told, "returns": [value] * 3, "lengths": [10] * 3, **further}


def written(folder: Path, evaluations: list[dict[str, Any]], metrics: list[dict[str, Any]], **meta: Any) -> RunDir:
    run = RunDir(folder)
    folder.mkdir(parents=True)
    config = parse_config(short_settings("iql", folder))
    run.write_config(config)
    run.meta_file.write_text(json.dumps(meta))
    run.eval_file.write_text("".join(f"{json.dumps(line)}\n" for line in evaluations))
    run.metrics_file.write_text("".join(f"{json.dumps(line)}\n" for line in metrics))
    return run


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """The figures that are drawn, by the name of their file."""
    figures: dict[str, Figure] = {}

    def keep(figure: Figure, path: Path) -> Path:
        figures[path.name] = figure
        return path

    monkeypatch.setattr(plots, "save_figure", keep)
    return figures


def panels(figure: Figure) -> dict[str, Any]:
    """Visible panels by title."""
    return {axes.get_title(): axes for axes in figure.axes if axes.get_visible()}


def test_returns_score_and_success_stand_side_by_side(tmp_path: Path, drawn: dict[str, Figure]) -> None:
    further = {"eval/score": 50.0, "eval/score_std": 1.0, "eval/success_rate": 0.5, "eval/x_position_max": 2.0}
    run = written(
        tmp_path / "run", [evaluation(n, n / 10, **further) for n in (5, 10)], [], dataset={"return_mean": 7.0}
    )
    draw_run(run)
    figure = drawn["eval_returns.png"]
    shown = panels(figure)
    assert list(shown) == [
        "episode return (mean, 95 % interval)",
        "score (0 random, 100 expert)",
        "success rate",
        "x_position_max",
    ], "no spreads, and no lengths that never change"
    returns = shown["episode return (mean, 95 % interval)"]
    assert returns.get_xlabel() == "updates"
    assert returns.get_lines()[0].get_xydata().tolist() == [[5, 0.5], [10, 1.0]]
    assert returns.get_lines()[1].get_ydata()[0] == 7.0, "the data's mean is a line"
    assert [text.get_text() for text in returns.get_legend().get_texts()] == ["mean of the data"]
    assert figure.get_suptitle() == "iql · Short/Pendulum-v0 · seed 0"
    assert list(drawn) == ["eval_returns.png"], "there are no losses"


def test_only_what_can_be_seen_gets_a_panel(tmp_path: Path, drawn: dict[str, Figure]) -> None:
    lines = [
        {"updates": 1, "env_steps": 64, "gradient/actor": 1.0, "loss/actor": 1.0, "alarm/diverging": 0.0, "late": 1.0},
        {"updates": 2, "env_steps": 128, "gradient/actor": 2.0, "loss/actor": 2.0, "alarm/diverging": 0.0},
        {"updates": 3, "env_steps": 192, "gradient/actor": 2.0, "loss/actor": float("nan"), "alarm/diverging": 0.0},
    ]
    draw_run(written(tmp_path / "run", [evaluation(1, 1.0)], lines))
    losses = panels(drawn["losses.png"])
    assert list(losses) == ["loss/actor", "gradient/actor"], "losses first; no single points, no zeros"
    assert losses["loss/actor"].get_lines()[0].get_xydata().tolist() == [[64, 1.0], [128, 2.0]]
    assert drawn["losses.png"].get_supxlabel() == "environment steps"
    colors = {axes.get_lines()[0].get_color() for axes in losses.values()}
    assert len(colors) == 2, "groups differ in colour"
    only = drawn["eval_returns.png"].axes[0]
    assert "only evaluation" in only.get_xlabel(), "one point is no curve: its episodes are shown"


def test_nothing_to_draw_draws_nothing(tmp_path: Path, drawn: dict[str, Figure]) -> None:
    assert draw_run(written(tmp_path / "run", [], [{"updates": 1, "loss/actor": 1.0}])) == []
    assert drawn == {}


def test_a_damaged_log_is_a_sentence(tmp_path: Path) -> None:
    run = written(tmp_path / "run", [evaluation(1, 1.0)], [])
    run.metrics_file.write_text("{\n")
    with pytest.raises(RunError, match=r"line 1: not readable"):
        draw_run(run)


def test_numbers_that_cannot_be_drawn_are_left_out() -> None:
    lines = [
        {"updates": updates, "x": x}
        for updates, x in ((1, 1.0), (2, float("inf")), (3, 10**400), (4, [1]), (10**400, 1.0), (0, 2.0))
    ]
    assert curve(lines, "x") == Points((0.0, 1.0), (2.0, 1.0))
    assert len(curve([], "x")) == 0
    assert str(as_float("1")) == str(as_float(True)) == "nan"
    assert common_axis([[{"env_steps": 1}], []]) == common_axis([[{"env_steps": 1}], [{}]]) == "updates"


def test_curves_have_colours_or_styles_of_their_own(tmp_path: Path, drawn: dict[str, Figure]) -> None:
    draw_curves({f"run {number}": Points((0, 1), (0, number)) for number in range(25)}, tmp_path / "many.png")
    looks = [(line.get_color(), line.get_linestyle()) for line in drawn["many.png"].axes[0].get_lines()]
    assert len(set(looks)) == 25
    rgb = [to_rgb(color) for color in PALETTE]
    apart = [sum(abs(x - y) for x, y in zip(one, other, strict=True)) for one in rgb for other in rgb if one != other]
    assert min(apart) > 0.25


def test_a_run_in_training_is_drawn_sparingly() -> None:
    now = 0.0

    def clock() -> float:
        return now

    drawing = SparinglyDrawn(clock)
    spent, started = 0.0, 0
    while now < 10_000:
        now += 5
        if drawing.due:
            started += 1
            with drawing:
                now += 2
                spent += 2
                if started == 3:
                    raise RunError("a log", "is damaged")
    assert 10 < started < 110
    assert spent / now < 0.025
    assert not SparinglyDrawn(clock).due, "not in the first seconds"

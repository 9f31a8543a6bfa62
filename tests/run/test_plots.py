"""Pictures of runs: titles, units, axes, no empty panels; drawn from any log, while a run trains, and for little of its
time."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from small import short_settings

from understudy.core.errors import RunError
from understudy.run import plots
from understudy.run.comparison import compare
from understudy.run.config import parse_config
from understudy.run.lineage import LONGEST, lineage
from understudy.run.plots import PALETTE, Points, SparinglyDrawn, as_float, common_axis, curve, draw_curves, draw_run
from understudy.run.rundir import RunDir


def evaluation(updates: int, value: float, **further: Any) -> dict[str, Any]:
    interval = {"eval/return_low": value - 1, "eval/return_high": value + 1}
    told = {"eval/return_mean": value, **interval, "eval/return_std": 1.0, "eval/length_mean": 10.0}
    return {"updates": updates, **told, "returns": [value] * 3, "lengths": [10] * 3, **further}


def written(
    folder: Path,
    evaluations: list[dict[str, Any]],
    metrics: list[dict[str, Any]],
    changes: dict[str, Any] | None = None,
    **meta: Any,
) -> RunDir:
    run = RunDir(folder)
    folder.mkdir(parents=True)
    config = parse_config({**short_settings("iql", folder), **(changes or {})})
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


REPLAY: dict[str, Any] = {"source": {"kind": "replay", "data_share": 0.5}}


def going_online(folder: Path) -> RunDir:
    """Ten updates on data, then eight online, of which the first comes after a hundred steps."""
    stage = {"algo": "iql", "updates": 10, "source": {"kind": "offline"}}
    own = [evaluation(n, n / 10, env_steps=100 + n) for n in (4, 8)]
    losses = [{"updates": n, "env_steps": 100 + n, "loss/critic": 1.0 * n} for n in (4, 8)]
    run = written(folder, own, losses, {**REPLAY, "stages": [stage]})
    earlier = [{"updates": n, "loss/critic": 3.0} for n in (5, 10)]
    written(folder / "stages" / "1-iql", [evaluation(n, n / 100) for n in (5, 10)], earlier)
    return run


def test_one_curve_goes_over_the_switch_which_is_marked_and_named(tmp_path: Path, drawn: dict[str, Figure]) -> None:
    draw_run(going_online(tmp_path / "run"))
    (returns, above) = drawn["eval_returns.png"].axes
    curve_of, mark = returns.get_lines()
    assert np.asarray(curve_of.get_xydata()).tolist() == [[5, 0.05], [10, 0.1], [14, 0.4], [18, 0.8]]
    assert np.asarray(mark.get_xdata()).tolist() == [10, 10]
    assert [text.get_text() for text in returns.texts] == ["iql, replay →"]
    assert returns.get_xlabel() == "updates"
    assert above.get_xlabel() == "environment steps"
    assert list(above.get_xticks()) == [14, 18]
    assert [label.get_text() for label in above.get_xticklabels()] == ["104", "108"]
    (losses,) = [axes for axes in drawn["losses.png"].axes if axes.get_title() == "loss/critic"]
    assert np.asarray(losses.get_lines()[0].get_xydata()).tolist() == [[5, 3], [10, 3], [14, 4], [18, 8]]


def test_a_run_is_drawn_with_the_one_it_started_from_as_long_as_that_is_there(
    tmp_path: Path, drawn: dict[str, Figure]
) -> None:
    first = written(tmp_path / "first", [evaluation(n, n / 100) for n in (5, 10)], [])
    own = [evaluation(n, n / 10, env_steps=n) for n in (4, 8)]
    run = written(tmp_path / "second", own, [], {**REPLAY, "init_from": str(first.path)})
    assert [switch.at["updates"] for switch in lineage(run, run.config).switches] == [10]
    assert [line["updates"] for line in lineage(run, run.config).evaluations] == [5, 10, 14, 18]
    compare([run], "return", tmp_path / "one.png")
    assert drawn["one.png"].axes[0].get_xlabel() == "updates"
    shutil.rmtree(first.path)
    assert lineage(run, run.config).switches == ()
    draw_run(run)
    assert drawn["eval_returns.png"].axes[0].get_xlabel() == "environment steps"
    endless = written(tmp_path / "endless", own, [], {**REPLAY, "init_from": str(tmp_path / "endless")})
    assert len(lineage(endless, endless.config).switches) == LONGEST


def test_runs_that_play_go_on_counting_environment_steps(tmp_path: Path) -> None:
    first = written(tmp_path / "first", [evaluation(n, 1.0, env_steps=10 * n) for n in (5, 10)], [], REPLAY)
    second = written(
        tmp_path / "second", [evaluation(4, 2.0, env_steps=40)], [], {**REPLAY, "init_from": str(first.path)}
    )
    told = lineage(second, second.config)
    assert [line["env_steps"] for line in told.evaluations] == [50, 100, 140]
    assert common_axis([told.evaluations]) == "env_steps"
    assert [dict(switch.at) for switch in told.switches] == [{"updates": 10, "env_steps": 100}]

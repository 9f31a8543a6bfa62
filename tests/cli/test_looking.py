"""`understudy runs` and `plot`: every state, groups of seeds, and folders that somebody else has had in their hands."""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import complaint, config_file, understudy

import understudy as us
from understudy.core.errors import ConfigError, RunError
from understudy.core.files import write_bytes
from understudy.run.comparison import mean_and_range, plot
from understudy.run.plots import Points
from understudy.run.rundir import RunDir
from understudy.tools.runs import RunRow, age_words, describe_run_folder, find_runs, last_line, runs_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of IQL, and BC."""
    home = tmp_path_factory.mktemp("looking")
    for name, seed, algorithm in (("iql/0", 0, "iql"), ("iql/1", 1, "iql"), ("bc/0", 0, "bc")):
        out = home / "runs" / name
        out.parent.mkdir(parents=True, exist_ok=True)
        words = config_file(home / "config.yaml", out, algorithm, seed=seed, log_every=5, eval_episodes=2)
        assert understudy("train", words, "--quiet").code == 0
    return home / "runs"


def test_runs_are_listed_with_state_and_score(folder: Path) -> None:
    lines = understudy("runs", folder).out.splitlines()
    assert lines[0].split() == ["run", "state", "algo", "task", "updates", "evaluated", "age"]
    assert [line.split()[:5] for line in lines[1:]] == [
        [name, "finished", algorithm, "Pendulum-v1", "20/20"]
        for name, algorithm in (("bc/0", "bc"), ("iql/0", "iql"), ("iql/1", "iql"))
    ]
    mean = us.Run(folder / "bc" / "0").result["eval/return_mean"]
    assert f"return {mean:.4g}" in lines[1]
    rows = [json.loads(line) for line in understudy("runs", folder, "--json").out.splitlines()]
    assert [(row["algorithm"], row["updates"], row["planned"]) for row in rows] == [
        ("bc", 20, 20),
        ("iql", 20, 20),
        ("iql", 20, 20),
    ]
    assert "no such directory" in complaint("runs", folder / "nowhere", code=1)


def test_every_state_is_told(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(folder / "bc" / "0", path)
    run = RunDir(path)
    assert describe_run_folder(path).state == "finished"
    run.result_file.unlink()
    assert describe_run_folder(path).state == "killed"
    run.note_stop("interrupted", 10)
    assert describe_run_folder(path).state == "stopped"
    run.note_stop("DivergenceError: a loss became NaN", 10)
    row = describe_run_folder(path)
    assert (row.state, row.note) == ("failed", "DivergenceError: a loss became NaN")
    with run.locked():
        assert describe_run_folder(path).state == "running"
    assert describe_run_folder(path, now=time.time() + 7200).age == pytest.approx(7200, abs=60)
    assert [age_words(seconds) for seconds in (5, 90, 7200, 200_000)] == ["5 s", "2 min", "2 h", "2 d"]


def test_a_narrow_screen_cuts_nothing() -> None:
    rows = [
        RunRow(Path("runs/a"), "finished", "iql", "Pendulum-v1", 5, 10, {"return": -1.5, "score": 90.0}, 61.0),
        RunRow(Path("runs") / ("name" * 15), "failed", "ppo", "HalfCheetah-v5", 5, 10, {}, 5.0, "RunError: no"),
    ]
    for width in (40, 60, 80, 200):
        text = "\n".join(runs_table(rows, Path("runs"), width))
        for words in ("return -1.5, score 90", "HalfCheetah-v5", "name" * 15, "RunError: no", "5/10", "1 min"):
            assert words in text, (width, words)
        longest = max(len(line) for line in text.splitlines() if "name" not in line)
        assert longest <= width


def test_seeds_are_one_curve() -> None:
    curves = [Points((0.0, 10.0, 20.0), (0.0, 10.0, 0.0)), Points((5.0, 15.0, 30.0), (1.0, 3.0, 6.0))]
    joined = mean_and_range(curves)
    assert joined.x == (0.0, 5.0, 10.0, 15.0, 20.0, 30.0)
    first, second = np.array([0, 5, 10, 5, 0, np.nan]), np.array([np.nan, 1, 2, 3, 4, 6])
    assert joined.y == pytest.approx((0.0, 3.0, 6.0, 4.0, 2.0, 6.0)), "of those that have come so far"
    assert joined.low == pytest.approx(np.fmin(first, second))
    assert joined.high == pytest.approx(np.fmax(first, second))


def test_runs_are_compared(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, Any] = {}

    def keep(curves: dict[str, Points], path: Path, *told: Any) -> Path:
        drawn.update(curves=curves, told=told)
        return path

    monkeypatch.setattr("understudy.run.comparison.draw_curves", keep)
    picture = plot(find_runs(folder), out=tmp_path / "all.png")[0]
    assert picture.path == tmp_path / "all.png"
    assert list(drawn["curves"]) == ["bc", "iql (2 seeds)"]
    assert drawn["curves"]["bc"].low == (), "a band is the seeds' range in this picture"
    axis, levels, title, label, switches = drawn["told"]
    assert (axis, title, list(switches)) == ("updates", "Pendulum-v1", [])
    assert levels["mean of the data"] < 0
    assert "range of seeds" in label
    iql = [us.Run(folder / "iql" / seed).evaluations() for seed in ("0", "1")]
    means = [np.mean([lines[place]["eval/return_mean"] for lines in iql]) for place in (0, 1)]
    assert drawn["curves"]["iql (2 seeds)"].y == pytest.approx(means)
    plot([folder / "iql" / "0", folder / "bc" / "0"], metric="loss/actor", out=tmp_path / "x.png")
    assert len(drawn["curves"]["iql"]) == 4
    left = plot([folder / "iql" / "0", folder / "bc" / "0"], metric="loss/critic", out=tmp_path / "x.png")[0]
    assert [Path(path).parts[-2:] for path in left.left_out] == [("bc", "0")]


def test_a_run_draws_itself_and_shows_it(folder: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    shutil.copytree(folder / "iql" / "0", killed)
    shutil.rmtree(killed / "plots")
    (killed / "result.json").unlink()
    with (killed / "metrics.jsonl").open("a") as log:
        log.write('{"updates": 9, "loss')  # what a kill leaves
    spoken = understudy("plot", killed)
    assert spoken.code == 0
    assert {path.name for path in (killed / "plots").iterdir()} == {"eval_returns.png", "losses.png"}
    picture = us.Run(killed).plot("loss/critic")
    assert picture.path == killed / "plots" / "loss_critic.png"
    assert picture._repr_html_().startswith('<img style="max-width: 100%" src="data:image/png;base64,')
    assert picture.path.read_bytes()[:4] == b"\x89PNG"
    both = us.plot(killed)
    assert len(both) == 2
    assert both._repr_html_() == both[0]._repr_html_() + both[1]._repr_html_(), "several show themselves, too"


def test_mistakes_have_a_sentence(folder: Path, tmp_path: Path) -> None:
    one = folder / "bc" / "0"
    with pytest.raises(ConfigError, match="Did you mean 'return'"):
        plot(one, metric="retrun")
    with pytest.raises(ConfigError, match=r"expected \.png"):
        plot(one, metric="return", out=tmp_path / "x.jpg")
    with pytest.raises(ConfigError, match="no run to draw"):
        plot([])
    assert "no such directory" in complaint("plot", folder / "nowhere", code=1)
    empty = tmp_path / "empty"
    shutil.copytree(one, empty)
    for name in ("metrics.jsonl", "eval.jsonl"):
        (empty / name).unlink()
    with pytest.raises(RunError, match="nothing to draw yet"):
        plot(empty)
    with pytest.raises(ConfigError, match="logged nothing"):
        plot([empty], out=tmp_path / "x.png")


def spoil(place: Path, how: str, outside: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink()
    if how == "link":
        place.symlink_to(outside)
    elif how == "device":
        place.symlink_to("/dev/zero")
    elif how == "fifo":
        os.mkfifo(place)
    elif how == "folder":
        place.mkdir()
    elif how == "terabyte":
        with place.open("wb") as file:
            file.truncate(1 << 40)
    elif how != "nothing":
        place.write_bytes(HOSTILE[how])


READ = ("config.yaml", "eval.jsonl", "metrics.jsonl")
DRAWN = (*READ, "meta.json", "plots")
DIGITS = b"9" * 5000
HOSTILE = {
    "noise": bytes(range(256)) * 40,
    "deep": b"[" * 100_000 + b"\n",
    "digits": b'{"updates": ' + DIGITS + b', "eval/return_mean": ' + DIGITS + b', "algo": {"name": ' + DIGITS + b"}}\n",
    "infinite": b'{"updates": 1e999, "eval/return_mean": 1e999, "algo": [1], "env": 3, "data": [], "reason": {}}\n',
    "null": b"null\n",
    "letters": b'{"algo": {"name": "\\u001b[2J\\n"}, "env": {"id": "\\u0007"}, "reason": "\\u001b[2J"}\n',
}


@pytest.mark.skipif(sys.platform == "win32", reason="pipes with names")
def test_nothing_in_a_folder_stops_a_list_or_a_picture(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(figure: Any, path: Path) -> Path:
        """All but what takes half a second: painting."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, b"picture")
        return path

    monkeypatch.setattr("understudy.run.plots.save_figure", save)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("not yours")
    names = ("config.yaml", "eval.jsonl", "metrics.jsonl", "meta.json", "result.json", "stopped.json", "plots")
    for name in names:
        for how in ("nothing", "link", "device", "fifo", "folder", "terabyte", *HOSTILE):
            run = tmp_path / "runs" / "x"
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(folder / "bc" / "0", run)
            RunDir(run).note_stop("interrupted", 3)
            if name == "stopped.json":
                (run / "result.json").unlink()
            spoil(run / name, how, outside)
            listed = understudy("runs", run.parent)
            assert (listed.code, listed.err) == (0, ""), (name, how)
            assert "\x1b" not in listed.out
            whole: list[Any] | None = [] if name in DRAWN and how in ("link", "fifo", "digits", "infinite") else None
            part = ["--metric", "loss/actor", "--out", tmp_path / "x.png"] if name in READ else None
            for words in (words for words in (whole, part) if words is not None):
                spoken = understudy("plot", run, *words)
                said = spoken.out + spoken.err
                assert spoken.code in (0, 1, 2), (name, how, said)
                assert not any(word in said for word in ("Traceback", "Unexpected", "Error:")), (name, how, said)
                assert (spoken.code == 0) == (spoken.err == "")
            assert [path.name for path in outside.iterdir()] == ["precious"], (name, how)


def test_only_the_end_of_a_log_is_read_for_a_list(tmp_path: Path) -> None:
    log = tmp_path / "eval.jsonl"
    with log.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"updates": 7}\n{"updates": 8}\nnoise\n{"upda')
    assert last_line(log) == {"updates": 8}
    assert last_line(tmp_path / "none") == {}


def test_a_forest_of_folders_has_an_end(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(30):
        deep /= "x"
    deep.mkdir(parents=True)
    (deep / "config.yaml").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "near" / "run").mkdir(parents=True)
    (tmp_path / "near" / "run" / "config.yaml").touch()
    assert find_runs(tmp_path) == [tmp_path / "near" / "run"]

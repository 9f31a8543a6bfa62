"""Reports as people ask for them: every format, one run or many, what is left out, and again while runs go on."""

import csv
import json
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import pytest

import understudy as us
from understudy.core.errors import ConfigError, RunError
from understudy.core.lock import lock_folder, release
from understudy.tools.report.page import chart_library
from understudy.tools.report.writing import watch
from written_runs import META, write_run, write_study

BAD = '</script><img src=x onerror="bad()">'
MEGABYTE = 1 << 20


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the extra is not installed."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    chart_library.cache_clear()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "runs"
    write_study(folder, {"ours": [-900, -300, -120], "theirs": [-900, -700, -600]})
    return folder


def cells(page: str, kind: str) -> list[list[str]]:
    """Text of a table's rows."""
    table = page.split(f'<table class="{kind}">')[1].split("</table>", maxsplit=1)[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [[re.sub(r"<[^>]+>", " ", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def test_a_page_has_the_numbers_of_the_runs(runs: Path, tmp_path: Path) -> None:
    written = us.report(runs, tmp_path / "out" / "report.html")
    page = written.paths[0].read_text()
    assert written.methods == ("ours", "theirs")
    assert written.sentence in page
    assert "ours" in written.sentence
    head, ours, theirs = cells(page, "summary")
    assert head == ["method", "Pendulum-v1"]
    assert re.split(r"\s+", ours[1]) == ["−119.0", "−120.0", "to", "−118.0,", "3", "seeds"]
    assert theirs[1].startswith("−599.0")
    assert '<b class="value best">−119.0</b>' in page
    rows = cells(page, "runs")
    assert [row[1] for row in rows[1:4]] == ["0", "1", "2"]
    assert 'href="./../../' in page
    assert "secret-host" not in page
    assert "0123456789 with changes" in page
    assert written.paths[0].stat().st_size < 1.2 * MEGABYTE


@pytest.mark.usefixtures("no_library")
def test_without_the_library_drawings_stay_and_the_page_says_how(runs: Path, tmp_path: Path) -> None:
    page = us.report(runs, tmp_path / "r.html").paths[0].read_text()
    assert page.count("<svg") > 10
    assert "pip install &#x27;understudy-rl[report]&#x27;" in page
    assert len(page) < MEGABYTE / 5
    chart_library.cache_clear()


@pytest.mark.usefixtures("no_library")
def test_a_run_alone_has_a_page_whatever_its_state(tmp_path: Path) -> None:
    write_run(tmp_path / "begun", [], finished=False)
    written = us.report(tmp_path / "begun", tmp_path / "r.html")
    assert written.sentence.endswith("killed: not evaluated yet.")
    going = write_run(tmp_path / "going", [-900, -300], finished=False)
    (going / "stopped.json").write_text(json.dumps({"reason": BAD, "updates": 20}))
    written = us.report(going, tmp_path / "r.html")
    assert "failed: episode return −300.0 [−301.0, −299.0 over episodes] after 20 updates" in written.sentence
    page = written.paths[0].read_text()
    assert "<img" not in page
    assert "over the episodes of an evaluation" in page
    once = write_run(tmp_path / "once", [-5])
    assert "there is no curve to draw" in us.report(once, tmp_path / "r.html").paths[0].read_text()
    chart_library.cache_clear()


@pytest.mark.usefixtures("no_library")
def test_what_strangers_wrote_is_text_in_every_format(tmp_path: Path) -> None:
    meta = {"dataset": {"name": BAD, BAD: BAD}, "git": {"commit": BAD}, "versions": {BAD: BAD}, "platform": BAD}
    write_run(tmp_path / "runs" / "<img src=y>" / "0", [-3, -2], meta=meta, metrics={f"loss/{BAD}": 1}, method=BAD)
    task: dict[str, Any] = {"data.path": str(tmp_path / "a|<img src=z>.hdf5")}
    write_run(tmp_path / "runs" / "task" / "0", [-3, -2], meta={}, **task)
    write_run(tmp_path / "runs" / "=cmd()", [-3, -2], seed=1, meta={"dataset": [], "git": 7}, method="=1+1|cmd")
    us.report(tmp_path / "runs", tmp_path / "r.html", format="all")
    page = (tmp_path / "r.html").read_text()
    assert "<img" not in page
    assert page.count("</script>") == 1
    assert "&lt;/script&gt;" in page
    assert ",=cmd()" not in (tmp_path / "r.csv").read_text()
    assert "'=1+1|cmd," in (tmp_path / "r.csv").read_text()
    assert "<img" not in re.sub(r"\\<", "", (tmp_path / "r.md").read_text())
    assert "| method | Pendulum-v1 | a\\|\\<img src=z\\> |" in (tmp_path / "r.md").read_text()
    chart_library.cache_clear()


@pytest.mark.usefixtures("no_library")
def test_films_are_inside_as_far_as_they_fit(tmp_path: Path) -> None:
    for seed, size in ((0, 1000), (1, 2 * MEGABYTE), (2, 10)):
        run = write_run(tmp_path / "runs" / str(seed), [-3, -2], seed=seed)
        (run / "videos").mkdir()
        start = b"\x00\x00\x00\x18ftypmp42" if seed < 2 else b"#!/bin/sh"
        (run / "videos" / "last.mp4").write_bytes(start.ljust(size, b"\x00"))
    (tmp_path / "runs" / "0" / "videos" / "z.gif").symlink_to("/etc/passwd")
    page = us.report(tmp_path / "runs", tmp_path / "r.html", videos=1).paths[0].read_text()
    assert page.count("<video") == 1
    assert page.count('<video src="data:video/mp4;base64,AAAAGGZ0eXBtcDQy') == 1
    assert "1/videos/last.mp4" in page
    assert "2/videos/last.mp4" in page
    assert "image/gif" not in page
    assert "<video" not in us.report(tmp_path / "runs", tmp_path / "r.html", videos=0).paths[0].read_text()
    chart_library.cache_clear()


@pytest.mark.usefixtures("no_library")
def test_films_share_what_there_is_room_for(tmp_path: Path) -> None:
    for seed in (0, 1):
        run = write_run(tmp_path / "runs" / str(seed), [-3, -2], seed=seed)
        (run / "videos").mkdir()
        (run / "videos" / "last.mp4").write_bytes(b"\x00\x00\x00\x18ftypmp42".ljust(MEGABYTE // 2, b"\x00"))
    for megabytes, count in ((1, 1), (2, 2)):
        page = us.report(tmp_path / "runs", tmp_path / "r.html", videos=megabytes).paths[0].read_text()
        assert page.count("<video") == count
    chart_library.cache_clear()


def test_settings_that_differ_are_listed_and_others_counted(tmp_path: Path) -> None:
    write_study(tmp_path / "runs", {"low": [-9, -4]}, seeds=2, **{"algo.expectile": 0.7})
    write_study(tmp_path / "runs", {"high": [-9, -3]}, seeds=2, **{"algo.expectile": 0.9})
    page = us.report(tmp_path / "runs", tmp_path / "r.html").paths[0].read_text()
    assert cells(page, "settings")[1:] == [["algo.expectile", "0.9", "0.7"]]
    assert "1 setting differs between" in page


def test_runs_on_different_scales_are_not_averaged(tmp_path: Path) -> None:
    write_study(tmp_path / "runs", {"a": [-9, -4], "b": [-9, -5]}, seeds=2)
    write_study(tmp_path / "runs" / "cart", {"a": [9, 400], "b": [9, 300]}, seeds=2, config="iql/cartpole")
    written = us.report(tmp_path / "runs", tmp_path / "r.html")
    page = written.paths[0].read_text()
    assert "on different scales, so nothing is averaged" in page
    assert "Over all tasks" not in page
    assert "a from b on 2 tasks (each in standard deviations of its scores)" in written.sentence


def test_tasks_on_one_scale_are_summed_up_each_weighing_the_same(tmp_path: Path) -> None:
    for config, more in (("iql/pendulum", 0), ("iql/cartpole", 50)):
        for method, level in (("a", 40), ("b", 20)):
            for seed in range(4):
                path, value = tmp_path / "runs" / config / method / str(seed), level + more + seed
                write_run(path, [0, value], seed=seed, method=method, config=config, score=True)
    page = us.report(tmp_path / "runs", tmp_path / "r.html").paths[0].read_text()
    table = page.partition("Over all tasks")[2].partition("</table>")[0]
    found = re.findall(r'class="value">([^<]*)<', table)
    assert found == ["66.5", "66.5", "66.5", "33.5", "46.5", "46.5", "46.5", "53.5"], "IQM, mean, median, gap"


def test_the_best_is_where_it_was_first_reached_and_speed_is_the_usual_one(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [-9, -4, -4])
    speeds = (10.0, 50.0, 1000.0)
    lines = [{"updates": 10 * at, "seconds": at, "updates_per_second": speed} for at, speed in enumerate(speeds, 1)]
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"updates": 35}\n')
    (run / "timing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    written = us.report(run, tmp_path / "r.html", format="all")
    row = cells(written.paths[0].read_text(), "runs")[1]
    assert row[6] == "20"
    (facts,) = csv.DictReader((tmp_path / "r.csv").open())
    assert (facts["best_updates"], facts["updates_per_second"], facts["updates"]) == ("20", "50.0", "35"), (
        "it is further than its last evaluation"
    )


def test_seeds_are_compared_only_where_there_are_some(tmp_path: Path) -> None:
    write_study(tmp_path / "runs", {"ours": [-9, -4], "theirs": [-9, -8]}, seeds=1)
    page = us.report(tmp_path / "runs", tmp_path / "r.html").paths[0].read_text()
    for absent in ('id="sure"', "Bold is", "bootstrap interval"):
        assert absent not in page.partition("<footer")[0]
    assert 'class="value best"' not in page
    assert "rings are seeds" not in page, "there are none"
    shutil.rmtree(tmp_path / "runs")
    write_study(tmp_path / "runs", {"ours": [-9, -4], "theirs": [-9, -8]}, seeds=3)
    page = us.report(tmp_path / "runs", tmp_path / "r.html").paths[0].read_text()
    assert "Bold is the highest mean" in page
    assert page.count('class="value best"') == 1
    rows = [[re.sub(r"\s+", " ", cell) for cell in row] for row in cells(page, "matrix")[1:]]
    assert rows == [["ours", "–", "100 % every pair"], ["theirs", "0 % no pair", "–"]]
    assert '<b class="value">' not in page.partition('id="sure"')[2], "three seeds cannot tell"
    shutil.rmtree(tmp_path / "runs")
    write_study(tmp_path / "runs", {"ours": [-9, -4], "theirs": [-9, -8]}, seeds=4)
    page = us.report(tmp_path / "runs", tmp_path / "r.html").paths[0].read_text()
    assert page.partition('id="sure"')[2].count('<b class="value">') == 2, "four can"


def test_folders_of_machines_stay_where_they_are(tmp_path: Path) -> None:
    place = "/srv/somebody/secret/play.hdf5"
    meta = {**META, "dataset": {**META["dataset"], "name": place, "data_of_motions": "/mnt/elsewhere/walk.npz"}}
    for seed, value in enumerate(("/srv/somebody/a", "/srv/somebody/b")):
        settings: dict[str, Any] = {"env.simulator": "envpool", "env.settings.file": value}
        write_run(tmp_path / "runs" / str(seed), [-9, -4], seed=seed, meta=meta, method=f"m{seed}", **settings)
    written = us.report(tmp_path / "runs", tmp_path / "out" / "r.html", format="all")
    for path in written.paths:
        assert not re.search("somebody|elsewhere/walk", path.read_text()), path
    page = written.paths[0].read_text()
    assert "…/play.hdf5" in page
    assert ["env.settings.file", "…/a", "…/b"] in cells(page, "settings")


def test_reasons_names_and_links_say_no_more_of_a_machine(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed names files, and so does a link from a page that lies on the other side of somebody's home."""
    home = tmp_path / "homes" / "somebody"
    failed = write_run(home / "study" / "0", [-9, -4], finished=False)
    reason = "DataError: '/srv/some body/play.hdf5': no such file; see /mnt/some-body/notes.txt and https://a.org/b/c"
    (failed / "stopped.json").write_text(json.dumps({"reason": reason, "updates": 20}))
    (write_run(home / "study" / "1", [-9, -4], seed=1) / "eval.jsonl").write_text("{}garbage\n{}\n")
    shutil.copytree(runs / "ours", tmp_path / "elsewhere" / "study")
    monkeypatch.setenv("HOME", str(home))
    written = us.report([home / "study", tmp_path / "elsewhere" / "study"], tmp_path / "r.html", format="all")
    for path in written.paths:
        text = path.read_text()
        assert not re.search("some.?body|homes|elsewhere", text), path
        assert re.search(r"study/0\b", text)
        assert re.search(r"study.{0,2} \(2.{0,2}\)/2", text), "two folders of one name have numbers"
    page = written.paths[0].read_text()
    assert "DataError: &#x27;…/play.hdf5&#x27;: no such file; see …/notes.txt and https://a.org/b/c" in page
    assert '<a href="./' not in page
    assert '<a href="./' in us.report(home / "study", home / "r.html").paths[0].read_text()


def test_a_verdict_on_what_still_trains_says_so_first(tmp_path: Path) -> None:
    write_study(tmp_path / "runs", {"ours": [-9, -4]}, seeds=4)
    for seed in range(4):
        write_run(tmp_path / "runs" / f"theirs-{seed}", [-9, -8], seed=seed, method="theirs", finished=False)
    sentence = us.report(tmp_path / "runs", tmp_path / "r.html").sentence
    assert sentence.startswith("Preliminary: ours is better than theirs on Pendulum-v1: IQM −2.50 [")
    for seed in range(4):
        (tmp_path / "runs" / f"theirs-{seed}" / "result.json").write_text("{}")
    written = us.report(tmp_path / "runs", tmp_path / "r.html")
    assert written.sentence.startswith("ours is better")
    assert " -" not in written.sentence
    assert "middle half of the seeds" in written.paths[0].read_text(), "what an IQM is"


def test_of_one_episode_there_is_a_curve_and_no_interval(tmp_path: Path) -> None:
    for place, limits in enumerate(({"eval/return_low": -5, "eval/return_high": -5}, {})):
        run = write_run(tmp_path / str(place), [-5, -5], seed=place)
        lines = [{"updates": at, "eval/return_mean": -5, "returns": [-5], **limits} for at in (10, 20)]
        (run / "eval.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        written = us.report(run, tmp_path / "r.html")
        assert "episode return −5.00 after 20 updates" in written.sentence
        page = written.paths[0].read_text().partition('id="curves"')[2].partition("</section>")[0]
        assert ('class="line"' in page, 'class="band"' in page) == (True, False)


def test_what_runs_say_of_the_same_data_each_for_itself_is_told_of_all(tmp_path: Path) -> None:
    for seed, scale in enumerate((1.0, 0.25)):
        meta = {**META, "dataset": {**META["dataset"], "reward_scale": scale}}
        write_run(tmp_path / "runs" / str(seed), [-9, -4], seed=seed, method=f"m{seed}", meta=meta)
    page = us.report(tmp_path / "runs", tmp_path / "r.html").paths[0].read_text()
    assert re.search(r"<dt>reward_scale</dt><dd>1 or 0.25</dd>", page)


@pytest.mark.slow
def test_hundreds_of_methods_are_one_page(tmp_path: Path) -> None:
    write_study(tmp_path / "runs", {f"m{place:03d}": [-900, place - 200] for place in range(120)}, seeds=2)
    written = us.report(tmp_path / "runs", tmp_path / "r.html")
    assert written.sentence.startswith("Cannot tell m119 from any of the 119 others on Pendulum-v1 with 2 seeds")
    page = written.paths[0].read_text()
    assert len(page) < 2.3e6
    assert len(cells(page, "summary")) >= 121
    assert len(cells(page, "matrix")) == 13
    assert "Of 120 methods the 12 with the best means are compared" in page


def test_wrong_arguments_are_told(runs: Path, tmp_path: Path) -> None:
    for wrong, told in (
        ((5,), "not a run"),
        (([],), "no run to report"),
        ((runs, tmp_path / "r.txt"), "no such format"),
    ):
        with pytest.raises(ConfigError, match=told):
            us.report(*wrong)
    with pytest.raises(ConfigError, match="videos"):
        us.report(runs, tmp_path / "r.html", videos=-1)
    with pytest.raises(RunError, match="no such folder"):
        us.report(tmp_path / "nowhere")


def test_a_watch_sees_what_goes_on(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "a", [-9, -4], finished=False)
    seen: Queue[None] = Queue()

    def look() -> None:
        for _ in watch([tmp_path / "runs"], poll=0.01):
            seen.put(None)

    Thread(target=look, daemon=True).start()
    worker = lock_folder(run, RunError, "run", "Wait.")
    wait_for_looks(seen)
    for happens in (
        lambda: release(worker),  # it was killed, and wrote nothing
        (run / "videos").mkdir,
        lambda: (run / "result.json").write_text("{}"),
        lambda: write_run(tmp_path / "runs" / "b", [-9, -4], seed=1),
        lambda: shutil.rmtree(tmp_path / "runs"),
        lambda: write_run(tmp_path / "runs" / "b", [-9, -4], seed=1),
    ):
        happens()
        wait_for_looks(seen)


def wait_for_looks(seen: Queue[None]) -> None:
    """One at least, and then until there are no more for a while."""
    seen.get(timeout=20)
    with suppress(Empty):
        while True:
            seen.get(timeout=0.3)

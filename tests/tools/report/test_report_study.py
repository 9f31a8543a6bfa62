"""What a report compares: each seed once, never two experiments under one name, and nothing that cannot be read."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from understudy.core.errors import ConfigError, RunError
from understudy.run.config import read_config
from understudy.run.suites import suites
from understudy.tools.experiments.planned_looks import keep_looks
from understudy.tools.experiments.sequential import Design, decide
from understudy.tools.report.curves import learning_curves, metric_label, profiles
from understudy.tools.report.reading import gather
from understudy.tools.report.study import study
from written_runs import write_run, write_study


def expectile(value: float) -> dict[str, Any]:
    return {"algo.expectile": value}


def test_two_experiments_under_one_name_are_told_apart_and_said(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"low-{seed}", [-5, -3], seed=seed, **expectile(0.7))
        write_run(tmp_path / f"high-{seed}", [-5, -2], seed=seed, **expectile(0.9))
    found = study(gather([tmp_path]))
    assert sorted(found.methods) == ["iql (expectile=0.7)", "iql (expectile=0.9)"]
    assert found.last["iql (expectile=0.9)"]["Pendulum-v1"].tolist() == [-2, -2]
    assert "differ in more than their seeds (algo.expectile)" in found.notes[0]
    assert "shown as different methods" in found.notes[0]
    assert study(gather([tmp_path / "low-0", tmp_path / "low-1"])).notes == []


def test_many_differences_have_numbers_instead_of_names(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [-5, -3])
    write_run(tmp_path / "b", [-5, -3], seed=1, **{**expectile(0.9), "algo.beta": 7, "eval_episodes": 3})
    found = study(gather([tmp_path]))
    assert found.methods == ["iql (variant 1)", "iql (variant 2)"]
    assert "algo.beta, algo.expectile, eval_episodes" in found.notes[0]


def test_a_copy_of_a_run_is_no_second_seed(tmp_path: Path) -> None:
    write_study(tmp_path, {"ours": [-9, -4]}, seeds=2)
    shutil.copytree(tmp_path / "ours" / "0", tmp_path / "copy")
    (tmp_path / "copy" / "result.json").unlink()
    found = study(gather([tmp_path]))
    assert found.last["ours"]["Pendulum-v1"].tolist() == [-4, -3]
    assert {entry.shown for entry in found.entries} == {"ours/0", "ours/1"}
    assert "1 run of a seed that is here already: copy; not counted" in found.notes[0]


def test_seeds_that_were_added_until_it_was_decided_are_judged_as_they_were_looked_at(tmp_path: Path) -> None:
    """Twelve seeds at once would tell these two apart; at the looks that were planned they could not be."""
    ours = [-3.9, -4.2, -4.1, -4.0, -4.2, -3.9, -3.4, -3.6, -3.5, -3.3, -3.6, -3.4]
    theirs = [-4.1, -4.0, -4.2, -4.1, -3.9, -4.2, -4.1, -3.9, -4.0, -4.2, -4.0, -4.1]
    for method, values in (("ours", ours), ("theirs", theirs)):
        for seed, value in enumerate(values):
            write_run(tmp_path / "study" / method / "swing" / str(seed), [-9, value], seed=seed, method=method)
    once = study(gather([tmp_path / "study"]))
    assert once.decisions is not None
    assert once.decisions.of("ours", "theirs").verdict == "better"
    design = Design(group=6, looks=5, alpha=0.001)
    keep_looks(tmp_path / "study", design)
    looked = study(gather([tmp_path / "study"]))
    assert looked.decisions == decide(looked.last, design)
    assert looked.decisions is not None
    assert looked.decisions.of("ours", "theirs").verdict == "undecided"
    assert looked.notes == []
    shutil.copytree(tmp_path / "study" / "ours", tmp_path / "other" / "ours")
    for path in sorted((tmp_path / "study" / "ours").glob("*/*")):
        shutil.rmtree(path)
    both = study(gather([tmp_path]))
    assert "the test here knows nothing of earlier looks" in both.notes[0]


def test_of_an_error_less_is_better_also_where_runs_are_judged_by_something_else(tmp_path: Path) -> None:
    for method, error in (("near", 0.1), ("far", 0.9)):
        for seed in range(4):
            run = write_run(tmp_path / method / str(seed), [-4], seed=seed, method=method)
            line = {**json.loads((run / "eval.jsonl").read_text()), "eval/action_error": error + seed / 100}
            (run / "eval.jsonl").write_text(json.dumps(line) + "\n")
    found = study(gather([tmp_path]), "eval/action_error")
    assert found.lowest_is_best
    assert found.leads(("near", "Pendulum-v1"))
    (panel,) = profiles(found)
    near = next(line for line in panel.lines if line.name == "near")
    assert (near.x.min() > 0, near.x.max() > 0.9, near.y[0], near.y[-1]) == (True, True, 0.0, 1.0)
    assert (np.diff(near.x) >= 0).all()
    assert found.decisions is not None
    assert found.decisions.of("near", "far").verdict == "better"
    assert not study(gather([tmp_path]), "eval/return_mean").lowest_is_best


def test_damaged_runs_are_listed_and_count_nowhere(tmp_path: Path) -> None:
    write_study(tmp_path, {"ours": [-9, -4]}, seeds=2)
    broken = write_run(tmp_path / "broken", [-1, -1], seed=5, method="ours")
    (broken / "eval.jsonl").write_text('{"updates": 1}garbage\n{}\n')
    unreadable = write_run(tmp_path / "unreadable", [-1, -1], seed=6, method="ours")
    (unreadable / "config.yaml").write_text("algo: [\n")
    found = study(gather([tmp_path]))
    assert [one.shown for one in found.damaged] == ["broken", "unreadable"]
    assert "eval.jsonl, line 1" in found.damaged[0].reason
    assert len(found.last["ours"]["Pendulum-v1"]) == 2
    assert any("2 runs cannot be read" in note for note in found.notes)
    with pytest.raises(RunError, match="no run here can be read: 'broken'"):
        study(gather([broken]))


def test_what_has_not_finished_counts_only_where_nothing_has(tmp_path: Path) -> None:
    write_study(tmp_path, {"ours": [-9, -4]}, seeds=2)
    write_run(tmp_path / "killed", [-9, -1], seed=2, method="ours", finished=False)
    found = study(gather([tmp_path]))
    assert not found.preliminary
    assert len(found.last["ours"]["Pendulum-v1"]) == 2
    assert "1 run of 3 has not finished (1 killed)" in found.notes[0]
    write_run(tmp_path / "other", [-9, -2], method="theirs", finished=False)
    found = study(gather([tmp_path]))
    assert found.preliminary
    assert found.last["ours"]["Pendulum-v1"].tolist() == [-4, -3, -1]
    assert found.last["theirs"]["Pendulum-v1"].tolist() == [-2]
    assert "Preliminary" in found.notes[0]


def test_runs_are_judged_by_one_number(tmp_path: Path) -> None:
    write_run(tmp_path / "scored", [10, 20], score=True)
    write_run(tmp_path / "not", [-9, -4], seed=1)
    with pytest.raises(ConfigError, match="judged by different numbers"):
        study(gather([tmp_path]))
    assert study(gather([tmp_path]), "return").metric == "eval/return_mean"
    with pytest.raises(ConfigError, match=r"no run has 'retrun'. Did you mean 'return'"):
        study(gather([tmp_path]), "retrun")


def test_numbers_have_names_that_people_read() -> None:
    labels = [metric_label(f"eval/{name}") for name in ("return_mean", "score", "action_error", "of_my_own")]
    assert labels == ["episode return", "score (0 random, 100 expert)", "action error", "of my own"]


def test_bands_over_seeds_and_over_episodes_are_never_in_one_chart(tmp_path: Path) -> None:
    write_study(tmp_path, {"ours": [-9, -4]}, seeds=1)
    write_run(tmp_path / "theirs", [-9, -4], method="theirs")
    (panel,) = learning_curves(study(gather([tmp_path])))
    assert [line.low is not None for line in panel.lines] == [True, True]
    write_run(tmp_path / "ours" / "1", [-9, -4], seed=1, method="ours")
    (panel,) = learning_curves(study(gather([tmp_path])))
    assert {line.name: line.low is not None for line in panel.lines} == {"ours": True, "theirs": False}


def test_nan_and_infinity_are_no_scores(tmp_path: Path) -> None:
    write_study(tmp_path, {"ours": [-9, -4]}, seeds=2)
    write_run(tmp_path / "nan", [-9, float("nan")], seed=3, method="ours")
    write_run(tmp_path / "inf", [-9, float("inf")], seed=4, method="ours")
    found = study(gather([tmp_path]))
    assert found.last["ours"]["Pendulum-v1"].tolist() == [-4, -3]
    (note,) = (note for note in found.notes if "without a number" in note)
    assert "(ours on Pendulum-v1, seed 4, ours on Pendulum-v1, seed 3)" in note
    assert "flatters" in note
    page = us.report(tmp_path / "nan", tmp_path / "r.html").paths[0].read_text()
    assert ("no number<" in page, "no number yet" in page) == (True, False), "it has finished"


def test_a_method_without_a_number_holds_up_nobody(tmp_path: Path) -> None:
    write_study(tmp_path, {"ours": [-9, -4], "theirs": [-9, -8]}, seeds=5)
    write_run(tmp_path / "begun", [], method="begun", finished=False)
    found = study(gather([tmp_path]))
    assert found.compared == ["ours", "theirs"]
    assert found.shared_tasks == ["Pendulum-v1"]
    assert found.decisions is not None
    assert found.decisions.of("ours", "theirs").verdict == "better"
    write_study(tmp_path / "one", {"single": [-9, -7]}, seeds=1)
    assert study(gather([tmp_path])).decisions is None, "of one seed there is nothing to deal"


def test_of_many_methods_the_best_are_compared_pair_by_pair(tmp_path: Path) -> None:
    write_study(tmp_path, {f"m{place:02d}": [-90, -place] for place in range(14)}, seeds=2)
    assert study(gather([tmp_path])).best_methods == [f"m{place:02d}" for place in range(12)]


def test_published_scores_are_beside_runs_of_their_tasks(tmp_path: Path) -> None:
    wishes = {"config": "iql/corl-locomotion", "task": "hopper-medium-v2", "data.path": "nowhere.hdf5"}
    write_study(tmp_path, {"iql": [40, 60]}, seeds=2, score=True, **wishes)
    found = study(gather([tmp_path]))
    (published,) = [one for one in found.published["hopper-medium-v2"] if one.config == "iql/corl-locomotion"]
    assert (published.mean, published.deviation) == (67.53, 3.78)
    assert published.when == "published after 1,000,000 updates"
    assert not study(gather([tmp_path]), "return").published
    assert np.isfinite(found.estimates["iql", "hopper-medium-v2"].low)


def test_presets_with_published_scores_say_how_long_they_train() -> None:
    """A page puts it beside the score: few who compare with it have trained for as long."""
    for config in {config for suite in suites() for config in suite.published}:
        assert int(read_config(config)[0]["updates"]) >= 100_000, config


def test_experiments_whose_names_would_be_the_same_are_told_apart_all_the_same(tmp_path: Path) -> None:
    """What differs may be cut off in the name, or stand behind eighty letters."""
    wide = ", ".join(["256"] * 8)
    for seed, (method, last) in enumerate((("", 64), ("", 65), ("x" * 78, 64), ("x" * 78, 65))):
        settings: dict[str, Any] = {"algo.actor.hidden": f"[{wide}, {last}]"}
        write_run(tmp_path / str(seed), [-5, -3 - seed], seed=seed, method=method, **settings)
    write_run(tmp_path / "posing", [-5, -9], seed=9, method="iql (variant 1)")
    found = study(gather([tmp_path]))
    assert len({entry.result.experiment for entry in found.entries}) == 3
    assert len(found.methods) == len(found.entries) == 5
    assert max(map(len, found.methods)) <= 80
    assert found.last["iql (variant 1)"]["Pendulum-v1"].tolist() == [-9]


def test_the_data_is_beside_what_was_learned_from_it_as_a_return_or_a_score(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"env.reference": "[-1273, -273]"}
    for seed in (0, 1):
        write_run(tmp_path / str(seed), [10, 20], seed=seed, score=True, **settings)
    for metric, level in (("score", 50.0), ("return", -773.0), ("length", None)):
        lines = (tmp_path / "0" / "eval.jsonl").read_text().replace('"lengths"', '"eval/length_mean": 7, "lengths"')
        (tmp_path / "0" / "eval.jsonl").write_text(lines)
        (panel,) = learning_curves(study(gather([tmp_path]), metric))
        assert [one.value for one in panel.levels] == ([] if level is None else [level]), metric

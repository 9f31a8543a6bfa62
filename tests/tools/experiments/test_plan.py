"""Plans: what a suite comes to, and everything that is found wrong before anything is begun."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from short_runs import SHORT, small_suite

from understudy.core.errors import ConfigError, DataError, MissingPackageError, RunError, UnderstudyError
from understudy.run.rundir import RunDir
from understudy.run.suites import Suite, load_suite, suites
from understudy.tools.experiments.plan import Narrowing, Plan, folder_name, make_plan
from understudy.tools.experiments.results import experiment_digest
from understudy.tools.experiments.work import train_or_resume


def suite(**changes: Any) -> Suite:
    return Suite.parse({**small_suite(), **changes})


def complaint(kind: type[UnderstudyError], given: Suite, **wishes: Any) -> str:
    """What is said before anything is begun."""
    out = wishes.setdefault("out", Path("never-begun"))
    with pytest.raises(kind) as caught:
        make_plan(given, Narrowing(**wishes))
    assert not out.exists()
    return str(caught.value)


def test_every_method_learns_every_task_with_every_seed_and_seeds_differ_in_nothing_else(tmp_path: Path) -> None:
    plan = make_plan(suite(), Narrowing(out=tmp_path))
    assert [(run.method, run.task, run.seed) for run in plan.runs] == [
        (method, "swing", seed) for seed in (0, 1) for method in ("BC", "half of BC", "IQL, τ 0.9")
    ]
    assert [run.directory for run in plan.runs[:3]] == [
        tmp_path / name / "swing" / "0" for name in ("BC", "half-of-BC", "IQL-0.9")
    ]
    assert [run.experiment == plan.runs[0].experiment for run in plan.runs] == [True, False, False] * 2
    assert (plan.metric, plan.methods, plan.tasks) == (
        "eval/return_mean",
        ["BC", "half of BC", "IQL, τ 0.9"],
        ["swing"],
    )
    last = plan.runs[2].config
    assert (last.method, last.task, last.updates, last.seed) == ("IQL, τ 0.9", "swing", SHORT["updates"], 0)
    assert last.algo.model_dump()["expectile"] == 0.9
    assert last.logged.path == str(tmp_path / "data" / "swing")
    assert experiment_digest(last) == plan.runs[5].experiment
    assert not list(tmp_path.iterdir()), "a plan begins nothing"


def test_who_has_the_last_word(tmp_path: Path) -> None:
    """The suite's settings, then the task's, then the method's, then what is said on the line."""
    given = small_suite()
    given["settings"]["gamma_is_not_here"] = None
    given["settings"].pop("gamma_is_not_here")
    given["settings"]["log_every"] = 11
    given["tasks"][0]["settings"] = {"log_every": 12, "save_every": 12, "eval_every": 12}
    given["methods"]["BC"] = {"config": "bc/pendulum", "settings": {"save_every": 13, "eval_every": 13}}
    plan = make_plan(Suite.parse(given), Narrowing(out=tmp_path, overrides=["eval_every=14"]))
    config = plan.runs[0].config
    assert (config.log_every, config.save_every, config.eval_every) == (12, 13, 14)
    assert plan.runs[1].config.save_every == 12


def test_names_are_chosen_and_unknown_ones_are_told(tmp_path: Path) -> None:
    plan = make_plan(suite(), Narrowing(methods=["IQL, τ 0.9"], tasks=["swing"], seeds=[4, 2], out=tmp_path))
    assert [(run.method, run.seed) for run in plan.runs] == [("IQL, τ 0.9", 4), ("IQL, τ 0.9", 2)]
    both = make_plan(suite(), Narrowing(methods=["IQL, τ 0.9, BC"], seeds=1, out=tmp_path))
    assert both.methods == ["IQL, τ 0.9", "BC"]
    assert "there is no 'BCC'. Did you mean 'BC'?" in complaint(ConfigError, suite(), methods=["BCC"])
    assert "there is no 'swin'. Did you mean 'swing'?" in complaint(ConfigError, suite(), tasks=["swin"])
    for seeds in (0, [], [1, 1], [-1], -3, 2.5, "5", True, [0.5], [2**63], 10**12):
        assert complaint(ConfigError, suite(), seeds=seeds).startswith("seeds: ")
    told = complaint(ConfigError, suite(), overrides=["algo.expectil=0.9"])
    assert told.startswith("BC on swing: ")
    assert "algo.expectil: no such setting" in told
    told = complaint(ConfigError, suite(), overrides=["data.recipe.episodes=2"])
    assert told.startswith("data.recipe.episodes: the data of 'swing' is the suite's, and is not played anew")
    for where, key in (("", "seed"), ("tasks.swing.", "task"), ("methods.IQL, τ 0.9.", "out")):
        given = small_suite()
        holders = {"": given, "tasks.swing.": given["tasks"][0], "methods.IQL, τ 0.9.": given["methods"]["IQL, τ 0.9"]}
        holders[where].setdefault("settings", {})[key] = 3
        told = f"suite 'small', {where}settings.{key}: every run of an experiment has its own: got 3. Leave it out."
        assert complaint(ConfigError, Suite.parse(given)) == told
    assert "compares nothing" in complaint(ConfigError, suite(methods={}))
    assert "config: no config 'iqq'. Did you mean 'iql'?" in str(_refused(methods={"a": "iqq"}))
    assert "methods.a: no task 'swim' here. Did you mean 'swing'?" in str(
        _refused(methods={"a": {"config": "iql", "tasks": ["swim"]}})
    )
    assert "no seed, so nothing would be run" in str(_refused(seeds=0))


def _refused(**changes: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        suite(**changes)
    return caught.value


def test_two_experiments_of_one_name_or_place_and_one_experiment_of_two_names() -> None:
    twice = {"IQL, 1": "iql/pendulum", "IQL 1": "bc/pendulum"}
    assert "two experiments would lie in one place" in complaint(ConfigError, suite(methods=twice))
    cased = {"iql": "iql/pendulum", "IQL": "bc/pendulum"}
    assert "two experiments would lie in one place" in complaint(ConfigError, suite(methods=cased))
    same = {"a": "bc/pendulum", "b": {"config": "bc/pendulum", "settings": {"threads": 1}}}
    told = complaint(ConfigError, suite(methods=same))
    assert "'a' and 'b' are the same experiment on swing: no setting differs" in told


def test_tasks_that_are_judged_by_different_numbers_are_not_mixed(tmp_path: Path) -> None:
    given = small_suite()
    scored = {**given["tasks"][0], "id": "scored", "reference": [-1500, -150]}
    given["tasks"].append(scored)
    told = complaint(ConfigError, Suite.parse(given))
    assert "its tasks are judged by different numbers: eval/return_mean (swing); eval/score (scored)" in told
    assert make_plan(Suite.parse({**given, "metric": "eval/return_mean"}), Narrowing(out=tmp_path)).runs
    assert make_plan(Suite.parse(given), Narrowing(out=tmp_path, tasks=["scored"])).metric == "eval/score"


def test_every_suite_says_how_its_data_is_had_or_can_begin_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "none"))
    begun, hints = [], {}
    for known in suites():
        try:
            begun.append(make_plan(known, Narrowing(out=tmp_path / "out", seeds=1)).suite.name)
        except DataError as error:
            hints[known.name] = str(error)
        except ConfigError:
            assert known.name.startswith("baselines") or known.name == "hopper-ladder"  # which needs MuJoCo
    assert set(begun) >= {"corrupted", "discrete", "offline-quick", "onpolicy", "pendulum-quick"}
    assert set(hints) == {"adroit", "antmaze", "bullet", "kitchen", "locomotion", "maze2d"}
    for name, task, how in (
        ("locomotion", "hopper-medium-v2", "understudy dataset download hopper-medium-v2 --root FOLDER"),
        ("antmaze", "antmaze-umaze-v2", "understudy dataset download D4RL/antmaze/umaze-v1"),
        ("bullet", "hopper-bullet-mixed-v0", "the link of hopper-bullet-mixed-v0 in takuseno/d4rl-pybullet"),
    ):
        assert f"\n  {task}: {how}\n" in hints[name]
        assert f"Then: understudy bench {name} --data FOLDER" in hints[name]
    assert not (tmp_path / "out").exists()


def test_every_suite_can_be_planned_once_its_data_is_there(tmp_path: Path) -> None:
    (tmp_path / "any.npz").touch()
    metrics = {}
    for name in ("adroit", "antmaze", "bullet", "kitchen", "locomotion", "maze2d"):
        known = load_suite(name)
        data = [f"{task.id}={tmp_path / 'any.npz'}" for task in known.tasks]
        with suppress(MissingPackageError):
            plan = make_plan(known, Narrowing(methods=["BC"], data=data, out=tmp_path / "out", seeds=1))
            assert plan.tasks == [task.id for task in known.tasks]
            metrics[name] = plan.metric
    assert metrics.items() <= {
        ("adroit", "eval/return_mean"),
        ("antmaze", "eval/success_rate"),
        ("bullet", "eval/score"),
        ("kitchen", "eval/return_mean"),
        ("locomotion", "eval/score"),
        ("maze2d", "eval/success_rate"),
    }


def test_data_is_found_in_folders_by_the_names_it_goes_by(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    folder = tmp_path / "files"
    (folder / "gym_mujoco_v2").mkdir(parents=True)
    for name in ("hopper-medium-v2.npz", "hopper-expert.npz", "gym_mujoco_v2/hopper_random-v2.hdf5"):
        (folder / name).touch()
    wanted = ["hopper-medium-v2", "hopper-expert-v2", "hopper-random-v2", "walker2d-medium-v2"]
    places = [str(folder), f"walker2d-medium-v2={folder / 'hopper-expert.npz'}"]

    def plan(places: Sequence[str]) -> list[str]:
        wishes = Narrowing(methods=["IQL"], tasks=wanted, seeds=1, data=places, out=tmp_path / "out")
        return [run.config.logged.path for run in make_plan(load_suite("locomotion"), wishes).runs]

    names = ["hopper-expert.npz"] * 2 + ["hopper-medium-v2.npz", "hopper_random-v2.hdf5"]
    assert sorted(Path(path).name for path in plan(places)) == names
    with pytest.raises(DataError, match="the data of 1 task is not here"):
        plan(places[:1])
    with pytest.raises(ConfigError, match=r"no task 'walker' among those chosen"):
        plan([f"walker={folder}"])
    with pytest.raises(ConfigError, match=r"'nowhere' is no folder"):
        plan(["nowhere"])


def test_what_lies_where_runs_shall_lie_is_theirs_and_of_this_version(tmp_path: Path, no_plots: None) -> None:
    again = Narrowing(out=tmp_path, seeds=1, methods=["BC"])
    plan = make_plan(suite(settings={**SHORT_SETTINGS, "updates": 20}), again)
    for making in plan.makings:
        making.make()
    assert '"finished"' in train_or_resume(str(plan.runs[0].directory), plan.runs[0].config.to_yaml())
    assert not make_plan(suite(settings={**SHORT_SETTINGS, "updates": 20}), again).makings
    for change, told in (
        ({"updates": 40}, "updates is 20 there and 40 here"),
        ({"algo.gamma": 0.5}, "no such setting"),
    ):
        with pytest.raises(UnderstudyError, match=told):
            make_plan(suite(settings={**SHORT_SETTINGS, "updates": 20, **change}), again)
    meta = RunDir(plan.runs[0].directory).meta_file
    meta.write_text(meta.read_text().replace('"understudy": "', '"understudy": "0.0.'))
    old = make_plan(suite(settings={**SHORT_SETTINGS, "updates": 20}), again)
    assert len(old.notices) == 1
    assert "1 run made by other versions" in old.notices[0]
    (plan.runs[0].directory / "result.json").unlink()
    shutil.rmtree(plan.runs[0].directory / "checkpoints")
    with pytest.raises(RunError, match="was written with other versions"):
        make_plan(suite(settings={**SHORT_SETTINGS, "updates": 20}), again)
    read = replace(again, only_read=True)
    assert make_plan(suite(settings={**SHORT_SETTINGS, "updates": 20}), read).notices == old.notices
    accepted = make_plan(suite(settings={**SHORT_SETTINGS, "updates": 20}), replace(again, accept_versions=True))
    assert accepted.notices[0].startswith("1 unfinished run of other versions or code (understudy 0.0.")
    assert [run.order.startswith("accept_versions: true\n") for run in (old.runs[0], accepted.runs[0])] == [False, True]
    assert accepted.with_seeds({("BC", "swing"): 2}).runs[1].accept_versions
    other = Narrowing(out=tmp_path, seeds=1, methods=["half of BC"])
    (tmp_path / "half-of-BC" / "swing" / "0").mkdir(parents=True)
    (tmp_path / "half-of-BC" / "swing" / "0" / "thesis.tex").touch()
    with pytest.raises(RunError, match="exists already and is not a run"):
        make_plan(suite(), other)


def test_data_that_was_made_wrong_in_another_way_is_not_taken_for_what_a_task_says(tmp_path: Path) -> None:
    def plan(share: float) -> Plan:
        given = small_suite()
        given["tasks"][0]["corruption"] = {"kind": "reward_noise", "share": share, "strength": 3}
        return make_plan(Suite.parse(given), Narrowing(out=tmp_path, seeds=1))

    for making in plan(0.1).makings:
        making.make()
    assert not plan(0.1).makings
    with pytest.raises(DataError, match="swing': was made in another way than this task says"):
        plan(0.3)


def test_other_data_under_the_name_of_a_task_is_refused(tmp_path: Path, no_plots: None) -> None:
    given = suite(settings={**SHORT_SETTINGS, "updates": 2})
    first = make_plan(given, Narrowing(out=tmp_path / "out", seeds=1, methods=["BC"]))
    for making in first.makings:
        making.make()
    assert '"finished"' in train_or_resume(str(first.runs[0].directory), first.runs[0].order)
    made = tmp_path / "out" / "data" / "swing"
    shutil.copytree(made, tmp_path / "other")
    (tmp_path / "link").symlink_to(made)

    def runs(place: str) -> int:
        data = [f"swing={tmp_path / place}"]
        return len(make_plan(given, Narrowing(out=tmp_path / "out", seeds=1, methods=["BC"], data=data)).runs)

    assert runs("link") == 1, "the same by another name"
    with pytest.raises(RunError, match="learns from other data than is asked for: "):
        runs("other")


SHORT_SETTINGS = {key: value for key, value in SHORT.items() if not key.startswith("data.")}


def test_where_a_file_is_no_experiment_can_lie(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    for out in (tmp_path / "thesis.tex", tmp_path / "thesis.tex" / "below"):
        with pytest.raises(ConfigError, match=r"out: is to be a folder, and there is a file: got '.*thesis\.tex'"):
            make_plan(suite(), Narrowing(out=out))


def test_data_of_ones_own_is_a_task_of_a_suite_that_has_none(tmp_path: Path) -> None:
    np.savez(tmp_path / "valve logs.npz", anything=np.zeros(3))
    words = [f"data.path={tmp_path / 'valve logs.npz'}", "env.id=Pendulum-v1"]
    plan = make_plan(load_suite("baselines"), Narrowing(overrides=words, out=tmp_path / "out", seeds=2))
    assert plan.methods == ["BC", "10 % BC", "TD3+BC", "CQL", "IQL", "ReBRAC", "CIQL", "IACT"]
    assert (plan.tasks, plan.metric) == (["valve-logs"], "eval/return_mean")
    assert {run.config.logged.path for run in plan.runs} == {str(tmp_path / "valve logs.npz")}
    told = complaint(ConfigError, load_suite("baselines"), overrides=words[:1], out=tmp_path / "out")
    assert told.startswith("held-out episodes: 'BC' and '10 % BC' hold out different episodes of valve-logs (data.best")
    assert "data.best_episodes is 1.0 and 0.1)" in told
    alone = Narrowing(methods=["BC", "IQL"], overrides=words[:1], out=tmp_path / "out", seeds=2)
    assert make_plan(load_suite("baselines"), alone).metric == "eval/action_error"
    errors = Suite.parse({**small_suite(), "metric": "eval/action_error"})
    assert "no evaluation measures it" in complaint(ConfigError, errors)
    kept = ["data.validation=0.1"]
    assert "hold out different episodes of swing" in complaint(ConfigError, errors, overrides=kept)
    assert make_plan(errors, Narrowing(methods=["BC"], overrides=kept, out=tmp_path / "out")).metric == errors.metric
    assert "no data was given" in complaint(ConfigError, load_suite("baselines"))
    two = small_suite()
    two["tasks"].append({**two["tasks"][0], "id": "other"})
    assert "one dataset for several tasks" in complaint(ConfigError, Suite.parse(two), overrides=words)


def test_a_suite_in_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(small_suite()))
    assert make_plan(load_suite(str(tmp_path / "small.yaml")), Narrowing(out=tmp_path)).methods[0] == "BC"
    assert folder_name("IQL, τ 0.9") == "IQL-0.9"

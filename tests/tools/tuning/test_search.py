"""A whole search over worlds whose returns are known: what is tried, what is kept, what goes on, what wins."""

import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from levels import SPACE, STEPS, TINY, TROUBLE, WORLDS

import understudy as us
from understudy.core.errors import DataError, MissingPackageError, RunError
from understudy.core.stopping import StoppedError
from understudy.run.config import load_config
from understudy.tools.tuning.outcome import Tuning
from understudy.tools.tuning.plan import GIVEN, Plan
from understudy.tools.tuning.study import JOURNAL, Study
from worlds import random_dataset, tiny_settings

optuna = pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")


TRIALS = 4


@pytest.fixture(autouse=True)
def _no_plots(no_plots: None, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """But for the one test that looks at them."""
    if "written" not in request.node.name:
        for draw in ("draw_history", "draw_slices"):
            monkeypatch.setattr(f"understudy.tools.tuning.outcome.{draw}", lambda *told: told[-1])


def tuned(out: Path, **changes: Any) -> Tuning:
    wishes: dict[str, Any] = {"trials": TRIALS, "top": 1, "fresh": 2, "progress": False, **changes}
    return us.tune(wishes.pop("config", TINY), wishes.pop("space", SPACE), out=out, **wishes)


def tried(made: Tuning) -> list[tuple[Any, ...]]:
    """What a search drew and what came of it."""
    return [(row.number, row.state, dict(row.settings), row.value, dict(row.seeds)) for row in made.trials]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Tuning:
    """A search that nothing disturbed. Nobody may write into it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.run.loop.draw_run", lambda run: None)
        return tuned(tmp_path_factory.mktemp("search") / "tune")


@pytest.fixture
def copied(whole: Tuning, tmp_path: Path) -> Path:
    """The same, to write into."""
    return Path(shutil.copytree(whole.path, tmp_path / "tune"))


def test_a_search_finds_the_better_world_and_says_what_it_is_worth_on_fresh_seeds(whole: Tuning) -> None:
    assert [row.number for row in whole.trials] == list(range(TRIALS))
    assert dict(whole.trials[0].settings) == {"env.id": "Level1-v0", "algo.clip": "0.2"}  # the config as it is
    for row in whole.trials:
        level = WORLDS.index(row.settings["env.id"]) + 1
        run = us.Run(whole.path / "trials" / str(row.number) / "0")
        assert row.seeds == {"0": run.result["eval/return_mean"]}
        assert row.value == row.seeds["0"]
        assert abs(row.value - STEPS * level) <= STEPS * 0.1
        assert run.config.env is not None
        assert (run.config.env.id, run.config.seed) == (row.settings["env.id"], 0)
        assert run.finished

    winner, given = whole.confirmed
    assert given.candidate.name == GIVEN
    assert winner.candidate.name == whole.best.candidate.name
    assert winner.values.keys() == given.values.keys() == {"1", "2"}  # none of which the search saw
    searched = max(row.value or 0.0 for row in whole.trials)
    assert searched > STEPS * 1.5
    assert winner.candidate.search_value == searched
    assert math.isclose(winner.estimate.value, sum(winner.values.values()) / 2)
    assert whole.best.estimate == winner.estimate
    assert whole.verdict[0].startswith("The search's ")
    assert whole.verdict[0].endswith(" on 2 fresh seeds.")
    runs = sorted(path.parent for path in whole.path.rglob("config.yaml"))
    assert len(runs) == TRIALS + 2 * len(whole.confirmed)


def test_what_is_the_config_as_it_was_given_is_no_rival_of_it(tmp_path: Path) -> None:
    made = tuned(tmp_path / "tune", space={"algo.epochs": [1, 2]}, trials=8, top=2, fresh=1, updates=2)
    tries = [row.settings["algo.epochs"] for row in made.trials]
    assert tries.count("1") >= 2
    assert tries.count("2") >= 1
    assert sorted(one.candidate.name for one in made.confirmed) == [str(tries.index("2")), GIVEN]


def test_what_is_written_can_be_trained_and_read(whole: Tuning, copied: Path) -> None:
    tuned(copied)
    text = (copied / "best.yaml").read_text()
    assert text.startswith(f"# understudy train {copied / 'best.yaml'}\n")
    config = load_config(str(copied / "best.yaml"))
    assert config.env is not None
    assert (config.env.id, config.seed, config.out) == (whole.best.settings["env.id"], 0, "runs/best/0")
    facts = json.loads((copied / "tuning.json").read_text())
    assert [one["value"] for one in facts["trials"]] == [row.value for row in whole.trials]
    assert facts["best"] == whole.best.candidate.name
    assert facts["search_seeds"] == [0]
    assert set(facts["confirmed"][0]["seeds"]) == {"1", "2"}
    assert {path.name for path in (copied / "plots").iterdir()} == {"history.png", "slices.png"}


def test_the_same_call_again_trains_nothing_and_says_the_same(whole: Tuning, copied: Path) -> None:
    results = {path: path.stat().st_mtime_ns for path in copied.rglob("result.json")}
    again = tuned(copied)
    assert tried(again) == tried(whole)
    assert again.verdict == whole.verdict
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("result.json")} == results


@pytest.mark.parametrize("trouble", ["crash", "crash crash", "interrupt"])
def test_trouble_on_the_way_changes_nothing(
    trouble: str, whole: Tuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulator that fails, or Ctrl-C: the trial goes on from its checkpoint, and the search to the same end."""
    monkeypatch.setenv(TROUBLE, str(tmp_path / "trouble"))
    (tmp_path / "trouble").write_text("\n".join(["none"] * 17 + trouble.split()))
    out = tmp_path / "tune"
    if trouble == "interrupt":
        with pytest.raises(StoppedError, match=rf"tuning '{out}': stopped. The same command goes on.") as stopped:
            tuned(out, trials=2, top=0)
        assert stopped.value.exit_code == 130
        assert len(list(out.rglob("result.json"))) < 2
    made = tuned(out, trials=2, top=0)
    assert not (tmp_path / "trouble").exists()
    assert tried(made) == tried(whole)[:2]
    failures = [failure for row in made.trials for failure in row.failures]
    assert len(failures) == trouble.count("crash")
    assert all("the simulator is gone" in failure for failure in failures)


def test_a_trial_that_diverges_is_a_bad_one_and_no_failure(tmp_path: Path) -> None:
    """The sampler hears of what was pruned, and not of what failed."""
    us.write_store(random_dataset(), tmp_path / "data")
    config = {**tiny_settings("bc", tmp_path / "run", updates=4, eval_every=2), "env": None}
    space = {"algo.learning_rate": {"choices": [1e-3, 1e30]}}
    made = tuned(tmp_path / "tune", config=config, space=space, data=tmp_path / "data", top=0)
    wild = [row for row in made.trials if float(row.settings["algo.learning_rate"]) == 1e30]
    assert wild
    for row in wild:
        assert (row.state, row.failures) == ("pruned", ())
        assert row.reason.startswith("diverged: ")


def test_a_run_whose_checkpoints_are_broken_is_trained_anew(whole: Tuning, copied: Path) -> None:
    run = copied / "confirmed" / GIVEN / "2"
    for manifest in run.rglob("manifest.json"):
        manifest.write_text("{}")
    (run / "result.json").unlink()
    made = tuned(copied)
    assert (tried(made), made.verdict) == (tried(whole), whole.verdict)
    assert (run / "result.json").exists()


def test_a_full_disk_ends_a_search_and_fails_nothing(
    whole: Tuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a trial, and in a run on a fresh seed: with room again the same call comes to the same end."""
    monkeypatch.setenv(TROUBLE, str(tmp_path / "trouble"))
    out, episodes = tmp_path / "tune", 13
    for before in (episodes + 3, episodes * (TRIALS - 1) + 3):
        (tmp_path / "trouble").write_text("\n".join(["none"] * before + ["full"]))
        with pytest.raises(
            RunError, match=r"nothing can be written \(.*notes.txt.*\). Make room, and the same command"
        ):
            tuned(out)
    assert len(list(out.glob("confirmed/*/*/config.yaml"))) == 1
    made = tuned(out)
    assert (tried(made), made.verdict) == (tried(whole), whole.verdict)
    assert not [failure for row in made.trials for failure in row.failures]


def test_a_trial_that_keeps_failing_is_given_up_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TROUBLE, str(tmp_path / "trouble"))
    (tmp_path / "trouble").write_text("\n".join(["none"] * 6 + ["crash"] * 3))
    made = tuned(tmp_path / "tune", retries=1, trials=2, top=0)
    failed = [row for row in made.trials if row.state == "failed"]
    assert len(failed) == 1
    assert "the simulator is gone" in failed[0].reason
    assert len(failed[0].failures) == 2


def test_where_every_trial_fails_the_reason_is_told_after_a_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TROUBLE, str(tmp_path / "trouble"))
    (tmp_path / "trouble").write_text("none\n" + "crash\n" * 20)  # the first is met before anything is written
    with pytest.raises(RunError, match=r"none of 3 trials came to its end. trial 0 failed: .*the simulator is gone"):
        tuned(tmp_path / "tune", trials=50, retries=0)


def test_another_search_in_the_same_place_is_refused_with_every_difference(copied: Path) -> None:
    before = (copied / JOURNAL).read_bytes()
    other = {**SPACE, "algo.clip": {"low": 0.1, "high": 0.3}}
    with pytest.raises(RunError, match="another search lies there") as refused:
        tuned(copied, space=other, seeds=3, updates=8)
    for told in ("seeds is 1 there and 3 here", "updates is 4 there and 8 here", "algo.clip is searched in"):
        assert told in str(refused.value)
    with pytest.raises(RunError, match=r"best is .* there and .*eval/length_mean.* here"):
        tuned(copied, best="eval/length_mean")
    assert (copied / JOURNAL).read_bytes() == before


def test_other_data_is_another_search_and_so_is_other_content_in_the_same_place(tmp_path: Path) -> None:
    for seed, name in enumerate(("one", "two")):
        us.write_store(random_dataset(seed=seed), tmp_path / name)
    wishes: dict[str, Any] = {"space": {"algo.learning_rate": [1e-3, 1e-2]}, "trials": 1, "top": 0}
    wishes["config"] = {**tiny_settings("bc", tmp_path / "run", updates=2, eval_every=2), "env": None}
    first = tuned(tmp_path / "tune", data=tmp_path / "one", **wishes)
    with pytest.raises(RunError, match=r"data\.path is .*one there and .*two here"):
        tuned(first.path, data=tmp_path / "two", **wishes)
    assert tried(tuned(first.path, data=tmp_path / "one", **wishes)) == tried(first)
    before = (first.path / JOURNAL).read_bytes()
    shutil.rmtree(tmp_path / "one")
    (tmp_path / "two").rename(tmp_path / "one")
    with pytest.raises(DataError, match="one' holds other content than this run was started with"):
        tuned(first.path, data=tmp_path / "one", **{**wishes, "trials": 2})
    assert (first.path / JOURNAL).read_bytes() == before
    assert load_config(str(first.path / "best.yaml")).logged.fingerprint == first.best.config.fingerprint != ""


def test_who_was_slower_to_begin_another_search_is_refused(tmp_path: Path) -> None:
    """While the config is tried, somebody else begins in the same folder."""
    out = tmp_path / "tune"

    def rival(**settings: Any) -> gymnasium.Env[Any, Any]:
        out.mkdir(exist_ok=True)
        Plan.make(TINY, SPACE, {}, seeds=2).write(out)
        return gymnasium.make(WORLDS[0])

    gymnasium.register("Rival-v0", entry_point=rival)
    with pytest.raises(RunError, match="another search lies there: seeds is 2 there and 1 here"):
        tuned(out, config={**TINY, "env": {"id": "Rival-v0"}}, space={"algo.clip": [0.1, 0.2]})
    assert Plan.read(out).seeds == 2
    assert not (out / JOURNAL).exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"trials": 0}, "trials: too small: got 0"),
        ({"jobs": 0}, "jobs: too small"),
        ({"fresh": 0}, "fresh: too small"),
        ({"last": 9}, "--last: more evaluations than a trial has: got 9, expected at most 2"),
        ({"metric": "eval/succes_rate"}, "best: no evaluation of this run measures it"),
        ({"metric": "return"}, "--metric: no such metric: got 'return'. Did you mean 'eval/return_mean'?"),
        ({"eval_every": 0}, "eval_every: is 0, and trials are judged by their evaluations"),
        ({"space": {"algo.clipp": [0.1, 0.2]}}, "algo.clipp: no such setting of ppo. Did you mean 'clip'?"),
        (
            {"space": {"env.id": ["Level1-v0", "Level9-v0"]}},
            "space: env.id=Level9-v0: env.id: no environment 'Level9-v0'",
        ),
        ({"space": "iqll"}, "space 'iqll': no space of this name. Did you mean 'iql'?"),
        ({"space": "nowhere.yaml"}, "nowhere.yaml: no such file"),
        ({"env": object()}, "env: a search tells its runs of it in words"),
        ({"data": [1]}, "data: a search tells its runs of it in words"),
        ({"config": "ppo/pendulm"}, "config 'ppo/pendulm': no config of this name"),
        ({"rate": 3}, "rate: no such setting"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(wrong: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(us.UnderstudyError) as error:
        tuned(tmp_path / "tune", **wrong)
    assert told in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="exists already and is no search"):
        tuned(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_without_optuna_a_sentence_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingPackageError, match=r"tune: needs optuna .* pip install 'understudy-rl\[tune\]'"):
        tuned(tmp_path / "tune")
    assert not list(tmp_path.iterdir())


def test_seeds_that_do_worse_than_the_best_end_a_trial(tmp_path: Path) -> None:
    """Wilcoxon's test needs four of them to say so. The config itself is in the best of the worlds."""
    config, space = {**TINY, "env": {"id": WORLDS[-1]}}, {"env.id": {"choices": WORLDS}}
    made = tuned(tmp_path / "tune", config=config, space=space, seeds=5, trials=3, top=0, updates=2)
    assert made.trials[0].state == "complete"
    worse = [row for row in made.trials if row.settings["env.id"] != WORLDS[-1]]
    assert worse
    for row in worse:
        assert row.state == "pruned"
        assert len(row.seeds) == 4
        assert row.reason == "worse than the best after 4 of 5 seeds"


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2])
def test_a_run_falls_behind_the_runs_of_its_seed_from_half_of_its_updates_on(seeds: int, tmp_path: Path) -> None:
    config, space = {**TINY, "env": {"id": WORLDS[-1]}}, {"env.id": {"choices": WORLDS}}
    made = tuned(tmp_path / "tune", config=config, space=space, seeds=seeds, trials=14, top=0, eval_every=1)
    complete = [row for row in made.trials if row.state == "complete"]
    pruned = [row for row in made.trials if row.state == "pruned"]
    assert pruned
    assert len([row for row in complete if row.number < pruned[0].number]) >= 5
    for row in pruned:
        assert row.settings["env.id"] != WORLDS[-1]
        assert row.reason == "behind the median at update 2"  # of 4
        assert not row.seeds


def test_what_lies_there_decides_in_which_order_settings_are_drawn(whole: Tuning, copied: Path) -> None:
    """The same space in another order is the same search: it goes on to the same end."""
    more = tuned(Path(shutil.copytree(copied, copied.with_name("same"))), top=0, trials=TRIALS + 2)
    turned = tuned(copied, space=dict(reversed(SPACE.items())), top=0, trials=TRIALS + 2)
    assert tried(turned) == tried(more)


def test_a_line_that_was_torn_by_a_death_is_cut_off_by_the_next_writer(whole: Tuning, copied: Path) -> None:
    journal = copied / JOURNAL
    with journal.open("ab") as file:
        file.write(b'{"op_code":8,"worker_id":"a","trial_id":0,"user_at')
    assert len(Study.open(copied).rows()) == TRIALS  # who only reads is not disturbed
    assert tried(tuned(copied, top=0, trials=TRIALS + 1))[:TRIALS] == tried(whole)
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_a_trial_whose_process_is_alive_is_nobody_elses(copied: Path) -> None:
    mine, other, two_more = Study.open(copied), Study.open(copied), TRIALS + 2
    held, another = mine.claim(two_more), other.claim(two_more)
    assert held is not None
    assert another is not None
    assert (held.number, another.number) == (TRIALS, TRIALS + 1)
    assert other.claim(two_more) is None
    held.release()
    taken_up = other.claim(two_more)
    assert taken_up is not None
    assert (taken_up.number, taken_up.words) == (TRIALS, held.words)
    taken_up.release()
    another.release()


def test_a_plan_is_read_back_as_it_was(tmp_path: Path) -> None:
    plan = Plan.make(TINY, SPACE, {"seed": 3}, seeds=2)
    plan.write(tmp_path)
    assert Plan.read(tmp_path) == plan
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(text.replace('"seeds": 2', '"seeds": 1'))
    with pytest.raises(us.UnderstudyError, match="was changed or damaged"):
        Plan.read(tmp_path)


def test_a_journal_that_is_none_is_told(copied: Path) -> None:
    (copied / JOURNAL).write_text('{"op_code": 0}\n["x"]\n')
    with pytest.raises(RunError, match=r"journal.log is damaged \(.*\). Choose another --out."):
        tuned(copied)
    (copied / JOURNAL).unlink()
    (copied / JOURNAL).symlink_to("/dev/zero")
    with pytest.raises(RunError, match=r"journal\.log is no file of its own"):
        tuned(copied)

"""From a question to its answer: what is run, what the table and the verdict say, and when it is enough."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
from short_runs import SHORT, small_suite

import understudy as us
from understudy.core.errors import ConfigError, RunError
from understudy.run.config import load_config
from understudy.tools.experiments.ablation import BASE, Differences, ablation_suite, load_ablation
from understudy.tools.experiments.results import experiment_digest, read_results
from understudy.tools.experiments.table import Table, told_number
from understudy.tools.experiments.work import Outcome, train_or_resume

FAST = {key: value for key, value in SHORT.items() if not key.startswith("data.")} | {
    "updates": 60,
    "eval_every": 60,
    "save_every": 60,
    "eval_max_steps": 200,
}
PLAY = {
    "env": "Pendulum-v1",
    "episodes": 10,
    "seed": 3,
    "behaviours": [{"policy": "random"}, {"policy": "scripted"}],
}
TASK: dict[str, Any] = {"id": "swing", "env": "Pendulum-v1", "reference": [-1233, -152], "recipe": PLAY}
CLONES = {"all": "bc/pendulum", "best half": {"config": "bc/pendulum", "settings": {"data.best_episodes": 0.5}}}


@final
class Here:
    """Does the work in this process, at once."""

    def __init__(self) -> None:
        self.ended: dict[int, Outcome] = {}
        self.begun: list[str] = []

    def submit(self, directory: str, config: str) -> int:
        self.begun.append(directory)
        self.ended[len(self.begun)] = Outcome.from_json(train_or_resume(directory, config))
        return len(self.begun)

    def poll(self, seconds: float) -> Mapping[int, Outcome]:
        ended, self.ended = self.ended, {}
        return ended

    def cancel(self, handle: int) -> None:
        raise AssertionError("nothing runs while anybody could")

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_plots(no_plots: None) -> None:
    pass


def test_an_experiment_runs_what_is_not_finished_and_tells_what_came_out(tmp_path: Path) -> None:
    def experiment() -> us.Experiment:
        return us.Experiment(CLONES, [TASK], 2, settings=FAST, out=tmp_path)

    first, launcher = experiment(), Here()
    assert first.table().rows()[1] == ["all", "–"]
    first.run(1, progress=False, launcher=launcher)
    assert len(launcher.begun) == 4
    scores = first.scores()
    known = read_results([tmp_path]).scores("eval/score")
    assert {method: row["swing"].tolist() for method, row in scores.items()} == {
        method: row["swing"].tolist() for method, row in known.items()
    }
    low, high = sorted(scores["all"]["swing"])
    mean = (low + high) / 2
    told = [told_number(number) for number in (mean, low, high)]
    assert first.table().cell("all", "swing") == f"{told[0]} [{told[1]}, {told[2]}] (2)"
    assert str(first.table()).splitlines()[0].split() == ["eval/score", "swing"]
    assert "with 2 seeds" in first.verdict()
    again = Here()
    assert experiment().run(2, progress=False, launcher=again).verdict() == first.verdict()
    assert again.begun == []
    with pytest.raises(RunError, match=r"'half-of-BC|learns from other data|begun with other settings"):
        us.Experiment(CLONES, [TASK], 2, settings={**FAST, "updates": 61}, out=tmp_path)


@pytest.mark.slow
def test_seeds_are_added_until_the_ranking_is_settled_and_the_same_call_again_adds_none(tmp_path: Path) -> None:
    """Who is judged by its first steps alone loses less: a difference that any test must find."""
    brief = {"config": "bc/pendulum", "settings": {"eval_max_steps": 5}}
    settings = {**FAST, "updates": 10, "eval_every": 10}
    del settings["eval_max_steps"]

    def decided(launcher: Here) -> us.Experiment:
        experiment = us.Experiment({"whole": "bc/pendulum", "brief": brief}, [TASK], 3, settings=settings, out=tmp_path)
        return experiment.run(1, until_decided=True, progress=False, launcher=launcher)

    launcher = Here()
    experiment = decided(launcher)
    assert experiment.decisions is not None
    assert experiment.decisions.settled
    pair = experiment.decisions.of("brief", "whole")
    assert (pair.verdict, pair.look, pair.seeds) == ("better", 2, 6)
    assert len(launcher.begun) == 12
    assert experiment.verdict().startswith("brief is better than whole on swing")
    again = Here()
    assert decided(again).verdict() == experiment.verdict()
    assert again.begun == []


@pytest.mark.slow
def test_arms_get_seeds_until_each_is_told_from_the_base_and_none_from_another(tmp_path: Path) -> None:
    settings = {**FAST, "updates": 10, "eval_every": 10}
    del settings["eval_max_steps"]
    arms = {"brief": {"eval_max_steps": 5}, "briefer": {"eval_max_steps": 4}, "like it": {"algo.learning_rate": 1.1e-3}}
    changed = {name: {"config": "bc/pendulum", "settings": words} for name, words in arms.items()}
    methods = {BASE: "bc/pendulum", **changed}

    def experiment() -> us.Experiment:
        return us.Experiment(methods, [TASK], 3, settings=settings, out=tmp_path, against=BASE)

    launcher, told = Here(), experiment()
    assert told.pairs == [("brief", BASE), ("briefer", BASE), ("like it", BASE)]
    told.run(1, until_decided=True, progress=False, launcher=launcher)
    assert told.decisions is not None
    assert {(pair.a, pair.verdict, pair.seeds) for pair in told.decisions.pairs} == {
        ("brief", "better", 6),
        ("briefer", "better", 6),
        ("like it", "cannot tell apart", 15),
    }
    assert len(launcher.begun) == 6 + 6 + 15 + 15
    assert told.verdict().startswith(
        "Better than the base: brief; briefer. 1 of 3 changes cannot be told from the base"
    )
    read = experiment().look()
    assert (read.decisions, read.verdict()) == (told.decisions, told.verdict())
    assert "with 3 seeds" in experiment().verdict(), "who does not ask for added seeds gets the first"


def test_what_cannot_be_decided_is_said_before_anything_begins(tmp_path: Path) -> None:
    two = [TASK, {**TASK, "id": "other"}]
    uneven = {**CLONES, "one": {"config": "iql/pendulum", "tasks": ["swing"]}}
    for what, tasks, seeds, told in (
        ({"all": "bc/pendulum"}, [TASK], 3, "nothing to decide"),
        (uneven, two, 3, "methods are for different tasks"),
        (CLONES, [TASK], [0, 4], "come in groups here"),
        (CLONES, [TASK], 1, "groups of 1 seed can be dealt in 32 ways in all, too few to decide by"),
    ):
        experiment = us.Experiment(what, tasks, seeds, settings=FAST, out=tmp_path / "none")
        with pytest.raises(ConfigError, match=told):
            experiment.run(until_decided=True, progress=False)
    with pytest.raises(ConfigError, match="methods are for different tasks, and cannot all be held against one"):
        us.Experiment(uneven, two, 3, settings=FAST, out=tmp_path / "none", against="all")
    for against, told in (("al", "there is no 'al'. Did you mean 'all'"), ("all", "nothing is held against 'all'")):
        with pytest.raises(ConfigError, match=told):
            us.Experiment({"all": "bc/pendulum"}, [TASK], 3, out=tmp_path / "none", against=against)
    with pytest.raises(ConfigError, match="nobody said to what there are differences"):
        us.Experiment(CLONES, [TASK], 3, settings=FAST, out=tmp_path / "none").differences()
    assert not (tmp_path / "none").exists()


def test_a_number_that_is_never_measured_decides_nothing(tmp_path: Path) -> None:
    suite = {"methods": CLONES, "tasks": [TASK], "metric": "eval/success_rate", "settings": FAST}
    for change, told in (
        ({"metric": "eval/scor"}, "all on swing: metric: no evaluation measures it: got eval/scor. Did you mean"),
        ({"settings": {**FAST, "eval_every": 0}}, "all on swing: eval_every: without evaluations there is nothing"),
    ):
        with pytest.raises(ConfigError, match=told):
            us.Experiment({**suite, **change}, seeds=2, out=tmp_path / "none")
    us.Experiment({**suite, "settings": {**FAST, "eval_every": 0}}, seeds=2, out=tmp_path / "none", only_read=True)
    assert not (tmp_path / "none").exists()
    for until_decided in (False, True):
        with pytest.raises(RunError, match=r"did not measure .*: got 'eval/success_rate', expected eval/.*eval/score"):
            us.Experiment(suite, seeds=2, out=tmp_path).run(
                1, until_decided=until_decided, progress=False, launcher=Here()
            )


def test_runs_that_fail_for_good_are_told_when_the_others_are_done(tmp_path: Path) -> None:
    broken = tmp_path / "broken.npz"
    np.savez(broken, anything=np.zeros(3))
    methods = {**CLONES, "lost": {"config": "bc/pendulum", "settings": {"data.path": str(broken)}}}
    experiment = us.Experiment(methods, [TASK], 1, settings=FAST, out=tmp_path / "out")
    with pytest.raises(RunError) as caught:
        experiment.run(progress=False, launcher=Here())
    assert "1 run of 3 failed: " not in str(caught.value)
    assert "1 run of 3 failed. The others are finished" in str(caught.value)
    assert f"{tmp_path / 'out' / 'lost' / 'swing' / '0'}: " in str(caught.value)
    assert [len(row["swing"]) for row in experiment.scores().values()] == [1, 1, 0]
    alone = us.Experiment({"lost": methods["lost"]}, [TASK], 2, settings=FAST, out=tmp_path / "alone")
    with pytest.raises(RunError) as caught:
        alone.run(progress=False, launcher=Here())
    assert "2 runs of 2 failed. The same command tries again.\n" in str(caught.value)
    assert f"  {tmp_path / 'alone' / 'lost' / 'swing' / '0'} (and 1 other): " in str(caught.value)


def test_seeds_that_learned_from_other_data_are_not_one_experiment(tmp_path: Path) -> None:
    def run(seeds: int) -> us.Experiment:
        return us.Experiment(CLONES, [TASK], seeds, settings=FAST, out=tmp_path).run(progress=False, launcher=Here())

    run(1)
    kept = tmp_path / "data" / "swing"
    kept.rename(tmp_path / "gone")
    other = us.Recipe.parse({**PLAY, "seed": 4})
    us.write_store(us.make_dataset(other), kept)
    with pytest.raises(us.UnderstudyError, match="was made in another way than this task says"):
        run(2)
    task = {**TASK, "recipe": None, "data": str(kept)}
    experiment = us.Experiment(CLONES, [task], 2, settings=FAST, out=tmp_path)
    with pytest.raises(RunError, match="are of different experiments: the data has changed in between"):
        experiment.run(progress=False, launcher=Here())


def test_methods_that_learned_from_other_data_are_not_compared(tmp_path: Path) -> None:
    data = tmp_path / "logs"
    task = {**TASK, "recipe": None, "data": str(data)}
    us.write_store(us.make_dataset(us.Recipe.parse(PLAY)), data)
    first = us.Experiment(CLONES, [task], 1, methods=["all"], settings=FAST, out=tmp_path / "out")
    assert first.run(progress=False, launcher=Here()).scores()["all"]["swing"].shape == (1,)
    data.rename(tmp_path / "gone")
    us.write_store(us.make_dataset(us.Recipe.parse({**PLAY, "seed": 4})), data)
    twin = {**CLONES, "faster": {"config": "bc/pendulum", "settings": {"algo.learning_rate": 0.01}}}
    both = us.Experiment(twin, [task], 1, methods=["all", "faster"], settings=FAST, out=tmp_path / "out")
    told = r"all/swing/0' and '.*faster/swing/0' learned from different data: it has changed in between\. Remove one"
    with pytest.raises(RunError, match=told):
        both.run(progress=False, launcher=Here())
    with pytest.raises(RunError, match=told):
        us.Experiment(twin, [task], 1, methods=["all", "faster"], settings=FAST, out=tmp_path / "out", only_read=True)


def test_tables_are_wide_where_they_fit_and_long_where_not() -> None:
    scores = {
        "A": {"x": np.array([10.0, 20.0, 30.0]), "y": np.array([1.0])},
        "B": {"x": np.array([4.0, 4.0]), "y": np.zeros(0)},
        "C": {"x": np.array([5.0])},
    }
    table = Table("eval/score", scores)
    rows = table.rows()
    assert rows[0] == ["eval/score", "x", "y", "mean of tasks"]
    assert rows[1][0::2] == ["A", "1.00 (1)"]
    assert rows[1][1].startswith("20.0 [")
    assert rows[1][3] == "10.5 (1–3)"
    assert rows[2] == ["B", "4.00 [4.00, 4.00] (2)", "–", "–"]
    assert rows[3] == ["C", "5.00 (1)", "–", "–"]
    assert len(list(table.lines(200))) == 4
    small = Table(
        "eval/action_error", {"A": {"x": np.array([0.1749, 0.1751]), "y": np.array([-1226.7])}}, together=False
    )
    assert small.rows()[1] == ["A", "0.175 [0.175, 0.175] (2)", "-1,226.7 (1)"]
    ended = Table("eval/score", {"A": {"x": np.array([1.0, np.nan]), "y": np.array([1.0, 2.0])}})
    assert ended.rows()[1][1::2] == ["nan (2)", "nan (2)"], "a run that ended so is not left out"
    long = list(table.lines(40))
    assert len(long) == 10
    assert long[1].startswith("A       x              20.0 [")
    assert Table("eval/return_mean", scores, together=False).rows()[0] == ["eval/return_mean", "x", "y"]
    assert table.markdown().splitlines()[1] == "| --- | --- | --- | --- |"


def test_an_ablation_changes_one_thing_at_a_time_and_leaves_out_what_is_the_base(tmp_path: Path) -> None:
    suite, words = ablation_suite("iql/pendulum", ["updates=7"])
    assert (suite.name, words) == ("ablate-iql-pendulum", ["updates=7"])
    assert next(iter(suite.methods)) == BASE
    assert len(suite.methods) == 16, "one of 4 × 4 combinations is the base"
    assert "expectile 0.8 × beta 3" not in suite.methods
    less, words = ablation_suite("iql/pendulum", ["data.recipe.episodes=3", "updates=7"])
    assert less.tasks[0].recipe == load_config("iql/pendulum", ["data.recipe.episodes=3"]).logged.recipe
    assert us.Experiment(less, seeds=1, overrides=words).plan.makings[0].recipe.episodes == 3
    assert words == ["updates=7"]
    (task,) = suite.tasks
    assert (task.id, task.env, task.recipe) == ("Pendulum-v1", "Pendulum-v1", load_config("iql/pendulum").logged.recipe)
    for config in ("iact/pendulum", "iact/cartpole", "ciql/pendulum", "ppo/pendulum", "ppo/cartpole"):
        arms = ablation_suite(config)[0].methods
        digests = {
            experiment_digest(load_config(config, [f"{key}={_word(value)}" for key, value in arm.settings.items()]))
            for arm in arms.values()
        }
        assert len(digests) == len(arms) > 5
        assert ("Gaussian policies" in arms) == (config == "iact/pendulum"), "of choices there are none"
    with pytest.raises(ConfigError, match="nothing is declared to be changed about it"):
        ablation_suite("bc/pendulum")
    for changes, told in (
        ({"arms": {BASE: {"algo.expectile": 0.6}}}, "'base': a change has the name of what is changed"),
        ({"arms": {"g 0.6": {}}, "grids": {"g": {"algo.beta": [0.6]}}}, "'g 0.6': two changes have this name"),
        ({"arms": {"same": {"threads": 1}}}, "ablation: no change is left"),
    ):
        (tmp_path / "mine.yaml").write_text(json.dumps({"about": "x", **changes}))
        with pytest.raises(ConfigError, match=told):
            ablation_suite("iql/pendulum", changes=str(tmp_path / "mine.yaml"))
    assert load_ablation("ppo").changes()["λ 0.9"] == {"algo.gae_lambda": "0.9"}


def _word(value: Any) -> str:
    return str(value).replace("'", "") if not isinstance(value, bool) else str(value).lower()


def test_differences_to_the_base_come_with_intervals_and_a_verdict_that_counts_all_of_them() -> None:
    base = np.array([50.0, 51.0, 49.0, 50.5, 49.5, 50.2])
    scores = {BASE: {"x": base}, "worse": {"x": base - 30}, "same": {"x": base[::-1] + 0.1}}
    found = Differences("eval/score", scores)
    rows = list(found.rows())
    assert rows[0] == ["eval/score", "mean", "difference to base", "P(better)"]
    assert rows[2][2].startswith(f"{scores['worse']['x'].mean() - scores[BASE]['x'].mean():.1f} [")
    assert rows[2][3] == "0.00 [0.00, 0.00]"
    told = "Worse than the base: worse. 1 of 2 changes cannot be told from the base with 6 seeds"
    assert found.verdict() == f"{told}; more seeds will hardly help."
    fewer = Differences("eval/score", {**scores, "begun": {"x": base[:1]}, "not": {"x": base[:0]}}).verdict()
    assert fewer == f"{told.replace('2 changes', '4 changes')}; more seeds will hardly help. " + (
        "2 of 4 have fewer than two seeds yet."
    )
    errors = Differences("eval/action_error", scores, lowest_is_best=True)
    assert list(errors.rows())[2][3] == "1.00 [1.00, 1.00]"
    assert errors.verdict().startswith("Better than the base: worse.")
    noisy = {BASE: {"x": base, "y": 100 * base}, "worse": {"x": base - 3, "y": 100 * base[::-1]}}
    assert "cannot be told" in Differences("eval/score", noisy).verdict(), "the noise of y is all that counts"
    apart = Differences("eval/return_mean", noisy, together=False)
    assert [row[:2] for row in apart.rows()][1:] == [[name, task] for task in ("x", "y") for name in noisy]
    assert list(apart.rows())[2][3].startswith("-3.00 [")
    assert apart.verdict() == "Worse than the base: worse."
    alone = Differences("eval/score", {name: {"x": row["x"][:1]} for name, row in scores.items()})
    assert alone.verdict() == "One seed each, or none: nothing can be said of any change."


def test_what_is_compared_on_what_is_said_in_many_ways_and_never_left_out_in_silence(tmp_path: Path) -> None:
    def tasks(what: Any, given: Any, **more: Any) -> list[str]:
        return us.Experiment(what, given, 1, settings=FAST, out=tmp_path, **more).plan.tasks

    assert tasks("baselines", [TASK], methods="BC, 10 % BC") == ["swing"]
    assert tasks("pendulum-quick", "pendulum-mixed", methods="BC") == ["pendulum-mixed"]
    assert tasks(CLONES, TASK) == ["swing"]
    for own in ("pendulum-quick", {"methods": CLONES, "tasks": [{**TASK, "id": "other"}]}):
        with pytest.raises(ConfigError, match=r"tasks: suite '.*' has its own\. Choose of them by name"):
            tasks(own, [TASK])


def written(out: Path, method: str, task: str, returns: Sequence[float]) -> None:
    """Finished runs of the seeds of a cell that reached these returns."""
    for seed, reached in enumerate(returns):
        run = out / method / task / str(seed)
        lines = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
        lines[-1]["eval/return_mean"] = reached
        (run / "eval.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.slow
def test_tasks_on_different_scales_are_not_thrown_together(tmp_path: Path) -> None:
    """Better by far on the pole, worse by a hair on the pendulum, whose returns are ten times as large and more."""
    play = {"env": "CartPole-v1", "episodes": 4, "seed": 1, "behaviours": [{"policy": "random"}]}
    tasks: list[Any] = [{**TASK, "reference": None}, {"id": "pole", "env": "CartPole-v1", "recipe": play}]
    config = {"swing": "bc/pendulum", "pole": "bc/cartpole"}
    methods = {"A": {"config": config}, "B": {"config": config, "settings": {"algo.learning_rate": 0.01}}}
    settings = {**FAST, "updates": 2, "eval_every": 2, "eval_max_steps": 2, "eval_episodes": 1}

    def experiment(against: str = "") -> us.Experiment:
        return us.Experiment(methods, tasks, 5, settings=settings, out=tmp_path, against=against)

    experiment().run(progress=False, launcher=Here())
    pole = np.array([100.0, 102.0, 98.0, 101.0, 99.0])
    for method, gain in (("A", 0.0), ("B", 30.0)):
        written(tmp_path, method, "swing", (pole * 100 - 11_000 - gain / 100).tolist())
        written(tmp_path, method, "pole", (pole + gain).tolist())
    over = "on 2 tasks (each in standard deviations of its scores)"
    assert experiment().verdict().startswith(f"B is better than A {over}: IQM 0.")
    assert experiment().look().verdict().startswith(f"Cannot tell B from A {over} with 5 seeds (IQM B 0.")
    written(tmp_path, "B", "swing", (pole * 100 - 10_000).tolist())
    assert experiment().look().verdict().startswith(f"B is better than A {over}: IQM ")
    written(tmp_path, "B", "swing", (pole * 100 - 11_000 - 0.3).tolist())
    held = experiment("A")
    told = [line.split()[:2] for line in held.differences().lines()]
    assert told == [["eval/return_mean", "task"], ["A", "swing"], ["B", "swing"], ["A", "pole"], ["B", "pole"]]
    assert held.verdict() == "Better than A: B."


def test_a_suite_as_plain_data(tmp_path: Path) -> None:
    experiment = us.Experiment({**small_suite(), "seeds": 1}, methods=["BC"], out=tmp_path)
    assert [run.name for run in experiment.plan.runs] == ["BC, swing, seed 0"]

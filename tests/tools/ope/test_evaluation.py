"""From policies and data to a ranking: what is found, what is kept, what is refused before anything is trained."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judged_policies import actor, boxes, choices, constant, favouring

import understudy as us
from understudy.core.errors import ConfigError, DataError
from understudy.run.progress import SILENT
from understudy.tools.ope import judge, stacked
from understudy.tools.ope.candidates import find_candidates
from understudy.tools.ope.ranking import Ranking, judgement, ranked

QUICK: dict[str, Any] = {
    "updates": 300,
    "seeds": 2,
    "hidden": (16,),
    "learning_rate": 1e-2,
    "polyak": 0.1,
    "gamma": 0.5,
}
SHORT: dict[str, Any] = {**QUICK, "updates": 5}


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Policies that always do 1, 0 and −1 of the environment's units: worth 0, −1.9375 and −7.75 from the start."""
    spec, found = boxes().spec, []
    for action in (0.5, 0.0, -0.5):
        us.save_policy(constant(spec, action), tmp_path / f"always {2 * action:g}")
        found.append(str(tmp_path / f"always {2 * action:g}"))
    return found


def judged(given: object, data: us.Dataset, **words: Any) -> Ranking:
    return us.evaluate_offline(given, data, **{**QUICK, "progress": False, **words})


def test_policies_are_ranked_by_what_they_are_worth(folders: list[str]) -> None:
    """Rewards are −(a − 1)² in episodes of five steps: (1 + γ + … + γ⁴)·r of what is always done."""
    ranking = judged(folders[::-1], boxes(120), updates=600, seeds=3)
    assert [one.name for one in ranking.judged] == folders
    assert ranking.rivals == []
    assert ranking.verdict().startswith(f"{folders[0]} is best; 95 % intervals of its lead over each of the others are")
    for one, reward in zip(ranking.judged, (0.0, -1.0, -4.0), strict=True):
        assert one.estimate.value == pytest.approx(reward * (1 - 0.5**5) / 0.5, abs=1.0), one.name
        assert one.estimate.low <= one.estimate.value <= one.estimate.high
        assert not one.diverged
    data = boxes(120)
    discounted = np.array([sum(0.5**t * r for t, r in enumerate(data.episode(e).rewards)) for e in range(120)])
    assert ranking.behaviour.value == pytest.approx(discounted.mean())
    assert ranking.behaviour_return.value == pytest.approx(data.returns().mean())
    told = json.loads(json.dumps(ranking.to_json()))
    assert [one["name"] for one in told["candidates"]] == folders
    assert list(ranking.lines())[1].startswith(folders[0])
    alone = us.offline_value(folders[0], data, **{**QUICK, "updates": 600, "seeds": 3})
    assert alone.value == pytest.approx(ranking.judged[0].estimate.value, abs=1e-4)


def test_in_whatever_units_rewards_are_critics_learn_alike(folders: list[str]) -> None:
    """Dollars or cents: the same value in another unit. Powers of 2, so that nothing rounds."""
    data, small, words = boxes(), boxes(), {**QUICK, "updates": 100, "seeds": 1, "progress": False}
    small.rewards.mul_(2.0**-14)
    value, other = (us.offline_value(folders[2], one, **words).value for one in (data, small))
    assert other * 2.0**14 == pytest.approx(value, rel=1e-4)
    assert value < -1.0


def test_each_policy_is_judged_once_however_often_it_is_named(folders: list[str], tmp_path: Path) -> None:
    """By the name it was given first."""
    shutil.copytree(folders[0], tmp_path / "copy")
    found = find_candidates([folders[1], folders[0], tmp_path / "copy", folders[1]])
    assert [one.name for one in found] == [folders[1], folders[0]]


def test_equal_policies_cannot_be_told_apart(tmp_path: Path) -> None:
    spec = boxes().spec
    for name, action in (("a", 0.5), ("b", 0.5001), ("c", -0.9)):
        us.save_policy(constant(spec, action), tmp_path / name)
    ranking = judged([tmp_path / name for name in "abc"], boxes(), updates=200)
    assert {Path(one.name).name for one in (ranking.best, *ranking.rivals)} <= {"a", "b"}
    if ranking.rivals:
        assert "cannot be told apart from" in ranking.verdict()


def test_what_is_done_is_kept(folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the second seed, the first is not trained again; a further candidate is trained alone."""
    out, data, trained = tmp_path / "out", boxes(), []
    train = stacked.train_stack

    def killed(
        config: Any, logged: Any, policy: Any, asked: Any, rows: Any, seed: int, *words: Any, **more: Any
    ) -> Any:
        trained.append((seed, asked.after.shape[1]))
        if len(trained) == 2:
            raise KeyboardInterrupt
        return train(config, logged, policy, asked, rows, seed, *words, **more)

    monkeypatch.setattr(judge, "train_stack", killed)
    with pytest.raises(KeyboardInterrupt):
        judged(folders[:2], data, out=out, updates=30)
    going_on = judged(folders[:2], data, out=out, updates=30)
    assert trained == [(0, 2), (1, 2), (1, 2)]
    whole = judged(folders[:2], data, updates=30)
    assert going_on.values() == whole.values()
    trained.clear()
    trained.append((0, 0))
    trained.append((0, 0))
    assert judged(folders[:2], data, out=out, updates=30).to_json() == going_on.to_json()
    assert trained == [(0, 0)] * 2
    more = judged(folders, data, out=out, updates=30)
    assert trained[2:] == [(0, 1), (1, 1)]
    assert {name: more.values()[name] for name in folders[:2]} == going_on.values()
    for file in out.iterdir():
        file.write_bytes(b"damaged")
    judged(folders[:1], data, out=out, updates=30, seeds=1)
    assert trained[4:] == [(0, 1)], "made anew"


def test_importance_weights_find_the_value_where_chances_were_logged() -> None:
    """π has ¼, ¼, ½ and β ½, ¼, ¼; a third choice pays 1, three steps with γ = ½: ½·1.75."""
    data = choices(3000)
    policy = favouring(data.spec, (0.25, 0.25, 0.5))
    for method in ("is", "wis", "pdis", "wpdis"):
        ranking = judged(policy, data, method=method, stochastic=True)
        assert ranking.best.estimate.value == pytest.approx(0.875, abs=0.06), method
        assert ranking.best.estimate.low < 0.875 < ranking.best.estimate.high
        assert ranking.warnings == []
        assert ranking.best.facts["effective"] / 3000 == pytest.approx(1 / (0.125 + 0.25 + 1) ** 3, rel=0.15)
    for method in ("dr", "wdr"):
        ranking = judged(policy, data, method=method, stochastic=True, updates=100)
        assert ranking.best.estimate.value == pytest.approx(0.875, abs=0.06), method


def test_what_an_estimate_does_not_say_is_said(folders: list[str], tmp_path: Path) -> None:
    us.save_policy(favouring(choices().spec, (0.01, 0.01, 0.98)), tmp_path / "rare")
    cloned = judged(tmp_path / "rare", choices(12, logged=False), method="wis", stochastic=True, updates=50)
    assert "nobody recorded how likely actions were" in cloned.warnings[0]
    assert any("fewer than ten effective episodes" in warning for warning in cloned.warnings)
    narrow = boxes()
    narrow.actions.clamp_(-2.0, -1.5)
    short = judged(folders[:1], narrow, **{**SHORT, "seeds": 1})
    told = " ".join(short.warnings)
    assert "leave about 78% of what is far ahead" in told
    assert "one seed says nothing of others: there is no interval" in told
    assert "thin support: much of what" in told
    assert "cut" in " ".join(judged(folders[:1], boxes(terminated=False), **SHORT).warnings)
    assert short.verdict().endswith(
        "This is not to be relied on: 78% of what is far ahead is not learned yet, the support is thin."
    )
    assert cloned.verdict().endswith("This is not to be relied on: fewer than ten effective episodes.")


def test_one_episode_says_nothing_of_others(folders: list[str]) -> None:
    """Nobody else was in similar states, and no resampling differs."""
    for given, data in ((folders[:1], boxes(1)), (favouring(choices().spec, (0.1, 0.1, 0.8)), choices(1, 40))):
        ranking = judged(given, data, **SHORT)
        told = " ".join(ranking.warnings)
        assert "the data has 1 episode: intervals of so few are too narrow" in told
        assert "nothing is known of the support" in told
        assert "thin support" not in told
        assert "far" not in ranking.best.facts
        assert "there are few episodes" in ranking.verdict()


def test_where_no_episode_has_any_weight_nothing_is_known() -> None:
    """Rewards are below 0, so that 0 would be better than all that ever was."""
    data = choices(20, 10)
    data.rewards.sub_(2.0)
    never = favouring(data.spec, (0.98, 0.01, 0.01))
    for method in ("wis", "wpdis"):
        ranking = judged(never, data, method=method)
        assert math.isnan(ranking.best.estimate.value)
        assert ranking.to_json()["candidates"][0]["low"] is None
        assert next(line for line in ranking.lines() if "policy" in line).split()[2:5] == ["unknown"] * 3
        assert ranking.verdict().endswith("no episode of the data has any weight.")
    likely = favouring(data.spec, (0.5, 0.25, 0.25))
    both = judged([never, likely], data, method="wis", stochastic=True)
    assert both.best.facts["effective"] == pytest.approx(20)


def test_who_diverged_is_nobodys_rival() -> None:
    """And if all did, nobody is best."""
    calm, wild = np.linspace(0.0, 1.0, 50), np.full(50, np.nan)
    lost, known = judgement("lost", [math.nan], wild, {}, True), judgement("known", [0.5], calm, {}, False)
    interval = known.estimate
    two = Ranking("fqe", 0.9, "it", ranked([lost, known]), interval, interval, [])
    assert two.best is known
    assert two.verdict().startswith("known is best")
    assert Ranking("fqe", 0.9, "it", [lost], interval, interval, []).verdict() == (
        "Nothing is known of lost: the critics diverged."
    )
    assert json.loads(json.dumps(two.to_json(), allow_nan=False))["candidates"][1]["value"] is None
    seeds = judgement("lost", [math.nan, math.nan], wild, {"td_error": math.inf}, True)
    both = Ranking("fqe", 0.9, "it", [seeds], interval, interval, [])
    told = json.loads(json.dumps(both.to_json(), allow_nan=False))["candidates"][0]
    assert (told["seeds_std"], told["td_error"]) == (None, None)
    assert "nan" not in " ".join(both.lines())


def test_caution_decides_who_is_best_and_draws_who_is_a_rival() -> None:
    """Of two intervals that overlap one may be above the other in every draw; and a bold guess is no better than its
    lower bound."""
    shared, own = np.random.default_rng(0).standard_normal((2, 1000))
    draws = {"bold": 1.5 + 2 * own, "lesser": 0.9 + 0.1 * shared, "sure": 1.0 + 0.1 * shared}
    judged = [judgement(name, [float(values.mean())], values, {}, False) for name, values in draws.items()]
    ranking = Ranking("wis", 0.9, "it", ranked(judged), judged[0].estimate, judged[0].estimate, [])
    assert [one.name for one in ranking.judged] == ["sure", "lesser", "bold"]
    assert ranking.judged[1].estimate.high > ranking.best.estimate.low
    assert [one.name for one in ranking.rivals] == ["bold"]
    assert ranking.verdict() == "sure has the highest lower bound, but cannot be told apart from bold."


def test_where_no_lower_bound_is_known_none_is_the_highest() -> None:
    some = np.where(np.arange(50) < 20, np.nan, np.arange(50.0))
    one, other = (judgement(name, [value], some + value, {}, False) for name, value in (("one", 2.0), ("other", 1.0)))
    told = Ranking("wis", 0.9, "it", ranked([other, one]), one.estimate, one.estimate, []).verdict()
    assert told == (
        "one has the highest value (of nobody a lower bound is known), but cannot be told apart from other."
    )


def test_without_discount_it_is_said_how_far_ahead_nothing_is_learned(folders: list[str]) -> None:
    """Of twenty steps 100 updates with polyak 0.1 reach ten."""
    words = {**SHORT, "gamma": 1.0, "polyak": 0.1}
    ranking = judged(folders[0], boxes(20, 20), **{**words, "updates": 100})
    assert "100 updates with polyak 0.1 leave about 50% of what is far ahead" in " ".join(ranking.warnings)
    assert ranking.verdict().endswith("50% of what is far ahead is not learned yet.")
    assert not ranking.best.diverged
    enough = judged(folders[0], boxes(20, 5), **{**words, "updates": 60})
    assert "far ahead" not in " ".join(enough.warnings) + enough.verdict()


def test_one_value_is_of_one_policy_whose_critics_did_not_diverge(
    folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {**SHORT, "progress": False}
    with pytest.raises(ConfigError, match=r"offline_value: of more than one policy: got 2.*us\.evaluate_offline"):
        us.offline_value(folders[:2], boxes(), **words)
    monkeypatch.setattr(stacked, "BEYOND", 0.0)
    assert us.evaluate_offline(folders[0], boxes(), **words).best.diverged
    lost = us.offline_value(folders[0], boxes(), **words)
    assert all(map(math.isnan, (lost.value, lost.low, lost.high)))


def test_critics_that_are_wild_only_where_nothing_is_told_of_them_are_doubted_and_not_ranked_last(
    folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Always 1 is worth 0 from every start, and what others did is worth down to −9: beyond a limit of 3.6."""
    monkeypatch.setattr(stacked, "BEYOND", 0.2)
    ranking = judged(folders, boxes(120), updates=300, seeds=2)
    assert [one.diverged for one in ranking.judged] == [False, False, True]
    assert ranking.best.name == folders[0]
    told = "somewhere in the data its critics believe in more than any return"
    assert f"This is not to be relied on: {told}" in ranking.verdict()
    first, second, third = folders
    notes = " ".join(ranking.warnings)
    assert f"|Q| of {first}, {second} is far beyond any return in places, though not at the starts" in notes
    assert f"|Q| of {third} is far beyond any return: these estimates are worth nothing" in notes


def test_the_best_there_is_has_not_diverged() -> None:
    """Every step pays 1 and nothing ever ends: values are what no return is beyond, and critics a little above it."""
    data = boxes(40, 20, terminated=False)
    data.rewards.fill_(1.0)
    ranking = judged(actor(data.spec), data, updates=200)
    assert ranking.best.estimate.value == pytest.approx(2.0, abs=0.3)
    assert not ranking.best.diverged
    assert "diverged" not in ranking.verdict()


def test_importance_weights_of_very_long_episodes_need_no_table_that_does_not_fit() -> None:
    """A long episode among many short ones: FQE lays nothing side by side, and who must is told how much that is."""
    parts = choices(10_000, 1), choices(1, 80_000)
    played = [part.episode(number) for part in parts for number in range(part.episodes)]
    long = us.Dataset.from_episodes(played, us.Discrete(3), name="long")
    policy = favouring(long.spec, (0.3, 0.3, 0.4))
    assert judged(policy, long, **SHORT).best.estimate.value < 3
    with pytest.raises(ConfigError, match="importance weights of 1 policies along 10,001 episodes would need more"):
        judged(policy, long, method="wpdis", stochastic=True)


def test_whatever_is_wrong_is_found_before_anything_is_trained(
    folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "train_stack", None)
    remembering = actor(boxes().spec, memory={"kind": "gru", "units": 4})
    stuck, unpaid = boxes(steps=1, terminated=False), boxes()
    unpaid.rewards.zero_()
    wrong: list[tuple[object, Any, dict[str, Any], str]] = [
        ([], boxes(), {}, "candidates: nobody is to be judged"),
        (3, boxes(), {}, "candidates: not a policy: got"),
        (str(tmp_path / "nowhere"), boxes(), {}, "no such directory"),
        (folders, choices(), {}, "does not fit the data: actions are one of 3, and were"),
        (folders, None, {}, "data: is missing"),
        (remembering, boxes(), {}, "has a memory"),
        (folders, stuck, {}, "nobody knows where episodes began"),
        (folders, unpaid, {}, "every reward is 0: there is nothing to judge by"),
        (folders, boxes(terminated=False), {"gamma": 1.0}, "values of such a world have no end"),
        (folders, boxes(), {"gamma": 1.5}, "gamma: out of range: got 1.5"),
        (folders, boxes(), {"method": "fqee"}, "method: no such estimator: got fqee. Did you mean 'fqe'?"),
        (folders, boxes(), {"seeds": 0}, "seeds"),
        (folders, boxes(), {"method": "is"}, "has no density"),
        (folders, boxes(), {"method": "initial"}, "is no run"),
        (folders, boxes(), {"hidden": (0,)}, "hidden"),
    ]
    for given, data, words, told in wrong:
        with pytest.raises((ConfigError, DataError, us.UnderstudyError), match=told.replace("?", r"\?")):
            us.evaluate_offline(given, data, **{**QUICK, "reporter": SILENT, **words})


def test_an_exported_policy_is_judged_as_the_live_one(tmp_path: Path) -> None:
    """Greedily; it does not draw, and is refused where it should."""
    pytest.importorskip("onnxruntime")
    live = actor(boxes().spec)
    us.export_policy(live, "onnx", out=str(tmp_path / "exported"))
    words = {**SHORT, "progress": False}
    values = [us.offline_value(one, boxes(), **words).value for one in (live, tmp_path / "exported")]
    assert values[0] == pytest.approx(values[1], rel=1e-4)
    with pytest.raises(ConfigError, match="an exported file does not sample"):
        us.evaluate_offline(tmp_path / "exported", boxes(), stochastic=True, **words)


@pytest.mark.usefixtures("no_plots")
def test_runs_are_judged_on_their_own_data_and_by_their_own_critics(tmp_path: Path) -> None:
    """All kept checkpoints, by name; a clone has no critics, and says so."""
    words: dict[str, Any] = {"updates": 20, "save_every": 10, "log_every": 10, "tensorboard": False, "progress": False}
    data = boxes(20)
    run = us.train("iql", data=data, out=str(tmp_path / "iql"), **words)
    clone = us.train("bc", data=data, out=str(tmp_path / "bc"), **words)
    ranking = us.evaluate_offline(tmp_path, checkpoints="all", progress=False, **SHORT)
    assert sorted(ranking.values()) == [f"{tmp_path}/{name}@{at}" for name in ("bc", "iql") for at in (10, 20)]
    own = us.evaluate_offline([run, f"{run.path}@10"], data, method="initial", progress=False)
    assert len(own.values()) == 2
    assert own.verdict().endswith("This is not to be relied on: a run's own critics judge what they taught.")
    assert all("td_error" in one.facts for one in own.judged)
    assert not any("another gamma" in told for told in own.warnings)
    assert "learned with another gamma than 0.7" in " ".join(
        us.evaluate_offline(run, data, method="initial", progress=False, gamma=0.7).warnings
    )
    with pytest.raises(ConfigError, match="has no critics of its own to ask"):
        us.evaluate_offline(clone, data, method="initial", progress=False)
    words["data.shift_rewards"] = -1.0
    shifted = us.train("iql", data=data, out=str(tmp_path / "shifted"), **words)
    with pytest.raises(ConfigError, match="learned from rewards that were shifted or clipped"):
        us.evaluate_offline(shifted, data, method="initial", progress=False)
    shutil.rmtree(Path(clone.path) / "checkpoints")
    shutil.rmtree(Path(clone.path) / "policy")
    with pytest.raises(us.UnderstudyError, match=r"tmp.*bc"):
        us.evaluate_offline(clone.path, data, checkpoints="all", progress=False, **SHORT)
    rest = us.evaluate_offline(tmp_path, data, progress=False, **SHORT)
    assert sorted(rest.values()) == [f"{tmp_path}/{name}@last" for name in ("iql", "shifted")]
    assert f"{clone.path} has no checkpoint yet, and is left out." in rest.warnings


@pytest.mark.usefixtures("no_plots")
def test_a_runs_own_critics_speak_of_the_rewards_it_learned_from(tmp_path: Path) -> None:
    """A preset fits a factor to the run's data; other data, of which it would be another, do not change it."""
    words: dict[str, Any] = {"updates": 5, "eval_every": 5, "tensorboard": False, "progress": False}
    words["data.reward"] = "iql_locomotion"
    data, larger = boxes(20), boxes(20)
    larger.rewards.mul_(100.0)
    run = us.train("iql", data=data, out=str(tmp_path / "run"), **words)
    values = [us.offline_value(run, one, method="initial").value for one in (data, larger)]
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    factor = json.loads((run.path / "meta.json").read_text())["dataset"]["reward_scale"]
    assert values[0] * factor == pytest.approx(run.evaluations()[-1]["eval/value_of_starts"], rel=1e-4)


@pytest.mark.usefixtures("no_plots")
def test_who_learned_from_other_data_is_named(tmp_path: Path) -> None:
    """Without data of one's own all are judged by those of the first run."""
    words: dict[str, Any] = {"updates": 2, "tensorboard": False, "progress": False}
    runs = [us.train("bc", data=boxes(20, seed=seed), out=str(tmp_path / f"{seed}"), **words) for seed in range(2)]
    other = f"{tmp_path}/1@last learned from other data than"
    ranking = us.evaluate_offline(runs, progress=False, **SHORT)
    assert next(told for told in ranking.warnings if "learned from other" in told).startswith(other)
    given = us.evaluate_offline(runs, boxes(20), progress=False, **SHORT)
    assert "learned from other" not in " ".join(given.warnings)

"""What held-out episodes say: every number by brute force, for every algorithm that learns from data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import BATTLE, short_settings

import understudy as us
from learners import differences
from understudy.core.errors import ConfigError
from understudy.core.protocols import Demand
from understudy.core.state import capture
from understudy.data.transforms import Choosing, choose
from understudy.run.build import build_learner
from understudy.run.config import parse_config
from worlds import learning_from, takes_boxes

pytestmark = pytest.mark.usefixtures("no_plots")

EVERY = {"eval/action_error", "eval/td_error", "eval/q_data", "eval/q_policy", "eval/value_of_starts"}


def learner_of(algorithm: str, out: Path, **changes: Any) -> Any:
    settings = short_settings(algorithm, out, **changes)
    data = {**settings["data"], "validation": 0.5, "reward": "antmaze_cql"}
    return build_learner(parse_config({**settings, "data": data, "env": None}))


def told(learner: Any) -> dict[str, float]:
    (probe,) = [probe for probe in learner.probes if probe.eval_metrics(learner.algorithm)]
    found: dict[str, float] = probe.eval_metrics(learner.algorithm)
    return found


@torch.no_grad()
def by_hand(learner: Any, branch: str = "", *, next_mask: bool = False) -> dict[str, float]:
    """Row by row, episode by episode, from the recording alone; 10·r − 5 is what is learned from."""
    main = learner.data["main"]
    (held,) = main.held_out
    networks, policy = learner.algorithm.networks(), learner.policy.eval()
    critic, value = networks[f"{branch}critic"].eval(), networks.get(f"{branch}value")
    half = 1.0 if policy.discrete else float(main.spec.box.half_range[0])
    gamma, squares, of_data, of_policy, starts = learner.algorithm.demand.gamma, [], [], [], []

    def act(obs: Any, mask: Any) -> Any:
        seen = obs if mask is None else {**obs, "action_mask": mask}
        action = policy.act(seen, (), greedy=True)[0]
        return action if policy.discrete else action / half

    def worth(obs: Any, mask: Any) -> float:
        if value is not None:
            return float(value.eval()(value.perception.look(obs)))
        return float(critic(critic.perception.look(obs), act(obs, mask)).min())

    for number, dataset in enumerate((main.recorded, held)):
        masks = ("mask", "next_mask") if next_mask else ()
        for row in range(dataset.steps):
            rows = dataset.rows(torch.tensor([row]), Demand(("td_valid", *masks)))
            mask = rows.extra.get("mask")
            if row in dataset.index.starts:
                starts.append(worth(rows.obs, mask))
            if number == 0:
                continue
            action = rows.action if policy.discrete else rows.action / half
            q = critic(critic.perception.look(rows.obs), action)
            of_data.append(float(q.mean()))
            of_policy.append(float(critic(critic.perception.look(rows.obs), act(rows.obs, mask)).mean()))
            after = 0.0 if rows.terminated else gamma * worth(rows.next_obs, rows.extra.get("next_mask"))
            squares.append(float((q - (10 * float(rows.reward) - 5 + after)).square().mean()))
    found = {"td_error": squares, "q_data": of_data, "q_policy": of_policy, "value_of_starts": starts}
    return {f"eval/{name}": float(np.mean(values)) for name, values in found.items()}


@pytest.mark.parametrize("algorithm", ["iql", "td3bc", "cql", "rebrac"])
def test_values_are_those_of_the_critics_on_held_out_rows(algorithm: str, tmp_path: Path) -> None:
    learner = learner_of(algorithm, tmp_path)
    for _ in range(2):
        learner.update()
    found = told(learner)
    assert set(found) == EVERY
    for name, expected in by_hand(learner).items():
        assert found[name] == pytest.approx(expected, rel=1e-4), name


def test_choices_with_masks_too(tmp_path: Path) -> None:
    for algorithm in ("iql", "discrete_cql"):
        recipe = {"env": BATTLE, "episodes": 30, "seed": 7, "behaviours": [{"policy": "random"}]}
        learner = learner_of(algorithm, tmp_path / algorithm, world=BATTLE, data={"recipe": recipe})
        learner.update()
        found = told(learner)
        assert 0 <= found["eval/action_error"] <= 1
        for name, expected in by_hand(learner, next_mask=True).items():
            assert found[name] == pytest.approx(expected, rel=1e-4), name


def test_two_branches_are_averaged(tmp_path: Path) -> None:
    learner = learner_of("iact", tmp_path)
    learner.update()
    a, b = (by_hand(learner, branch) for branch in ("a.", "b."))
    found = told(learner)
    for name in a:
        assert found[name] == pytest.approx((a[name] + b[name]) / 2, rel=1e-4), name


def test_a_cloner_has_its_action_error_only_with_memory_or_without(tmp_path: Path) -> None:
    remembering = {"hidden": [8], "memory": {"kind": "gru", "units": 4}}
    for kind, actor in (("offline", {"hidden": [8]}), ("sequences", remembering)):
        settings = short_settings("bc", tmp_path / kind, source={"kind": kind, "batch_size": 4}, env=None)
        learner = build_learner(parse_config({**settings, "algo": {"name": "bc", "actor": actor}}))
        learner.update()
        assert set(told(learner)) == {"eval/action_error"}


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """With dropout, whose stream must not move."""
    for algorithm in filter(takes_boxes, learning_from("offline")):
        one, other = (learner_of(algorithm, tmp_path / algorithm) for _ in range(2))
        for _ in range(3):
            one.update()
            other.update()
            assert told(one)
        assert differences(capture(one), capture(other)) == []
        assert one.policy.training == other.policy.training


def test_no_evaluation_with_an_environment_or_without(tmp_path: Path) -> None:
    for number, changes in enumerate(({}, {"env": None})):
        settings = short_settings("iql", tmp_path / str(number), eval_every=0, tensorboard=False, **changes)
        run = us.train(parse_config(settings), progress=False)
        assert run.result["not_evaluated"] == "eval_every is 0"
        assert run.result["best"] is None
        assert run.evaluations() == []
        assert not (run.path / "policy" / "best").exists()
        assert run.policy("last") is not None


def test_how_many_episodes_are_held_out() -> None:
    for episodes, held in ((1, 0), (2, 1), (9, 1), (20, 2), (100, 10)):
        split = choose(Choosing(), np.zeros(episodes), "data", hold_out=True)
        assert (len(split.train), len(split.validation)) == (episodes - held, held)
        assert len(choose(Choosing(), np.zeros(episodes), "data").validation) == 0, "with an environment"
    assert len(choose(Choosing(validation=0), np.zeros(9), "data", hold_out=True).validation) == 0, "as it was said"


def test_the_best_is_chosen_by_what_the_config_says(tmp_path: Path) -> None:
    wishes = {"auto": ("eval/td_error", min), "highest": ("eval/action_error", max)}
    for kind, (name, pick) in wishes.items():
        changes = {"env": None, "eval_every": 1, "updates": 8, "tensorboard": False, "best": name, "best_is": kind}
        run = us.train(parse_config(short_settings("iql", tmp_path / kind, **changes)), progress=False)
        wished = pick(run.evaluations(), key=lambda line: float(line[name]))
        assert run.result["best"] == {"metric": name, "value": wished[name], "updates": wished["updates"]}
        assert us.load_policy(run.path, "best") is not None
    wrong = short_settings("bc", tmp_path / "wrong", env=None, best="eval/td_error")
    with pytest.raises(ConfigError, match=r"^best: no evaluation of this run measures it: got eval/td_error\. "):
        us.train(parse_config(wrong), progress=False)
    for setting in ("patience", "best"):
        value = 1 if setting == "patience" else "eval/q_data"
        with pytest.raises(ConfigError, match=rf"^{setting}: needs evaluations, and eval_every is 0"):
            parse_config(short_settings("iql", tmp_path / "never", eval_every=0, **{setting: value}))


def test_with_an_environment_they_are_further_numbers(tmp_path: Path) -> None:
    settings = short_settings("iql", tmp_path / "run")
    heard: list[Any] = []
    config = parse_config({**settings, "data": {**settings["data"], "validation": 0.5}})
    run = us.train(config, progress=False, callbacks=[lambda updates, evaluation: heard.append(evaluation)])
    assert EVERY | {"eval/return_mean"} <= set(run.evaluations()[-1])
    assert set(heard[-1].metrics) >= EVERY
    assert run.result["best"]["metric"] == "eval/return_mean"

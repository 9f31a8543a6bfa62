"""The one evaluator: fixed start states, every episode told, bad worlds refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from forks import forks
from hypothesis import given
from hypothesis import strategies as st
from small import BROKEN, SHORT, short_config

from understudy import Actor, Box, Evaluation, Spec, evaluate_policy
from understudy.core.errors import DataError, RunError, UnderstudyError
from understudy.core.rng import stream
from understudy.core.spec import Group
from understudy.nn.actor import ActorSettings
from understudy.run.evaluation import bootstrap_interval

SPEC = Spec({"state": Group((3,), "float32")}, Box((-2.0,), (2.0,)))


def some_policy(seed: int = 0, spec: Spec = SPEC) -> Actor:
    return Actor(spec, ActorSettings(hidden=(8,)), stream(seed, "init"))


def test_the_same_policy_earns_the_same() -> None:
    first, second = (evaluate_policy(some_policy(), SHORT, 4, seed=1) for _ in range(2))
    assert first == second
    assert len(set(first.returns)) == 4, "every episode has a start state of its own"
    assert first.lengths == (10,) * 4
    assert evaluate_policy(some_policy(), SHORT, 4, seed=2) != first
    assert evaluate_policy(some_policy(1), SHORT, 4, seed=1) != first


def test_sampled_actions_repeat_with_the_seed() -> None:
    sampled = [evaluate_policy(some_policy(), SHORT, 3, seed=1, greedy=False) for _ in range(2)]
    assert sampled[0] == sampled[1] != evaluate_policy(some_policy(), SHORT, 3, seed=1)


def test_evaluating_moves_nothing_outside() -> None:
    policy = some_policy().train()
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    evaluate_policy(policy, SHORT, 2, seed=1, greedy=False)
    assert (torch.rand(1), np.random.rand()) == expected
    assert policy.training
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def test_what_is_reported() -> None:
    evaluation = Evaluation((1.0, 2.0, 6.0), (10, 20, 30), (0.0, 10.0))
    record = evaluation.to_json()
    assert record["returns"] == [1.0, 2.0, 6.0]
    assert record["eval/return_mean"] == 3.0
    assert record["eval/return_std"] == pytest.approx(np.sqrt(14 / 3))
    assert record["eval/length_mean"] == 20.0
    assert record["eval/score"] == 30.0
    assert record["eval/return_low"] < 3.0 < record["eval/return_high"]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_the_interval_lies_in_the_data_and_holds_the_mean(values: list[float]) -> None:
    low, high = bootstrap_interval(np.array(values))
    slack = 1e-9 * max(map(abs, values)) + 1e-9
    assert min(values) - slack <= low <= high <= max(values) + slack
    assert low - slack <= np.mean(values) <= high + slack


def test_the_interval_has_its_level() -> None:
    rng = np.random.default_rng(0)
    hits = [low <= 0.0 <= high for low, high in (bootstrap_interval(rng.standard_normal(30)) for _ in range(200))]
    assert 0.88 <= np.mean(hits) <= 0.98


def test_a_reward_that_is_no_number_is_named() -> None:
    told = (
        rf"^environment '{BROKEN}': the reward of evaluation episode 0 is not finite: got nan\. "
        r"Evaluation episode 0: seed \d+, step 4, action \[[-.\d]+\]\.$"
    )
    with pytest.raises(RunError, match=told):
        evaluate_policy(some_policy(), BROKEN, 2, seed=0)


def test_a_world_that_does_not_fit_the_policy() -> None:
    other = Spec({"state": Group((4,), "float32")}, Box((-2.0,), (2.0,)))
    with pytest.raises(DataError, match="does not fit the policy"):
        evaluate_policy(some_policy(spec=other), SHORT, 1, seed=0, spec=other)


def test_a_bad_world_stops_a_run_with_a_sentence(tmp_path: Path) -> None:
    ending = forks().run("train", short_config(tmp_path, env={"id": BROKEN}, save_every=1), "--quiet")
    assert ending.code == 1
    assert ending.err.startswith(f"environment '{BROKEN}': the reward of evaluation episode 0 is not finite: got nan. ")
    assert ending.err.count("\n") == 1


def test_an_unknown_world() -> None:
    with pytest.raises(UnderstudyError, match="Did you mean"):
        evaluate_policy(some_policy(), "Pendulum-v7", 1, seed=0)

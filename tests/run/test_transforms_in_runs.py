"""The chain inside a run: alike in the data, in the environment and in the policy that is kept."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import understudy as us
from understudy.core.errors import ConfigError
from understudy.data.stores.store import write_store
from understudy.run.build import build_learner
from understudy.run.validation import action_error
from worlds import PENDULUM_RECIPE, random_dataset, real_data, tiny_config


def trained(out: Path, **data: Any) -> us.Run:
    return us.train(tiny_config("bc", out, data={"recipe": PENDULUM_RECIPE, **data}))


@pytest.mark.parametrize("normalize", [True, False])
def test_a_hidden_column_is_hidden_everywhere(tmp_path: Path, normalize: bool) -> None:
    run = trained(tmp_path / "x", hide_columns={"state": [-1]}, normalize_observations=normalize)
    seen = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    blind, sighted = seen.copy(), seen.copy()
    blind[:, 2] = 1e6
    sighted[:, 0] += 1
    for policy in (run.policy("last"), us.load_policy(run.path / "policy" / "final")):
        actions = us.predict(policy, seen)
        np.testing.assert_array_equal(us.predict(policy, blind), actions)
        assert np.abs(us.predict(policy, sighted) - actions).max() > 1e-4


@pytest.mark.parametrize("columns", [{"states": [0]}, {"state": [3]}])
def test_a_column_that_is_not_there_cannot_be_hidden(tmp_path: Path, columns: dict[str, list[int]]) -> None:
    with pytest.raises(ConfigError, match=r"data\.hide_columns"):
        trained(tmp_path / "x", hide_columns=columns)


def test_held_out_episodes_are_measured_and_not_learned_from(tmp_path: Path) -> None:
    learner: Any = build_learner(tiny_config("bc", tmp_path / "x", data={"recipe": PENDULUM_RECIPE, "validation": 0.5}))
    assert learner.data["main"].held_out
    assert (learner.data["main"].recorded.episodes, learner.data["main"].held_out[0].episodes) == (2, 2)
    together = sorted([*learner.data["main"].recorded.returns(), *learner.data["main"].held_out[0].returns()])
    assert together == sorted(us.make_dataset(us.Recipe.parse(PENDULUM_RECIPE)).returns())
    run = trained(tmp_path / "x", validation=0.5)
    assert [line["eval/action_error"] > 0 for line in run.evaluations()] == [True, True]


def test_the_action_error_is_the_mean_square_in_policy_units(tmp_path: Path) -> None:
    run = trained(tmp_path / "x")
    dataset = us.make_dataset(us.Recipe.parse(PENDULUM_RECIPE))
    policy = run.policy()
    first = [slot for slot in range(dataset.steps + dataset.episodes) if (slot + 1) % 201]
    actions = us.predict(policy, dataset.observations["state"][first].numpy())
    expected = np.mean(((actions - dataset.actions.numpy()) / 2.0) ** 2, dtype=np.float64)
    assert action_error(policy, dataset) == pytest.approx(expected, rel=1e-6)


def test_the_chain_is_kept_with_the_policy(tmp_path: Path) -> None:
    run = trained(tmp_path / "x", reward="iql_locomotion", best_episodes=0.5)
    chain = json.loads((run.path / "policy" / "final" / "policy.json").read_text())["facts"]["transforms"]
    returns = np.sort(us.make_dataset(us.Recipe.parse(PENDULUM_RECIPE)).returns())[-2:]
    assert chain["best_episodes"] == 0.5
    assert chain["reward_scale"] == pytest.approx(1000 / (returns[1] - returns[0]))


def test_returns_stay_raw_whatever_is_learned_from(tmp_path: Path) -> None:
    learner: Any = build_learner(
        tiny_config("iql", tmp_path / "x", data={"recipe": PENDULUM_RECIPE, "reward": "antmaze_cql"})
    )
    assert learner.data["main"].recorded.returns().max() < 0
    rows = torch.arange(4)
    transformed = learner.data["main"].dataset.rows(rows, learner.algorithm.demand).reward
    torch.testing.assert_close(transformed, 10 * learner.data["main"].recorded.rewards[rows] - 5)


def test_another_choice_is_other_data(tmp_path: Path) -> None:
    prints = {
        build_learner(tiny_config("bc", tmp_path / "x", data={"recipe": PENDULUM_RECIPE, **words}))
        .data["main"]
        .recorded.fingerprint
        for words in ({}, {"best_episodes": 0.5}, {"max_episodes": 3}, {"actions": "clip"})
    }
    assert len(prints) == 3  # nothing was outside, so clipping changed nothing


def test_a_wrong_scale_is_mended_on_the_way_to_the_learner(tmp_path: Path) -> None:
    path = str(real_data("pendulum_medium.npz"))
    learner: Any = build_learner(tiny_config("bc", tmp_path / "x", data={"path": path, "actions_from": [-1, 1]}))
    assert 1.9 < float(learner.data["main"].recorded.actions.abs().max()) <= 2.0
    assert float(learner.source.next(learner.policy).action.abs().max()) <= 1.0


def test_a_store_is_mended_too(tmp_path: Path) -> None:
    dataset = random_dataset(state=4, action=1)
    path = write_store(dataset, tmp_path / "store")
    loaded = us.load_dataset(path, transforms=us.Transforms(drop_columns={"state": (-1,)}))
    np.testing.assert_array_equal(loaded.observations["state"], dataset.observations["state"][:, :3])

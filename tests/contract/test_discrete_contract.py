"""Algorithms that know discrete actions: the same promises, with and without masks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from learners import Learning, differences, start, tiny_algorithm
from understudy import Dataset, Discrete, Episode, evaluate_policy, load_policy, make_dataset, predict
from understudy.core.errors import DataError
from understudy.core.spec import ACTION_MASK
from understudy.core.state import capture, nonfinite, restore
from understudy.run.policy_file import save_policy
from worlds import judges_only, learning_from, pendulum_recipe, takes_choices

DISCRETE = [name for name in learning_from("offline") if takes_choices(name)]
ACTIONS = 5
pytestmark = pytest.mark.parametrize("name", DISCRETE)


def choices(masked: bool, *, episodes: int = 8, seed: int = 0) -> Dataset:
    """Random play over five actions; the masks forbid some of them in every state."""
    rng = np.random.default_rng(seed)
    played = []
    for number in range(episodes):
        steps = int(rng.integers(3, 20))
        mask = rng.random((steps + 1, ACTIONS)) < 0.5
        mask[np.arange(steps + 1), rng.integers(0, ACTIONS, steps + 1)] = True
        actions = np.array([rng.choice(np.flatnonzero(row)) for row in mask[:-1]])
        ended = number % 2 == 0
        if ended:
            mask[-1] = False  # nothing is legal when all is over
        played.append(
            Episode(
                {"state": rng.standard_normal((steps + 1, 4)).astype(np.float32)},
                actions,
                rng.standard_normal(steps),
                ended,
                not ended,
                mask=mask if masked else None,
            )
        )
    return Dataset.from_episodes(played, Discrete(ACTIONS), name="choices")


def learning(name: str, masked: bool) -> Learning:
    return start(tiny_algorithm(name), choices(masked))


@pytest.mark.parametrize("masked", [False, True])
def test_updates_are_finite_and_move_the_policy(name: str, masked: bool) -> None:
    learner = learning(name, masked)
    before = capture(learner)
    metrics = learner.update(20)
    assert all(bool(torch.isfinite(value)) for value in metrics.values())
    assert nonfinite(capture(learner)) == []
    role = "critic" if judges_only(name) else "policy"
    learned = {f"algorithm.{role}.{path}" for path, _ in learner.algorithm.networks()[role].named_parameters()}
    assert learned & set(differences(before, capture(learner)))


@pytest.mark.parametrize("masked", [False, True])
def test_resumed_equals_uninterrupted(name: str, masked: bool) -> None:
    whole, first, second = (learning(name, masked) for _ in range(3))
    whole.update(23)
    first.update(9)
    second.update(2)
    restore(second, capture(first), "test")
    second.update(14)
    assert differences(capture(whole), capture(second)) == []


@pytest.mark.parametrize("greedy", [True, False])
def test_forbidden_actions_are_never_chosen(name: str, greedy: bool) -> None:
    learner = learning(name, masked=True)
    learner.update(5)
    rng = np.random.default_rng(1)
    mask = rng.random((2000, ACTIONS)) < 0.3
    mask[np.arange(2000), rng.integers(0, ACTIONS, 2000)] = True
    obs = {"state": 10 * rng.standard_normal((2000, 4)).astype(np.float32), ACTION_MASK: mask}
    actions = predict(learner.algorithm.policy, obs, greedy=greedy)
    assert actions.dtype == np.int64
    assert mask[np.arange(2000), actions].all()


def test_a_policy_that_obeys_masks_asks_for_them(name: str) -> None:
    policy = learning(name, masked=True).algorithm.policy
    with pytest.raises(DataError, match="'action_mask' is missing"):
        predict(policy, {"state": np.zeros((2, 4))})
    with pytest.raises(DataError, match="row 1: no action is legal"):
        predict(policy, {"state": np.zeros((2, 4)), ACTION_MASK: [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]})
    with pytest.raises(DataError, match=r"'action_mask': wrong shape: got \[1, 2\], expected \[B, 5\]"):
        predict(policy, {"state": np.zeros((1, 4)), ACTION_MASK: [1, 0]})
    with pytest.raises(DataError, match=r"'action_mask': not flags: got 2.0, expected 0 and 1"):
        predict(policy, {"state": np.zeros((1, 4)), ACTION_MASK: [[2, 0, 0, 0, 1]]})
    assert predict(policy, {"observations": np.zeros((1, 4)), ACTION_MASK: [[0, 0, 1, 0, 0]]}).tolist() == [2]


def test_a_world_without_masks_does_not_fit_a_policy_that_needs_them(name: str) -> None:
    policy = learning(name, masked=True).algorithm.policy
    with pytest.raises(DataError, match="does not fit the policy"):
        evaluate_policy(policy, "CartPole-v1", 1, 0, spec=policy.spec)


def test_the_kept_policy_is_the_greedy_policy(name: str, tmp_path: Path) -> None:
    learner = learning(name, masked=True)
    learner.update(5)
    save_policy(learner.algorithm.policy, tmp_path / "policy", {})
    data = choices(masked=True, seed=3)
    rows = data.rows(torch.arange(data.steps), replace(learner.algorithm.demand, columns=("mask",), horizon=1))
    obs = {"state": rows.obs["state"].numpy(), ACTION_MASK: rows.extra["mask"].numpy()}
    np.testing.assert_array_equal(
        predict(load_policy(tmp_path / "policy"), obs), predict(learner.algorithm.policy, obs), strict=True
    )


def test_it_plays_cartpole(name: str) -> None:
    data = make_dataset(pendulum_recipe(env="CartPole-v1", behaviours=[{"policy": "random"}]))
    assert data.spec.action == Discrete(2)
    learner = start(tiny_algorithm(name), data)
    learner.update(5)
    evaluation = evaluate_policy(learner.algorithm.policy, "CartPole-v1", 2, 0, spec=data.spec)
    assert all(length >= 8 for length in evaluation.lengths)


def test_the_seed_documents_shape(name: str) -> None:
    """64 numbers of state, ten actions with masks."""
    rng = np.random.default_rng(0)
    mask = np.ones((31, 10), bool)
    mask[:, 7:] = False
    episode = Episode(
        {"state": rng.standard_normal((31, 64))},
        rng.integers(0, 7, 30),
        rng.standard_normal(30),
        True,
        False,
        mask=mask,
    )
    learner = start(tiny_algorithm(name), Dataset.from_episodes([episode], Discrete(10)))
    learner.update(3)
    assert predict(learner.algorithm.policy, {"state": np.zeros(64), ACTION_MASK: mask[0]}) < 7

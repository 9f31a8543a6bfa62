"""IACT learns where its base is misled: wrong rewards in a bandit and in a pendulum.

Both times some rewards are far too high where actions are bad. The critics of the base believe them; those that
learn from the rows the other branch explains best do not. Choosing at random helps nobody.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from learners import Learning, start, tiny_algorithm
from understudy import Box, Dataset, Episode, Recipe, corrupt, evaluate_policy, make_dataset

NETWORK: dict[str, Any] = {"hidden": [64, 64]}
LEARNING: dict[str, Any] = {
    "alpha": 10.0,
    "polyak": 0.02,
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
}
BY_ERROR = {"score": "td", "select_critic": True, "keep": {"start": 1.0, "end": 0.85, "after": 200, "over": 200}}


def learn(name: str, data: Dataset, updates: int, **changes: Any) -> Learning:
    learning = start(tiny_algorithm(name, NETWORK, **LEARNING, **changes), data, batch_size=128, updates=updates)
    learning.update(updates)
    return learning


@cache
def bandit() -> Dataset:
    """One step each: the best action is half the state, and a seventh of the bad actions is paid 20 too much."""
    rng = np.random.default_rng(0)
    state, action = rng.uniform(-1, 1, (2, 4000, 1)).astype(np.float32)
    miss = action[:, 0] - 0.5 * state[:, 0]
    wrong = (rng.uniform(size=4000) < 0.15) & (np.abs(miss) > 0.6)
    reward = (1.0 - miss**2 + 20.0 * wrong).astype(np.float32)
    episodes = [
        Episode({"state": np.stack([seen, seen])}, action[row : row + 1], reward[row : row + 1], True, False)
        for row, seen in enumerate(state)
    ]
    return Dataset.from_episodes(episodes, Box((-1.0,), (1.0,)), name="bandit")


def regret(learning: Learning) -> float:
    """Mean squared distance from the best action."""
    state = torch.linspace(-1, 1, 101).unsqueeze(1)
    action, _ = learning.algorithm.policy.act({"state": state}, (), greedy=True)
    return float((action - 0.5 * state).square().mean())


def test_a_corrupted_bandit_misleads_the_base_and_not_iact() -> None:
    by_error, at_random = ({**BY_ERROR, "keep": 0.85, "score": score} for score in ("td", "random"))
    assert regret(learn("iact", bandit(), 500, teaching=by_error)) < 0.05
    assert regret(learn("iact", bandit(), 500, teaching=at_random)) > 0.3
    assert regret(learn("td3bc", bandit(), 500)) > 0.3


PENDULUM = {
    "env": "Pendulum-v1",
    "episodes": 70,
    "seed": 0,
    "behaviours": [
        {"policy": "random", "share": 3},
        {"policy": "scripted", "share": 3, "skill": 0.4, "noise": 0.3, "epsilon": 0.1},
        {"policy": "scripted", "share": 4, "skill": 0.7, "noise": 0.4, "epsilon": 0.2},
        {"policy": "scripted", "share": 4, "skill": 0.9, "noise": 0.5, "epsilon": 0.3},
    ],
}


@pytest.mark.slow
def test_a_corrupted_pendulum_misleads_the_base_and_not_iact() -> None:
    """A tenth of the rows, those with the highest rewards, is paid far too little."""
    clean = make_dataset(Recipe.parse(PENDULUM))
    wrong = corrupt(clean, "reward_attack", share=0.1, strength=3.0)
    data = Dataset.from_episodes(wrong.play(), clean.spec.action, name="attacked")
    returns = {
        name: evaluate_policy(learn(algorithm, data, 1500, **changes).algorithm.policy, "Pendulum-v1", 10, 0).mean
        for name, algorithm, changes in [("iact", "iact", {"teaching": BY_ERROR}), ("base", "td3bc", {})]
    }
    assert returns["iact"] > -320
    assert returns["base"] < returns["iact"] - 100


def test_rare_rewards_are_lost_where_critics_choose_and_kept_where_they_do_not() -> None:
    """One step in ten pays 10: every state is worth 1, and with selection nothing. O-32, in the algorithm itself."""
    rng = np.random.default_rng(1)
    state, action = rng.uniform(-1, 1, (2, 2000, 1)).astype(np.float32)
    reward = np.where(np.arange(2000) % 10 == 0, 10.0, 0.0).astype(np.float32)
    episodes = [
        Episode({"state": np.stack([seen, seen])}, action[row : row + 1], reward[row : row + 1], True, False)
        for row, seen in enumerate(state)
    ]
    data = Dataset.from_episodes(episodes, Box((-1.0,), (1.0,)), name="rare")
    teaching = {"score": "td", "keep": 0.8}
    kept, lost = (
        learn("iact", data, 400, teaching={**teaching, "select_critic": chosen}).algorithm.branches["a"].critic
        for chosen in (False, True)
    )
    rows = torch.from_numpy(state), torch.from_numpy(action)
    with torch.no_grad():
        assert float(kept(*rows).mean()) == pytest.approx(1.0, abs=0.3)
        assert abs(float(lost(*rows).mean())) < 0.1

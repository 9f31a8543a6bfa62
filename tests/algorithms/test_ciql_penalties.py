"""CIQL: what its penalties compare, what they do to critics, and both ways to extract a policy."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from choosing import choices
from learners import Learning, start, tiny_algorithm
from networks import action_values, q_ensemble
from understudy import Dataset
from understudy.core.errors import ConfigError
from understudy.core.rng import stream
from understudy.core.state import capture, nonfinite
from understudy.losses.policy import squared_distance, value_scale
from understudy.parts.negatives import other_rows, other_rows_values, uniform_values
from understudy.parts.noise import Noise
from worlds import random_dataset

KINDS: list[dict[str, Any]] = [
    {"penalty": "cql_h"},
    {"penalty": "mean_gap"},
    {"penalty": "relu_mean"},
    {"penalty": "relu_mean", "negatives": "dataset"},
]
WORLDS: dict[str, Callable[[], Dataset]] = {
    "continuous": random_dataset,
    "discrete": lambda: choices(False),
    "masked": lambda: choices(True),
}


def learning(dataset: Dataset, **changes: Any) -> Learning:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return start(tiny_algorithm("ciql", **changes), dataset)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extraction", ["awr", "ddpg_bc"])
def test_every_kind_learns_in_every_world(world: str, kind: dict[str, Any], extraction: str) -> None:
    learner = learning(WORLDS[world](), extraction=extraction, **kind)
    metrics = learner.update(3)
    assert "penalty/gap" in metrics
    assert all(bool(value.isfinite()) for value in metrics.values())
    assert nonfinite(capture(learner)) == []


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_heavy_penalty_closes_the_gap(world: str, kind: dict[str, Any]) -> None:
    heavy = {"alpha": 10.0, "critic_learning_rate": 3e-3}
    before, after = (learning(WORLDS[world](), **kind, **settings).update(60) for settings in ({"alpha": 1e-9}, heavy))
    assert float(after["penalty/gap"]) <= float(before["penalty/gap"])
    if kind["penalty"] != "relu_mean":
        assert float(after["penalty/gap"]) < float(before["penalty/gap"]) - 0.01


def test_without_a_penalty_no_gap_is_told() -> None:
    assert "penalty/gap" not in learning(random_dataset(), alpha=0.0).update()


def test_the_penalty_of_a_batch_warns() -> None:
    with pytest.warns(UserWarning, match=r"algo\.penalty=relu_mean: known to be wrong"):
        start(tiny_algorithm("ciql", penalty="relu_mean"))


def test_negatives_that_nothing_reads_are_refused() -> None:
    with pytest.raises(ConfigError, match="negatives=dataset is for penalty=relu_mean"):
        tiny_algorithm("ciql", negatives="dataset")


def test_other_rows_are_never_ones_own() -> None:
    rows = other_rows(Noise.named(0, "test"), 500, 7)
    assert rows.shape == (500, 7)
    assert not bool((rows == torch.arange(7)).any())
    assert all(len(set(rows[:, row].tolist())) == 6 for row in range(7))
    assert other_rows(Noise.named(0, "test"), 3, 1).tolist() == [[0], [0], [0]]


def test_uniform_values_of_discrete_actions_are_means_over_the_legal() -> None:
    critic = action_values(2, 4, stream(0, "test"), hidden=[8])
    state, action = torch.randn(3, 2, generator=stream(1, "test")), torch.tensor([0, 1, 3])
    mask = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]]).bool()
    found = uniform_values(critic, state, action, mask, Noise.named(0, "test"), 10)
    every = critic.every(state)
    expected = torch.stack([every[:, 0, :2].mean(-1), every[:, 1, 1], every[:, 2].mean(-1)], dim=1)
    torch.testing.assert_close(found, expected.unsqueeze(1))


def test_actions_of_other_rows_that_are_illegal_here_do_not_count() -> None:
    critic = action_values(2, 3, stream(0, "test"), hidden=[8])
    state, action = torch.randn(2, 2, generator=stream(1, "test")), torch.tensor([0, 2])
    mask = torch.tensor([[True, True, False], [True, False, True]])
    found = other_rows_values(critic, state, action, mask, Noise.named(0, "test"), 4)
    every = critic.every(state)
    assert torch.equal(found, torch.stack([every[:, 0, 0], every[:, 1, 0]], dim=1).unsqueeze(1).expand(-1, 4, -1))


def test_continuous_actions_of_other_rows_are_asked_about_here() -> None:
    critic = q_ensemble(2, 1, stream(0, "test"), hidden=[8])
    state, action = torch.randn(2, 2, generator=stream(1, "test")), torch.tensor([[0.5], [-0.5]])
    found = other_rows_values(critic, state, action, None, Noise.named(0, "test"), 1)
    torch.testing.assert_close(found[:, 0], critic(state, -action))


def test_climbing_with_a_deterministic_policy_is_the_actor_loss_of_td3bc() -> None:
    """But for the critic: here the smaller of both."""
    learner = learning(random_dataset(), extraction="ddpg_bc", actor={"hidden": [16], "distribution": "deterministic"})
    batch, algorithm = learner.batch(), learner.algorithm
    with torch.no_grad():
        state = algorithm.policy.perception.look(batch.obs)
        action = algorithm.policy.distribution.mode(algorithm.policy.features(state))
        q = algorithm.critic(state, action).amin(0)
        expected = (squared_distance(action, batch.action) - 2.5 * value_scale(q) * q).mean()
    torch.testing.assert_close(algorithm.update(batch).metrics["loss/actor"], expected)


@pytest.mark.parametrize("masked", [False, True])
def test_climbing_discrete_values_prefers_the_better_action(masked: bool) -> None:
    """Cloning alone knows nothing of values; a heavy climb ends where expected values are highest."""
    cloned, climbed = (
        learning(choices(masked), extraction="ddpg_bc", climb_weight=weight, actor_learning_rate=1e-2)
        for weight in (0.0, 100.0)
    )
    worth = []
    for learner in (cloned, climbed):
        learner.update(60)
        batch = learner.batch()
        with torch.no_grad():
            state = learner.algorithm.policy.perception.look(batch.obs)
            share = learner.algorithm.policy.features(state, batch.extra.get("mask")).softmax(-1)
            worth.append(float((share * learner.algorithm.critic.every(state).amin(0)).sum(-1).mean()))
    assert worth[1] > worth[0] + 0.05

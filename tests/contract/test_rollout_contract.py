"""Algorithms that learn from rollouts: the same promises as of those that learn from data."""

from pathlib import Path

import pytest
import torch

from learners import differences, outlined
from rollouts import CASES, rolling
from understudy import evaluate_policy, load_policy
from understudy.core.errors import CheckpointError
from understudy.core.rng import stream
from understudy.core.state import capture, check_fits, nonfinite, restore
from understudy.nn.actor import Actor
from understudy.run.policy_file import save_policy

pytestmark = pytest.mark.parametrize(("name", "shape"), CASES)


def test_an_update_is_finite_and_everything_trained_moves(name: str, shape: str) -> None:
    learner = rolling(name, shape)
    before = capture(learner)
    for _ in range(3):
        metrics = learner.update()
        assert all(value.shape == () and bool(value.isfinite()) for value in metrics.values())
        assert not any(value.requires_grad for value in metrics.values())
    assert nonfinite(capture(learner)) == []
    moved = set(differences(before, capture(learner)))
    for role in ("policy", "value"):
        network = getattr(learner.algorithm, role)
        assert {f"algorithm.{role}.{path}" for path, _ in network.named_parameters()} <= moved


def test_going_back_and_replaying_gives_the_same(name: str, shape: str) -> None:
    learner, other = rolling(name, shape), rolling(name, shape, seed=3)
    for _ in range(3):
        learner.update()
    other.update()
    point = capture(learner)
    for _ in range(3):
        learner.update()
    whole = capture(learner)
    for again in (learner, other):
        restore(again, point, "test")
        for _ in range(3):
            again.update()
        assert differences(whole, capture(again)) == []


def test_an_outline_has_the_shape_of_everything_and_takes_no_memory(name: str, shape: str) -> None:
    learner = rolling(name, shape)
    outline = outlined(learner.algorithm.config, learner.policy.spec, learner.source.envs.count)
    check_fits(outline, capture(learner.algorithm), "test")
    assert all(part.is_meta for part in (*outline.policy.parameters(), *outline.value.parameters()))


def test_evaluation_changes_nothing(name: str, shape: str) -> None:
    learner, twin = rolling(name, shape), rolling(name, shape)
    learner.update()
    twin.update()
    before, chance = capture(learner), torch.get_rng_state()
    for greedy in (True, False):
        first, again = (evaluate_policy(learner.policy, "Pendulum-v1", 2, 0, greedy=greedy) for _ in range(2))
        assert first == again
    assert differences(before, capture(learner)) == []
    assert torch.equal(chance, torch.get_rng_state())
    learner.update()
    twin.update()
    assert differences(capture(twin), capture(learner)) == []


def test_the_saved_policy_is_the_greedy_policy_also_in_what_it_remembers(name: str, shape: str, tmp_path: Path) -> None:
    learner = rolling(name, shape)
    learner.update()
    save_policy(learner.policy, tmp_path / "policy", {})
    loaded = load_policy(tmp_path / "policy")
    assert isinstance(loaded, Actor)
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    for greedy in (True, False):
        carries = [policy.initial(50) for policy in (learner.policy, loaded)]
        for step in range(4):
            obs = {"state": 3 * torch.randn(50, 3, generator=stream(step, "test"))}
            acted = [
                policy.act(obs, carry, greedy=greedy, rng=stream(step, "explore"))
                for policy, carry in zip((learner.policy, loaded), carries, strict=True)
            ]
            assert torch.equal(acted[0][0], acted[1][0])
            carries = [carry for _, carry in acted]


def test_another_shape_is_refused_and_changes_nothing(name: str, shape: str) -> None:
    learner, other = rolling(name, shape), rolling(name, shape, source={"num_envs": 4, "rollout_length": 16})
    before = capture(other)
    with pytest.raises(CheckpointError, match="Nothing was changed"):
        restore(other, capture(learner), "test")
    assert differences(before, capture(other)) == []

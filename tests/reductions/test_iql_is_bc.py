"""IQL with β = 0 and a constant learning rate is behaviour cloning: the same actor in every bit."""

from typing import Any

import pytest
import torch

from learners import Learning, start, tiny_algorithm
from understudy.core.state import capture

UPDATES = 50


def actor_bits(learning: Learning) -> list[bytes]:
    state = capture(learning.algorithm.policy)
    return [leaf.numpy().tobytes() for leaf in state.values() if isinstance(leaf, torch.Tensor)]


def trained(algorithm: str, actor: dict[str, Any], **changes: Any) -> Learning:
    learning = start(tiny_algorithm(algorithm, actor=actor, **changes), seed=3)
    learning.update(UPDATES)
    return learning


@pytest.mark.parametrize("options", [{}, {"distribution": "tanh_gaussian"}, {"layer_norm": True, "dropout": 0.1}])
def test_beta_zero_is_behaviour_cloning(options: dict[str, Any]) -> None:
    actor = {"hidden": [16, 16], **options}
    cloned = trained("bc", actor, learning_rate=1e-3)
    reduced = trained("iql", actor, beta=0.0, actor_optimizer={"schedule": "constant"}, actor_learning_rate=1e-3)
    untrained = start(tiny_algorithm("bc", actor=actor), seed=3)
    assert actor_bits(reduced) == actor_bits(cloned)
    assert actor_bits(cloned) != actor_bits(untrained)


@pytest.mark.parametrize(
    "changes",
    [
        {"beta": 1e-3, "actor_optimizer": {"schedule": "constant"}, "actor_learning_rate": 1e-3},
        {"beta": 0.0, "actor_optimizer": {"schedule": "cosine"}, "actor_learning_rate": 1e-3},
    ],
)
def test_any_knob_left_on_is_something_else(changes: dict[str, Any]) -> None:
    """The reduction is not true by accident: a little weighting or a schedule changes the actor."""
    actor = {"hidden": [16, 16]}
    assert actor_bits(trained("iql", actor, **changes)) != actor_bits(trained("bc", actor, learning_rate=1e-3))


def test_beta_zero_ignores_every_critic_setting() -> None:
    constant = {"beta": 0.0, "actor_optimizer": {"schedule": "constant"}}
    actor = {"hidden": [16, 16]}
    plain = trained("iql", actor, **constant)
    other = trained("iql", actor, **constant, expectile=0.9, gamma=0.5, polyak=0.1, critic={"hidden": [8]})
    assert actor_bits(plain) == actor_bits(other)

"""Targets of the whole REDQ class: the smaller of two target critics out of ten, another two at every update."""

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from learners import Learning, start, tiny_algorithm
from understudy.algorithms.redq import Config
from understudy.core.errors import ConfigError
from understudy.core.state import capture
from understudy.nn.critic import QEnsemble

UPDATES = 400


def says(network: QEnsemble, levels: Tensor) -> None:
    """Member j answers with the j-th of these, whatever it is asked."""
    output = network.trunk.layers()[-1]
    output.weight.zero_()
    output.bias.copy_(levels.view(-1, 1, 1))


def standing(critics: int, subset: int, **changes: Any) -> Learning:
    """Q ≡ 0, target critic j says j, nothing moves, γ = 1, rewards are 0 and entropy is worth nothing."""
    still: dict[str, Any] = {"critic_learning_rate": 1e-30, "polyak": 1e-30, "entropy_weight": 1e-30, "gamma": 1.0}
    config = tiny_algorithm("redq", critics=critics, target_subset=subset, **still, **changes)
    learning = start(config, batch_size=4)
    says(learning.algorithm.critic, torch.zeros(critics))
    says(learning.algorithm.target.network, torch.arange(float(critics)))
    return learning


def targets(learning: Learning, updates: int) -> list[int]:
    """What each update's rows were taught: Q ≡ 0, so the loss of N critics is N·y²."""
    batch = learning.batch()
    batch.reward.zero_()
    critics = learning.algorithm.config.critics
    losses = [learning.algorithm.update(batch).metrics["loss/critic"] for _ in range(updates)]
    return [round(float((loss / critics).sqrt())) for loss in losses]


def test_two_of_ten() -> None:
    """O-36: 8/3 on average; never 9, which is the smaller of no pair; and as often as there are pairs."""
    found = targets(standing(10, 2), UPDATES)
    truth = [sum(min(pair) == level for pair in combinations(range(10), 2)) / 45 for level in range(10)]
    assert sum(found) / UPDATES == pytest.approx(8 / 3, abs=0.3)
    for level, share in enumerate(truth):
        assert found.count(level) / UPDATES == pytest.approx(share, abs=0.07), level


def test_all_of_them() -> None:
    assert set(targets(standing(10, 10), 5)) == {0}


def test_the_policy_climbs_the_mean_of_all() -> None:
    """Entropy is worth nothing, so its loss is what the critics say, turned round."""
    for values, climbed in (("mean", 4.5), ("min", 0.0)):
        learning = standing(10, 2, policy_delay=1, actor_values=values)
        says(learning.algorithm.critic, torch.arange(10.0))
        metrics = learning.update()
        assert float(metrics["loss/actor"]) == pytest.approx(-climbed, abs=1e-5)
        assert float(metrics["value/q_spread"]) == pytest.approx(8.25**0.5, rel=1e-5)


def test_lots_go_on_where_they_stood() -> None:
    one, other = targets(standing(10, 2), 20), targets(standing(10, 2), 20)
    assert one == other
    assert len(set(one)) > 2


def test_the_policy_waits_and_the_targets_do_not() -> None:
    learning = start(tiny_algorithm("redq", policy_delay=3))
    moved = []
    for _ in range(6):
        before = capture(learning.algorithm)
        learning.update()
        after = capture(learning.algorithm)
        roles = ("policy.trunk", "temperature.log_alpha", "critic.trunk", "target.network.trunk")
        paths = {role: next(path for path in before if path.startswith(role)) for role in roles}
        moved.append([not torch.equal(before[path], after[path]) for path in paths.values()])  # type: ignore[arg-type]
    assert moved == [[False, False, True, True]] * 2 + [[True] * 4] + [[False, False, True, True]] * 2 + [[True] * 4]


def test_more_than_there_are() -> None:
    with pytest.raises(ConfigError, match="target_subset=3 of critics=2: there are not so many"):
        Config.parse({"critics": 2, "target_subset": 3}, "algo")

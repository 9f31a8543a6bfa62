"""A σ that has crossed its limit comes back when learning wants it to, in every algorithm that learns one."""

from typing import Any

import pytest
import torch
from torch import Tensor

from learners import Learning, start, tiny_algorithm
from understudy.core.errors import ConfigError

BELOW = -7.0
"""The limit is −5."""
NARROW_SETTINGS: dict[str, dict[str, Any]] = {"cql": {"warm_start": 100}}


def pushed_below(name: str, **distribution: Any) -> Learning:
    """Everything the policy says of σ is far below the limit."""
    actor = {"hidden": [16], "distribution": distribution}
    learning = start(tiny_algorithm(name, actor=actor, **NARROW_SETTINGS.get(name, {})))
    log_std(learning).fill_(BELOW)
    return learning


def log_std(learning: Learning) -> Tensor:
    """What log σ starts from, outside the graph: a number for each dimension, or the bias of what says it."""
    policy = learning.algorithm.policy
    if hasattr(policy.distribution, "log_std"):
        free: Tensor = policy.distribution.log_std.detach()
        return free
    output = policy.trunk.layers()[-1]
    half = output.bias.shape[-1] // 2
    output.weight[..., half:].zero_()
    bias: Tensor = output.bias[..., half:]
    return bias


@pytest.mark.parametrize("name", ["bc", "iql", "ciql", "cql"])
def test_a_deviation_below_its_floor_comes_back(name: str) -> None:
    """The data's actions are all over the box, and σ is a hundredth of it."""
    learning = pushed_below(name)
    learning.update(5)
    assert bool((log_std(learning) > BELOW).all())


@pytest.mark.parametrize("name", ["bc", "iql", "ciql", "cql"])
def test_a_hard_limit_is_kept_for_those_who_reproduce_others(name: str) -> None:
    learning = pushed_below(name, clamp="hard")
    learning.update(5)
    assert bool((log_std(learning) == BELOW).all())


def test_co_teachers_have_limits_of_their_own() -> None:
    wide = start(tiny_algorithm("iact", base="sac_bc", actor={"hidden": [8], "sigma": {"log_std_min": -9.0}}))
    assert wide.algorithm.branches["a"].policy.settings.distribution.log_std_min == -9.0
    with pytest.raises(ConfigError, match=r"actor\.sigma: needs a policy with a density: use base=sac_bc"):
        tiny_algorithm("iact", actor={"sigma": {"log_std_min": -9.0}})


def test_inside_the_limits_both_learn_the_same_bits() -> None:
    hard, returning = (
        start(tiny_algorithm("iql", actor={"distribution": {"clamp": how}})) for how in ("hard", "returning")
    )
    for learning in (hard, returning):
        learning.update(10)
    for mine, others in zip(hard.algorithm.policy.parameters(), returning.algorithm.policy.parameters(), strict=True):
        assert torch.equal(mine, others)

"""Numbers of one update of discrete CQL: discounts in its targets, temperatures in its penalties, what π climbs."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from learners import Learning, start, tiny_algorithm
from understudy.nn.critic import ActionValues
from worlds import random_choices

SOFTMAX: dict[str, Any] = {"policy": "softmax"}
ACTIONS = 4


def fresh(**changes: Any) -> Learning:
    return start(tiny_algorithm("discrete_cql", **changes), random_choices(masked=True))


def rate_all(critic: ActionValues, value: float) -> None:
    """Critics that say the same of every state and action."""
    with torch.no_grad():
        critic.trunk.flat.zero_()
    critic.trunk.layers()[-1].bias.fill_(value)


def weights(network: torch.nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


@pytest.mark.parametrize("kind", [{}, SOFTMAX])
def test_targets_are_discounted_by_as_many_steps_as_were_summed(kind: dict[str, Any]) -> None:
    """y = r + γ³·10, or with fewer steps where an episode ended, of target critics that say 10 of everything."""
    learning = fresh(n_step=3, gamma=0.8, alpha=0.0, **kind)
    algorithm, batch = learning.algorithm, learning.batch()
    rate_all(algorithm.target.network, 10.0)
    discount = batch.extra["discount"]
    assert float(discount.min()) == pytest.approx(0.8**3)
    assert bool(batch.extra["td_valid"].all())
    with torch.no_grad():
        q = algorithm.critic(algorithm.policy.perception.look(batch.obs), batch.action)
    expected = (q - (batch.reward + 10.0 * discount)).square().mean(1).sum()
    torch.testing.assert_close(algorithm.update(batch).metrics["loss/td"], expected)


@pytest.mark.parametrize("member", [0, 1])
def test_a_softmax_policy_climbs_the_smaller_critic(member: int) -> None:
    """One raised out of sight is not seen, by however much."""
    found = []
    for by in (1e3, 2e3):
        learning = fresh(**SOFTMAX)
        learning.algorithm.critic.trunk.layers()[-1].bias[member] += by
        loss = float(learning.update()["loss/actor"])
        found.append((loss, weights(learning.algorithm.policy)))
    assert found[0][0] == found[1][0]
    assert abs(found[0][0]) < 100
    assert torch.equal(found[0][1], found[1][1])


def test_the_likeliest_next_action_is_a_legal_one() -> None:
    """With policy_argmax: however likely the policy finds an illegal action, its value is not backed up."""

    def critics(mask: Tensor, level: float) -> Tensor:
        with pytest.warns(UserWarning, match="known to be wrong"):
            learning = fresh(target_action="policy_argmax", **SOFTMAX)
        algorithm, batch = learning.algorithm, learning.batch()
        algorithm.policy.trunk.layers()[-1].bias[..., 3] += 100.0
        algorithm.target.network.trunk.layers()[-1].bias[..., 3] += level
        algorithm.update(replace(batch, extra={**batch.extra, "next_mask": mask}))
        return weights(algorithm.critic)

    every = torch.ones(32, ACTIONS, dtype=torch.bool)
    but_the_last = every.clone()
    but_the_last[:, 3] = False
    for mask, blind in ((but_the_last, True), (every, False)):
        assert torch.equal(critics(mask, 50.0), critics(mask, 100.0)) == blind


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("penalty", [{}, {"penalty": "sampled", "negatives": 2}])
def test_the_penalty_of_critics_that_know_nothing(penalty: dict[str, Any], temperature: float) -> None:
    """T·ln of the count of actions, also where a few stand for the others."""
    learning = fresh(temperature=temperature, **penalty)
    rate_all(learning.algorithm.critic, 2.0)
    assert float(learning.update()["loss/penalty"]) == pytest.approx(temperature * math.log(ACTIONS), rel=1e-5)

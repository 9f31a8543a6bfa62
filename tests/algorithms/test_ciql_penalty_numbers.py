"""CIQL's critic loss by hand: which rows it reads, and what the sampled penalty asks the critics about."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from learners import Learning, start, tiny_algorithm
from understudy import Transitions
from understudy.parts.proposals import Proposals
from worlds import random_choices, random_dataset

ACTION_SIZE = 2


def fresh(*, discrete: bool = False, **changes: Any) -> Learning:
    return start(tiny_algorithm("ciql", **changes), random_choices() if discrete else random_dataset())


def with_valid(batch: Transitions, valid: Tensor, reward: Tensor) -> Transitions:
    return replace(batch, reward=reward, extra={**batch.extra, "td_valid": valid})


@pytest.mark.parametrize("discrete", [False, True])
def test_rows_without_a_successor_are_left_out_of_the_squared_error(discrete: bool) -> None:
    def critics(valid: Tensor, reward: Tensor) -> Tensor:
        learning = fresh(discrete=discrete)
        learning.algorithm.update(with_valid(learning.batch(), valid, reward))
        return torch.cat([parameter.detach().flatten() for parameter in learning.algorithm.critic.parameters()])

    reward = fresh(discrete=discrete).batch().reward
    half = torch.arange(len(reward)) % 2 == 0
    garbage = torch.where(half, reward, 1e6)
    assert torch.equal(critics(half, reward), critics(half, garbage))
    assert not torch.equal(critics(half, garbage), critics(torch.ones_like(half), garbage))


def proposed(learning: Learning, batch: Transitions, count: int) -> tuple[Tensor, Tensor]:
    """Actions and log-densities that the next update will draw around a policy that holds still."""
    policy = learning.algorithm.policy
    with torch.no_grad():
        centres = [policy.trunk(policy.perception.look(obs)) for obs in (batch.obs, batch.next_obs)]
    here, there = (torch.cat([centre, torch.full_like(centre, math.log(0.3))], 1) for centre in centres)
    proposals: Proposals = copy.deepcopy(learning.algorithm.proposals)
    return proposals.draw(here, there, count)


def test_the_sampled_penalty_is_the_log_of_an_integral_over_actions_of_the_state_itself() -> None:
    """P_j = mean ln( 1/3N Σ_i exp Q_j(s,a_i)/q_i ) − Q_j(s,a), with values of s, also of actions drawn at s'."""
    learning = fresh(sampled_actions=4, actor_learning_rate=1e-30)
    algorithm, batch = learning.algorithm, learning.batch()
    actions, log_density = proposed(learning, batch, 4)
    with torch.no_grad():
        state = algorithm.policy.perception.look(batch.obs)
        values = torch.stack([algorithm.critic(state, action) for action in actions])
        integral = (values - log_density.unsqueeze(1)).exp().mean(0).log()
        expected = (integral - algorithm.critic(state, batch.action)).mean()
    torch.testing.assert_close(algorithm.update(batch).metrics["penalty/gap"], expected, atol=1e-5, rtol=1e-5)


def test_critics_that_know_nothing_are_penalised_by_the_volume_of_the_box() -> None:
    """ln ∫ e^c da − c = A·ln 2. A third of the estimate is uniform and exact; the rest is narrow, and rarely more."""
    learning = fresh(sampled_actions=100)
    with torch.no_grad():
        learning.algorithm.critic.trunk.flat.zero_()
    learning.algorithm.critic.trunk.layers()[-1].bias.fill_(7.0)
    found, volume = float(learning.update()["penalty/gap"]), ACTION_SIZE * math.log(2)
    assert volume - math.log(3) < found < volume + 0.2

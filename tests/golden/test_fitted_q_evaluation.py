"""FQE finds what a policy is worth that is not the data's: O-38, on tables."""

import torch
from t30 import GAMMA, policy_value, t30_choices

from learners import CPU, NORMALIZED
from understudy.algorithms import fqe
from understudy.core.protocols import MAIN, BuildContext
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.data.experience import LoggedExperience
from understudy.nn.actor import Actor, ActorSettings

POLICY = [[0.2, 0.8], [0.9, 0.1], [0.6, 0.4]]
VALUES = [0.939448, 1.004550, 1.053651]
TABLE = {"hidden": (), "normalize": False}


def candidate(spec: Spec, table: torch.Tensor) -> Actor:
    """π [S, A] as a linear policy of one-hot states; the action that is never legal would be its favourite."""
    policy = Actor(spec, ActorSettings.parse(TABLE), stream(0, "candidate")).train(False)
    (layer,) = policy.trunk.layers()
    layer.weight.zero_()
    layer.weight[:, :2] = table.log()
    layer.weight[:, 2] = 5.0
    layer.bias.zero_()
    return policy


def judge(table: torch.Tensor, *, stochastic: bool, updates: int = 900, **settings: object) -> torch.Tensor:
    """V̂ [S] of each state by one critic of a table, from all rows at once."""
    data = LoggedExperience.of(t30_choices(), NORMALIZED)
    words = {"gamma": GAMMA, "stochastic": stochastic, "critic": TABLE, "critic_learning_rate": 1e-2}
    config = fqe.Config.parse({**words, "polyak": 0.2, **settings}, "algo")
    context = BuildContext(
        data.spec, updates, 0, CPU, data={MAIN: data}, policies={fqe.TARGET: candidate(data.spec, table)}
    )
    learner = fqe.build(config, context)
    rows = data.rows(torch.arange(data.steps), learner.demand)
    for _ in range(updates):
        learner.update(rows)
    states = {"state": torch.eye(3)}
    legal = torch.tensor([[True, True, False]] * 3)
    return learner.value(states, learner.choices(states, legal, learner.draws)).mean(0)


def test_a_policy_that_draws_is_worth_what_a_linear_solve_says() -> None:
    table = torch.tensor(POLICY)
    torch.testing.assert_close(policy_value(table.double()).float(), torch.tensor(VALUES), atol=1e-6, rtol=0)
    torch.testing.assert_close(judge(table, stochastic=True), torch.tensor(VALUES), atol=1e-3, rtol=0)


def test_a_greedy_one_is_worth_what_its_likeliest_actions_are() -> None:
    """With hard targets, and several critics, each of which finds it."""
    greedy = torch.nn.functional.one_hot(torch.tensor(POLICY).argmax(-1), 2).double()
    expected = policy_value(greedy).float()
    found = judge(torch.tensor(POLICY), stochastic=False, polyak=1.0, target_every=10, critics=3)
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    assert (expected - torch.tensor(VALUES)).abs().max() > 0.5

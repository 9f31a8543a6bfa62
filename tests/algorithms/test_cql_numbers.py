"""Numbers of one update of CQL, against the formulas of its file worked out by hand."""

import copy
import math
from typing import Any

import pytest
import torch

from learners import Learning, start, tiny_algorithm
from understudy.nn.critic import QEnsemble
from understudy.nn.distributions.gaussians import TanhGaussian

STILL: dict[str, Any] = {"critic_learning_rate": 1e-30}
ACTION_SIZE = 2


def fresh(**changes: Any) -> Learning:
    return start(tiny_algorithm("cql", **changes))


def rate_all(critic: QEnsemble, value: float) -> None:
    """Critics that say the same of every state and action."""
    with torch.no_grad():
        critic.trunk.flat.zero_()
    critic.trunk.layers()[-1].bias.fill_(value)


@pytest.mark.parametrize("start_at", [0.5, 2.0])
@pytest.mark.parametrize("form", ["weight_outside", "weight_inside"])
def test_the_multiplier_multiplies_the_violation_in_the_critics_loss(form: str, start_at: float) -> None:
    """Σ_j mean λ·α·(Δ − τ), or λ·(α·Δ − τ), of two critics; log λ is where the settings start it."""
    weight, threshold = 3.0, 1.5
    settings = {"lagrange_gap": threshold, "lagrange_form": form, "lagrange_start": start_at}
    metrics = fresh(lagrange=True, penalty_weight=weight, **settings).update()
    found = {name: float(value) for name, value in metrics.items()}
    gap = found["penalty/gap"]
    violation = weight * (gap - threshold) if form == "weight_outside" else weight * gap - threshold
    assert found["penalty/lagrange"] == pytest.approx(math.exp(start_at))
    assert found["loss/critic"] - found["loss/td"] == pytest.approx(2 * math.exp(start_at) * violation, rel=1e-4)


def test_entropy_is_added_to_what_is_backed_up() -> None:
    """y = r + γ·(Q̄ − η·log π(ã'|s')), with target critics that say 5 of everything."""
    learning = fresh(backup_entropy=True, entropy_weight=0.7, gamma=0.9)
    algorithm, batch = learning.algorithm, learning.batch()
    rate_all(algorithm.target.network, 5.0)
    noise = copy.deepcopy(algorithm.backup_noise).normal(1, *batch.action.shape)
    with torch.no_grad():
        _, log_prob = TanhGaussian.draw(
            algorithm.policy.features(algorithm.policy.perception.look(batch.next_obs)), noise
        )
        q = algorithm.critic(algorithm.policy.perception.look(batch.obs), batch.action)
    target = batch.reward + 0.9 * (5.0 - 0.7 * log_prob[0])
    assert bool(batch.extra["td_valid"].all())
    assert not bool(batch.terminated.any())
    torch.testing.assert_close(algorithm.update(batch).metrics["loss/td"], (q - target).square().mean(1).sum())


def test_the_actor_does_not_climb_target_critics() -> None:
    """Critics that hold still: their targets may say what they will."""
    found = []
    for level in (0.0, 100.0):
        learning = fresh(**STILL)
        learning.algorithm.target.network.trunk.layers()[-1].bias.add_(level)
        found.append(float(learning.update()["loss/actor"]))
    assert found[0] == found[1]


def test_the_target_entropy_is_of_each_action_dimension() -> None:
    """Of two dimensions, ¾ of the policy's entropy for each is more than it has, if it has any, and α must follow."""
    entropy = float(fresh().update()["policy/entropy"])
    each = 0.75 * entropy
    learning = fresh(entropy_target=each, entropy_learning_rate=1e-3)
    learning.update()
    assert abs(entropy) > 0.01
    assert (float(learning.algorithm.temperature.value()) > 1.0) == (ACTION_SIZE * each > entropy)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_gap_of_critics_that_know_nothing_is_the_count_of_actions_times_the_temperature(temperature: float) -> None:
    """CQL(ρ) of a constant is T·ln(3N + 1), and 0 once ln is subtracted."""
    settings = {"penalty": "cql_rho", "penalty_temperature": temperature, "sampled_actions": 4}
    for subtract, expected in ((False, temperature * math.log(13)), (True, 0.0)):
        learning = fresh(subtract_log_n=subtract, **settings)
        rate_all(learning.algorithm.critic, 2.0)
        assert float(learning.update()["penalty/gap"]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_densities_are_weights_of_the_integral(temperature: float) -> None:
    """CQL(H) of a constant is T·ln of the mean of 1/q, uniform actions of [-1, 1]² a third of it: at least ln 4/3."""
    learning = fresh(penalty_temperature=temperature)
    algorithm, batch = learning.algorithm, learning.batch()
    rate_all(algorithm.critic, 2.0)
    with torch.no_grad():
        here, there = (
            algorithm.policy.features(algorithm.policy.perception.look(obs)) for obs in (batch.obs, batch.next_obs)
        )
    _, log_density = copy.deepcopy(algorithm.proposals).draw(here, there, 10)
    expected = temperature * log_density.neg().exp().mean(0).log().mean()
    assert float(expected) > temperature * math.log(4 / 3)
    torch.testing.assert_close(algorithm.update(batch).metrics["penalty/gap"], expected, atol=1e-5, rtol=1e-5)

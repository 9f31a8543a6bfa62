"""What CQL's update reads, proved by changing one thing and looking at who notices."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from learners import Learning, start, tiny_algorithm
from understudy import Transitions
from understudy.core.protocols import Metrics

ACTOR, CRITIC = "policy", "critic"
RATES: dict[str, Any] = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "entropy_learning_rate": 1e-3}


def fresh(**changes: Any) -> Learning:
    return start(tiny_algorithm("cql", **{**RATES, **changes}))


def weights(learning: Learning, network: str) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in getattr(learning.algorithm, network).parameters()])


def updated(change: dict[str, Any], td_valid: Tensor, **settings: Any) -> Learning:
    learning = fresh(**settings)
    batch: Transitions = learning.batch()
    learning.algorithm.update(replace(batch, extra={**batch.extra, "td_valid": td_valid}, **change))
    return learning


def test_the_actor_climbs_critics_of_after_their_step() -> None:
    slow, fast = (fresh(critic_learning_rate=rate) for rate in (1e-4, 1e-2))
    first, second = slow.update(), fast.update()
    assert torch.equal(first["loss/critic"], second["loss/critic"])
    assert not torch.equal(first["loss/actor"], second["loss/actor"])


def test_the_actor_moves_no_critic() -> None:
    """Within one update: another actor's step size leaves critics, targets and their optimiser as they are."""
    slow, fast = (fresh(actor_learning_rate=rate) for rate in (1e-4, 1e-2))
    for learning in (slow, fast):
        learning.update()
    assert torch.equal(weights(slow, CRITIC), weights(fast, CRITIC))
    assert not torch.equal(weights(slow, ACTOR), weights(fast, ACTOR))
    assert all(parameter.requires_grad for parameter in slow.algorithm.critic.parameters())


def test_the_penalty_does_not_move_the_policy_directly() -> None:
    """Sampled actions are constants: before critics differ, actors do not."""
    weak, strong = (fresh(penalty_weight=weight, critic_learning_rate=1e-30) for weight in (0.0, 10.0))
    for learning in (weak, strong):
        learning.update()
    assert torch.equal(weights(weak, ACTOR), weights(strong, ACTOR))


def test_rows_without_a_successor_are_left_out_of_the_squared_error() -> None:
    batch = fresh().batch()
    half = torch.arange(len(batch.reward)) % 2 == 0
    garbage = {"reward": torch.where(half, batch.reward, 1e6)}
    clean, dirty = updated({}, half), updated(garbage, half)
    assert torch.equal(weights(clean, CRITIC), weights(dirty, CRITIC))
    assert not torch.equal(weights(dirty, CRITIC), weights(updated(garbage, torch.ones_like(half)), CRITIC))


def test_they_stay_in_the_penalty() -> None:
    batch = fresh().batch()
    nobody = torch.zeros_like(batch.terminated)
    with_penalty, without = (updated({}, nobody, penalty_weight=weight) for weight in (10.0, 0.0))
    before = weights(fresh(), CRITIC)
    assert torch.equal(weights(without, CRITIC), before)
    assert not torch.equal(weights(with_penalty, CRITIC), before)


def test_a_terminal_row_ignores_its_successors_value() -> None:
    batch = fresh().batch()
    valid = torch.ones_like(batch.terminated)
    for terminated in (True, False):
        flags: dict[str, Any] = {"terminated": torch.full_like(batch.terminated, terminated)}
        found = []
        for level in (0.0, 100.0):
            learning = fresh(penalty_weight=0.0)
            learning.algorithm.target.network.trunk.layers()[-1].bias.add_(level)
            learning.algorithm.update(replace(batch, extra={**batch.extra, "td_valid": valid}, **flags))
            found.append(weights(learning, CRITIC))
        assert torch.equal(found[0], found[1]) == terminated


def test_only_the_smaller_target_critic_counts() -> None:
    for member in (0, 1):
        found = []
        for by in (1e3, 2e3):
            learning = fresh()
            learning.algorithm.target.network.trunk.layers()[-1].bias[member] += by
            learning.update()
            found.append(weights(learning, CRITIC))
        assert torch.equal(found[0], found[1])


def test_the_actor_climbs_the_smaller_critic() -> None:
    """Critics that hold still: one raised out of sight is not seen, by however much; a lowered one is alone."""
    for member in (0, 1):
        found = []
        for by in (1e3, 2e3):
            learning = fresh(critic_learning_rate=1e-30)
            learning.algorithm.critic.trunk.layers()[-1].bias[member] += by
            found.append(float(learning.update()["loss/actor"]))
        assert found[0] == found[1]
        assert abs(found[0]) < 100


def after(updates: int, **changes: Any) -> tuple[Learning, Metrics]:
    learning = fresh(**changes)
    return learning, learning.update(updates)


@pytest.mark.parametrize("form", ["weight_outside", "weight_inside"])
@pytest.mark.parametrize(("gap", "rises"), [(-100.0, True), (100.0, False)])
def test_the_multiplier_rises_while_the_gap_is_above_its_threshold(form: str, gap: float, rises: bool) -> None:
    learning, metrics = after(5, lagrange=True, lagrange_gap=gap, lagrange_form=form, lagrange_start=0.0)
    assert float(metrics["penalty/lagrange"]) != 1.0
    assert "penalty/lagrange" not in after(1)[1]
    assert (float(learning.algorithm.multiplier.value()) > 1.0) == rises


def test_between_the_two_thresholds_the_forms_disagree() -> None:
    """Δ − τ < 0 < α·Δ − τ: one lowers λ, the other raises it."""
    gap = float(after(1)[1]["penalty/gap"])
    assert gap > 0
    found = {}
    for form in ("weight_outside", "weight_inside"):
        learning, _ = after(1, lagrange=True, lagrange_gap=2 * gap, lagrange_form=form, lagrange_start=0.0)
        found[form] = float(learning.algorithm.multiplier.value()) > 1.0
    assert found == {"weight_outside": False, "weight_inside": True}


def test_the_temperature_moves_toward_its_entropy() -> None:
    for target, rises in ((5.0, True), (-50.0, False)):
        learning, _ = after(5, entropy_target=target)
        assert (float(learning.algorithm.temperature.value()) > 1.0) == rises
    kept, _ = after(5, entropy_learning_rate=0.0, entropy_weight=0.3)
    assert float(kept.algorithm.temperature.value()) == pytest.approx(0.3)


def test_clipped_gaps_have_no_slope() -> None:
    """A ceiling below every gap: the penalty teaches nothing."""
    clipped, without = (fresh(**change) for change in ({"clip_diff_max": -1e6}, {"penalty_weight": 0.0}))
    for learning in (clipped, without):
        learning.update()
    torch.testing.assert_close(weights(clipped, CRITIC), weights(without, CRITIC), atol=1e-6, rtol=1e-5)


def test_a_larger_backup_for_the_authors_order() -> None:
    """max over actions before min over critics is never smaller: a higher target, and the same draws."""
    found = [float(after(1, max_backup=how, penalty_weight=0.0)[1]["loss/td"]) for how in ("max_min", "min_max")]
    assert found[0] != found[1]

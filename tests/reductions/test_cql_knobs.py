"""CQL with knobs turned off is what remains, in every bit."""

from typing import Any

import pytest
import torch

from learners import Learning, differences, start, tiny_algorithm
from understudy.core.state import State, capture
from understudy.data.experience import LoggedExperience
from understudy.data.transforms import Transforms
from worlds import random_dataset

RATES: dict[str, Any] = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "entropy_learning_rate": 1e-3}


def trained(updates: int = 12, **changes: Any) -> Learning:
    learning = start(tiny_algorithm("cql", **{**RATES, **changes}))
    learning.update(updates)
    return learning


def state_of(learning: Learning) -> State:
    return capture(learning)


@pytest.mark.parametrize(
    "off",
    [{"penalty": "cql_rho"}, {"penalty_temperature": 3.0}, {"subtract_log_n": False}, {"clip_diff_max": 1e-3}],
)
def test_with_weight_zero_no_setting_of_the_penalty_reaches_a_bit(off: dict[str, Any]) -> None:
    plain, other = trained(penalty_weight=0.0), trained(penalty_weight=0.0, **off)
    assert differences(state_of(plain), state_of(other)) == []


def test_with_weight_zero_the_number_of_samples_shifts_no_other_stream() -> None:
    """Only what is drawn for the penalty differs; critics agree to rounding, as their pass has other rows."""
    few, many = trained(penalty_weight=0.0, sampled_actions=2), trained(penalty_weight=0.0, sampled_actions=11)
    for path, leaf in capture(few.algorithm).items():
        other = capture(many.algorithm)[path]
        if "proposals" in path:
            assert not torch.equal(leaf, other)  # type: ignore[arg-type]
        else:
            torch.testing.assert_close(leaf, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("change", [{"lagrange_gap": 1.0}, {"lagrange_form": "weight_inside"}])
def test_without_lagrange_its_settings_reach_no_bit(change: dict[str, Any]) -> None:
    assert differences(state_of(trained()), state_of(trained(**change))) == []


def test_a_gap_that_is_only_shifted_teaches_the_same() -> None:
    """ln 3N has no slope: the same critics to rounding, another number in the log."""
    runs = [start(tiny_algorithm("cql", **RATES, subtract_log_n=how)) for how in (True, False)]
    gaps = [float(run.update()["penalty/gap"]) for run in runs]
    assert gaps[1] - gaps[0] == pytest.approx(3.401197, abs=1e-4)
    flats = [run.algorithm.critic.trunk.flat.detach() for run in runs]
    torch.testing.assert_close(flats[0], flats[1], atol=1e-6, rtol=1e-5)


def test_half_the_error_is_twice_the_weight() -> None:
    """½·(Q − y)² + α·Δ is half of (Q − y)² + 2α·Δ, and Adam does not see a factor."""
    half, whole, other = (
        trained(td_half=half, penalty_weight=weight).algorithm.critic.trunk.flat.detach()
        for half, weight in ((True, 1.0), (False, 2.0), (True, 2.0))
    )
    assert float((half - whole).abs().max()) < 5e-4
    assert float((half - other).abs().max()) > 5e-3


@pytest.mark.parametrize("order", ["max_min", "min_max"])
def test_the_best_of_one_is_the_one(order: str) -> None:
    plain, best = (trained(sampled_actions=1, max_backup=how) for how in ("off", order))
    assert differences(state_of(plain), state_of(best)) == []


def test_a_warm_start_is_behaviour_cloning() -> None:
    """The same actor in every bit as BC with this head, as long as it lasts; then something else."""
    actor = {"hidden": [16, 16], "distribution": "tanh_gaussian", "init": "default"}
    cloned = start(tiny_algorithm("bc", actor=actor, learning_rate=1e-3))
    warm = start(tiny_algorithm("cql", actor=actor, warm_start=30, **RATES))
    for learning in (cloned, warm):
        learning.update(30)
    assert differences(capture(cloned.algorithm.policy), capture(warm.algorithm.policy)) == []
    for learning in (cloned, warm):
        learning.update()
    assert differences(capture(cloned.algorithm.policy), capture(warm.algorithm.policy)) != []


@pytest.mark.parametrize(
    "change",
    [
        {"penalty": "cql_rho"},
        {"penalty_weight": 1.0},
        {"penalty_temperature": 2.0},
        {"sampled_actions": 3},
        {"clip_diff_max": 0.01},
        {"clip_diff_min": 5.0},
        {"lagrange": True},
        {"td_half": True},
        {"max_backup": "max_min"},
        {"backup_entropy": True},
        {"warm_start": 3},
        {"gamma": 0.5},
        {"polyak": 0.5},
        {"entropy_weight": 0.1},
        {"entropy_target": 1.0},
    ],
)
def test_every_knob_is_connected(change: dict[str, Any]) -> None:
    assert differences(state_of(trained(3)), state_of(trained(3, **change))) != []


def test_a_bound_that_no_value_reaches_calibrates_nothing() -> None:
    """Rewards of −1000 at every step: no value is as low as what was earned, and Cal-QL is CQL to the bit."""
    poor = LoggedExperience.of(random_dataset(), Transforms(shift_rewards=-1000.0))
    learners = [start(tiny_algorithm("cql", **RATES, calibrate=how)) for how in (False, True)]
    for update in range(3):
        rows = torch.arange(update, 120, 4)
        told = [one.algorithm.update(poor.rows(rows, one.algorithm.demand)).metrics for one in learners]
    assert differences(*(capture(one.algorithm) for one in learners)) == []
    assert "penalty/calibrated_share" not in told[0]
    assert float(told[1]["penalty/calibrated_share"]) == 0.0


def test_a_bound_above_all_values_leaves_only_uniform_actions_to_be_pushed_down() -> None:
    rich = LoggedExperience.of(random_dataset(), Transforms(shift_rewards=1000.0))
    plain, cut = (start(tiny_algorithm("cql", **RATES, calibrate=how)) for how in (False, True))
    told = [one.algorithm.update(rich.rows(torch.arange(64), one.algorithm.demand)).metrics for one in (plain, cut)]
    assert float(told[1]["penalty/calibrated_share"]) == 1.0
    assert float(told[1]["penalty/gap"]) > float(told[0]["penalty/gap"]) + 900
    assert float(told[1]["loss/td"]) == float(told[0]["loss/td"])

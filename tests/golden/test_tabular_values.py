"""O-4, O-5, O-6, O-8: IQL's value losses on the tabular set T30."""

from dataclasses import replace

import pytest
import torch
from t30 import BEST_VALUE, GAMMA, Table, fit_values, fixed_point, policy_value, t30

from understudy.losses.value import bootstrap_target

VALUES = {
    0.5: [0.780121, 0.951055, 0.670211],
    0.7: [0.872805, 0.995657, 0.828912],
    0.9: [1.046839, 1.127940, 1.172285],
    0.99: [1.441242, 1.492147, 1.603955],
}


@pytest.mark.parametrize("tau", VALUES)
def test_values(tau: float) -> None:
    """O-4."""
    value, _ = fixed_point(t30(), tau)
    assert value.tolist() == pytest.approx(VALUES[tau], abs=2e-6)


def test_expectile_one_half_values_the_behaviour() -> None:
    """O-4: V at τ = ½ is V of the policy that made the data, solved without any loss."""
    behaviour = torch.tensor([[0.7, 0.3], [0.5, 0.5], [0.2, 0.8]], dtype=torch.float64)
    torch.testing.assert_close(fixed_point(t30(), 0.5)[0], policy_value(behaviour), rtol=0, atol=1e-8)


def test_values_rise_with_the_expectile_and_stay_below_the_best() -> None:
    """O-5."""
    values = torch.stack([fixed_point(t30(), tau)[0] for tau in (0.5, 0.6, 0.8, 0.9, 0.99)])
    assert bool((values.diff(dim=0) > 0).all())
    assert bool((values < torch.tensor(BEST_VALUE)).all())


def test_the_best_value_is_that_of_the_best_policy() -> None:
    """O-5: V* by brute force over the eight deterministic policies."""
    eye = torch.eye(2, dtype=torch.float64)
    choices = torch.cartesian_prod(*[torch.arange(2)] * 3)
    best = torch.stack([policy_value(eye[choice]) for choice in choices]).amax(0)
    assert best.tolist() == pytest.approx(BEST_VALUE, abs=2e-6)


def test_a_joint_expectile_would_be_optimistic() -> None:
    """O-5, the classic bug: an expectile over (a, s') takes luck for skill, and T30 sees it above V*."""
    rows, value = t30(), torch.zeros(3, dtype=torch.float64)
    for _ in range(220):
        target = bootstrap_target(rows.reward, GAMMA, rows.terminated, value[rows.next_state])
        value = fit_values(rows, target, 0.99, value)
    assert value.tolist() == pytest.approx([1.692537, 1.716050, 1.884475], abs=2e-6)
    assert bool((value > torch.tensor(BEST_VALUE)).all())


def test_action_values() -> None:
    """O-6."""
    _, q = fixed_point(t30(), 0.7)
    assert q.flatten().tolist() == pytest.approx([0.896092, 0.746021, 1, 0.985524, 1.392762, 0.5], abs=2e-6)


def test_truncation_taken_for_termination_gives_other_values() -> None:
    """O-8: had the cut rows (1, 1) been read as terminal, these would be the values."""
    rows = t30()
    cut = (rows.state == 1) & (rows.action == 1)
    value, _ = fixed_point(replace(rows, terminated=rows.terminated | cut), 0.7)
    assert value.tolist() == pytest.approx([0.702289, 0.76, 0.800643], abs=2e-6)
    assert value.tolist() != pytest.approx(VALUES[0.7], abs=0.02)


@pytest.mark.parametrize(("terminal_rows", "expected"), [(0, 10.0), (1, 3.571429)])
def test_a_loop_that_pays_one(terminal_rows: int, expected: float) -> None:
    """O-8: V = 1/(1 − γ) = 10; one row of five marked terminal makes it 3.57."""
    zeros = torch.zeros(5, dtype=torch.int64)
    rows = Table(zeros, zeros, torch.ones(5, dtype=torch.float64), zeros, torch.arange(5) < terminal_rows)
    value, _ = fixed_point(rows, 0.5, states=1, actions=1)
    assert float(value) == pytest.approx(expected, abs=1e-6)

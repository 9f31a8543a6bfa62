"""Values of discrete actions against plain Python over every row, and limits known without the code."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from understudy.losses.action_values import (
    best_action,
    double_dqn_value,
    draw_others,
    entropy,
    entropy_of_choices,
    expected_value,
    legal_or_all,
    soft_expected_value,
    softmax_climb,
    taken,
)

K, B, A, M = 3, 50, 6, 4
RNG = torch.Generator().manual_seed(0)
MASK = torch.rand(B, A, generator=RNG) < 0.5
MASK[torch.arange(B), torch.randint(A, (B,), generator=RNG)] = True
LOWEST = torch.finfo(torch.float64).min


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_row_without_legal_actions_allows_all_and_no_other_row_changes() -> None:
    mask = torch.tensor([[True, False], [False, False], [True, True]])
    assert legal_or_all(mask).tolist() == [[True, False], [True, True], [True, True]]


def test_the_best_legal_action_by_looking_at_each() -> None:
    q = numbers(B, A) - 100  # illegal ones must not win by being 0
    found = best_action(q, MASK)
    for row in range(B):
        legal = [a for a in range(A) if MASK[row, a]]
        assert int(found[row]) == max(legal, key=lambda a: float(q[row, a]))
    assert torch.equal(best_action(q), q.argmax(-1))
    assert not torch.equal(best_action(q), found)


def test_taken_by_indexing() -> None:
    values, action = numbers(K, B, A, M), torch.arange(B) % A
    for k in range(K):
        for row in range(B):
            assert torch.equal(taken(values, action)[k, row], values[k, row, row % A])
    assert torch.equal(taken(values[..., 0], action), taken(values, action)[..., 0])


@pytest.mark.parametrize("masked", [True, False])
def test_double_dqn_row_by_row(masked: bool) -> None:
    """The online mean chooses, the smallest target value counts."""
    q, target_q = numbers(K, B, A), numbers(K, B, A, seed=2)
    found = double_dqn_value(q, target_q.unsqueeze(-1), MASK if masked else None)
    assert found.shape == (B, 1)
    for row in range(B):
        legal = [a for a in range(A) if MASK[row, a] or not masked]
        best = max(legal, key=lambda a: sum(float(q[k, row, a]) for k in range(K)))
        assert float(found[row]) == min(float(target_q[k, row, best]) for k in range(K))


def test_double_dqn_with_distributions_takes_those_of_the_member_that_expects_least() -> None:
    q, outcomes = numbers(K, B, A), numbers(K, B, A, M, seed=2)
    found = double_dqn_value(q, outcomes, MASK)
    scalar = double_dqn_value(q, outcomes.mean(-1, keepdim=True), MASK)
    torch.testing.assert_close(found.mean(-1, keepdim=True), scalar)


def test_nothing_illegal_is_ever_asked() -> None:
    q, target_q = numbers(K, B, A), numbers(K, B, A, 1, seed=2)
    poisoned, target_poisoned = torch.where(MASK, q, 1e9), torch.where(MASK.unsqueeze(-1), target_q, math.nan)
    assert torch.equal(double_dqn_value(q, target_q, MASK), double_dqn_value(poisoned, target_poisoned, MASK))


def test_expectation_and_entropy_row_by_row() -> None:
    logits, q = torch.where(MASK, numbers(B, A), LOWEST), numbers(B, A, seed=2)
    expected, uncertain = expected_value(logits, q), entropy(logits)
    for row in range(B):
        legal = [a for a in range(A) if MASK[row, a]]
        total = sum(math.exp(float(logits[row, a])) for a in legal)
        chances = {a: math.exp(float(logits[row, a])) / total for a in legal}
        assert float(expected[row]) == pytest.approx(sum(p * float(q[row, a]) for a, p in chances.items()), abs=1e-12)
        assert float(uncertain[row]) == pytest.approx(-sum(p * math.log(p) for p in chances.values()), abs=1e-12)


def test_entropy_of_equal_chances_counts_legal_actions() -> None:
    logits = torch.where(MASK, torch.zeros(B, A), torch.finfo(torch.float32).min)
    torch.testing.assert_close(entropy(logits), MASK.sum(1).float().log())


def test_the_climb_has_its_slope_and_none_at_illegal_actions() -> None:
    logits, q = numbers(B, A).requires_grad_(), numbers(B, A, seed=2)
    assert torch.autograd.gradcheck(lambda x: softmax_climb(x, q, 0.3), logits)
    (slope,) = torch.autograd.grad(softmax_climb(torch.where(MASK, logits, LOWEST), q, 0.3).sum(), logits)
    assert bool(slope.isfinite().all())
    assert not slope[~MASK].any()


def test_values_that_carry_gradient_are_refused() -> None:
    with pytest.raises(ValueError, match="q carries gradient"):
        softmax_climb(numbers(B, A), numbers(B, A).requires_grad_(), 0.1)


@pytest.mark.parametrize("count", [1, 3, 5, 9])
@pytest.mark.parametrize("masked", [True, False])
def test_other_actions_are_legal_different_and_not_the_one_taken(count: int, masked: bool) -> None:
    legal = MASK if masked else torch.ones_like(MASK)
    action = legal.float().multinomial(1, generator=torch.Generator().manual_seed(0)).squeeze(1)
    keys = 2 * torch.rand(B, A, generator=torch.Generator().manual_seed(1)) - 1
    found = draw_others(keys, action, MASK if masked else None, count)
    for row in range(B):
        others = [int(a) for a, there in zip(found.action[:, row], found.drawn[:, row], strict=True) if there]
        allowed = {a for a in range(A) if legal[row, a]} - {int(action[row])}
        assert int(found.choices[row]) == len(allowed) + 1
        assert len(others) == len(set(others)) == min(count, len(allowed))
        assert set(others) <= allowed


def test_a_single_action_has_no_others() -> None:
    found = draw_others(torch.zeros(B, 1), torch.zeros(B, dtype=torch.int64), None, 3)
    assert not found.drawn.any()
    assert found.choices.tolist() == [1] * B


def test_every_other_action_is_drawn_as_often() -> None:
    rows = 30_000
    keys = 2 * torch.rand(rows, A, generator=torch.Generator().manual_seed(1)) - 1
    found = draw_others(keys, torch.zeros(rows, dtype=torch.int64), None, 2)
    shares = torch.bincount(found.action.flatten(), minlength=A) / (2 * rows)
    assert shares.tolist() == pytest.approx([0.0, *[0.2] * 5], abs=0.01)


MISFITS: dict[str, Callable[[], object]] = {
    "best": lambda: best_action(numbers(B, A), MASK[:, 1:]),
    "taken": lambda: taken(numbers(K, B, A), torch.zeros(B, 1, dtype=torch.int64)),
    "double dqn": lambda: double_dqn_value(numbers(K, B, A), numbers(K, B, 1, 1)),
    "expectation": lambda: expected_value(numbers(B, A), numbers(B, 1)),
    "climb": lambda: softmax_climb(numbers(B, A), numbers(K, B, A), 0.1),
    "others": lambda: draw_others(torch.rand(B, A), torch.zeros(B + 1, dtype=torch.int64), None, 2),
}


@pytest.mark.parametrize("name", MISFITS)
def test_shapes_that_would_broadcast_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="nothing broadcasts here"):
        MISFITS[name]()


def test_what_a_state_is_worth_with_entropy_row_by_row() -> None:
    """Only legal actions are summed over; where π = softmax(Q/η) it is η·log Σ exp(Q/η), and nowhere more."""
    logits, q, weight = torch.where(MASK, numbers(B, A), LOWEST), numbers(B, A, seed=2), 0.3
    poisoned = torch.where(MASK, q, 1e30)
    found = soft_expected_value(logits, poisoned, weight)
    best = soft_expected_value(torch.where(MASK, q / weight, LOWEST), poisoned, torch.tensor(weight, dtype=q.dtype))
    for row in range(B):
        legal = [a for a in range(A) if MASK[row, a]]
        total = sum(math.exp(float(logits[row, a])) for a in legal)
        policy = {a: math.exp(float(logits[row, a])) / total for a in legal}
        worth = sum(p * (float(q[row, a]) - weight * math.log(p)) for a, p in policy.items())
        assert float(found[row]) == pytest.approx(worth, abs=1e-9)
        limit = weight * math.log(sum(math.exp(float(q[row, a]) / weight) for a in legal))
        assert float(best[row]) == pytest.approx(limit, abs=1e-9)
        assert worth <= limit + 1e-9


def test_the_most_entropy_there_can_be() -> None:
    """That of the uniform policy over legal actions; 0, and no NaN, where there is one."""
    single = torch.tensor([[False, True, False], [True, True, False], [True, True, True]])
    flat = torch.where(single, 0.0, torch.finfo(torch.float32).min).requires_grad_()
    most = entropy_of_choices(flat, single)
    assert most.tolist() == pytest.approx([0.0, math.log(2), math.log(3)])
    assert most[0] == 0.0
    assert entropy(flat).tolist() == pytest.approx(most.tolist(), abs=1e-6)
    assert entropy(flat)[0] == 0.0
    assert entropy_of_choices(flat).tolist() == pytest.approx([math.log(3)] * 3)
    (slope,) = torch.autograd.grad(entropy(flat).sum(), flat)
    assert bool(slope.isfinite().all())
    assert not slope[~single].any()

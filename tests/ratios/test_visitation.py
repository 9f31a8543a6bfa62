"""How much oftener a policy visits a state: O-30 of the project's table, in numbers, and what ends and unknowns do."""

import pytest
import torch
from torch import Tensor

from understudy.core.errors import ConfigError, DataError
from understudy.ratios.visitation import Flow, dual_dice, flow

GAMMA = 0.9


def table(rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


MOVES = table([[[0, 1, 0], [0, 0, 1]], [[0.2, 0.3, 0.5], [0.7, 0, 0.3]], [[0.5, 0.5, 0], [0.1, 0.1, 0.8]]])
"""P(s'|s,a) [3, 2, 3]"""
DATA = table([[0.7, 0.3], [0.5, 0.5], [0.2, 0.8]])
"""β(a|s) [3, 2]"""
POLICY = table([[0.2, 0.8], [0.9, 0.1], [0.6, 0.4]])
START = table([1, 0, 0])
EXACT = table([1.033268, 0.878262, 1.059916])
STATE, ACTION, NEXT = torch.cartesian_prod(torch.arange(3), torch.arange(2), torch.arange(3)).unbind(1)
"""All (s, a, s') [18]."""


def visits(chances: Tensor, moves: Tensor = MOVES) -> Tensor:
    """d(s) [3], exactly."""
    steps = torch.einsum("sa,san->sn", chances, moves)
    found: Tensor = torch.linalg.solve((torch.eye(3) - GAMMA * steps).T, (1 - GAMMA) * START)
    return found


def mass(moves: Tensor = MOVES) -> Tensor:
    """d^β(s)·β(a|s)·P(s'|s,a) of all rows [18]."""
    return visits(DATA)[STATE] * DATA[STATE, ACTION] * moves[STATE, ACTION, NEXT]


def arrived(moved: Flow) -> Tensor:
    """Mass at each state [3]."""
    return moved.restarts * START + torch.zeros(3, dtype=torch.float64).index_add(0, NEXT, moved.successors)


def followed(iterations: int) -> Tensor:
    """w(s) [3] after so many steps from w ≡ 1."""
    weights, ratios = torch.ones(3, dtype=torch.float64), (POLICY / DATA)[STATE, ACTION]
    nowhere = torch.zeros(18, dtype=torch.bool)
    for _ in range(iterations):
        weights = arrived(flow(weights[STATE], ratios, GAMMA, nowhere, mass=mass())) / visits(DATA)
    return weights


def close(found: Tensor, expected: Tensor, within: float) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=within)


def test_the_exact_ratio() -> None:
    close(visits(POLICY) / visits(DATA), EXACT, 5e-7)


def test_following_the_policy_ends_at_the_exact_ratio() -> None:
    close(followed(1), table([1.033509, 0.874752, 1.062125]), 5e-7)
    close(followed(20), EXACT, 1e-6)
    close(followed(300), visits(POLICY) / visits(DATA), 1e-12)


@pytest.mark.parametrize("iterations", [1, 2, 20])
def test_weights_average_one_over_the_data(iterations: int) -> None:
    assert abs(float(visits(DATA) @ followed(iterations)) - 1) < 1e-12


def pair_features() -> tuple[Tensor, Tensor, Tensor]:
    """One feature for each (s, a): of all rows, of where the policy goes from there, and of where it starts."""
    pairs = torch.eye(6, dtype=torch.float64).reshape(3, 2, 6)
    expected = torch.einsum("sa,sak->sk", POLICY, pairs)
    return pairs[STATE, ACTION], expected[NEXT], expected


def test_dual_dice_is_exact_in_one_step() -> None:
    here, after, first = pair_features()
    rows = {"mass": mass(), "initial_mass": START}
    # Rows (s, a, s') tell E[Δ] of a pair (s, a) together: the square of a mean is not the mean of squares.
    pair = STATE * 2 + ACTION
    joined = torch.zeros(6, 6, dtype=torch.float64).index_add(0, pair, MOVES[STATE, ACTION, NEXT, None] * after)
    pairs = torch.zeros(6, dtype=torch.float64).index_add(0, pair, rows["mass"])
    found = dual_dice(torch.eye(6, dtype=torch.float64), joined, first, GAMMA, mass=pairs, initial_mass=START)
    truth = ((visits(POLICY)[:, None] * POLICY) / (visits(DATA)[:, None] * DATA)).flatten()
    close(found.weights, truth, 1e-12)
    close((found.weights.reshape(3, 2) * DATA).sum(1), visits(POLICY) / visits(DATA), 1e-12)
    assert abs(float(pairs @ found.weights) - 1) < 1e-12
    assert here.shape == (18, 6)


def test_a_ridge_pulls_dual_dice_towards_nothing() -> None:
    here, after, first = pair_features()
    sizes = [
        float(dual_dice(here, after, first, GAMMA, mass=mass(), initial_mass=START, ridge=ridge).parameters.norm())
        for ridge in (0.0, 0.1, 10.0)
    ]
    assert sizes == sorted(sizes, reverse=True)


def test_what_ends_restarts() -> None:
    """Going to s2 ends: the same as going to s0, where everything starts."""
    ends, ratios = NEXT == 2, (POLICY / DATA)[STATE, ACTION]
    weights = torch.ones(3, dtype=torch.float64)
    moved = flow(weights[STATE], ratios, GAMMA, ends, mass=mass())
    back = MOVES.clone()
    back[..., 0] += back[..., 2]
    back[..., 2] = 0
    expected = flow(weights[STATE], ratios, GAMMA, torch.zeros_like(ends), mass=mass(back))
    close(arrived(moved), arrived(expected), 1e-15)
    assert float(moved.restarts) > 0.1 + 0.2
    assert not bool(moved.successors[ends].any())
    assert abs(float(arrived(moved).sum()) - 1) < 1e-15


def test_dual_dice_restarts_what_ends() -> None:
    here, after, first = pair_features()
    ends = NEXT == 2
    told = dual_dice(here, after, first, GAMMA, mass=mass(), initial_mass=START, ends=ends)
    by_hand = dual_dice(
        here, torch.where(ends[:, None], first[0], after), first, GAMMA, mass=mass(), initial_mass=START
    )
    close(told.weights, by_hand.weights, 1e-12)
    plain = dual_dice(here, after, first, GAMMA, mass=mass(), initial_mass=START)
    assert float((told.weights - plain.weights).abs().max()) > 0.1


def test_unknown_next_states_carry_nothing_and_the_rest_is_whole() -> None:
    ones, nowhere = torch.ones(4, dtype=torch.float64), torch.tensor([False, False, False, True])
    known = torch.tensor([True, True, False, False])
    moved = flow(ones, table([1, 2, 5, 1]), GAMMA, nowhere, known=known)
    close(moved.successors, table([0.9 / 4, 1.8 / 4, 0, 0]), 1e-15)
    close(moved.restarts, table([0.1 + 0.9 / 4])[0], 1e-15)


def test_a_policy_that_takes_no_action_of_the_data_is_told() -> None:
    ones = torch.ones(4, dtype=torch.float64)
    with pytest.raises(DataError, match=r"flow: no row carries any weight on.*got Σ w·π/β = 0"):
        flow(ones, 0 * ones, GAMMA, torch.zeros(4, dtype=torch.bool))
    with pytest.raises(DataError, match="no row carries"):
        flow(ones, torch.nan * ones, GAMMA, torch.zeros(4, dtype=torch.bool))


@pytest.mark.parametrize("gamma", [1.0, -0.1, float("nan")])
def test_a_discount_that_is_none_is_refused(gamma: float) -> None:
    ones = torch.ones(4, dtype=torch.float64)
    with pytest.raises(ConfigError, match="gamma: wrong value"):
        flow(ones, ones, gamma, torch.zeros(4, dtype=torch.bool))
    with pytest.raises(ConfigError, match="gamma: wrong value"):
        dual_dice(torch.eye(4), torch.eye(4), torch.eye(4), gamma)


def test_features_that_depend_on_each_other_need_a_ridge() -> None:
    twice = torch.ones(4, 2, dtype=torch.float64)
    with pytest.raises(DataError, match=r"depend on each other.*Give a ridge above 0"):
        dual_dice(twice, twice, twice, GAMMA)
    assert bool(torch.isfinite(dual_dice(twice, twice, twice, GAMMA, ridge=1e-6).weights).all())
    with pytest.raises(ConfigError, match="ridge"):
        dual_dice(twice, twice, twice, GAMMA, ridge=-1.0)

"""T30: thirty rows of a three-state world, and exact minimisers for losses on tables.

Every number that tests compare with stands in the oracle table of the algorithms page, computed there in numpy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor

from understudy import Box, Dataset, Discrete, Episode
from understudy.losses.value import bootstrap_target, expectile_loss, mean_over, squared_error

GAMMA = 0.9
ROWS = [
    # state, action, reward, next state, terminated, how often
    (0, 0, 0.0, 1, False, 7),
    (0, 1, 0.0, 2, False, 3),
    (1, 0, 1.0, 0, True, 5),
    (1, 1, 0.2, 0, False, 5),
    (2, 0, 2.0, 0, True, 1),
    (2, 0, 0.0, 0, False, 1),
    (2, 1, 0.5, 0, True, 8),
]
BEST_VALUE = [1.512605, 1.561345, 1.680672]
"""V*: what no in-sample value may exceed."""


@final
@dataclass(frozen=True)
class Table:
    """Columns of rows, each [B]."""

    state: Tensor
    action: Tensor
    reward: Tensor
    next_state: Tensor
    terminated: Tensor


def t30() -> Table:
    repeated = [row[:5] for row in ROWS for _ in range(row[5])]
    state, action, reward, next_state, terminated = (list(column) for column in zip(*repeated, strict=True))
    return Table(
        torch.tensor(state),
        torch.tensor(action),
        torch.tensor(reward, dtype=torch.float64),
        torch.tensor(next_state),
        torch.tensor(terminated),
    )


def t30_dataset() -> Dataset:
    """One-hot states; action 0 is −1 and action 1 is +1. Rows that go on are cut by a time limit after one step."""
    one_hot = np.eye(3, dtype=np.float32)
    episodes = [
        Episode(
            {"state": one_hot[[state, next_state]]},
            np.array([[2.0 * action - 1.0]], np.float32),
            np.array([reward], np.float32),
            terminated=terminated,
            truncated=not terminated,
        )
        for state, action, reward, next_state, terminated, count in ROWS
        for _ in range(count)
    ]
    return Dataset.from_episodes(episodes, Box((-1.0,), (1.0,)), name="T30")


def t30_choices() -> Dataset:
    """The same rows with discrete actions and masks: a third action is never legal, and none is when all is over."""
    one_hot, two_of_three = np.eye(3, dtype=np.float32), np.array([True, True, False])
    episodes = [
        Episode(
            {"state": one_hot[[state, next_state]]},
            np.array([action]),
            np.array([reward], np.float32),
            terminated=terminated,
            truncated=not terminated,
            mask=np.stack([two_of_three, two_of_three & (not terminated)]),
        )
        for state, action, reward, next_state, terminated, count in ROWS
        for _ in range(count)
    ]
    return Dataset.from_episodes(episodes, Discrete(3), name="T30")


def minimise(loss: Callable[[Tensor], Tensor], start: Tensor, steps: int = 1) -> Tensor:
    """Newton's method for a loss that is a sum over table entries; exact in one step where it is quadratic."""
    table = start
    for _ in range(steps):
        table = table.detach().requires_grad_()
        (slope,) = torch.autograd.grad(loss(table), table, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), table)
        table = table - slope / curvature
    return table.detach()


def fit_values(rows: Table, target: Tensor, expectile: float, start: Tensor) -> Tensor:
    """The V [S] that our expectile loss wants for these targets [B]."""

    def loss(table: Tensor) -> Tensor:
        return expectile_loss(table[rows.state], target, expectile).mean()

    return minimise(loss, start, steps=3)


def _critic_loss(rows: Table, target: Tensor, table: Tensor) -> Tensor:
    predictions = table[rows.state, rows.action].unsqueeze(0)
    return mean_over(squared_error(predictions, target), torch.ones_like(rows.terminated)).sum()


def fixed_point(rows: Table, expectile: float, states: int = 3, actions: int = 2) -> tuple[Tensor, Tensor]:
    """V [S] and Q [S, A] where IQL's two losses, on tables, have nothing left to do."""
    value = torch.zeros(states, dtype=torch.float64)
    q = torch.zeros(states, actions, dtype=torch.float64)
    for _ in range(220):
        target = bootstrap_target(rows.reward, GAMMA, rows.terminated, value[rows.next_state])
        q = minimise(partial(_critic_loss, rows, target), q)
        value = fit_values(rows, q[rows.state, rows.action], expectile, value)
    return value, q


def policy_value(policy: Tensor) -> Tensor:
    """V^π [S] of a table π [S, A] in the world T30 was drawn from, by a linear solve."""
    rows = t30()
    reward = torch.zeros(3, dtype=torch.float64)
    transition = torch.zeros(3, 3, dtype=torch.float64)
    for s in range(3):
        for a in range(2):
            here = (rows.state == s) & (rows.action == a)
            share = policy[s, a] / here.sum()
            reward[s] += share * rows.reward[here].sum()
            for s_next in rows.next_state[here & ~rows.terminated].tolist():
                transition[s, s_next] += share
    value: Tensor = torch.linalg.solve(torch.eye(3, dtype=torch.float64) - GAMMA * transition, reward)
    return value

"""Nothing broadcasts, and a target is a constant."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from understudy.losses.policy import (
    penalised_climb,
    squared_distance,
    summed_squared_distance,
    weighted_negative_log_likelihood,
)
from understudy.losses.value import bootstrap_target, expectile_loss, mean_over, penalised_value, squared_error

B = 5
ROW, COLUMN = torch.ones(B), torch.ones(B, 1)
YES, YES_COLUMN = ROW.bool(), COLUMN.bool()
MOVING = torch.ones(B, requires_grad=True)

MISFITS: dict[str, Callable[[], Tensor]] = {
    "expectile, column target": lambda: expectile_loss(ROW, COLUMN, 0.7),
    "expectile, column prediction": lambda: expectile_loss(COLUMN, ROW, 0.7),
    "likelihood, column weight": lambda: weighted_negative_log_likelihood(ROW, COLUMN),
    "likelihood, column log_prob": lambda: weighted_negative_log_likelihood(COLUMN, ROW),
    "likelihood, scalar weight": lambda: weighted_negative_log_likelihood(ROW, torch.tensor(1.0)),
    "distance, missing action axis": lambda: squared_distance(COLUMN, ROW),
    "summed distance, missing action axis": lambda: summed_squared_distance(COLUMN, ROW),
    "climb, column value": lambda: penalised_climb(COLUMN, 1.0, ROW, 1.0),
    "climb, column distance": lambda: penalised_climb(ROW, 1.0, COLUMN, 1.0),
    "penalised, column distance": lambda: penalised_value(ROW, COLUMN, 0.1, YES),
    "penalised, column flags": lambda: penalised_value(ROW, ROW, 0.1, YES_COLUMN),
    "error, column target": lambda: squared_error(torch.ones(2, B), COLUMN),
    "error, column predictions": lambda: squared_error(torch.ones(2, B, 1), ROW),
    "error, no ensemble axis": lambda: squared_error(ROW, ROW),
    "bootstrap, column reward": lambda: bootstrap_target(COLUMN, 0.9, YES, ROW),
    "bootstrap, column value": lambda: bootstrap_target(ROW, 0.9, YES, COLUMN),
    "bootstrap, column terminated": lambda: bootstrap_target(ROW, 0.9, YES_COLUMN, ROW),
    "bootstrap, column discount": lambda: bootstrap_target(ROW, COLUMN, YES, ROW),
    "mean, column values": lambda: mean_over(COLUMN, YES),
    "mean, column mask": lambda: mean_over(torch.ones(2, B), YES_COLUMN),
    "mean, wrong length": lambda: mean_over(torch.ones(2, B), torch.ones(B + 1).bool()),
}


@pytest.mark.parametrize("name", MISFITS)
def test_shapes_that_would_broadcast_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="nothing broadcasts here"):
        MISFITS[name]()


LEAKS: dict[str, Callable[[], Tensor]] = {
    "expectile": lambda: expectile_loss(ROW, MOVING, 0.7),
    "error": lambda: squared_error(torch.ones(2, B), MOVING),
    "likelihood": lambda: weighted_negative_log_likelihood(ROW, MOVING),
    "climb": lambda: penalised_climb(ROW, MOVING.mean(), ROW, 1.0),
}


@pytest.mark.parametrize("name", LEAKS)
def test_targets_that_carry_gradient_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="carries gradient"):
        LEAKS[name]()

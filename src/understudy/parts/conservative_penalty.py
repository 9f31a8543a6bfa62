"""The penalty of conservative critics of continuous actions: its settings, and what they make of sampled values."""

from typing import Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from understudy.core.settings import Count
from understudy.losses.conservative import LagrangeForm, cql_h_gap, cql_rho_gap
from understudy.parts.value_learning import ValueLearningSettings


class PenaltySettings(ValueLearningSettings):
    """How far the data's actions are to be rated above others, and how that is measured."""

    penalty: Literal["cql_h", "cql_rho"] = "cql_h"
    """`cql_h` weighs sampled actions by their density, `cql_rho` takes them as they were drawn."""
    penalty_weight: float = Field(10.0, ge=0)
    """α: how much the gap counts beside the squared error; twice the paper's unless td_half."""
    penalty_temperature: float = Field(1.0, gt=0)
    """T of the log-sum-exp: toward 0 it is the maximum."""
    sampled_actions: Count = 10
    """N: so many each of uniform, π(·|s) and π(·|s') actions."""
    subtract_log_n: bool = True
    """Report the gap of the integral; others leave ln 3N in, which no gradient sees but a Lagrange threshold does."""
    clip_diff_min: float | None = None
    """A row's gap counts no less than this (AntMaze: -200)."""
    clip_diff_max: float | None = None
    """A row's gap counts no more than this."""
    lagrange: bool = False
    """Learn a multiplier that holds the gap at lagrange_gap, with the critics' step size."""
    lagrange_gap: float = 5.0
    """τ: the gap that the multiplier aims at."""
    lagrange_form: LagrangeForm = "weight_outside"
    """`weight_outside`: λ·α·(Δ − τ), as young-geng and CORL. `weight_inside`: λ·(α·Δ − τ), as the authors."""
    lagrange_start: float = Field(1.0, le=13.0)
    """log λ at the start: 1 as CORL, 0 as the authors."""
    calibrate: bool = False
    """Cal-QL: the penalty pushes no value of the policy's actions below the return that was seen from that state on
    (column `return_to_go`). For runs that go on online: their first steps need not unlearn values that are too low."""

    @model_validator(mode="after")
    def _clipped_between(self) -> Self:
        low, high = self.clip_diff_min, self.clip_diff_max
        if low is not None and high is not None and low >= high:
            raise ValueError(f"clip_diff_min={low} must be below clip_diff_max={high}")
        return self


def penalty_gap(settings: PenaltySettings, q_sampled: Tensor, log_density: Tensor, q: Tensor) -> Tensor:
    """Δ [K, B] of values of sampled actions [K, 3N, B], their log-densities [3N, B] and the data's values [K, B]."""
    options = {"subtract_log_n": settings.subtract_log_n}
    if settings.penalty == "cql_h":
        gap = cql_h_gap(q_sampled, log_density, q, settings.penalty_temperature, **options)
    else:
        gap = cql_rho_gap(q_sampled, q, settings.penalty_temperature, **options)
    clipped = settings.clip_diff_min is not None or settings.clip_diff_max is not None
    return gap.clamp(settings.clip_diff_min, settings.clip_diff_max) if clipped else gap

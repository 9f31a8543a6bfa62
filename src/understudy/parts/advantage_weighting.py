"""How a policy that clones weighs the actions it clones: settings that IQL and its kin share, and what they mean."""

import warnings
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from understudy.core.settings import Settings
from understudy.losses.weights import AwrNorm, awr_weights, clipped_share

KNOWN_TO_BE_WRONG: Mapping[str, object] = {"awr_form": "divide", "awr_norm": "softmax"}
"""Settings that are kept to reproduce others; so is any `advantage_floor`."""


class WeightingSettings(Settings):
    """Advantage-weighted cloning."""

    name: str = ""
    """The algorithm."""
    beta: float = Field(3.0, ge=0)
    """Inverse temperature of the advantage weights: 0 is behaviour cloning."""
    weight_ceiling: float = Field(100.0, gt=1)
    """ω_max: no row counts more than this."""
    awr_form: Literal["multiply", "divide"] = "multiply"
    """`multiply`: exp(beta·A). `divide`: exp(A/awr_divisor), which others call a temperature; with their 3.0 it is
    almost behaviour cloning. Kept to reproduce them, with a warning."""
    awr_divisor: float = Field(3.0, gt=0)
    """Of `awr_form=divide`, in the place of beta."""
    awr_norm: AwrNorm = "none"
    """`batch_mean` makes the weights of a batch 1 on average. `softmax` does so without a ceiling: a few rows decide,
    at worst one. Kept to reproduce others, with a warning."""
    advantage_floor: float | None = None
    """Advantages below this count as this; at 0, bad actions are cloned like average ones. Kept to reproduce others,
    with a warning."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_temperature(cls, data: Any) -> Any:
        if isinstance(data, dict) and "temperature" in data:
            raise ValueError(
                "'temperature' is refused: half of the field means β by it and half means 1/β. "
                "Use beta (weights are exp(beta·A); official IQL's temperature 3.0 is beta=3.0)"
            )
        return data

    @model_validator(mode="after")
    def _one_temperature(self) -> Self:
        idle = "awr_divisor" if self.awr_form == "multiply" else "beta"
        usual = type(self).model_fields[idle].default
        if getattr(self, idle) != usual:
            raise ValueError(f"{idle} does nothing with awr_form={self.awr_form}: leave it at {usual}")
        return self


def advantage_weights(advantage: Tensor, settings: WeightingSettings) -> Tensor:
    """ω [B] of advantages [B], a constant."""
    sharpness, ceiling = _sharpness(settings), settings.weight_ceiling
    return awr_weights(advantage, sharpness, ceiling, norm=settings.awr_norm, floor=settings.advantage_floor)


def share_at_ceiling(advantage: Tensor, settings: WeightingSettings) -> Tensor:
    """Share [] of rows whose weight sits at its ceiling; a softmax has none."""
    ceiling = float("inf") if settings.awr_norm == "softmax" else settings.weight_ceiling
    return clipped_share(advantage, _sharpness(settings), ceiling)


def warn_if_known_to_be_wrong(settings: Settings, wrong: Mapping[str, object] = KNOWN_TO_BE_WRONG) -> None:
    """One line for all settings that only reproduce others."""
    told = settings.model_dump()
    found = [f"algo.{name}={told[name]}" for name in wrong if told[name] == wrong[name]]
    if told.get("advantage_floor") is not None:
        found.append(f"algo.advantage_floor={told['advantage_floor']}")
    if found:
        warnings.warn(f"{', '.join(found)}: known to be wrong, and kept to reproduce others' results", stacklevel=3)


def _sharpness(settings: WeightingSettings) -> float:
    return settings.beta if settings.awr_form == "multiply" else 1.0 / settings.awr_divisor

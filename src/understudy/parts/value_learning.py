"""What everybody has who learns values of actions by bootstrapping: IQL, CQL, TD3 and their kin."""

from pydantic import Field

from understudy.core.settings import Count
from understudy.parts.optim import ActorCriticSettings


class ValueLearningSettings(ActorCriticSettings):
    """How values are learned. With n-step returns, r and γ of the equations are those of n steps:

    y = r₀ + γ·r₁ + … + γⁿ⁻¹·rₙ₋₁ + γⁿ·B(sₙ), cut where the episode ends; the actions on the way are the data's.
    """

    gamma: float = Field(0.99, ge=0, le=1)
    """Discount per environment step."""
    n_step: Count = 1
    """Rewards summed before bootstrapping; above 1 values lean toward those of whoever made the data."""
    critics: Count = 2
    """How many learn side by side; the smallest of their values counts where one is needed."""
    polyak: float = Field(0.005, gt=0, le=1)
    """Share of the way that target networks move whenever they move."""

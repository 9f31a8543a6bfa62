"""What everybody has who learns values of actions by bootstrapping: IQL, CQL, TD3 and their kin."""

from pydantic import Field
from torch import nn

from understudy.core.errors import ConfigError
from understudy.core.protocols import BuildContext
from understudy.core.settings import Count
from understudy.parts.networks import adam_for
from understudy.parts.optim import ActorCriticSettings, Adam


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
    critic_warmup: int = Field(0, ge=0)
    """Updates at first in which only critics learn: the policy, and a temperature, stand still. For runs that start
    from a policy whose critics are new, or are to get used to new data."""


def actor_adam(policy: nn.Module, settings: ValueLearningSettings, context: BuildContext, every: int = 1) -> Adam:
    """The optimiser of a policy that steps at every so many updates, and waits for its critics as the settings say.

    Its moments form while it waits; the clock of its schedule runs.
    """
    if settings.critic_warmup >= context.updates:
        raise ConfigError(
            "algo.critic_warmup",
            "the policy would never learn",
            got=settings.critic_warmup,
            expected=f"below {context.updates}",
        )
    return adam_for(policy, settings.actor_optimizer, context, every, settings.critic_warmup // every)

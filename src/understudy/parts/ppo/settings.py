"""What is set about proximal policy optimisation."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from understudy.core.errors import ConfigError
from understudy.core.schedule import ScheduledWeight
from understudy.core.settings import Settings
from understudy.losses.surrogate import LARGEST_RATE, SMALLEST_RATE


class PPOSettings(Settings):
    """How much is learned from a rollout."""

    FORMER: ClassVar = {
        "trace": "gae_lambda",
        "largest_gradient": "max_grad_norm",
        "entropy_weight": "entropy_coef",
        "value_weight": "value_coef",
        "standardise": "normalize_advantage",
    }
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount per environment step."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """λ of GAE: 0 trusts the values, 1 the returns."""
    clip: float = Field(0.2, gt=0, le=1e6)
    """ε: beyond a ratio of 1 ± ε nothing is gained."""
    clip_schedule: Literal["constant", "linear"] = "constant"
    """`linear`: ε falls to 0 over the planned updates."""
    value_clip: float | None = Field(None, gt=0)
    """Values move at most so far in one update, in units of reward; none: freely."""
    entropy_coef: float = Field(0.0, ge=0)
    """η: what entropy is worth."""
    policy_coef: ScheduledWeight = ScheduledWeight(start=1.0, end=1.0)
    """What L(π), entropy included, counts beside the losses of objectives: a number, or a group {start, end, over} in
    updates. At 0 they alone move the policy."""
    value_coef: float = Field(1.0, gt=0)
    """Of L_V, where policy and value share parameters; elsewhere each has its own optimiser, and it changes little."""
    critic_warmup: int = Field(0, ge=0)
    """Updates at first in which only the critic learns, and what has an optimiser of its own; the policy and its
    normaliser stand still. For a policy that was taken over, beside a critic that was not. With schedule=adaptive the
    policy then begins at the smallest step size (1e-5) and finds its own from there: Adam's first step moves every
    weight by all of it. The critic keeps critic_learning_rate, or learning_rate, throughout."""
    epochs: int = Field(5, ge=1)
    """Passes over a rollout."""
    minibatches: int = Field(4, ge=1)
    """Gradient steps of a pass."""
    learning_rate: float = Field(1e-3, gt=0)
    """Adam's step size at the start."""
    critic_learning_rate: float | None = Field(None, gt=0)
    """The same of a critic that shares nothing with the actor; none: the actor's, whatever its schedule does (but
    see critic_warmup). One of its own follows `linear`, and no KL."""
    schedule: Literal["constant", "linear", "adaptive"] = "adaptive"
    """`linear` falls to 0 over the planned updates; `adaptive` divides the step size by 1.5 where a step moved the
    policy more than twice target_kl, and multiplies it where less than half; before the first step of an update there
    is nothing to adapt to."""
    target_kl: float = Field(0.01, gt=0)
    """KL(before‖now) that `adaptive` aims at."""
    early_stop_kl: float | None = Field(None, gt=0)
    """An update ends, for both networks, before the step of a minibatch whose ratios say that the policy has moved
    further: mean ρ − 1 − log ρ. None: never."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Norm that the gradient of each network is cut to."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's; 0 is Adam."""
    normalize_advantage: Literal["rollout", "minibatch", "none"] = "rollout"
    """Advantages to mean 0 and deviation 1, over the rollout or each minibatch; true is `rollout`, false `none`."""
    normalize_reward: bool = False
    """Rewards of the environment in units of the deviation of discounted returns so far, cut to ±10."""

    @model_validator(mode="before")
    @classmethod
    def _truth_is_a_rollout(cls, data: Any) -> Any:
        wished = data.get("normalize_advantage") if isinstance(data, dict) else None
        if not isinstance(wished, bool):
            return data
        return {**data, "normalize_advantage": "rollout" if wished else "none"}

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.schedule == "adaptive" and not SMALLEST_RATE <= self.learning_rate <= LARGEST_RATE:
            raise ValueError(f"an adaptive learning_rate stays within {SMALLEST_RATE:g} and {LARGEST_RATE:g}")
        if self.schedule != "adaptive" and self.target_kl != type(self).model_fields["target_kl"].default:
            raise ValueError(
                f"target_kl={self.target_kl:g} is what schedule=adaptive aims at, and the schedule is {self.schedule}: "
                "to end an update that went too far, as target_kl does in Stable-Baselines3, say early_stop_kl"
            )
        return self

    def learning_rates(self) -> dict[str, float]:
        """Step sizes at the start: of `policy`, and of `value` where it has its own."""
        start, own = self.learning_rate, self.critic_learning_rate
        if self.critic_warmup and self.schedule == "adaptive":
            return {"policy": SMALLEST_RATE, "value": start if own is None else own}
        return {"policy": start} | ({} if own is None else {"value": own})


def check_possible(settings: PPOSettings, *, shared: bool, memory: bool, environments: int, objectives: bool) -> None:
    """Settings that suit the networks: whether those share parameters, whether one has memory; and whether anything
    beside PPO moves the policy."""
    if memory and settings.minibatches > environments:
        raise ConfigError(
            "algo.minibatches",
            "with memory a minibatch is whole environments",
            got=settings.minibatches,
            expected=f"at most {environments}",
        )
    if shared and settings.critic_learning_rate is not None:
        raise ConfigError("algo.critic_learning_rate", "the critic shares parameters with the actor, and one optimiser")
    if shared and settings.critic_warmup:
        raise ConfigError(
            "algo.critic_warmup",
            "the critic shares parameters with the actor, and cannot learn without it",
            got=settings.critic_warmup,
            expected=0,
        )
    if settings.policy_coef.constant_at(0.0) and not objectives:
        raise ConfigError(
            "algo.policy_coef",
            "nothing would move the policy: there are no objectives",
            got=0,
            do="Say what it learns from instead (algo.objectives), or let its own loss count: algo.policy_coef=1.",
        )

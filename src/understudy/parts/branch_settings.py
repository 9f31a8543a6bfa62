"""What whole learners that stand side by side are built from: settings, and fresh ones.

A branch seeded as TD3+BC is TD3+BC's networks and noise, to the bit, and one of discrete actions those of discrete CQL
with a softmax policy.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from understudy.core.protocols import BuildContext
from understudy.core.spec import Discrete
from understudy.nn.actor import ActorSettings
from understudy.nn.distributions import DistributionSettings, SigmaSettings
from understudy.nn.init import Init
from understudy.nn.perception import RoleSettings
from understudy.parts.branches import Branch, DeterministicBranch, SoftBranch, SoftmaxBranch
from understudy.parts.cloning import CloningSettings, CloningWeight, check_choices
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.noise import Noise
from understudy.parts.target import Target
from understudy.parts.td3 import TD3CriticSettings, TD3Settings, build_td3
from understudy.parts.value_learning import actor_adam


class BranchShape(RoleSettings):
    """What a branch's policy sees, and its shape."""

    sigma: SigmaSettings = SigmaSettings()
    """Of a squashed Gaussian: where it starts, and between what it stays."""

    init: Init = "default"
    """`default` (torch's Linear), `orthogonal`, `small_output` or `xavier_output`."""

    def actor(self, kind: Literal["deterministic", "tanh_gaussian"]) -> ActorSettings:
        """The whole policy of this shape; choices are always categorical."""
        seen = {name: value for name, value in self if name != "sigma"}
        return ActorSettings(**seen, distribution=DistributionSettings(kind=kind, **dict(self.sigma)))


class BranchSettings(TD3Settings):
    """What both branches are."""

    base: Literal["auto", "td3bc", "sac_bc", "discrete_cql"] = "auto"
    """What both branches are: `td3bc` has deterministic policies, `sac_bc` squashed Gaussian ones, and `discrete_cql`
    softmax policies of discrete actions. `auto`: td3bc, and of discrete actions discrete_cql."""
    cloning: CloningSettings = CloningSettings()
    """How they are held near the data."""
    entropy_weight: float = Field(0.0, ge=0)
    """η of `sac_bc` and `discrete_cql`: the price of entropy, in units of reward."""
    conservative_weight: float = Field(0.0, ge=0)
    """α_c of `discrete_cql`: weight of discrete CQL's penalty on the critics."""
    actor: BranchShape = BranchShape()
    """The policy networks."""
    critic: TD3CriticSettings = TD3CriticSettings()
    """All critics."""

    @model_validator(mode="after")
    def _fits_the_base(self) -> Self:
        adaptive, points = self.cloning.adaptive, self.base in ("auto", "td3bc")
        choices = ", or base=discrete_cql with discrete actions"
        if points and self.cloning.kind == "kl":
            raise ValueError(f"cloning.kind=kl needs a policy with a density: use base=sac_bc{choices}")
        if points and self.entropy_weight > 0:
            raise ValueError(f"entropy_weight needs a policy with a density: use base=sac_bc{choices}")
        if self.base != "sac_bc" and self.actor.sigma != BranchShape().sigma:
            raise ValueError("actor.sigma needs a policy with a density: use base=sac_bc")
        if self.base != "sac_bc" and adaptive is not None and adaptive.target <= 0:
            raise ValueError(f"cloning.adaptive.target={adaptive.target} can never be reached: distances are above 0")
        if self.base != "discrete_cql" and self.conservative_weight > 0:
            raise ValueError("conservative_weight is of discrete actions: use base=discrete_cql")
        if self.base == "discrete_cql" and (self.cloning.kind == "mse" or self.cloning.reduction == "sum"):
            raise ValueError("cloning.kind=mse is of continuous actions: use log_prob or kl with base=discrete_cql")
        return self

    @property
    def policy_shape(self) -> ActorSettings:
        """Of both policies, whole; choices are always categorical."""
        return self.actor.actor("tanh_gaussian" if self.base == "sac_bc" else "deterministic")


def build_branch(settings: BranchSettings, context: BuildContext, builder: NetworkBuilder) -> Branch:
    """A fresh branch of the builder's seed."""
    tether, coin = CloningWeight.of(settings.cloning, context.device), Noise.named(builder.seed, "coin")
    if isinstance(context.spec.action, Discrete):
        check_choices(settings.cloning)
        return softmax_branch(settings, tether, coin, context, builder)
    networks = build_td3(settings, settings.policy_shape, settings.critic, context, builder)
    if settings.base != "sac_bc":
        return DeterministicBranch(*networks, tether, coin)
    return SoftBranch(
        networks.policy,
        networks.critic,
        networks.critic_target,
        networks.policy_optimizer,
        networks.critic_optimizer,
        tether,
        coin,
        Noise.named(builder.seed, "noise/backup"),
        Noise.named(builder.seed, "noise/actor"),
        settings.entropy_weight,
    )


def softmax_branch(
    settings: BranchSettings, tether: CloningWeight, coin: Noise, context: BuildContext, builder: NetworkBuilder
) -> SoftmaxBranch:
    """Of discrete actions: there is no noise, and no target policy."""
    critic = builder.action_values(settings.critic, members=settings.critics, quantiles=1, one_hot=False)
    policy = builder.actor(settings.policy_shape, critic=critic)
    return SoftmaxBranch(
        policy,
        critic,
        Target.of(critic),
        actor_adam(policy, settings, context, settings.policy_delay),
        adam_for(critic, settings.critic_optimizer, context),
        tether,
        coin,
        settings.entropy_weight,
        settings.conservative_weight > 0,
    )

"""Ways to get a policy from critics beside weighing the data's actions: climbing, and the best of what is common."""

import torch
from torch import Tensor

from understudy.core.errors import ConfigError
from understudy.core.protocols import BuildContext, Metrics
from understudy.core.spec import Discrete
from understudy.losses.action_values import best_action, expected_value
from understudy.losses.policy import negative_log_likelihood, penalised_climb, value_scale
from understudy.losses.support import supported
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.critic import ActionValues, Critic
from understudy.nn.distributions.gaussians import normal_log_density
from understudy.nn.perception import Seen
from understudy.parts.cloning import ClonedPolicy
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.optim import OptimizerSettings


def climb(
    policy: Actor, critic: Critic, seen: Seen, action: Tensor, mask: Tensor | None, weight: float
) -> tuple[Tensor, Metrics]:
    """L_π [] of a policy that climbs critics which hold still, and stays near the actions of the data."""
    features = policy.features(seen.by(policy), mask)
    if isinstance(critic, ActionValues):
        q, dimensions = expected_value(features, critic.every(seen.by(critic)).detach().amin(0)), 1
    else:
        mode = policy.distribution.mode(features)
        q, dimensions = critic.frozen(seen.by(critic), mode).amin(0), action.shape[1]
    distance = negative_log_likelihood(policy.distribution.log_prob(features, action)) / dimensions
    scale = weight * value_scale(q)
    loss = penalised_climb(q, scale, distance, 1.0).mean()
    return loss, {"loss/cloning": distance.detach().mean(), "weight/q": scale}


def raw_log_prob(features: Tensor, action: Tensor) -> Tensor:
    """log N(a; μ, σ) [B] of actions [B, A] that are *after* tanh, from the features [B, 2A] of a tanh_gaussian.

    It acts with tanh(u), so that what is fitted to 0.8 acts with tanh(0.8) = 0.66. Kept to reproduce others.
    """
    mean, log_std = features.chunk(2, dim=-1)
    return normal_log_density(action, mean, log_std).sum(-1)


def clone_best(
    behaviour: ClonedPolicy,
    policy: Actor,
    critic: Critic,
    seen: Seen,
    action: Tensor,
    mask: Tensor | None,
    share: float,
    rate: float,
) -> tuple[Tensor, Metrics]:
    """After a step of β̂, a clone of the data that says what is common: L_π [] of a policy that clones the best action,
    by min_j Q_j, of those that are."""
    assert isinstance(critic, ActionValues)
    clone_loss = behaviour.follow(seen, action, rate, mask)
    with torch.no_grad():
        common = supported(
            torch.log_softmax(behaviour.policy.features(seen.by(behaviour.policy), mask), -1), share, mask
        )
        best = best_action(critic.every(seen.by(critic)).amin(0), common)
    loss = negative_log_likelihood(policy.log_prob(seen.by(policy), best, mask)).mean()
    return loss, {"loss/behaviour": clone_loss, "policy/supported_actions": common.sum(-1).float().mean()}


def behaviour_models(
    extraction: str, builder: NetworkBuilder, settings: ActorSettings, optimizer: OptimizerSettings
) -> list[ClonedPolicy]:
    """One β̂ where the extraction is `greedy_support`, none elsewhere."""
    if extraction != "greedy_support":
        return []
    space = builder.context.spec.action
    if not isinstance(space, Discrete):
        raise ConfigError("algo.extraction", "greedy_support is for discrete actions", got=space.describe())
    clone = builder.actor(settings, "behaviour")
    return [ClonedPolicy(clone, adam_for(clone, optimizer, builder.context))]


def refuse_choices(context: BuildContext) -> None:
    """A raw density is one of continuous actions."""
    space = context.spec.action
    if isinstance(space, Discrete):
        raise ConfigError("algo.policy", "raw_seed is for continuous actions", got=space.describe())

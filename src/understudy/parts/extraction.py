"""Ways to get a policy from critics beside weighing the data's actions: climbing, and the best of what is common."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.core.errors import ConfigError
from understudy.core.protocols import BuildContext, Metrics
from understudy.core.rng import stream
from understudy.core.spec import Discrete
from understudy.losses.action_values import best_action, expected_value
from understudy.losses.policy import negative_log_likelihood, penalised_climb, value_scale
from understudy.losses.support import supported
from understudy.nn.actor import Actor
from understudy.nn.critic import ActionValues, Critic
from understudy.nn.heads import LOG_STD_MAX, LOG_STD_MIN, forbid, normal_log_density
from understudy.nn.mlp import MLP, NetworkSettings
from understudy.parts.optim import Adam


def climb(
    policy: Actor, critic: Critic, state: Tensor, action: Tensor, mask: Tensor | None, weight: float
) -> tuple[Tensor, Metrics]:
    """L_π [] of a policy that climbs critics which hold still, and stays near the actions of the data."""
    features = policy.features(state, mask)
    if isinstance(critic, ActionValues):
        q, dimensions = expected_value(features, critic.every(state).detach().amin(0)), 1
    else:
        q, dimensions = critic.frozen(state, policy.head.mode(features)).amin(0), action.shape[1]
    distance = negative_log_likelihood(policy.head.log_prob(features, action)) / dimensions
    scale = weight * value_scale(q)
    loss = penalised_climb(q, scale, distance, 1.0).mean()
    return loss, {"loss/cloning": distance.detach().mean(), "weight/q": scale}


def raw_log_prob(features: Tensor, action: Tensor) -> Tensor:
    """log N(a; μ, σ) [B] of actions [B, A] that are *after* tanh, from a squashed head's features [B, 2A].

    The head acts with tanh(u), so that what is fitted to 0.8 acts with tanh(0.8) = 0.66. Kept to reproduce others.
    """
    mean, log_std = features.chunk(2, dim=-1)
    return normal_log_density(action, mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)).sum(-1)


@final
@dataclass
class BehaviourModel:
    """β̂(a|s) over discrete actions: a clone of the data, learned beside the critics, that says what is common."""

    network: MLP
    optimizer: Adam

    def cloned_best(
        self,
        policy: Actor,
        critic: Critic,
        state: Tensor,
        action: Tensor,
        mask: Tensor | None,
        share: float,
        rate: float,
    ) -> tuple[Tensor, Metrics]:
        """After a step of β̂: L_π [] of a policy that clones the best action, by min_j Q_j, of those that are common."""
        assert isinstance(critic, ActionValues)
        logits = self._logits(state, mask)
        clone_loss = negative_log_likelihood(torch.log_softmax(logits, -1).gather(1, action.unsqueeze(1))).mean()
        self.optimizer.minimise(clone_loss, rate)
        with torch.no_grad():
            common = supported(torch.log_softmax(self._logits(state, mask), -1), share, mask)
            best = best_action(critic.every(state).amin(0), common)
        loss = negative_log_likelihood(policy.log_prob(state, best, mask)).mean()
        return loss, {"loss/behaviour": clone_loss.detach(), "policy/supported_actions": common.sum(-1).float().mean()}

    def _logits(self, state: Tensor, mask: Tensor | None) -> Tensor:
        """[B, K], with the lowest finite number where an action is illegal."""
        logits: Tensor = self.network(state)
        return logits if mask is None else forbid(logits, mask)


def behaviour_models(
    extraction: str, context: BuildContext, inputs: int, settings: NetworkSettings
) -> list[BehaviourModel]:
    """One β̂ of states of `inputs` numbers where the extraction is `greedy_support`, none elsewhere."""
    if extraction != "greedy_support":
        return []
    space = context.spec.action
    if not isinstance(space, Discrete):
        raise ConfigError("algo.extraction", "greedy_support is for discrete actions", got=space.describe())
    network = MLP(inputs, space.count, settings, stream(context.seed, "init/behaviour")).to(context.device)
    return [BehaviourModel(network, Adam.over(network.parameters()))]


def refuse_idle(*, raw: bool, delay: int, context: BuildContext) -> None:
    """Settings of a policy that could do nothing here: raw densities of choices, a delay that outlasts the run."""
    space, steps = context.spec.action, context.updates
    if raw and isinstance(space, Discrete):
        raise ConfigError("algo.policy", "raw_seed is for continuous actions", got=space.describe())
    if delay >= steps:
        raise ConfigError("algo.actor_delay", "the policy would never learn", got=delay, expected=f"below {steps}")

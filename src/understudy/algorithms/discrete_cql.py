"""Conservative Q-learning for discrete actions with masks, Kumar, Zhou, Tucker and Levine 2020, arXiv:2006.04779.

Double DQN that also learns to rate no legal action above those in the data without evidence. Every update:

    a*  = argmax over legal a of mean_j Q_j(s',a)
    B   = min_j Q̄_j(s',a*)                                            → losses.action_values.double_dqn_value
    y   = r + γ·B, or r where the episode terminated                   → losses.value.bootstrap_target
    Δ_j = T·log Σ_{legal b} exp(Q_j(s,b)/T) − Q_j(s,a)                 → losses.conservative.exact_gap
    L_Q = Σ_j mean (Q_j(s,a) − y)² + α·mean Δ_j                        → losses.value.squared_error
    Q̄   ← Q̄ + τ_polyak·(Q − Q̄), every so many updates                → parts.target.Target.follow

The policy is greedy in mean_j Q_j over legal actions, and *is* the critics: its trunk is their network and its logits
are mean_j Q_j/T, so what is deployed is what was learned, to the bit. Drawn from, it is softmax(Q/T), the very policy
whose cross-entropy on the data Δ is. With `policy=softmax` a network of its own is learned (it can start from a clone):

    B   = Σ_a π(a|s')·min_j Q̄_j(s',a)                                → losses.action_values.expected_value
    L_π = mean −Σ_a π(a|s)·min_j Q_j(s,a) − η·H(π)                     → losses.action_values.softmax_climb

With `td_loss=quantile` critics learn M quantiles of each action's return (QR-DQN, arXiv:1710.10044); Q is their mean:

    L_Q = Σ_j mean Σ_i mean_k |τ_i − 1{u<0}|·H_κ(u)/κ, u = y_k − θ_ji   → losses.quantile.quantile_huber_loss

Differs from the paper in: masks; two critics, the smaller of which counts in the target; no ½ of the squared error, so
that α is twice the paper's; Polyak targets by default.
"""

import math
from dataclasses import dataclass
from typing import Literal, Self, final

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.protocols import PRIORITY, BuildContext, Demand, Metrics, Needs, Update
from understudy.core.settings import Count
from understudy.core.spec import Discrete
from understudy.core.state import Static
from understudy.losses.action_values import (
    best_action,
    double_dqn_value,
    draw_others,
    entropy,
    expected_value,
    legal_or_all,
    softmax_climb,
    taken,
)
from understudy.losses.conservative import exact_gap, sampled_gap, sampled_seed_gap
from understudy.losses.quantile import quantile_huber_loss
from understudy.losses.value import absolute_error, bootstrap_target, huber_error, mean_over, squared_error
from understudy.losses.weights import weigh
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.critic import ActionValues, CriticSettings
from understudy.nn.perception import Seen
from understudy.nn.value_policy import ValuePolicy, ValuePolicySettings
from understudy.parts.advantage_weighting import warn_if_known_to_be_wrong
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.noise import Noise
from understudy.parts.optim import Adam
from understudy.parts.target import Target
from understudy.parts.value_learning import ValueLearningSettings, actor_adam


class Config(ValueLearningSettings):
    """Conservative Q-learning for discrete actions."""

    name: Literal["discrete_cql"] = "discrete_cql"
    """The algorithm."""
    alpha: float = Field(1.0, ge=0)
    """Weight of the penalty: 0 is double DQN."""
    temperature: float = Field(1.0, gt=0)
    """T of the penalty's soft maximum, and of the policy where actions are drawn from it."""
    penalty: Literal["exact", "sampled", "sampled_seed"] = "exact"
    """`exact`: over all legal actions. `sampled`: an unbiased sum over `negatives` of them. `sampled_seed`: wrong, kept
    to reproduce others; it can reward the data's action without limit."""
    negatives: Count = 10
    """Actions drawn for a sampled penalty."""
    policy: Literal["greedy", "softmax"] = "greedy"
    """`greedy` in the critics' mean, with a double-DQN target; or a `softmax` network of its own (actor-critic)."""
    entropy_weight: float = Field(0.01, ge=0)
    """η: what entropy is worth to a softmax policy."""
    target_action: Literal["policy", "policy_argmax"] = "policy"
    """Of a softmax policy: the target is what it expects (`policy`), or the value of its likeliest action
    (`policy_argmax`: optimistic, kept to reproduce others)."""
    td_loss: Literal["squared", "huber", "quantile"] = "squared"
    """Of temporal differences; `quantile` learns distributions of returns."""
    huber_threshold: float = Field(1.0, gt=0)
    """κ of `huber` and `quantile`: larger differences count linearly."""
    quantiles: Count = Field(200, ge=2)
    """M of `quantile`, for each action."""
    target_every: int = Field(1, ge=1)
    """Updates from one move of the target critics to the next; many of them with `polyak: 1` make hard targets."""
    actor: ActorSettings = ActorSettings()
    """The network of a softmax policy; a greedy one is the critics."""
    critic: CriticSettings = CriticSettings()
    """The critics."""
    critic_input: Literal["heads", "onehot"] = "heads"
    """Critics have an output for each action, or the action is a further input, as others have it."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.policy == "greedy" and self.target_action == "policy_argmax":
            raise ValueError("target_action=policy_argmax is for policy=softmax; a greedy one's target is double DQN")
        if self.policy == "greedy" and self.critic_warmup > 0:
            raise ValueError("critic_warmup is for policy=softmax: a greedy policy is its critics")
        if self.policy == "softmax" and self.td_loss == "quantile":
            raise ValueError("td_loss=quantile is for policy=greedy: a softmax one expects values, not distributions")
        return self


@final
@dataclass
class DiscreteCQL:
    config: Static[Config]
    policy: Actor | ValuePolicy
    critic: Static[ActionValues]
    """Of a greedy policy, inside it."""
    apart: dict[str, ActionValues]
    """The critic of a policy with a network of its own: a checkpoint holds every network once."""
    target: Target[ActionValues]
    optimizers: dict[str, Adam]
    """Of `critic`, and of `policy` where it has a network of its own."""
    noise: Noise
    updates: Tensor
    """How many there have been; on it hard targets depend."""

    @property
    def demand(self) -> Demand:
        masks = ("mask", "next_mask") if self.policy.spec.masked else ()
        return Demand(("td_valid", "discount", *masks), self.config.n_step, self.config.gamma, priorities=True)

    @property
    def largest_shift(self) -> float:
        return math.inf if self.config.alpha > 0 else 0.0

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "critic": self.critic, "target_critic": self.target.network}

    def update(self, data: Transitions) -> Update:
        """One gradient step of Q, then of π if it has a network of its own, and a move of the target critics."""
        config, mask, row_weight = self.config, data.extra.get("mask"), data.extra.get(SAMPLE_WEIGHT)
        seen, seen_next, valid = Seen(data.obs), Seen(data.next_obs), data.extra["td_valid"]
        target = self._target(data, seen_next)
        outcomes = self.critic.outcomes(seen.by(self.critic))
        td_loss = mean_over(weigh(self._td_error(taken(outcomes, data.action), target), row_weight), valid).sum()
        q = outcomes.mean(-1)
        metrics, critic_loss = {"loss/td": td_loss.detach()}, td_loss
        if config.alpha > 0:
            penalty = weigh(self._penalty(q, data.action, mask), row_weight).mean(-1).sum()
            critic_loss = td_loss + config.alpha * penalty
            metrics["loss/penalty"] = penalty.detach() / len(q)
        self.optimizers["critic"].minimise(critic_loss, config.critic_learning_rate)
        if "policy" in self.optimizers:
            metrics |= self._improve_policy(seen, mask)
        self.updates.add_(1)
        self.target.follow(self.critic, self._target_rate())
        q_mean = q.detach().mean(0)
        q_data, q_best = (taken(q_mean.unsqueeze(0), a).mean() for a in (data.action, best_action(q_mean, mask)))
        metrics |= {"loss/critic": critic_loss.detach(), "value/q": q_data, "value/q_best_gap": q_best - q_data}
        return Update(metrics, {PRIORITY: absolute_error(taken(q.detach(), data.action), target.mean(-1), valid)})

    @torch.no_grad()
    def _target(self, data: Transitions, seen_next: Seen) -> Tensor:
        """y [B, M]; M is 1 unless distributions are learned."""
        mask = legal_or_all(data.extra["next_mask"]) if self.policy.spec.masked else None
        outcomes = self.target.network.outcomes(seen_next.by(self.target.network))
        if self.config.policy == "greedy":
            value = double_dqn_value(self.critic.every(seen_next.by(self.critic)), outcomes, mask)
        else:
            logits, least = self.policy.features(seen_next.by(self.policy), mask), outcomes.squeeze(-1).amin(0)
            expects = self.config.target_action == "policy"
            value = expected_value(logits, least) if expects else taken(least.unsqueeze(0), logits.argmax(-1))[0]
            value = value.unsqueeze(-1)
        columns = (data.reward, data.extra["discount"], data.terminated)
        reward, discount, terminated = (column.unsqueeze(-1).expand_as(value) for column in columns)
        return bootstrap_target(reward, discount, terminated, value)

    def _td_error(self, outcome: Tensor, target: Tensor) -> Tensor:
        """[K, B] of outcomes [K, B, M] and targets [B, M]."""
        threshold = self.config.huber_threshold
        if self.config.td_loss == "quantile":
            return quantile_huber_loss(outcome, target, threshold)
        prediction, target = outcome.squeeze(-1), target.squeeze(-1)
        if self.config.td_loss == "huber":
            return huber_error(prediction, target, threshold)
        return squared_error(prediction, target)

    def _penalty(self, q: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
        """Δ [K, B] of Q(s, ·) [K, B, A]."""
        config = self.config
        if config.penalty == "exact":
            return exact_gap(q, action, mask, config.temperature)
        if config.penalty == "sampled_seed":
            share = 0.5 + 0.5 * self.noise.uniform(len(action), config.negatives).to(q.device)
            index = (share * q.shape[-1]).long().clamp(max=q.shape[-1] - 1)
            return sampled_seed_gap(q.gather(-1, index.expand(len(q), -1, -1)).mT, taken(q, action))
        others = draw_others(self.noise.uniform(*q.shape[1:]).to(q.device), action, mask, config.negatives)
        q_others = q.gather(-1, others.action.mT.expand(len(q), -1, -1)).mT
        return sampled_gap(q_others, taken(q, action), others.choices, config.temperature, others.drawn)

    def _improve_policy(self, seen: Seen, mask: Tensor | None) -> Metrics:
        """One gradient step of a softmax policy, on the critics after theirs."""
        with torch.no_grad():
            q = self.critic.every(seen.by(self.critic)).amin(0)
        logits = self.policy.features(seen.by(self.policy), mask)
        loss = softmax_climb(logits, q, self.config.entropy_weight).mean()
        self.optimizers["policy"].minimise(loss, self.config.actor_learning_rate)
        return {"loss/actor": loss.detach(), "policy/entropy": entropy(logits.detach()).mean()}

    def _target_rate(self) -> float | Tensor:
        if self.config.target_every == 1:
            return self.config.polyak
        return torch.where(self.updates % self.config.target_every == 0, self.config.polyak, 0.0)


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Discrete,), sources=("offline", "replay"), slices=True)


def build(config: Config, context: BuildContext) -> DiscreteCQL:
    warn_if_known_to_be_wrong(config, {"penalty": "sampled_seed", "target_action": "policy_argmax"})
    builder, greedy = NetworkBuilder.of(context), config.policy == "greedy"
    quantiles = config.quantiles if config.td_loss == "quantile" else 1
    one_hot = config.critic_input == "onehot"
    critic = builder.action_values(config.critic, members=config.critics, quantiles=quantiles, one_hot=one_hot)
    optimizers = {"critic": adam_for(critic, config.critic_optimizer, context)}
    policy: Actor | ValuePolicy
    if greedy:
        shape = {"members": config.critics, "quantiles": quantiles, "one_hot": one_hot}
        settings = ValuePolicySettings(**dict(critic.settings), **shape, temperature=config.temperature)
        policy = ValuePolicy(context.spec, settings, critic).to(context.device)
    else:
        policy = builder.actor(config.actor, critic=critic)
        optimizers["policy"] = actor_adam(policy, config, context)
    return DiscreteCQL(
        config,
        policy,
        critic,
        {} if greedy else {"critic": critic},
        Target.of(critic),
        optimizers,
        Noise.named(context.seed, "negatives"),
        torch.zeros((), dtype=torch.int64, device=context.device),
    )

"""Proximal policy optimisation (PPO; Schulman et al. 2017): learn from what the policy just did, but not too much.

    δ    = r + γ·V(s′) − V(s), where V(s′) counts unless s′ is terminal; then
    A    = δ + γλ·A′ within an episode                              → losses.returns.generalised_advantages
    L(π) = mean max(−A·ρ, −A·clip(ρ, 1 ± ε)) − η·mean H(π),  ρ = π(a|s)/π_old(a|s), times policy_coef
                                                                    → losses.surrogate.clipped_surrogate
    L(V) = mean (V(s) − y)²,  y = A + V_old(s); or, with value_clip, the larger of it and the clipped one
                                                                    → losses.surrogate.clipped_value_error

in some epochs of minibatches that are drawn anew in each, none left out. With memory a minibatch is some environments'
whole sequences. Normalisers stand still until all is learned, so that the first ratio ρ is 1 up to rounding.

Roles: actor and critic each say which observation groups or segments they see, so a critic may see what the actor
cannot. Each is a perception (normalisers, encoders, memory), a trunk and a head; see docs/ppo.md. Objectives may add
rewards, losses and lessons; see understudy.objectives.

Differs from the paper in: advantages are standardised, as a rule over the rollout; gradients are cut per network, not
jointly; the step size may follow the KL (`adaptive`). Differs from rsl_rl in: a time limit bootstraps from V of the
final observation, not of the one before; a value bootstrap never advances a memory. Differs from Stable-Baselines3 in:
normalisers are part of the policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn

from understudy.core.batch import POLICY_WEIGHT, Rollout
from understudy.core.protocols import BuildContext, Carry, Demand, Metrics, Needs, Recorder, Update
from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete, MultiDiscrete
from understudy.core.state import Static
from understudy.losses.returns import generalised_advantages
from understudy.losses.surrogate import adapted_rate, clipped_surrogate, clipped_value_error
from understudy.nn.actor import Actor
from understudy.nn.memory import forget
from understudy.nn.value_network import ValueNetwork
from understudy.objectives import Evaluation, Objectives, ObjectiveSettings, objective_modules, objective_roles
from understudy.parts.optim import Adam
from understudy.parts.ppo.batch import FEATURES, RESETS, VALID, PPOBatch, Tally, seen, shown
from understudy.parts.ppo.fused_steps import fused_steps_for
from understudy.parts.ppo.networks import OnPolicyActorSettings, OnPolicyCriticSettings, build_networks
from understudy.parts.ppo.optimizers import build_optimizers
from understudy.parts.ppo.reward_normalizer import RewardNormalizer, reward_statistics
from understudy.parts.ppo.settings import PPOSettings, check_possible


class Config(PPOSettings):
    """PPO."""

    name: Literal["ppo"] = "ppo"
    """The algorithm."""
    actor: OnPolicyActorSettings = OnPolicyActorSettings()
    """The policy: what it sees, its shape, how it draws."""
    critic: OnPolicyCriticSettings = OnPolicyCriticSettings()
    """The value function: what it sees, its shape, what it shares with the actor."""
    objectives: ObjectiveSettings = Field(default_factory=dict)
    """What is added, by name, each with its settings; nothing: PPO."""


@final
@dataclass
class PPO:
    config: Static[Config]
    policy: Actor
    value: ValueNetwork
    objectives: Objectives
    optimizers: dict[str, Adam]
    """Of `policy` and `value`, or of both together (`all`) where they share parameters."""
    shuffle: torch.Generator
    rates: dict[str, Tensor]
    """Adam's step size now [], of `policy`, and of `value` if it has its own."""
    value_carry: Carry
    """What the critic remembers before the next rollout [N, …]; empty without memory of its own."""
    reward_normalizer: tuple[RewardNormalizer, ...]
    """One, or none."""
    updates_planned: Static[int]
    """Where linear schedules end."""
    updates: int = 0

    @property
    def demand(self) -> Demand:
        return Demand(gamma=self.config.gamma)

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "value": self.value, **reward_statistics(self.reward_normalizer)}

    def update(self, data: Rollout) -> Update:
        """Some epochs of minibatches over one rollout."""
        for network, start in self.config.learning_rates().items() if self.config.schedule == "linear" else ():
            self.rates[network].fill_(start * self._left())
        if not bool(data.valid.any()):  # every step only began an episode
            self._remember(data)
            return Update({})
        config, tally = self.config, Tally()
        batch, metrics = self._prepare(data)
        asked = self.objectives or self.warming or self.policy_coef != 1.0 or config.early_stop_kl is not None
        plain = asked or POLICY_WEIGHT in batch.extra
        if not plain and (fused := fused_steps_for(self, batch)):  # the same steps, compiled and side by side
            epochs = range(config.epochs)
            fused.take([rows for _ in epochs for rows in batch.minibatches(config.minibatches, self.shuffle)], tally)
        else:
            self._take_steps(batch, tally)
        metrics |= tally.metrics(self.clip) | self.objectives.learn(data)
        metrics |= {f"{network}/learning_rate": rate.clone() for network, rate in self.rates.items()}
        self._remember(data)
        return Update(metrics)

    @property
    def clip(self) -> float:
        """ε now."""
        return self.config.clip * (self._left() if self.config.clip_schedule == "linear" else 1.0)

    @property
    def policy_coef(self) -> float:
        """Of L(π) now."""
        return self.config.policy_coef.at(self.updates)

    @property
    def warming(self) -> bool:
        """Only the critic learns now."""
        return self.updates < self.config.critic_warmup

    def _left(self) -> float:
        """Update u of n, counted from 0, has the share 1 − u/n of what falls; none is left beyond n."""
        return max(0.0, 1.0 - self.updates / self.updates_planned)

    @torch.no_grad()
    def _prepare(self, rollout: Rollout) -> tuple[PPOBatch, Metrics]:
        """Values, advantages and densities before anything moves."""
        config, resets, extra = self.config, rollout.resets, {**rollout.extra, **self.objectives.prepare(rollout)}
        if rollout.anew:
            self.value_carry = forget(self.value_carry, torch.ones_like(rollout.valid[0]))
        reward = rollout.reward
        for normalizer in self.reward_normalizer:
            reward = normalizer.normalize(rollout, config.gamma)
        reward, metrics = self.objectives.add_rewards(rollout, reward)
        value, next_value = self.value.around(rollout.obs, rollout.next_obs, self.value_carry, resets)
        ended = rollout.ended | ~rollout.valid
        advantage = generalised_advantages(
            reward, value, next_value, rollout.terminated, ended, config.gamma, config.gae_lambda
        )
        policy_obs = {**rollout.obs, **extra}  # what was drawn beside an action is part of what it is judged by
        if not bool(rollout.valid.all()):
            extra[VALID] = rollout.valid
        carries = self.policy.learned_from(rollout.carry), self.value_carry
        if any(carries):
            extra[RESETS] = resets
        if config.schedule == "adaptive":
            extra[FEATURES] = self.policy.evaluate(policy_obs, rollout.carry, resets, rollout.action).features
        raw = bool(self.objectives)  # who augments or evaluates reads observations by name
        obs = shown(self.policy, policy_obs, raw=raw), shown(self.value, rollout.obs, raw=raw)
        batch = PPOBatch(*obs, rollout.action, rollout.log_prob, advantage, value, advantage + value, extra, *carries)
        metrics |= batch.value_metrics()
        batch = batch.normalized() if config.normalize_advantage == "rollout" else batch
        return (batch if batch.sequential else batch.flattened()), metrics

    def _take_steps(self, batch: PPOBatch, tally: Tally) -> None:
        """One step for each minibatch of each epoch, in plain autograd; only of the value while that warms up."""
        config, warming = self.config, self.warming
        for _epoch in range(config.epochs):
            for rows in batch.minibatches(config.minibatches, self.shuffle):
                minibatch = self.minibatch(batch, rows)
                losses = {} if warming else {"policy": self.policy_loss(minibatch, tally)}
                if config.early_stop_kl is not None and tally.moved_beyond(config.early_stop_kl):
                    return
                losses["value"] = config.value_coef * self.value_loss(minibatch, tally)
                if "all" in self.optimizers:
                    losses = {"all": losses["policy"] + losses["value"]}
                for network, loss in losses.items():
                    self.step(network, loss, self.rates.get(network, self.rates["policy"]))

    def minibatch(self, batch: PPOBatch, rows: Tensor) -> PPOBatch:
        """Rows [b], or sequences [T, b], that a step is taken for."""
        minibatch = batch.select(rows)
        if self.config.normalize_advantage == "minibatch":
            minibatch = minibatch.normalized()
        return self.objectives.augment(minibatch)

    def policy_loss(self, minibatch: PPOBatch, tally: Tally) -> Tensor:
        """[], with gradient; the rate adapts to where the policy stands."""
        config, policy, obs, extra = self.config, self.policy, minibatch.policy_obs, minibatch.extra
        latent = seen(policy, obs, minibatch.policy_carry, extra)
        judged = policy.judge(latent, minibatch.action, policy.mask(obs))
        surrogate = clipped_surrogate(judged.log_prob, minibatch.log_prob, minibatch.advantage, self.clip)
        entropy = minibatch.counted(judged.entropy).mean()
        loss = minibatch.counted(minibatch.weighed(surrogate)).mean() - config.entropy_coef * entropy
        coef = self.policy_coef
        loss = coef * loss if coef else 0.0 * entropy  # where nothing keeps the policy near, a ratio may be infinite
        tally.note_policy(loss, entropy, minibatch.played(judged.log_prob - minibatch.log_prob))
        if config.schedule == "adaptive":
            kl = minibatch.played(policy.distribution.kl(extra[FEATURES], judged.features.detach())).mean()
            tally.note("policy/kl", kl)
            if tally.moved:  # until a step was taken that KL is rounding
                self.rates["policy"].copy_(adapted_rate(self.rates["policy"], kl, config.target_kl))
        evaluation = Evaluation(*judged, policy.distribution, latent, policy)
        return self.objectives.add_losses(minibatch, evaluation, loss, tally)

    def value_loss(self, minibatch: PPOBatch, tally: Tally) -> Tensor:
        """[], with gradient."""
        clip = self.config.value_clip
        value = self.value(seen(self.value, minibatch.value_obs, minibatch.value_carry, minibatch.extra))
        error = (value - minibatch.target).square()
        if clip is not None:
            error = clipped_value_error(value, minibatch.value, minibatch.target, clip)
        loss = minibatch.counted(error).mean()
        tally.note("loss/value", loss)
        return loss

    def step(self, network: str, loss: Tensor, rate: Tensor) -> None:
        """Of Adam, with a gradient cut to its largest norm."""
        optimizer = self.optimizers[network]
        gradients = torch.autograd.grad(loss, optimizer.parameters, materialize_grads=True)  # 0 where it does not reach
        optimizer.step(gradients, rate, max_norm=self.config.max_grad_norm)

    def recorders(self) -> Mapping[str, Recorder]:
        """Who says something of every step while the policy plays."""
        return self.objectives.recorders()

    def _remember(self, rollout: Rollout) -> None:
        """What changes once all is learned: the critic's memory, the normalisers, and how many updates there were."""
        carry = self.value.after(rollout.obs, self.value_carry, rollout.resets)
        self.value_carry = forget(carry, rollout.ended[-1] | ~rollout.valid[-1])
        for estimator in self.policy.learning_alone if self.warming else ():
            estimator.observe(rollout.obs, rollout.valid)
        for network in (self.value,) if self.warming else (self.policy, self.value):
            network.observe(rollout.obs, rollout.valid)
        self.updates += 1


def needs(config: Config) -> Needs:
    roles, modules = objective_roles(config.objectives), objective_modules(config.objectives)
    actions = (Box, Discrete, MultiDiscrete)
    return Needs(Rollout, actions, ("rollout",), roles.data, roles.policies, modules, compiles=False)


def build(config: Config, context: BuildContext) -> PPO:
    policy, value = build_networks(config.actor, config.critic, context)
    count = context.num_envs
    objectives, shuffle = Objectives.build(config.objectives, context, policy, config), stream(context.seed, "shuffle")
    optimizers = build_optimizers(policy, value, config.weight_decay)
    shared, memory = "all" in optimizers, bool(policy.learned_from(policy.initial(1)) or value.initial(1))
    check_possible(config, shared=shared, memory=memory, environments=count, objectives=bool(objectives))
    rates = {name: torch.tensor(start, dtype=torch.float64) for name, start in config.learning_rates().items()}
    carry = tuple(part.detach().clone() for part in value.initial(count))
    normalizer = (RewardNormalizer.build(count, context.device),) if config.normalize_reward else ()
    return PPO(config, policy, value, objectives, optimizers, shuffle, rates, carry, normalizer, context.updates)

"""Proximal policy optimisation of a policy and a value function from one rollout (Schulman et al. 2017).

    A    = GAE(r, V(s), V(s'), γ, λ), of values before the update            → losses.returns.generalised_advantages
    y    = A + V(s);  then A is standardised over all rows that count
    L_π  = mean max(−A·ρ, −A·clip(ρ, 1 ± ε)) − η·mean H                      → losses.surrogate.clipped_surrogate
    L_V  = mean (V − y)², or the larger of it and the clipped one             → losses.surrogate.clipped_value_error

in some epochs of minibatches that are drawn anew in each, none left out. With memory a minibatch is some environments'
whole sequences. Normalisers stand still until all is learned, so that the first ratio ρ is 1.
"""

from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs, Rollout
from understudy.core.protocols import Carry, Metrics
from understudy.core.spec import ACTION_MASK
from understudy.core.state import Static
from understudy.losses.returns import generalised_advantages
from understudy.losses.surrogate import clip_fraction, clipped_surrogate, clipped_value_error
from understudy.nn.actor import Actor
from understudy.nn.memory import forget
from understudy.nn.value_network import ValueNetwork
from understudy.parts.optim import Adam
from understudy.parts.parallel import run_both
from understudy.parts.ppo.analytic_gradients import is_plain
from understudy.parts.ppo.batch import FEATURES, RESETS, SEEN, VALID, PPOBatch
from understudy.parts.ppo.fused_steps import adapted_rate, teach_policy, teach_value
from understudy.parts.ppo.settings import PPOSettings


@final
@dataclass
class Tally:
    """What the steps of an update told, read once at its end."""

    scalars: dict[str, list[Tensor]] = field(default_factory=dict)
    log_ratios: list[Tensor] = field(default_factory=list)

    def note(self, name: str, number: Tensor) -> None:
        self.scalars.setdefault(name, []).append(number)

    def policy(self, loss: Tensor, entropy: Tensor, log_ratio: Tensor) -> None:
        self.note("loss/policy", loss)
        self.note("policy/entropy", entropy)
        self.log_ratios.append(log_ratio.flatten())

    def told(self, clip: float) -> Metrics:
        """Means of what was noted, in an order that does not depend on which network was faster. Where nobody computed
        KL(before‖now) it is estimated from the ratios: E ρ − 1 − log ρ."""
        log_ratio = torch.cat(self.log_ratios)
        ratio = log_ratio.exp()
        outside = clip_fraction(log_ratio, torch.zeros_like(log_ratio), clip)
        means = {name: torch.stack(numbers).mean() for name, numbers in sorted(self.scalars.items())}
        return {"policy/kl": (ratio - 1.0 - log_ratio).mean(), **means, "policy/clip_fraction": outside}


@final
@dataclass
class Proximal:
    settings: Static[PPOSettings]
    policy: Static[Actor]
    value: Static[ValueNetwork]
    """Both belong to the algorithm, which hands them over."""
    updates_planned: Static[int]
    """Updates planned: where a linear schedule ends."""
    optimizers: dict[str, Adam]
    """Of `policy` and `value`, or of both together (`all`) where they share parameters."""
    shuffle: torch.Generator
    rate: Tensor
    """Adam's step size now []."""
    value_carry: Carry
    """What the critic remembers before the next rollout [N, …]; empty without memory of its own."""
    updates: int = 0

    @classmethod
    def of(
        cls,
        settings: PPOSettings,
        policy: Actor,
        value: ValueNetwork,
        shuffle: torch.Generator,
        environments: int,
        *,
        updates: int,
    ) -> "Proximal":
        shared = {id(p) for p in policy.parameters()} & {id(p) for p in value.parameters()}
        groups = {"all": nn.ModuleList([policy, value])} if shared else {"policy": policy, "value": value}
        optimizers = {name: Adam.over(network.parameters()) for name, network in groups.items()}
        carry = tuple(part.detach().clone() for part in value.initial(environments))
        rate = torch.tensor(settings.learning_rate, dtype=torch.float64)
        return cls(settings, policy, value, updates, optimizers, shuffle, rate, carry)

    def update(self, rollout: Rollout) -> Metrics:
        """Everything that is learned from one rollout."""
        if rollout.anew:
            self.value_carry = forget(self.value_carry, torch.ones_like(rollout.valid[0]))
        self._decay()
        if not bool(rollout.valid.any()):  # every step only began an episode
            self._remember(rollout)
            return {}
        batch, told = self._prepare(rollout)
        tally = Tally()
        epochs = (batch.orders(self.settings.minibatches, self.shuffle) for _ in range(self.settings.epochs))
        orders = [order for epoch in epochs for order in epoch]
        if "all" in self.optimizers:
            for order in orders:
                self._step_together(batch.some(order), tally)
        else:
            self._steps_apart(batch, orders, tally)
        self._remember(rollout)
        return told | tally.told(self.settings.clip) | {"policy/learning_rate": self.rate.clone()}

    @torch.no_grad()
    def _prepare(self, rollout: Rollout) -> tuple[PPOBatch, Metrics]:
        """Values, advantages and densities before anything moves."""
        settings, resets = self.settings, resets_of(rollout)
        values = self.value.around(rollout.obs, rollout.next_obs, self.value_carry, resets)
        ended = rollout.ended | ~rollout.valid
        advantage = generalised_advantages(
            rollout.reward,
            values.value,
            values.next_value,
            rollout.terminated,
            ended,
            settings.gamma,
            settings.gae_lambda,
        )
        target = advantage + values.value
        extra = self._extra(rollout, resets)
        batch = PPOBatch(
            self._shown(self.policy, rollout.obs),
            self._shown(self.value, rollout.obs),
            rollout.action,
            rollout.log_prob,
            advantage,
            values.value,
            target,
            extra,
            rollout.carry,
            self.value_carry,
        )
        kept, kept_target = batch.counted(advantage), batch.counted(target)
        if settings.normalize_advantage:
            batch = replace(batch, advantage=(advantage - kept.mean()) / (kept.std(correction=0) + 1e-8))
        told = {
            "value/mean": batch.counted(values.value).mean(),
            "value/explained": 1.0 - kept.var(correction=0) / kept_target.var(correction=0).clamp(min=1e-8),
        }
        return (batch.rows() if batch.loose else batch), told

    def _extra(self, rollout: Rollout, resets: Tensor) -> dict[str, Tensor]:
        """What only some settings need."""
        extra: dict[str, Tensor] = {}
        if not bool(rollout.valid.all()):
            extra[VALID] = rollout.valid
        if rollout.carry or self.value_carry:
            extra[RESETS] = resets
        if self.settings.schedule == "adaptive":
            judged = self.policy.evaluate(rollout.obs, rollout.carry, resets, rollout.action)
            extra[FEATURES] = judged.features
        return extra

    def _shown(self, network: Actor | ValueNetwork, obs: Obs) -> Obs:
        """Observations, or what the network makes of them where that does not change until all is learned."""
        if not network.perception.fixed:
            return obs
        kept = {ACTION_MASK: obs[ACTION_MASK]} if ACTION_MASK in obs else {}
        return {SEEN: network.perception.look(obs), **kept}

    def _steps_apart(self, batch: PPOBatch, orders: list[Tensor], tally: Tally) -> None:
        """Steps of two networks that share nothing: neither minds when the other steps, unless the rate adapts."""
        of_policy = replace(batch, value_obs={}, value_carry=())
        of_value = replace(batch, policy_obs={}, policy_carry=())
        if FEATURES not in batch.extra and batch.action.is_cpu:
            run_both(
                lambda: self._steps_of_policy(of_policy, orders, tally),
                lambda: self._steps_of_value(of_value, orders, tally),
            )
            return
        for order in orders:
            self._steps_of_policy(of_policy, [order], tally)
            self._steps_of_value(of_value, [order], tally)

    def _steps_of_policy(self, batch: PPOBatch, orders: list[Tensor], tally: Tally) -> None:
        if batch.loose and is_plain(self.policy):
            self._teach_policy(batch, orders, tally)
            return
        for order in orders:
            self._step(self.optimizers["policy"], self._policy_loss(batch.some(order), tally))

    def _steps_of_value(self, batch: PPOBatch, orders: list[Tensor], tally: Tally) -> None:
        if batch.loose and is_plain(self.value):
            self._teach_value(batch, orders, tally)
            return
        for order in orders:
            loss = self.settings.value_coef * self._value_loss(batch.some(order), tally)
            self._step(self.optimizers["value"], loss)

    def _teach_policy(self, batch: PPOBatch, orders: list[Tensor], tally: Tally) -> None:
        told = teach_policy(self.policy, self.optimizers["policy"], batch, orders, self.rate, self.settings)
        entropy = told.entropy.mean()
        tally.policy(told.surrogate.mean() - self.settings.entropy_coef * entropy, entropy, told.log_ratio)
        if len(told.kl):
            tally.note("policy/kl", told.kl.mean())

    def _teach_value(self, batch: PPOBatch, orders: list[Tensor], tally: Tally) -> None:
        errors = teach_value(self.value, self.optimizers["value"], batch, orders, self.rate, self.settings)
        tally.note("loss/value", errors.mean())

    def _step(self, optimizer: Adam, loss: Tensor) -> None:
        optimizer.minimise(loss, self.rate, max_norm=self.settings.max_grad_norm)

    def _step_together(self, batch: PPOBatch, tally: Tally) -> None:
        """One step of networks that share parameters."""
        policy_loss, value_loss = self._policy_loss(batch, tally), self._value_loss(batch, tally)
        loss = policy_loss + self.settings.value_coef * value_loss
        self._step(self.optimizers["all"], loss)

    def _policy_loss(self, batch: PPOBatch, tally: Tally) -> Tensor:
        """[], with gradient; the rate adapts to where it stands."""
        settings, policy, obs = self.settings, self.policy, batch.policy_obs
        seen = (
            obs[SEEN] if SEEN in obs else policy.perception.sequence(obs, batch.policy_carry, batch.extra.get(RESETS))
        )
        judged = policy.judge(seen, batch.action, policy.mask(obs))
        surrogate = clipped_surrogate(judged.log_prob, batch.log_prob, batch.advantage, settings.clip)
        entropy = batch.counted(judged.entropy).mean()
        loss = batch.counted(surrogate).mean() - settings.entropy_coef * entropy
        tally.policy(loss.detach(), entropy.detach(), batch.counted(judged.log_prob.detach() - batch.log_prob))
        if FEATURES in batch.extra:
            kl = self._moved(batch, judged.features)
            tally.note("policy/kl", kl)
            self.rate.copy_(adapted_rate(self.rate, kl, settings.target_kl))
        return loss

    def _value_loss(self, batch: PPOBatch, tally: Tally) -> Tensor:
        """[], with gradient."""
        obs, clip = batch.value_obs, self.settings.value_clip
        if SEEN in obs:
            value = self.value(obs[SEEN])
        else:
            value = self.value.evaluate(obs, batch.value_carry, batch.extra.get(RESETS))
        error = (value - batch.target).square()
        if clip is not None:
            error = clipped_value_error(value, batch.value, batch.target, clip)
        loss = batch.counted(error).mean()
        tally.note("loss/value", loss.detach())
        return loss

    @torch.no_grad()
    def _moved(self, batch: PPOBatch, features: Tensor) -> Tensor:
        """KL(before‖now) []."""
        return batch.counted(self.policy.distribution.kl(batch.extra[FEATURES], features)).mean()

    def _decay(self) -> None:
        """Update u of n, counted from 0, has the share 1 − u/n of the first step size; none is left beyond n."""
        if self.settings.schedule == "linear":
            self.rate.fill_(self.settings.learning_rate * max(0.0, 1.0 - self.updates / self.updates_planned))
        self.updates += 1

    def _remember(self, rollout: Rollout) -> None:
        """What changes once all is learned: the critic's memory, and the normalisers."""
        carry = self.value.after(rollout.obs, self.value_carry, resets_of(rollout))
        self.value_carry = forget(carry, rollout.ended[-1] | ~rollout.valid[-1])
        self.policy.observe(rollout.obs, rollout.valid)
        self.value.observe(rollout.obs, rollout.valid)


def resets_of(rollout: Rollout) -> Tensor:
    """[T, N], true where the policy began with an empty memory; the first step begins with `carry`, whatever it is."""
    begins = rollout.ended | ~rollout.valid
    return torch.cat([torch.zeros_like(begins[:1]), begins[:-1]])

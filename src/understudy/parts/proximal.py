"""Proximal policy optimisation of a policy and a value function from one rollout (Schulman et al. 2017).

    A    = GAE(r, V(s), V(s'), γ, λ), of values before the update            → losses.returns.generalised_advantages
    y    = A + V(s);  then A is standardised over all rows that count
    L_π  = mean max(−A·ρ, −A·clip(ρ, 1 ± ε)) − η·mean H                      → losses.surrogate.clipped_surrogate
    L_V  = mean (V − y)², or the larger of it and the clipped one             → losses.surrogate.clipped_value_error

in some epochs of minibatches that are drawn anew in each, none left out. With memory a minibatch is some environments'
whole sequences. Normalisers stand still until all is learned, so that the first ratio ρ is 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Self, final

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from understudy.core.batch import Obs, Rollout
from understudy.core.protocols import Carry, Metrics
from understudy.core.settings import Settings
from understudy.core.state import Static
from understudy.losses.returns import generalised_advantages
from understudy.losses.surrogate import clipped_surrogate, clipped_value_error, outside_share
from understudy.nn.exploring_policy import ExploringPolicy
from understudy.nn.memory import forget
from understudy.nn.value_network import ValueNetwork
from understudy.parts.optim import Adam

SMALLEST_RATE, LARGEST_RATE, RATE_FACTOR = 1e-5, 1e-2, 1.5


class ProximalSettings(Settings):
    """How much is learned from a rollout."""

    gamma: float = Field(0.99, ge=0, le=1)
    """Discount per environment step."""
    trace: float = Field(0.95, ge=0, le=1)
    """λ of GAE: 0 trusts the values, 1 the returns."""
    clip: float = Field(0.2, gt=0)
    """ε: beyond a ratio of 1 ± ε nothing is gained."""
    value_clip: float | None = Field(None, gt=0)
    """Values move at most so far in one update, in units of reward; none: freely."""
    entropy_weight: float = Field(0.0, ge=0)
    """η: what entropy is worth."""
    value_weight: float = Field(1.0, gt=0)
    """Of L_V, where policy and value share parameters; elsewhere each has its own optimiser, and it changes little."""
    epochs: int = Field(5, ge=1)
    """Passes over a rollout."""
    minibatches: int = Field(4, ge=1)
    """Gradient steps of a pass."""
    learning_rate: float = Field(1e-3, gt=0)
    """Adam's step size at the start."""
    schedule: Literal["constant", "linear", "adaptive"] = "adaptive"
    """`linear` falls to 0 over the planned updates; `adaptive` divides the step size by 1.5 where a step moved the
    policy more than twice target_kl, and multiplies it where less than half."""
    target_kl: float = Field(0.01, gt=0)
    """KL(before‖now) that `adaptive` aims at."""
    largest_gradient: float = Field(1.0, gt=0)
    """Norm that the gradient of each network is cut to."""
    standardise: bool = True
    """Advantages to mean 0 and deviation 1 over the rollout."""

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.schedule == "adaptive" and not SMALLEST_RATE <= self.learning_rate <= LARGEST_RATE:
            raise ValueError(f"an adaptive learning_rate stays within {SMALLEST_RATE:g} and {LARGEST_RATE:g}")
        return self


@dataclass(frozen=True)
class Study:
    """What is learned from: rows [B], or whole sequences [T, n] of some environments."""

    obs: Obs
    action: Tensor
    log_prob: Tensor
    features: Tensor
    """The density that drew the actions."""
    advantage: Tensor
    value: Tensor
    target: Tensor
    valid: Tensor
    resets: Tensor
    policy_carry: Carry
    value_carry: Carry


@final
@dataclass
class Proximal:
    settings: Static[ProximalSettings]
    policy: Static[ExploringPolicy]
    value: Static[ValueNetwork]
    """Both belong to the algorithm, which hands them over."""
    steps: Static[int]
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
        settings: ProximalSettings,
        policy: ExploringPolicy,
        value: ValueNetwork,
        shuffle: torch.Generator,
        environments: int,
        *,
        steps: int,
    ) -> "Proximal":
        shared = {id(p) for p in policy.parameters()} & {id(p) for p in value.parameters()}
        groups = {"all": nn.ModuleList([policy, value])} if shared else {"policy": policy, "value": value}
        optimizers = {name: Adam.over(network.parameters()) for name, network in groups.items()}
        carry = tuple(part.detach().clone() for part in value.initial(environments))
        rate = torch.tensor(settings.learning_rate, dtype=torch.float64)
        return cls(settings, policy, value, steps, optimizers, shuffle, rate, carry)

    def update(self, rollout: Rollout) -> Metrics:
        """Everything that is learned from one rollout."""
        study, metrics = self._study(rollout)
        self._decay()
        count = 0
        for _ in range(self.settings.epochs):
            for part in self._parts(study):
                for name, number in self._step(part).items():
                    metrics[name] = metrics.get(name, torch.zeros(())) + number
                count += 1
        told = {name: metrics[name] / count if name in SUMMED else metrics[name] for name in metrics}
        self._remember(rollout, study)
        return told | {"policy/learning_rate": self.rate.clone()}

    @torch.no_grad()
    def _study(self, rollout: Rollout) -> tuple[Study, Metrics]:
        """Values, advantages and densities before anything moves."""
        settings, resets = self.settings, resets_of(rollout)
        values = self.value.around(rollout.obs, rollout.next_obs, self.value_carry, resets)
        ended = rollout.ended | ~rollout.valid
        advantage = generalised_advantages(
            rollout.reward, values.value, values.next_value, rollout.terminated, ended, settings.gamma, settings.trace
        )
        target = advantage + values.value
        if settings.standardise:
            kept = advantage[rollout.valid]
            advantage = (advantage - kept.mean()) / (kept.std(correction=0) + 1e-8)
        judged = self.policy.evaluate(rollout.obs, rollout.carry, resets, rollout.action)
        study = Study(
            rollout.obs,
            rollout.action,
            rollout.log_prob,
            judged.features,
            advantage,
            values.value,
            target,
            rollout.valid,
            resets,
            rollout.carry,
            self.value_carry,
        )
        left = (target - values.value)[rollout.valid].var() / target[rollout.valid].var().clamp(min=1e-8)
        return study, {"value/mean": values.value.mean(), "value/explained": 1.0 - left}

    def _parts(self, study: Study) -> Iterator[Study]:
        """One pass in minibatches, nothing left out: rows in any order, or environments whole where there is memory."""
        if study.policy_carry or study.value_carry:
            order = torch.randperm(study.action.shape[1], generator=self.shuffle)
            for chosen in order.tensor_split(min(self.settings.minibatches, len(order))):
                yield _environments(study, chosen)
            return
        rows = study.valid.flatten().nonzero()[:, 0]
        order = rows[torch.randperm(len(rows), generator=self.shuffle)]
        for chosen in order.tensor_split(min(self.settings.minibatches, len(order))):
            yield _rows(study, chosen)

    def _step(self, study: Study) -> Metrics:
        """One gradient step of both."""
        settings, counts = self.settings, study.valid
        judged = self.policy.evaluate(study.obs, study.policy_carry, study.resets, study.action)
        value = self.value.evaluate(study.obs, study.value_carry, study.resets)
        surrogate = clipped_surrogate(judged.log_prob, study.log_prob, study.advantage, settings.clip)
        entropy = judged.entropy[counts].mean()
        policy_loss = surrogate[counts].mean() - settings.entropy_weight * entropy
        error = (value - study.target).square()
        if settings.value_clip is not None:
            error = clipped_value_error(value, study.value, study.target, settings.value_clip)
        value_loss = error[counts].mean()
        with torch.no_grad():
            kl = self.policy.density.kl(study.features, judged.features)[counts].mean()
        self._adapt(kl)
        self._minimise(policy_loss, value_loss)
        return {
            "loss/policy": policy_loss.detach(),
            "loss/value": value_loss.detach(),
            "policy/entropy": entropy.detach(),
            "policy/kl": kl,
            "policy/outside_share": outside_share(judged.log_prob[counts], study.log_prob[counts], settings.clip),
        }

    def _minimise(self, policy_loss: Tensor, value_loss: Tensor) -> None:
        limit, rate = self.settings.largest_gradient, self.rate
        if "all" in self.optimizers:
            loss = policy_loss + self.settings.value_weight * value_loss
            self.optimizers["all"].minimise(loss, rate, largest_norm=limit)
            return
        self.optimizers["policy"].minimise(policy_loss, rate, largest_norm=limit)
        self.optimizers["value"].minimise(self.settings.value_weight * value_loss, rate, largest_norm=limit)

    def _decay(self) -> None:
        """Update u of n, counted from 0, has the share 1 − u/n of the first step size; none is left beyond n."""
        if self.settings.schedule == "linear":
            self.rate.fill_(self.settings.learning_rate * max(0.0, 1.0 - self.updates / self.steps))
        self.updates += 1

    def _adapt(self, kl: Tensor) -> None:
        if self.settings.schedule == "adaptive":
            too_far, too_near = kl > 2.0 * self.settings.target_kl, kl < 0.5 * self.settings.target_kl
            wished = torch.where(too_far, self.rate / RATE_FACTOR, self.rate)
            wished = torch.where(too_near & (kl > 0), wished * RATE_FACTOR, wished)
            self.rate.copy_(wished.clamp(SMALLEST_RATE, LARGEST_RATE))

    def _remember(self, rollout: Rollout, study: Study) -> None:
        """What changes once all is learned: the critic's memory, and the normalisers."""
        carry = self.value.after(rollout.obs, study.value_carry, study.resets)
        self.value_carry = forget(carry, rollout.ended[-1] | ~rollout.valid[-1])
        self.policy.observe(rollout.obs, rollout.valid)
        self.value.observe(rollout.obs, rollout.valid)


SUMMED = ("loss/policy", "loss/value", "policy/entropy", "policy/kl", "policy/outside_share")


def resets_of(rollout: Rollout) -> Tensor:
    """[T, N], true where the policy began with an empty memory; the first step begins with `carry`, whatever it is."""
    begins = rollout.ended | ~rollout.valid
    return torch.cat([torch.zeros_like(begins[:1]), begins[:-1]])


def _rows(study: Study, chosen: Tensor) -> Study:
    """Some rows [B] of a study without memory."""

    def pick(column: Tensor) -> Tensor:
        return column.flatten(0, 1).index_select(0, chosen)

    return _picked(study, pick, (), ())


def _environments(study: Study, chosen: Tensor) -> Study:
    """The whole sequences [T, n] of some environments."""

    def pick(column: Tensor) -> Tensor:
        return column.index_select(1, chosen)

    carries = (tuple(part[chosen] for part in carry) for carry in (study.policy_carry, study.value_carry))
    return _picked(study, pick, *carries)


def _picked(study: Study, pick: Callable[[Tensor], Tensor], policy_carry: Carry, value_carry: Carry) -> Study:
    return Study(
        {name: pick(values) for name, values in study.obs.items()},
        pick(study.action),
        pick(study.log_prob),
        pick(study.features),
        pick(study.advantage),
        pick(study.value),
        pick(study.target),
        pick(study.valid),
        pick(study.resets),
        policy_carry,
        value_carry,
    )

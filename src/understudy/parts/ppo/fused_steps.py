"""PPO's gradient steps, quicker: the two networks side by side, and those of plain perceptrons compiled.

They are the steps of `algorithms/ppo.py`, which stands for what is meant: the same losses of the same minibatches, with
gradients written out (parts.ppo.analytic_gradients) instead of autograd's and one compiled loop (core.torchscript)
instead of Python's, in which a third of the time of a small minibatch goes by. Only rounding differs, and side by side
or one after the other nothing does, also where the rate adapts (tests/parts/ppo/test_fused_steps.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, ParamSpec, Protocol, TypeVar, final

import torch
from torch import Tensor

from understudy.core.torchscript import scripted
from understudy.losses.returns import standardised
from understudy.losses.surrogate import adapted_rate
from understudy.nn.actor import Actor
from understudy.nn.distributions.gaussians import Gaussian, normal_kl, total_entropy
from understudy.nn.value_network import ValueNetwork
from understudy.parts.optim import Adam, AdamState, clipped_step
from understudy.parts.parallel import run_both
from understudy.parts.ppo.analytic_gradients import Trunk, is_plain, policy_slopes, trunk_of, value_slopes
from understudy.parts.ppo.batch import FEATURES, SEEN, PPOBatch, Tally
from understudy.parts.ppo.settings import PPOSettings

Given = ParamSpec("Given")
Result = TypeVar("Result")


class PolicySteps(NamedTuple):
    """What the steps of a policy told, one after the other."""

    surrogate: Tensor
    log_ratio: Tensor
    """Of all rows [S·B]."""
    entropy: Tensor
    """[S]."""
    kl: Tensor
    """KL(before‖now) [S], of steps that adapt to it."""
    rates: list[Tensor]
    """The size of each step."""


def policy_pass(
    trunk: Trunk,
    log_std: Tensor,
    limits: tuple[float, float],
    state: AdamState,
    flat_gradient: Tensor,
    columns: tuple[Tensor, Tensor, Tensor, Tensor],
    before: Tensor | None,
    minibatches: list[Tensor],
    rate: Tensor,
    clip: float,
    entropy_coef: float,
    max_grad_norm: float,
    target_kl: float,
    normalize: bool,
    moved: bool,
) -> PolicySteps:
    """A step for each minibatch of rows; the rate follows the KL where the densities before are given [B, 2A], once
    the policy has `moved` from them."""
    surrogates: list[Tensor] = []
    log_ratios: list[Tensor] = []
    entropies: list[Tensor] = []
    kls: list[Tensor] = []
    rates: list[Tensor] = []
    seen, action, log_prob, advantage = columns
    for rows in minibatches:
        held = log_std.clamp(limits[0], limits[1])
        gained = advantage.index_select(0, rows)
        if normalize:
            gained = standardised(gained, gained)
        slopes = policy_slopes(
            trunk,
            log_std,
            held,
            seen.index_select(0, rows),
            action.index_select(0, rows),
            log_prob.index_select(0, rows),
            gained,
            clip,
            entropy_coef,
        )
        surrogates.append(slopes.surrogate)
        log_ratios.append(slopes.log_ratio)
        entropies.append(total_entropy(held))
        if before is not None:
            now = torch.cat([slopes.mean, held.expand_as(slopes.mean)], dim=-1)
            kls.append(normal_kl(before.index_select(0, rows), now).mean())
            if moved:
                rate.copy_(adapted_rate(rate, kls[-1], target_kl))
        moved = True
        rates.append(rate.clone())
        clipped_step(state, [slopes.to_log_std, flat_gradient], rate, max_grad_norm)
    kl = torch.stack(kls) if len(kls) > 0 else torch.empty([0])
    return PolicySteps(torch.cat(surrogates), torch.cat(log_ratios), torch.stack(entropies), kl, rates)


def value_pass(
    trunk: Trunk,
    state: AdamState,
    flat_gradient: Tensor,
    columns: tuple[Tensor, Tensor, Tensor],
    minibatches: list[Tensor],
    rates: list[Tensor],
    clip: float | None,
    weight: float,
    max_grad_norm: float,
) -> Tensor:
    """A step for each minibatch of rows; gives the squared errors of all [S·B]."""
    errors: list[Tensor] = []
    seen, value, target = columns
    for rows, rate in zip(minibatches, rates):  # noqa: B905
        some = seen.index_select(0, rows), value.index_select(0, rows), target.index_select(0, rows)
        errors.append(value_slopes(trunk, some[0], some[1], some[2], clip, weight))
        clipped_step(state, [flat_gradient], rate, max_grad_norm)
    return torch.cat(errors)


class Learner(Protocol):
    """What is read of the PPO whose steps are taken: its settings and networks, and its losses through autograd."""

    @property
    def config(self) -> PPOSettings: ...

    @property
    def clip(self) -> float: ...

    policy: Actor
    value: ValueNetwork
    optimizers: dict[str, Adam]
    rates: dict[str, Tensor]

    def minibatch(self, batch: PPOBatch, rows: Tensor) -> PPOBatch: ...

    def policy_loss(self, minibatch: PPOBatch, tally: Tally) -> Tensor: ...

    def value_loss(self, minibatch: PPOBatch, tally: Tally) -> Tensor: ...

    def step(self, network: str, loss: Tensor, rate: Tensor) -> None: ...


@final
@dataclass(frozen=True)
class FusedSteps:
    """Steps of two networks that share nothing: neither minds when the other steps, but the value's may be of the size
    that the policy's found."""

    learner: Learner
    batch: PPOBatch

    def take(self, minibatches: list[Tensor], tally: Tally) -> None:
        """All steps of an update. Where the policy's steps find the size of the value's, those are an epoch behind."""
        learner = self.learner
        if FEATURES not in self.batch.extra or "value" in learner.rates:
            rates = [learner.rates["value" if "value" in learner.rates else "policy"]] * len(minibatches)
            self._side_by_side(minibatches, minibatches, rates, tally)
            return
        behind, rates, length = minibatches[:0], minibatches[:0], learner.config.minibatches
        for start in range(0, len(minibatches) + length, length):
            epoch = minibatches[start : start + length]
            behind, rates = epoch, self._side_by_side(epoch, behind, rates, tally)

    def _side_by_side(
        self, ahead: list[Tensor], behind: list[Tensor], rates: list[Tensor], tally: Tally
    ) -> list[Tensor]:
        """Steps of the policy for minibatches ahead, whose sizes it gives, and of the value for those behind."""
        found: list[Tensor] = []
        both = run_both if self.batch.action.is_cpu else _in_turn
        both(
            lambda: found.extend(self._policy_steps(ahead, tally)),
            lambda: self._value_steps(behind, rates, tally),
        )
        return found

    def _policy_steps(self, minibatches: list[Tensor], tally: Tally) -> list[Tensor]:
        learner = self.learner
        if not minibatches:
            return []
        if _fusable(learner.policy, self.batch):
            steps = fused_policy_steps(learner, self.batch, minibatches, moved=bool(tally.log_ratios))
            entropy = steps.entropy.mean()
            tally.note_policy(steps.surrogate.mean() - learner.config.entropy_coef * entropy, entropy, steps.log_ratio)
            if len(steps.kl):
                tally.note("policy/kl", steps.kl.mean())
            return steps.rates
        batch, rate, rates = replace(self.batch, value_obs={}, value_carry=()), learner.rates["policy"], []
        for chosen in minibatches:
            loss = learner.policy_loss(learner.minibatch(batch, chosen), tally)
            rates.append(rate.clone())
            learner.step("policy", loss, rate)
        return rates

    def _value_steps(self, minibatches: list[Tensor], rates: list[Tensor], tally: Tally) -> None:
        learner = self.learner
        if minibatches and _fusable(learner.value, self.batch):
            tally.note("loss/value", fused_value_steps(learner, self.batch, minibatches, rates).mean())
            return
        batch = replace(self.batch, policy_obs={}, policy_carry=())
        for chosen, rate in zip(minibatches, rates, strict=True):
            loss = learner.config.value_coef * learner.value_loss(batch.select(chosen), tally)
            learner.step("value", loss, rate)


def fused_steps_for(learner: Learner, batch: PPOBatch) -> FusedSteps | None:
    """Of networks that share no parameters, if anything is gained: one is plain, or there are processors for both."""
    apart = "all" not in learner.optimizers and all(optimizer.plain for optimizer in learner.optimizers.values())
    plain = _fusable(learner.policy, batch) or _fusable(learner.value, batch)
    return FusedSteps(learner, batch) if apart and (plain or batch.action.is_cpu) else None


def _fusable(network: Actor | ValueNetwork, batch: PPOBatch) -> bool:
    return not batch.sequential and is_plain(network)


def _in_turn(one: Callable[[], object], other: Callable[[], object]) -> None:
    one()
    other()


@torch.no_grad()
def fused_policy_steps(learner: Learner, batch: PPOBatch, minibatches: list[Tensor], *, moved: bool) -> PolicySteps:
    """One step of a plain policy for each minibatch."""
    policy, density, settings = learner.policy, learner.policy.distribution, learner.config
    assert isinstance(density, Gaussian)
    return _quickest(policy_pass, batch)(
        trunk_of(policy.trunk),
        density.log_std,
        (density.limits.low, density.limits.high),
        learner.optimizers["policy"].state([density.log_std, policy.trunk.flat]),
        policy.trunk.gradient_room()[0],
        (batch.policy_obs[SEEN], batch.action, batch.log_prob, batch.advantage),
        batch.extra.get(FEATURES),
        minibatches,
        learner.rates["policy"],
        learner.clip,
        settings.entropy_coef,
        settings.max_grad_norm,
        settings.target_kl,
        settings.normalize_advantage == "minibatch",
        moved,
    )


@torch.no_grad()
def fused_value_steps(learner: Learner, batch: PPOBatch, minibatches: list[Tensor], rates: list[Tensor]) -> Tensor:
    """The same of a plain value function: squared errors of all rows [S·B]."""
    trunk, settings = learner.value.trunk, learner.config
    return _quickest(value_pass, batch)(
        trunk_of(trunk),
        learner.optimizers["value"].state([trunk.flat]),
        trunk.gradient_room()[0],
        (batch.value_obs[SEEN], batch.value, batch.target),
        minibatches,
        rates,
        settings.value_clip,
        settings.value_coef,
        settings.max_grad_norm,
    )


def _quickest(function: Callable[Given, Result], batch: PPOBatch) -> Callable[Given, Result]:
    """Compiled on the CPU. Elsewhere TorchScript fuses what has run often enough, and rounds otherwise from then on."""
    return scripted(function) if batch.action.is_cpu else function

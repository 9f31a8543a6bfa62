"""All gradient steps that an update takes on a plain network (parts.ppo.analytic_gradients), compiled
(core.torchscript): of a small minibatch a third of the time goes by in Python, between one operation and the next."""

from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from understudy.core.torchscript import scripted
from understudy.nn.actor import Actor
from understudy.nn.distributions.gaussians import Gaussian, normal_kl, total_entropy
from understudy.nn.value_network import ValueNetwork
from understudy.parts.optim import Adam, AdamState, clipped_step
from understudy.parts.ppo.analytic_gradients import Trunk, policy_slopes, trunk_of, value_slopes
from understudy.parts.ppo.batch import FEATURES, SEEN, PPOBatch
from understudy.parts.ppo.settings import LARGEST_RATE, SMALLEST_RATE, PPOSettings

RATE_FACTOR = 1.5
Given = ParamSpec("Given")
Result = TypeVar("Result")


class PolicyTold(NamedTuple):
    """What the steps told, one after the other."""

    surrogate: Tensor
    log_ratio: Tensor
    """Of all rows [S·B]."""
    entropy: Tensor
    """[S]."""
    kl: Tensor
    """KL(before‖now) [S], of steps that adapted to it."""


def adapted_rate(
    rate: Tensor,
    kl: Tensor,
    target: float,
    smallest: float = SMALLEST_RATE,
    largest: float = LARGEST_RATE,
    factor: float = RATE_FACTOR,
) -> Tensor:
    """Divided by 1.5 where the policy moved more than twice the target, multiplied where less than half."""
    too_far, too_near = kl > 2.0 * target, kl < 0.5 * target
    wished = torch.where(too_far, rate / factor, rate)
    return torch.where(too_near & (kl > 0), wished * factor, wished).clamp(smallest, largest)


def policy_pass(
    trunk: Trunk,
    log_std: Tensor,
    limits: tuple[float, float],
    state: AdamState,
    flat_gradient: Tensor,
    columns: tuple[Tensor, Tensor, Tensor, Tensor],
    before: Tensor | None,
    orders: list[Tensor],
    rate: Tensor,
    clip: float,
    entropy_coef: float,
    max_grad_norm: float,
    target_kl: float,
) -> PolicyTold:
    """A step for each order of rows; the rate follows the KL where the densities before are given [B, 2A]."""
    surrogates: list[Tensor] = []
    log_ratios: list[Tensor] = []
    entropies: list[Tensor] = []
    kls: list[Tensor] = []
    seen, action, log_prob, advantage = columns
    for rows in orders:
        held = log_std.clamp(limits[0], limits[1])
        slopes = policy_slopes(
            trunk,
            log_std,
            held,
            seen.index_select(0, rows),
            action.index_select(0, rows),
            log_prob.index_select(0, rows),
            advantage.index_select(0, rows),
            clip,
            entropy_coef,
        )
        surrogates.append(slopes.surrogate)
        log_ratios.append(slopes.log_ratio)
        entropies.append(total_entropy(held))
        if before is not None:
            now = torch.cat([slopes.mean, held.expand_as(slopes.mean)], dim=-1)
            kl = normal_kl(before.index_select(0, rows), now).mean()
            kls.append(kl)
            rate.copy_(adapted_rate(rate, kl, target_kl))
        clipped_step(state, [slopes.to_log_std, flat_gradient], rate, max_grad_norm)
    moved = torch.stack(kls) if len(kls) > 0 else torch.empty([0])
    return PolicyTold(torch.cat(surrogates), torch.cat(log_ratios), torch.stack(entropies), moved)


def value_pass(
    trunk: Trunk,
    state: AdamState,
    flat_gradient: Tensor,
    columns: tuple[Tensor, Tensor, Tensor],
    orders: list[Tensor],
    rate: Tensor,
    clip: float | None,
    weight: float,
    max_grad_norm: float,
) -> Tensor:
    """A step for each order of rows; gives the squared errors of all [S·B]."""
    errors: list[Tensor] = []
    seen, value, target = columns
    for rows in orders:
        some = seen.index_select(0, rows), value.index_select(0, rows), target.index_select(0, rows)
        errors.append(value_slopes(trunk, some[0], some[1], some[2], clip, weight))
        clipped_step(state, [flat_gradient], rate, max_grad_norm)
    return torch.cat(errors)


def _quickest(function: Callable[Given, Result], batch: PPOBatch) -> Callable[Given, Result]:
    """Compiled on the CPU. Elsewhere TorchScript fuses what has run often enough, and rounds otherwise from then on."""
    return scripted(function) if batch.action.is_cpu else function


@torch.no_grad()
def teach_policy(
    policy: Actor,
    optimizer: Adam,
    batch: PPOBatch,
    orders: list[Tensor],
    rate: Tensor,
    settings: PPOSettings,
) -> PolicyTold:
    """One step of a plain policy for each order of a study's rows; `rate` is written to if it adapts."""
    density = policy.distribution
    assert isinstance(density, Gaussian)
    return _quickest(policy_pass, batch)(
        trunk_of(policy.trunk),
        density.log_std,
        (density.limits.low, density.limits.high),
        optimizer.state([density.log_std, policy.trunk.flat]),
        policy.trunk.gradient_room()[0],
        (batch.policy_obs[SEEN], batch.action, batch.log_prob, batch.advantage),
        batch.extra.get(FEATURES),
        orders,
        rate,
        settings.clip,
        settings.entropy_coef,
        settings.max_grad_norm,
        settings.target_kl,
    )


@torch.no_grad()
def teach_value(
    value: ValueNetwork,
    optimizer: Adam,
    batch: PPOBatch,
    orders: list[Tensor],
    rate: Tensor,
    settings: PPOSettings,
) -> Tensor:
    """The same of a plain value function: squared errors of all rows [S·B]."""
    return _quickest(value_pass, batch)(
        trunk_of(value.trunk),
        optimizer.state([value.trunk.flat]),
        value.trunk.gradient_room()[0],
        (batch.value_obs[SEEN], batch.value, batch.target),
        orders,
        rate,
        settings.value_clip,
        settings.value_coef,
        settings.max_grad_norm,
    )

"""σ of a policy that is handed on: what it was there it is here, as far as this run's limits go, and is able to learn.

log σ is held between limits, beyond which it has no gradient, or only one that leads back. A parameter that stands
beyond the heir's limits would move without any effect until it had climbed back; one that stood beyond the giver's
would be another σ here. So what counted there is what is taken over, cut to what counts here.
"""

from collections.abc import Collection

import torch
from torch import Tensor

from understudy.core.wording import counted
from understudy.nn.actor import Actor
from understudy.nn.distributions import Distribution
from understudy.nn.distributions.gaussians import Gaussian, Limits, StateGaussian, TanhGaussian, TanhMeanGaussian
from understudy.nn.value_policy import ValuePolicy

LOG_STD = "distribution.log_std"


@torch.no_grad()
def keep_distribution(
    heir: Actor | ValuePolicy, ancestor: Actor | ValuePolicy, taken: Collection[str]
) -> tuple[str, ...]:
    """Make σ of a policy that took over these tensors what it was there; what is to be told of it."""
    if not isinstance(heir, Actor) or not isinstance(ancestor, Actor):
        return ()
    mine, theirs = heir.distribution, ancestor.distribution
    if isinstance(mine, FREE) and isinstance(theirs, FREE) and LOG_STD in taken:
        return _hold(mine.log_std[: len(theirs.log_std)], theirs.limits, mine.limits)
    inside, inside_theirs = _of_state(mine), _of_state(theirs)
    last = f"trunk.{len(heir.settings.hidden)}.bias"
    if inside is not None and inside_theirs is not None and {"trunk.flat", last} & set(taken):
        return _shift(heir, inside_theirs.start - inside.start)
    return ()


FREE = (Gaussian, TanhMeanGaussian)
"""Whose σ is a parameter."""


def _of_state(distribution: Distribution) -> StateGaussian | None:
    """Whose σ a trunk says, from the initial one on."""
    inside = distribution.inside if isinstance(distribution, TanhGaussian) else distribution
    return inside if isinstance(inside, StateGaussian) else None


def _hold(log_std: Tensor, there: Limits, here: Limits) -> tuple[str, ...]:
    before = log_std.clone()
    log_std.clamp_(there.low, there.high).clamp_(here.low, here.high)
    moved = log_std[log_std != before].exp().tolist()
    if not moved:
        return ()
    ends = " and ".join(f"{std:.3g}" for std in sorted({min(moved), max(moved)}))
    return (f"log σ of {counted(len(moved), 'dimension')} stood beyond its limits, and begins there: σ {ends}",)


def _shift(heir: Actor, by: float) -> tuple[str, ...]:
    """A trunk that says 0 says the initial σ: where that is another one, the last layer says the difference."""
    if by == 0.0:
        return ()
    _, log_std = heir.trunk.layers()[-1].bias.chunk(2)
    log_std.add_(by)
    return ("σ as there, not from distribution.initial_std on",)

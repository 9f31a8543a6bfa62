"""What policies remember while they play in N environments: nothing across episodes."""

import torch
from torch import Tensor

from understudy.core.protocols import Carry, Policy


def fresh_memory(policy: Policy, count: int) -> Carry:
    """Before the first step of so many episodes. A learned first memory is a parameter; here it is a number."""
    return tuple(part.detach().clone() for part in policy.initial(count))


def renewed_memory(policy: Policy, carry: Carry, begins: Tensor) -> Carry:
    """What is still remembered [N, …]: nothing where another episode begins [N]."""
    if not carry or not bool(begins.any()):
        return carry
    fresh = policy.initial(len(begins))
    return tuple(torch.where(wide(begins, old).to(old.device), new, old) for old, new in zip(carry, fresh, strict=True))


def wide(flags: Tensor, like: Tensor) -> Tensor:
    """Flags [N] as [N, 1, …], with as many axes as `like` has."""
    return flags.reshape(-1, *[1] * (like.dim() - 1))

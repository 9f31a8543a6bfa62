"""Returns and advantages along time, for whole rollouts [T, N] at once."""

import torch
from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape
from understudy.core.discounting import discounted_sums
from understudy.losses.value import bootstrap_target


def generalised_advantages(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    ended: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """GAE [T, N] (Schulman et al. 2016): A_t = δ_t + γλ·A_{t+1}, cut where an episode ended (for whatever reason).

    δ_t = r_t + γ·V(s_{t+1}) − V(s_t), without V(s_{t+1}) where it terminated. `next_value` is that of the true
    successor: at a time limit V(final observation), not of the state the next episode starts in.
    """
    check_no_gradient(value=value, next_value=next_value)
    check_same_shape(reward=reward, value=value, next_value=next_value, terminated=terminated, ended=ended)
    target = bootstrap_target(reward, gamma, terminated, next_value)
    surprise = target - value
    return discounted_sums(surprise, torch.full_like(surprise, gamma * gae_lambda).masked_fill(ended, 0.0))


def standardised(values: Tensor, counted: Tensor) -> Tensor:
    """(x − μ)/(σ + 1e-8) [...], with mean and deviation of those that count [n]; TorchScript can compile it."""
    return (values - counted.mean()) / (counted.std(correction=0) + 1e-8)


def running_returns(reward: Tensor, begins: Tensor, before: Tensor, gamma: float) -> Tensor:
    """R_t = r_t + γ·R_{t−1} [T, N], what was paid so far, without R_{t−1} where an episode `begins` [T, N]; the first
    step goes on from `before` [N]."""
    check_same_shape(reward=reward, begins=begins)
    paid = torch.cat([(reward[0] + gamma * before)[None], reward[1:]])
    kept = torch.full_like(reward, gamma).masked_fill(begins, 0.0)
    return discounted_sums(paid.flip(0), kept.flip(0)).flip(0)

"""A discriminator between motions and a policy: what it loses on each, and what the policy is paid for deceiving it.

D is a number without bounds: large where a window looks like the motions, small where it looks like the policy. In the
optimum, of densities p_e of the motions and p_π of the policy,

    lsgan   (D − 1)² against (D + 1)²           D* = (p_e − p_π)/(p_e + p_π)      Mao et al. 2017, Peng et al. 2021
    bce     softplus(−D) against softplus(D)    D* = log p_e/p_π                  Ho and Ermon 2016
    wgan    −tanh ηD against tanh ηD            the sign of p_e − p_π             bounded, after Arjovsky et al. 2017

and where nobody can tell them apart D = 0, or of wgan the same number everywhere.
"""

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

AdversarialLoss = Literal["lsgan", "bce", "wgan"]
StyleReward = Literal["quad", "log", "wgan"]
LOSSES: tuple[AdversarialLoss, ...] = get_args(AdversarialLoss)
REWARDS: tuple[StyleReward, ...] = get_args(StyleReward)
LEAST_DOUBT = 1e-4
"""1 − σ(D) is at least so much in the logarithm: no window is worth more than 9.2."""
EQUILIBRIUM: dict[StyleReward, float] = {"quad": 0.75, "log": math.log(2.0), "wgan": 1.0}
"""What a window is worth where motions and policy cannot be told apart (D = 0)."""
LOST: dict[AdversarialLoss, float] = {"lsgan": -1.0, "bce": -math.inf, "wgan": -math.inf}
"""D of windows that are known to be the policy's."""
MOST: dict[StyleReward, float] = {"quad": 1.0, "log": -math.log(LEAST_DOUBT), "wgan": math.e}
"""What a window is worth at most."""


def expert_loss(logit: Tensor, kind: AdversarialLoss, scale: float = 1.0) -> Tensor:
    """[B] of D of windows of motions [B]; `scale` is η of wgan."""
    if kind == "lsgan":
        return (logit - 1.0).square()
    return F.softplus(-logit) if kind == "bce" else -torch.tanh(scale * logit)


def policy_loss(logit: Tensor, kind: AdversarialLoss, scale: float = 1.0) -> Tensor:
    """[B] of D of windows of the policy [B]: that of motions, the other way round."""
    if kind == "lsgan":
        return (logit + 1.0).square()
    return F.softplus(logit) if kind == "bce" else torch.tanh(scale * logit)


def style_reward(logit: Tensor, kind: StyleReward, scale: float = 1.0) -> Tensor:
    """What each window is worth [...], from D: `quad` max(0, 1 − ¼(D − 1)²), for lsgan; `log` −log(1 − σ(D)), for bce;
    `wgan` exp(tanh ηD)."""
    if kind == "quad":
        return (1.0 - 0.25 * (logit - 1.0).square()).clamp_min(0.0)
    if kind == "log":
        return F.softplus(logit).clamp_max(MOST["log"])
    return torch.exp(torch.tanh(scale * logit))


def least_reward(loss: AdversarialLoss, reward: StyleReward, scale: float = 1.0) -> float:
    """What a window is worth that the discriminator has no doubt about."""
    return float(style_reward(torch.tensor(LOST[loss], dtype=torch.float64, device="cpu"), reward, scale))


def accuracies(expert: Tensor, policy: Tensor, kind: AdversarialLoss) -> tuple[Tensor, Tensor]:
    """Shares [] of windows on the right side of 0, of D of motions [B] and of the policy [B]; of wgan, which knows only
    differences, of the middle between both means."""
    middle = 0.5 * (expert.mean() + policy.mean()) if kind == "wgan" else expert.new_zeros(())
    return (expert > middle).float().mean(), (policy < middle).float().mean()


def gradient_penalty(slope: Tensor) -> Tensor:
    """‖∇D‖² [B] of slopes [B, F]: a discriminator that is flat where it is asked teaches, a cliff does not."""
    return slope.square().sum(-1)

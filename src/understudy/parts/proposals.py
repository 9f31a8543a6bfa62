"""Actions a conservative critic is asked about: uniform ones, the policy's here, and the policy's one step on."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.nn.distributions.gaussians import TanhGaussian
from understudy.parts.noise import Noise


@final
@dataclass
class Proposals:
    """A stream for each kind, so that none shifts another."""

    uniform: Noise
    here: Noise
    there: Noise

    @classmethod
    def seeded(cls, seed: int) -> "Proposals":
        return cls(*(Noise.named(seed, f"proposals/{kind}") for kind in ("uniform", "here", "there")))

    @torch.no_grad()
    def draw(self, features: Tensor, next_features: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Actions [3N, B, A] and the log-density [3N, B] of each, from the policy's features of s and s' [B, 2A].

        Uniform on [-1, 1]^A first, then of π(·|s), then of π(·|s'); all constants.
        """
        shape = (count, len(features), features.shape[1] // 2)
        uniform = self.uniform.uniform(*shape).to(features)
        flat = torch.full_like(uniform[..., 0], -shape[2] * math.log(2.0))
        here, here_density = TanhGaussian.draw(features, self.here.normal(*shape).to(features))
        there, there_density = TanhGaussian.draw(next_features, self.there.normal(*shape).to(features))
        return torch.cat([uniform, here, there]), torch.cat([flat, here_density, there_density])

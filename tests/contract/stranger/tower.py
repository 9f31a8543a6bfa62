"""A network of another package: residual layers over a vector, as an encoder of any role of any algorithm.

`encoders: {state: {kind: own, name: tower, size: 32, options: {blocks: 2}}}`, and `hidden: []` for nothing behind it.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, size), nn.SiLU(), nn.Linear(size, size))

    def forward(self, units: Tensor) -> Tensor:
        changed: Tensor = self.inner(units)
        return units + changed


def build(shape: tuple[int, ...], size: int, options: Mapping[str, Any]) -> nn.Module:
    """[B, *shape] → [B, size]."""
    blocks = [Block(size) for _ in range(int(options.get("blocks", 1)))]
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), size), *blocks, nn.SiLU())

"""What one role sees: some observation groups, normalised, flattened and joined."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.protocols import Moments
from understudy.core.spec import Spec
from understudy.nn.normalizer import Normalizer


class View(nn.Module):
    """Observation groups {name: [B, …]} → one vector [B, size], in the spec's order."""

    def __init__(self, spec: Spec, moments: Mapping[str, Moments]) -> None:
        super().__init__()
        self.size = sum(group.size for group in spec.observation.values())
        self.normalizers = nn.ModuleDict(
            {
                name: Normalizer.of(moments[name]) if name in moments else Normalizer.identity(group.shape)
                for name, group in spec.observation.items()
            }
        )

    def forward(self, obs: Obs) -> Tensor:
        parts = [normalizer(obs[name].float()).flatten(1) for name, normalizer in self.normalizers.items()]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

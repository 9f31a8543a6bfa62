"""A column of the data says how much its rows count: a user's own trust in them."""

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from understudy.core.protocols import Policy
from understudy.core.state import Static
from understudy.data.dataset import Dataset
from understudy.sources.sampling.draws import read_weights


@final
@dataclass
class Column:
    dataset: Static[Dataset]
    name: Static[str]
    timing: Static[Literal["once"]] = "once"

    def __post_init__(self) -> None:
        read_weights(self.dataset, self.name)

    def weigh(self, policy: Policy, number: int) -> Tensor:
        return torch.from_numpy(read_weights(self.dataset, self.name))

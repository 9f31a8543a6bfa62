"""Batches of sequences for learners with a memory.

episode      s0 s1 s2 s3 s4 |                 a sequence never leaves its episode
length 4,          s2 s3 s4 (s4)              what is missing at the end repeats the last step …
from s2      valid  1  1  1  0                … and is marked; `first` marks s0, where a memory starts anew
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, final

import torch
from torch import Tensor

from understudy.core.batch import Transitions
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import Demand, Policy
from understudy.core.state import Static
from understudy.data.dataset import Dataset
from understudy.sources.draws import Draw, choose_draw
from understudy.sources.offline import batches_at_once
from understudy.sources.policy_space import into_policy_space

MARKS = ("valid", "first")
Starts = Literal["step", "episode"]
"""Where sequences may begin: at any step, or where episodes do."""


@final
@dataclass
class SequenceSource:
    """Every tensor of a batch starts with [B, L]; `extra` has `valid` and `first`, both [B, L] bool."""

    dataset: Static[Dataset]
    demand: Static[Demand]
    batch_size: Static[int]
    length: Static[int]
    draw: Static[Draw]
    starts: Static[Tensor | None]
    """The steps that sequences begin at, if not any [S]."""
    bounds: Static[tuple[Tensor, Tensor]]
    """First step of each episode, and one past its last [E]."""
    into_policy_space: Static[Callable[[Transitions], Transitions]]
    block_batches: Static[int]
    """Batches gathered at once."""
    drawn: int = 0
    """Batches handed out so far."""
    block: Static[tuple[int, list[Transitions]]] = (-1, [])
    """The current block and its number; gathered again whenever another one is due."""

    @classmethod
    def build(
        cls,
        dataset: Dataset,
        demand: Demand,
        batch_size: int,
        length: int,
        seed: int,
        device: torch.device,
        *,
        starts: Starts = "step",
        weights: str = "",
        replacement: bool = True,
    ) -> "SequenceSource":
        """`weights` names a further column: a sequence is drawn in proportion to the weight of its first step."""
        check_sequences(dataset, length)
        bounds = (torch.from_numpy(dataset.index.starts), torch.from_numpy(dataset.index.ends))
        among = bounds[0] if starts == "episode" else None
        batches = batches_at_once(batch_size * length * dataset.row_bytes)
        size = batches * batch_size
        draw = choose_draw(dataset, size, seed, weights=weights, replacement=replacement, among=among)
        return cls(
            dataset.to(device),
            replace(demand, columns=tuple(name for name in demand.columns if name not in MARKS)),
            batch_size,
            length,
            draw,
            among if among is None else among.to(device),
            (bounds[0].to(device), bounds[1].to(device)),
            into_policy_space(dataset.spec.action, device),
            batches,
        )

    def next(self, policy: Policy) -> Transitions:
        """The next batch; what is offline does not depend on who is learning."""
        number, place = divmod(self.drawn, self.block_batches)
        if self.block[0] != number:
            self.block = (number, self._gather(number))
        self.drawn += 1
        return self.block[1][place]

    def _gather(self, number: int) -> list[Transitions]:
        chosen = self.draw.indices(number).to(self.bounds[0].device)
        steps, marks = self._windows(chosen if self.starts is None else self.starts.index_select(0, chosen))
        rows = self.into_policy_space(self.dataset.rows(steps.flatten(), self.demand))
        return fold(rows, self.length, marks).split(self.batch_size)

    def _windows(self, start: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Steps of the sequences from `start` [S], and their marks, each [S, L]."""
        begins, ends = self.bounds
        episode = torch.bucketize(start, ends, right=True)
        begin, end = (bound.index_select(0, episode).unsqueeze(1) for bound in (begins, ends))
        wished = start.unsqueeze(1) + torch.arange(self.length, device=start.device)
        return torch.minimum(wished, end - 1), {"valid": wished < end, "first": wished == begin}


def check_sequences(dataset: Dataset, length: int) -> None:
    if length < 1:
        raise ConfigError("length of sequences", "too short", got=length, expected="at least 1")
    for name in MARKS:
        if name in dataset.extra:
            raise DataError(
                f"dataset '{dataset.name}', column '{name}'",
                "has the name of a mark that sequences carry",
                do="Rename the column.",
            )


def fold(rows: Transitions, length: int, marks: dict[str, Tensor]) -> Transitions:
    """Rows [S·L, …] as sequences [S, L, …] with their marks."""

    def apart(column: Tensor) -> Tensor:
        return column.view(-1, length, *column.shape[1:])

    return Transitions(
        {name: apart(column) for name, column in rows.obs.items()},
        apart(rows.action),
        apart(rows.reward),
        {name: apart(column) for name, column in rows.next_obs.items()},
        apart(rows.terminated),
        {**{name: apart(column) for name, column in rows.extra.items()}, **marks},
    )

"""What PPO learns from: a rollout and the opinions of it before anything moved, whole or in parts."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.protocols import Carry

SEEN = "<seen>"
"""The one group of a network whose perception has nothing to learn: what it made of the observations, once."""
FEATURES, VALID, RESETS = "features", "valid", "resets"
"""In `Study.extra`: the density that drew the actions, where somebody asks how far the policy has moved from it; which
rows count, where not all do; and where a memory starts anew, where there is one."""


@dataclass(frozen=True)
class PPOBatch:
    """Rows [B], or whole sequences [T, n] of some environments."""

    policy_obs: Obs
    value_obs: Obs
    """What each network is shown: observation groups, or `SEEN`."""
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    value: Tensor
    target: Tensor
    extra: dict[str, Tensor]
    policy_carry: Carry = ()
    value_carry: Carry = ()

    @property
    def loose(self) -> bool:
        """Rows [B], all of which count, not sequences."""
        return RESETS not in self.extra

    def counted(self, numbers: Tensor) -> Tensor:
        """Those of rows that count [n]."""
        return numbers[self.extra[VALID]] if VALID in self.extra else numbers

    def rows(self) -> "PPOBatch":
        """The rows [B] that count, for networks without memory."""
        flat = self._picked(lambda column: column.flatten(0, 1))
        if VALID not in flat.extra:
            return flat
        counts = flat.extra.pop(VALID).nonzero()[:, 0]
        return flat._picked(lambda column: column.index_select(0, counts))

    def orders(self, count: int, rng: torch.Generator) -> list[Tensor]:
        """One pass, nothing left out: numbers of rows [B], or of environments where there is memory."""
        total = self.action.shape[0 if self.loose else 1]
        order = torch.randperm(total, generator=rng).to(self.action.device)
        return [some for some in order.tensor_split(max(1, min(count, total))) if self._counts(some)]

    def _counts(self, some: Tensor) -> bool:
        """Whether anything in a minibatch does."""
        return len(some) > 0 and (VALID not in self.extra or bool(self.extra[VALID][:, some].any()))

    def some(self, order: Tensor) -> "PPOBatch":
        """A minibatch: rows of rows [B], or whole sequences [T, n] where there is memory."""
        return self._some(0 if self.loose else 1, order)

    def _some(self, axis: int, rows: Tensor) -> "PPOBatch":
        carries = (tuple(part[rows] for part in carry) for carry in (self.policy_carry, self.value_carry))
        return self._picked(lambda column: column.index_select(axis, rows), *carries)

    def _picked(
        self, pick: Callable[[Tensor], Tensor], policy_carry: Carry = (), value_carry: Carry = ()
    ) -> "PPOBatch":
        return PPOBatch(
            {name: pick(values) for name, values in self.policy_obs.items()},
            {name: pick(values) for name, values in self.value_obs.items()},
            pick(self.action),
            pick(self.log_prob),
            pick(self.advantage),
            pick(self.value),
            pick(self.target),
            {name: pick(values) for name, values in self.extra.items()},
            policy_carry,
            value_carry,
        )

"""Labels of earlier rollouts, kept for some updates: a longer buffer where only a teacher is learned from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from understudy.core.batch import Obs, Rollout
from understudy.core.protocols import Carry
from understudy.core.spec import ACTION_MASK, Spec
from understudy.nn.actor import Actor


class PastRows(NamedTuple):
    """Some rows [B], or sequences [T, n], of earlier rollouts."""

    obs: Obs
    facts: Obs
    valid: Tensor
    resets: Tensor
    carry: Carry


@final
@dataclass
class PastLabels:
    """The newest K rollouts [K, T, N, …], in a ring."""

    obs: Obs
    facts: Obs
    valid: Tensor
    """Which rows count; none of a place where nothing was put yet."""
    resets: Tensor
    carry: Carry
    """What the student remembered before each [K, N, …]."""
    draws: torch.Generator
    put: int = 0
    """Rollouts so far."""

    @classmethod
    def empty(
        cls, count: int, steps: int, envs: int, student: Actor, facts: Mapping[str, Tensor], draws: torch.Generator
    ) -> "PastLabels":
        """`facts` are of one environment [1, …]: what shapes there are."""
        device, ahead = student.action_centre.device, (count, steps, envs)
        obs = {
            name: torch.zeros(*ahead, *shape, dtype=dtype, device=device)
            for name, (shape, dtype) in _seen(student.spec, student).items()
        }
        kept = {
            name: torch.zeros(*ahead, *one.shape[1:], dtype=one.dtype, device=device) for name, one in facts.items()
        }
        valid, resets = (torch.zeros(*ahead, dtype=torch.bool, device=device) for _ in range(2))
        carry = tuple(torch.zeros(count, *part.shape, device=device) for part in student.initial(envs))
        return cls(obs, kept, valid, resets, carry, draws)

    @property
    def filled(self) -> int:
        return min(self.put, len(self.valid))

    @property
    def counted(self) -> int:
        """Rows that count, of all that are kept."""
        return int(self.valid.sum())

    @torch.no_grad()
    def add(self, rollout: Rollout, facts: Obs, valid: Tensor) -> None:
        """A rollout, of which the `valid` rows [T, N] count, in the place of the oldest."""
        place = self.put % len(self.valid)
        for name, column in self.obs.items():
            column[place] = rollout.obs[name]
        for name, column in self.facts.items():
            column[place] = facts[name]
        for column, values in ((self.valid, valid), (self.resets, rollout.resets)):
            column[place] = values
        for column, values in zip(self.carry, rollout.carry, strict=True):
            column[place] = values
        self.put += 1

    def some(self, count: int, *, sequential: bool) -> PastRows:
        """As many rows [B], or sequences [T, n], as `count` for each rollout that is kept."""
        steps, envs = self.valid.shape[1:]
        total = self.filled * count
        place = torch.randint(self.filled, (total,), generator=self.draws).to(self.valid.device)
        env = torch.randint(envs, (total,), generator=self.draws).to(self.valid.device)
        if sequential:
            obs, facts = ({name: c[place, :, env].transpose(0, 1) for name, c in kept.items()} for kept in self._kept)
            flags = (self.valid[place, :, env].T, self.resets[place, :, env].T)
            return PastRows(obs, facts, *flags, tuple(part[place, env] for part in self.carry))
        step = torch.randint(steps, (total,), generator=self.draws).to(self.valid.device)
        obs, facts = ({name: c[place, step, env] for name, c in kept.items()} for kept in self._kept)
        return PastRows(obs, facts, self.valid[place, step, env], self.resets[place, step, env], ())

    @property
    def _kept(self) -> tuple[Obs, Obs]:
        return self.obs, self.facts


def _seen(spec: Spec, student: Actor) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """What the student looks at, by group: shape and kind."""
    groups = {entry.group: spec.observation[entry.group] for entry in student.inputs}
    kinds = {"uint8": torch.uint8, "float16": torch.float16}
    found = {name: (group.shape, kinds.get(group.dtype, torch.float32)) for name, group in groups.items()}
    return found | ({ACTION_MASK: ((student.distribution.outputs,), torch.bool)} if spec.masked else {})

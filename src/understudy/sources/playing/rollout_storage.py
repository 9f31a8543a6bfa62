"""Room for one rollout [T, N, …], filled step by step."""

from typing import final

import torch
from torch import Tensor

from understudy.core.batch import Obs, Rollout, Successors
from understudy.core.protocols import Carry
from understudy.envs.vector.contract import Block, Step
from understudy.sources.playing.rollout_actor import Drawn


@final
class RolloutStorage:
    """Fresh tensors for T steps; observations have one row more, for what is seen after the last step.

    A successor is what is seen next, except where an episode ended: only those are kept beside it.
    """

    def __init__(self, steps: int, obs: Obs, device: torch.device) -> None:
        self._steps, self._device = steps, device
        self._count = len(next(iter(obs.values())))
        self._obs = {name: self._empty(steps + 1, values) for name, values in obs.items()}
        self._rows = [dict(zip(obs, row, strict=True)) for row in zip(*map(_rows, self._obs.values()), strict=True)]
        self._see(0, obs)
        self._reward = torch.empty(steps, self._count, device=device)
        self._ends = torch.empty(3, steps, self._count, dtype=torch.bool, device=device)
        parts = (self._reward, *self._ends.unbind(0))
        self._parts = list(zip(*map(_rows, parts), strict=True))
        """Views of one step's rewards and flags: indexing at every step would cost more than it."""
        self._ended_at: list[Tensor] = []
        self._finals: list[Obs] = []
        """What followed steps that ended an episode, and their numbers t·N + n."""
        self._reward_terms: dict[str, Tensor] = {}
        self._block_rows: dict[tuple[str, ...], tuple[Tensor, ...]] = {}

    def _empty(self, rows: int, like: Tensor) -> Tensor:
        return torch.empty(rows, *like.shape, dtype=like.dtype, device=self._device)

    def _see(self, row: int, obs: Obs) -> None:
        for name, target in self._rows[row].items():
            target.copy_(obs[name])

    def seen(self, t: int) -> Obs:
        """What the policy sees at step t [N, …]."""
        return self._rows[t]

    def all_seen(self) -> Obs:
        """What it saw at every step [T, N, …]."""
        return {name: values[:-1] for name, values in self._obs.items()}

    def last(self) -> Obs:
        """What it sees after the last step, as a copy [N, …]."""
        return {name: values.clone() for name, values in self._rows[self._steps].items()}

    def put(self, t: int, step: Step) -> None:
        told = (step.reward, step.terminated, step.truncated, step.valid)
        for target, values in zip(self._parts[t], told, strict=True):
            target.copy_(values)
        self._see(t + 1, step.obs)
        if step.final_obs is not step.obs:
            ended = (step.terminated | step.truncated).nonzero()[:, 0]
            self._ended_at.append(ended.to(self._device) + t * self._count)
            self._finals.append({name: step.final_obs[name][ended].to(self._device) for name in self._obs})
        if not step.extras:
            return
        if isinstance(step.extras, Block):
            self._blocks(step.extras.names)[t].copy_(step.extras.rows)
            return
        for name, numbers in step.extras.items():
            if name not in self._reward_terms:
                self._reward_terms[name] = torch.full((self._steps, self._count), torch.nan, device=self._device)
            self._reward_terms[name][t] = numbers

    def _blocks(self, names: tuple[str, ...]) -> tuple[Tensor, ...]:
        """Room for reward terms that come in one piece, step by step [K, N]."""
        if names not in self._block_rows:
            room = torch.full((self._steps, len(names), self._count), torch.nan, device=self._device)
            self._block_rows[names] = room.unbind(0)
            self._reward_terms |= dict(zip(names, room.unbind(1), strict=True))
        return self._block_rows[names]

    def rollout(self, carry: Carry, drawn: Drawn, facts: Obs, *, anew: bool) -> Rollout:
        """Everything that was put, with what the policy drew, remembered before the first step, and others recorded."""
        none = torch.empty(0, dtype=torch.int64, device=self._device)
        finals = {name: torch.cat([one[name] for one in self._finals]) for name in self._obs if self._finals}
        next_obs = Successors(self._obs, torch.cat([none, *self._ended_at]), finals)
        terminated, truncated, valid = self._ends
        return Rollout(
            self.all_seen(),
            drawn.action,
            drawn.log_prob,
            self._reward,
            next_obs,
            terminated,
            truncated,
            valid,
            carry,
            self._reward_terms,
            {**drawn.extra, **facts},
            anew,
        )


def _rows(values: Tensor) -> tuple[Tensor, ...]:
    return values.unbind(0)

"""A dataset: columns and episodes, in memory or memory-mapped.

Each observation is stored once: an episode of n steps has n+1 observation slots, and `next_obs` of a step is
the slot after its own. Step t of episode e therefore sits in slot t + e, and a million transitions cost
little more than their raw bytes.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs, Transitions
from understudy.core.errors import DataError, did_you_mean
from understudy.core.protocols import Demand, Moments
from understudy.core.spec import Box, Group, Spec
from understudy.data.episode import Array, Episode, check_episode
from understudy.data.n_step import n_step_return

CHUNK_ROWS = 1 << 16
CHUNK_BYTES = 1 << 24
CHUNK_EPISODES = 1 << 10
COLUMNS = ("td_valid", "discount", "next_action", "row")


@dataclass(frozen=True)
class EpisodeIndex:
    """Where episodes lie and how each ended; every array is [E]."""

    lengths: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_known: NDArray[np.bool_]

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """One past the last step of each episode."""
        return np.cumsum(self.lengths)

    def arrays(self) -> dict[str, Array]:
        return {
            "lengths": self.lengths,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "final_known": self.final_known,
        }


class Pager(Protocol):
    """Reads rows of columns that are too large to be mapped as a whole."""

    def take(self, name: str, index: Tensor) -> Tensor: ...

    def release(self) -> None:
        """Hand back what scanning made resident."""


@final
class Dataset:
    """Immutable. `rows` gathers a batch; everything else describes."""

    def __init__(
        self,
        spec: Spec,
        observations: Mapping[str, Tensor],
        actions: Tensor,
        rewards: Tensor,
        index: EpisodeIndex,
        *,
        name: str,
        fingerprint: str | None = None,
        pager: Pager | None = None,
    ) -> None:
        self.spec = spec
        self.observations = dict(observations)
        self.actions = actions
        self.rewards = rewards
        self.index = index
        self.name = name
        self._pager = pager
        self._reward_map: Callable[[Tensor], Tensor] | None = None
        if fingerprint is not None:
            self.__dict__["fingerprint"] = fingerprint
        device = actions.device
        last = torch.from_numpy(index.ends - 1)
        self._ends = torch.from_numpy(index.ends).to(device)
        self._terminated = torch.zeros(self.steps, dtype=torch.bool)
        self._terminated[last] = torch.from_numpy(index.terminated)
        self._td_valid = torch.ones(self.steps, dtype=torch.bool)
        self._td_valid[last] = torch.from_numpy(index.final_known | index.terminated)
        self._terminated, self._td_valid = self._terminated.to(device), self._td_valid.to(device)

    @classmethod
    def from_episodes(cls, episodes: Iterable[Episode], action_space: Box, *, name: str = "episodes") -> "Dataset":
        """Check every episode and lay them out as columns."""
        checked = [check_episode(episode, f"dataset '{name}', episode {i}") for i, episode in enumerate(episodes)]
        if not checked:
            raise DataError(f"dataset '{name}'", "has no episodes")
        spec = Spec(_groups(checked, name), action_space)
        actions = np.concatenate([episode.actions for episode in checked])
        check_actions(actions, action_space, f"dataset '{name}'")
        observations = {
            group: torch.from_numpy(np.concatenate([_slots(episode, group) for episode in checked]))
            for group in spec.observation
        }
        index = EpisodeIndex(
            np.array([len(episode) for episode in checked], np.int64),
            np.array([episode.terminated for episode in checked]),
            np.array([episode.truncated for episode in checked]),
            np.array([episode.final_known for episode in checked]),
        )
        rewards = torch.from_numpy(np.concatenate([episode.rewards for episode in checked]))
        return cls(spec, observations, torch.from_numpy(actions), rewards, index, name=name)

    @property
    def steps(self) -> int:
        return int(self.index.ends[-1])

    @property
    def episodes(self) -> int:
        return len(self.index.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes held, derived columns included."""
        columns = [*self.observations.values(), self.actions, self.rewards, self._terminated, self._td_valid]
        return sum(column.nbytes for column in columns) + sum(array.nbytes for array in self.index.arrays().values())

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one transition as `rows` gathers it: both observations, action and reward."""
        observations = sum(column[0].nbytes for column in self.observations.values())
        return 2 * observations + self.actions[0].nbytes + self.rewards[0].nbytes

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the content: equal for the same data in memory, in a store, on any day."""
        digest = hashlib.sha256(json.dumps(self.spec.to_json(), sort_keys=True).encode())
        for name, column in self.columns().items():
            digest.update(f"{name} {column.dtype.name} {list(column.shape)}\n".encode())
            for block in self.blocks(column):
                digest.update(block.data)
        return digest.hexdigest()

    def columns(self) -> dict[str, Array]:
        """Everything that is stored, by name, in a fixed order."""
        observations = {
            f"observation.{name}": self.observations[name].cpu().numpy() for name in sorted(self.observations)
        }
        return {
            **observations,
            "action": self.actions.cpu().numpy(),
            "reward": self.rewards.cpu().numpy(),
            **self.index.arrays(),
        }

    def blocks(self, column: Array) -> Iterator[Array]:
        """A stored column in contiguous pieces; mapped pages are handed back behind the reader."""
        rows = min(CHUNK_ROWS, max(1, CHUNK_BYTES // max(1, column[:1].nbytes)))
        for start in range(0, len(column), rows):
            yield np.ascontiguousarray(column[start : start + rows])
            self._release()

    def returns(self) -> NDArray[np.float64]:
        """Undiscounted return of every episode [E], on raw rewards."""
        rewards, ends = self.rewards.cpu().numpy(), self.index.ends
        starts = ends - self.index.lengths
        returns = np.empty(self.episodes)
        for first in range(0, self.episodes, CHUNK_EPISODES):
            part = slice(first, first + CHUNK_EPISODES)
            rows = rewards[starts[first] : ends[part][-1]]
            returns[part] = np.add.reduceat(rows, starts[part] - starts[first], dtype=np.float64)
            self._release()
        return returns

    def moments(self) -> dict[str, Moments]:
        """Mean and standard deviation of each group over all slots, in float64, in bounded memory."""
        return {name: self._moments(column.cpu().numpy()) for name, column in self.observations.items()}

    def _moments(self, column: Array) -> Moments:
        mean = torch.zeros(column.shape[1:], dtype=torch.float64)
        for block in self.blocks(column):
            mean += torch.from_numpy(block).double().sum(0)
        mean /= len(column)
        squares = torch.zeros_like(mean)
        for block in self.blocks(column):
            squares += (torch.from_numpy(block).double() - mean).square().sum(0)
        return Moments(mean.float(), (squares / len(column)).sqrt().float())

    def with_rewards(self, transform: Callable[[Tensor], Tensor]) -> "Dataset":
        """The same data, whose `rows` carry transformed rewards; nothing is copied, `rewards` stay raw."""
        inner = self._reward_map
        other = copy(self)
        other._reward_map = transform if inner is None else lambda reward: transform(inner(reward))
        return other

    def to(self, device: torch.device) -> "Dataset":
        """The same data with its columns on `device`."""
        if self.actions.device == device:
            return self
        observations = {name: column.to(device) for name, column in self.observations.items()}
        actions, rewards = self.actions.to(device), self.rewards.to(device)
        moved = Dataset(self.spec, observations, actions, rewards, self.index, name=self.name)
        moved._reward_map = self._reward_map
        return moved

    def rows(self, index: Tensor, demand: Demand) -> Transitions:
        """Steps `index` [B] as a batch, in stored units."""
        slots = index + torch.bucketize(index, self._ends, right=True)
        obs = self._observe(slots)
        action = self._take("action", self.actions, index).float()
        if demand.horizon == 1:
            return Transitions(
                obs,
                action,
                self._reward(index),
                self._observe(slots + 1),
                self._terminated.index_select(0, index),
                {name: self._extra(name, index, demand.gamma) for name in demand.columns},
            )
        return self._n_step_rows(obs, action, index, slots, demand)

    def _n_step_rows(self, obs: Obs, action: Tensor, index: Tensor, slots: Tensor, demand: Demand) -> Transitions:
        """Reward, successor and flags of windows that end at the horizon or with the episode."""
        lengths = (self._ends[slots - index] - index).clamp(max=demand.horizon)
        window = index.unsqueeze(1) + torch.arange(demand.horizon, device=index.device)
        rewards = self._reward(window.clamp(max=self.steps - 1).flatten()).view_as(window)
        reward, discount = n_step_return(rewards, lengths, demand.gamma)
        final_step = index + lengths - 1
        extra = {name: self._extra(name, final_step, demand.gamma) for name in demand.columns}
        if "discount" in extra:
            extra["discount"] = discount
        if "row" in extra:
            extra["row"] = index
        return Transitions(
            obs, action, reward, self._observe(slots + lengths), self._terminated.index_select(0, final_step), extra
        )

    def _observe(self, slots: Tensor) -> Obs:
        return {name: self._take(f"observation.{name}", column, slots) for name, column in self.observations.items()}

    def _reward(self, index: Tensor) -> Tensor:
        raw = self._take("reward", self.rewards, index)
        return raw if self._reward_map is None else self._reward_map(raw)

    def _take(self, name: str, column: Tensor, index: Tensor) -> Tensor:
        return column.index_select(0, index) if self._pager is None else self._pager.take(name, index)

    def _release(self) -> None:
        if self._pager is not None:
            self._pager.release()

    def _extra(self, name: str, index: Tensor, gamma: float) -> Tensor:
        if name == "td_valid":
            return self._td_valid.index_select(0, index)
        if name == "discount":
            return torch.full_like(index, gamma, dtype=torch.float32)
        if name == "next_action":
            return self._take("action", self.actions, (index + 1).clamp(max=self.steps - 1)).float()
        if name == "row":
            return index
        raise DataError(f"column '{name}'", "no such column of a dataset", do=did_you_mean(name, COLUMNS))


def check_actions(actions: Array, space: Box, where: str) -> None:
    """Actions have the space's dimension and lie inside it, up to float32 rounding."""
    if actions.shape[1:] != (space.size,):
        raise DataError(where, "actions have the wrong size", got=actions.shape[1], expected=space.size)
    slack = 1e-5 * space.half_range
    low, high = np.asarray(space.low) - slack, np.asarray(space.high) + slack
    outside = ((actions < low) | (actions > high)).any(1)
    if outside.any():
        raise DataError(
            where,
            f"{int(outside.sum())} of {len(actions)} actions lie outside the action space",
            got=f"up to {np.abs(actions).max():g}",
            expected=f"{space.low} to {space.high}",
            do="Choose: data.actions=clip cuts them to the bounds; or give the bounds they were recorded in.",
        )


def _groups(episodes: Sequence[Episode], name: str) -> dict[str, Group]:
    first = {group: Group(values.shape[1:], values.dtype.name) for group, values in episodes[0].observations.items()}
    action_size = episodes[0].actions.shape[1]
    for number, episode in enumerate(episodes):
        groups = {group: Group(values.shape[1:], values.dtype.name) for group, values in episode.observations.items()}
        if groups != first:
            raise DataError(f"dataset '{name}', episode {number}", "observations differ", got=groups, expected=first)
        if episode.actions.shape[1] != action_size:
            raise DataError(
                f"dataset '{name}', episode {number}",
                "action size differs",
                got=episode.actions.shape[1],
                expected=action_size,
            )
    return first


def _slots(episode: Episode, group: str) -> Array:
    """n+1 slots; an unknown final observation repeats the last known one and is never used as a successor."""
    values = episode.observations[group]
    return values if episode.final_known else np.concatenate([values, values[-1:]])

"""A dataset: columns and episodes, in memory or memory-mapped.

Each observation is stored once: an episode of n steps has n+1 observation slots, and `next_obs` of a step is
the slot after its own. Step t of episode e therefore sits in slot t + e, and a million transitions cost
little more than their raw bytes.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Protocol, final, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.arguments import as_text, kind_of
from understudy.core.batch import Obs, Transitions
from understudy.core.errors import DataError, did_you_mean
from understudy.core.protocols import Demand, Moments
from understudy.core.spec import GivenSpace, Spec, as_action_space
from understudy.core.wording import counted
from understudy.data.assemble import check_action_bounds, check_same, join, join_masks, join_slots, spec_of_episode
from understudy.data.episode import Array, Episode, Precision, check_episode
from understudy.data.fingerprint import ColumnFacts, fingerprint
from understudy.data.index import EpisodeIndex, step_numbers
from understudy.data.recording import NO_REWARDS, Recording
from understudy.data.returns import episode_sums, returns_to_go

CHUNK_ROWS = 1 << 16
CHUNK_BYTES = 1 << 24
DERIVED = ("td_valid", "discount", "next_action", "next_action_valid", "return_to_go", "row")


class Pager(Protocol):
    """Reads rows of columns that are too large to be mapped as a whole."""

    def take(self, name: str, index: Tensor) -> Tensor: ...

    def pairs(self, name: str, index: Tensor) -> tuple[Tensor, Tensor]:
        """Rows `index` and the rows after them."""

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
        env: str = "",
        mask: Tensor | None = None,
        extra: Mapping[str, Tensor] | None = None,
        fingerprint: str | None = None,
        pager: Pager | None = None,
        has_rewards: bool = True,
    ) -> None:
        self._pager = pager  # the first, so that one that cannot be sent to another process refuses at once
        self.spec = spec
        self.observations = dict(observations)
        self.actions = actions
        self.rewards = rewards
        self.mask = mask
        """Legal actions of every observation slot, if they were recorded."""
        self.extra = dict(extra or {})
        """Further columns, a row per step."""
        self.index = index
        self.name = name
        self.has_rewards = has_rewards
        """Rewards were recorded; otherwise they read as 0, and there is only imitation to be learned."""
        self.env = env
        """The environment it says it came from: a word to show and to write down, no part of the content."""
        self._reward_maps: tuple[Callable[[Tensor], Tensor], ...] = ()
        self._added: frozenset[str] = frozenset()
        self._known_returns: dict[tuple[Any, ...], Tensor] = {}
        if fingerprint is not None:
            self.__dict__["fingerprint"] = fingerprint
        device = actions.device
        last = torch.from_numpy(index.ends - 1)
        self._ends = torch.from_numpy(index.ends).to(device)
        # To search among the ends is a sixth of a batch from memory, and nothing beside a read from disk.
        self._episode_of = None if pager is not None else index.of_steps().to(device)
        self._terminated = torch.zeros(self.steps, dtype=torch.bool)
        self._terminated[last] = torch.from_numpy(index.terminated)
        self._td_valid = torch.ones(self.steps, dtype=torch.bool)
        self._td_valid[last] = torch.from_numpy(index.final_known | index.terminated)
        # One past the last step whose successor is known, of each episode: where n-step windows end.
        self._known_ends = (last + self._td_valid[last]).to(device)
        self._terminated, self._td_valid = self._terminated.to(device), self._td_valid.to(device)

    @classmethod
    def from_episodes(
        cls,
        episodes: Iterable[Episode],
        action_space: GivenSpace,
        *,
        name: str = "episodes",
        env: str = "",
        precision: Precision = "float32",
        has_rewards: bool = True,
    ) -> "Dataset":
        """Check every episode and lay them out as columns."""
        where = f"dataset '{name}'"
        space = as_action_space(action_space, where)
        if isinstance(episodes, (str, bytes, Mapping)) or not isinstance(episodes, Iterable):
            raise DataError(where, "not a list of episodes", got=kind_of(episodes), expected="[Episode, …]")
        if as_text(precision, "precision") not in get_args(Precision):
            raise DataError(where, "no such precision", got=precision, expected=" or ".join(get_args(Precision)))
        checked = [
            check_episode(episode, f"{where}, episode {number}", space, precision)
            for number, episode in enumerate(episodes)
        ]
        if not checked:
            raise DataError(where, "has no episodes")
        for number, episode in enumerate(checked):
            check_same(episode, checked[0], f"{where}, episode {number}")
        actions = np.concatenate([episode.actions for episode in checked])
        check_action_bounds(actions, space, where)
        spec = spec_of_episode(checked[0], space)
        return cls(
            spec,
            {group: join_slots(checked, group) for group in spec.observation},
            torch.from_numpy(actions),
            join([episode.rewards for episode in checked]),
            EpisodeIndex.of(checked),
            name=name,
            env=env,
            mask=join_masks(checked),
            extra={column: join([episode.extra[column] for episode in checked]) for column in checked[0].extra},
            has_rewards=has_rewards,
        )

    def __len__(self) -> int:
        """Steps: with `__getitem__`, what torch's DataLoader asks of a dataset of maps."""
        return self.steps

    def __getitem__(self, step: int | slice | Sequence[int] | Tensor) -> dict[str, Any]:
        """A step as a dict of tensors, groups of observations as dicts in it; of several steps a batch of them."""
        index = step_numbers(step, self.steps, f"dataset '{self.name}'").to(self.actions.device)
        masks = () if self.mask is None else ("mask", "next_mask")
        demand = Demand(columns=("td_valid", *masks, *self.extra))
        rows = self.rows(index.reshape(-1), demand)
        batch = {"observation": rows.obs, "action": rows.action, "reward": rows.reward}
        batch |= {"next_observation": rows.next_obs, "terminated": rows.terminated, **rows.extra}
        return batch if index.ndim else _first(batch)

    @property
    def steps(self) -> int:
        return int(self.index.ends[-1])

    @property
    def episodes(self) -> int:
        return len(self.index.lengths)

    def __repr__(self) -> str:
        size = f"{counted(self.episodes, 'episode')}, {counted(self.steps, 'step')}"
        if not self.has_rewards:
            size += ", no rewards"
        elif self._pager is None:  # of a store larger than memory they would take their time
            returns = self.returns()
            size += f", return {returns.mean():.4g} ({returns.min():.4g} to {returns.max():.4g})"
        return f"Dataset('{self.name}': {size}; {self.spec!r})"

    @property
    def nbytes(self) -> int:
        """Bytes held, derived columns included."""
        stored = sum(column.nbytes for column in self.columns().values())
        derived = (self._terminated, self._td_valid, self._known_ends, self._episode_of)
        return stored + sum(column.nbytes for column in derived if column is not None)

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one transition as `rows` gathers it: both observations, action and reward."""
        observations = sum(column[0].nbytes for column in self.observations.values())
        return 2 * observations + self.actions[0].nbytes + self.rewards[0].nbytes

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the content: equal for the same data in memory, in a store, on any day."""
        return fingerprint(self.spec, {name: self._digest(column) for name, column in self.columns().items()})

    def _digest(self, column: Array) -> ColumnFacts:
        digest = hashlib.sha256()
        for block in self.blocks(column):
            digest.update(block.data)
        return ColumnFacts(column.dtype.name, column.shape, digest.hexdigest())

    def columns(self) -> dict[str, Array]:
        """Everything that is stored, by name, in a fixed order."""
        tensors = {f"observation.{name}": self.observations[name] for name in sorted(self.observations)}
        tensors |= {"action": self.actions, "reward": self.rewards}
        if self.mask is not None:
            tensors["mask"] = self.mask
        tensors |= {f"extra.{name}": self.extra[name] for name in sorted(self.extra)}
        return {**{name: tensor.cpu().numpy() for name, tensor in tensors.items()}, **self.index.arrays()}

    def episode(self, number: int) -> Episode:
        """Episode `number`, as views of the columns; -1 is the last one."""
        index, number = self.index, self.index.number(number, f"dataset '{self.name}'")
        first, end = int(index.starts[number]), int(index.ends[number])
        known = bool(index.final_known[number])
        slots = slice(first + number, end + number + known)
        return Episode(
            {name: column[slots].cpu().numpy() for name, column in self.observations.items()},
            self.actions[first:end].cpu().numpy(),
            self.rewards[first:end].cpu().numpy(),
            bool(index.terminated[number]),
            bool(index.truncated[number]),
            known,
            None if self.mask is None else self.mask[slots].cpu().numpy(),
            {name: column[first:end].cpu().numpy() for name, column in self.extra.items()},
        )

    def recording(self) -> Recording:
        """The same episodes as a stream."""
        facts = {} if self.has_rewards else NO_REWARDS
        return Recording(self.name, self.steps, self._play, self.spec.action, "store", self.env, facts=facts)

    def _play(self) -> Iterator[Episode]:
        seen = 0
        for number in range(self.episodes):
            yield self.episode(number)
            seen += int(self.index.lengths[number]) * self.row_bytes
            if seen > CHUNK_BYTES:
                self.release()
                seen = 0

    def blocks(self, column: Array) -> Iterator[Array]:
        """A stored column in contiguous pieces; mapped pages are handed back behind the reader."""
        rows = min(CHUNK_ROWS, max(1, CHUNK_BYTES // max(1, column[:1].nbytes)))
        for start in range(0, len(column), rows):
            yield np.ascontiguousarray(column[start : start + rows])
            self.release()

    def returns(self) -> NDArray[np.float64]:
        """Undiscounted return of every episode [E], on raw rewards."""
        return episode_sums(self.rewards.cpu().numpy(), self.index, self.release)

    def moments(self) -> dict[str, Moments]:
        """Mean and standard deviation of each group over the observations of all steps, in float64, in bounded memory.

        Final observations are no step's, and D4RL's flat files lack most of them: they are left out, as in CORL.
        """
        return {name: self._moments(column.cpu().numpy()) for name, column in self.observations.items()}

    def _moments(self, column: Array) -> Moments:
        """One pass: block means and squared deviations, merged (Chan, Golub and LeVeque 1979)."""
        count, mean = 0, torch.zeros(column.shape[1:], dtype=torch.float64)
        squares = torch.zeros_like(mean)
        for block in self._acted_on(column):
            values = torch.from_numpy(block).double()
            block_mean = values.mean(0)
            shift, total = block_mean - mean, count + len(values)
            squares += (values - block_mean).square_().sum(0) + shift.square() * (count * len(values) / total)
            mean += shift * (len(values) / total)
            count = total
        return Moments(mean.float(), (squares / count).sqrt().float())

    def _acted_on(self, column: Array) -> Iterator[Array]:
        """The slots of a column in pieces, without the final one of each episode."""
        finals = self.index.ends + np.arange(self.episodes)
        start = 0
        for block in self.blocks(column):
            first, last = np.searchsorted(finals, (start, start + len(block)))
            kept = np.delete(block, finals[first:last] - start, axis=0) if first < last else block
            start += len(block)
            if len(kept):
                yield kept

    @property
    def changes_rewards(self) -> bool:
        """`rows` carry other rewards than were recorded."""
        return bool(self._reward_maps)

    def with_rewards(self, transform: Callable[[Tensor], Tensor]) -> "Dataset":
        """The same data, whose `rows` carry transformed rewards; nothing is copied, `rewards` stay raw."""
        other = copy(self)
        other._reward_maps = (*self._reward_maps, transform)
        return other

    def with_extra(self, name: str, values: Tensor) -> "Dataset":
        """The same data with a further column, one row per step: a priority to draw by, for instance."""
        if name in (*DERIVED, "mask", "next_mask") or len(values) != self.steps:
            raise DataError(
                f"dataset '{self.name}', column '{name}'", "cannot be added", got=len(values), expected=self.steps
            )
        other = copy(self)
        other.extra = {**self.extra, name: values.to(self.actions.device)}
        other._added = self._added | {name}
        other.__dict__.pop("fingerprint", None)
        return other

    def to(self, device: torch.device) -> "Dataset":
        """The same data with its columns on `device`."""
        if self.actions.device == device:
            return self
        moved = Dataset(
            self.spec,
            {name: column.to(device) for name, column in self.observations.items()},
            self.actions.to(device),
            self.rewards.to(device),
            self.index,
            name=self.name,
            env=self.env,
            mask=None if self.mask is None else self.mask.to(device),
            extra={name: column.to(device) for name, column in self.extra.items()},
            has_rewards=self.has_rewards,
        )
        moved._reward_maps = self._reward_maps
        return moved

    def rows(self, index: Tensor, demand: Demand) -> Transitions:
        """Steps `index` [B] as a batch, in stored units."""
        slots = index + self._episode(index)
        action = self._action(index)
        if demand.horizon == 1:
            obs, next_obs = self._observe_both(slots)
            return Transitions(
                obs,
                action,
                self._reward(index),
                next_obs,
                self._terminated.index_select(0, index),
                {name: self._extra(name, index, index, demand.gamma) for name in demand.columns},
            )
        return self._n_step_rows(self._observe(slots), action, index, slots, demand)

    def _n_step_rows(self, obs: Obs, action: Tensor, index: Tensor, slots: Tensor, demand: Demand) -> Transitions:
        """Reward, successor and flags of windows that end at the horizon or with the episode.

        Where the final observation is unknown and the world went on, they end with the last one that is known: only
        the last step, which has no successor at all, is left without a window.
        """
        lengths = (self._known_ends[slots - index] - index).clamp(min=1, max=demand.horizon)
        window = index.unsqueeze(1) + torch.arange(demand.horizon, device=index.device)
        rewards = self._reward(window.clamp(max=self.steps - 1).flatten()).view_as(window)
        reward, discount = n_step_return(rewards, lengths, demand.gamma)
        final_step = index + lengths - 1
        extra = {name: self._extra(name, index, final_step, demand.gamma) for name in demand.columns}
        if "discount" in extra:
            extra["discount"] = discount
        return Transitions(
            obs, action, reward, self._observe(slots + lengths), self._terminated.index_select(0, final_step), extra
        )

    def _observe(self, slots: Tensor) -> Obs:
        return {
            name: _single(self._take(f"observation.{name}", column, slots))
            for name, column in self.observations.items()
        }

    def _observe_both(self, slots: Tensor) -> tuple[Obs, Obs]:
        """Observations of `slots` [B] and of the slots after them: on disk they lie side by side."""
        if self._pager is None:
            return self._observe(slots), self._observe(slots + 1)
        pairs = {name: self._pager.pairs(f"observation.{name}", slots) for name in self.observations}
        return (
            {name: _single(pair[0]) for name, pair in pairs.items()},
            {name: _single(pair[1]) for name, pair in pairs.items()},
        )

    def _episode(self, step: Tensor) -> Tensor:
        """The episode that each step [B] belongs to."""
        if self._episode_of is None:
            return torch.bucketize(step, self._ends, right=True)
        return self._episode_of.index_select(0, step)

    def _action(self, index: Tensor) -> Tensor:
        return _single(self._take("action", self.actions, index))

    def _reward(self, index: Tensor) -> Tensor:
        reward = _single(self._take("reward", self.rewards, index))
        for transform in self._reward_maps:
            reward = transform(reward)
        return reward

    def _returns_to_go(self, gamma: float) -> Tensor:
        """What the rewards of `rows` come to from each step on [steps]; computed once."""
        what = (gamma, self._reward_maps)
        if what not in self._known_returns:
            self._known_returns[what] = returns_to_go(self._reward, self._ends, gamma)
            self.release()
        return self._known_returns[what]

    def _take(self, name: str, column: Tensor, index: Tensor) -> Tensor:
        return column.index_select(0, index) if self._pager is None else self._pager.take(name, index)

    def release(self) -> None:
        """Hand back the memory that reading mapped columns took; they are read again when they are needed."""
        if self._pager is not None:
            self._pager.release()

    def _extra(self, name: str, index: Tensor, final_step: Tensor, gamma: float) -> Tensor:
        """A further column of steps `index`, whose n-step windows end with `final_step` (both [B])."""
        if name == "row":
            return index
        if name == "td_valid":
            return self._td_valid.index_select(0, final_step)
        if name == "discount":
            return torch.full_like(index, gamma, dtype=torch.float32)
        if name == "next_action":
            return self._action((final_step + 1).clamp(max=self.steps - 1))
        if name == "next_action_valid":
            return final_step + 1 < self._ends[self._episode(final_step)]
        if name == "return_to_go":
            return self._returns_to_go(gamma).index_select(0, index)
        if name in ("mask", "next_mask") and self.mask is not None:
            step, later = (index, 0) if name == "mask" else (final_step, 1)
            return self._take("mask", self.mask, step + self._episode(step) + later)
        if name in self._added:
            return _single(self.extra[name].index_select(0, index))
        if name in self.extra:
            return _single(self._take(f"extra.{name}", self.extra[name], index))
        masks = () if self.mask is None else ("mask", "next_mask")
        known = (*DERIVED, *masks, *self.extra)
        raise DataError(
            f"dataset '{self.name}', column '{name}'", "no such column of a dataset", do=did_you_mean(name, known)
        )


def _first(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The only row of a batch, without its axis."""
    return {name: _first(value) if isinstance(value, dict) else value[0] for name, value in batch.items()}


def _single(values: Tensor) -> Tensor:
    """What was stored wide is handed out in float32."""
    return values.float() if values.dtype == torch.float64 else values


def n_step_return(rewards: Tensor, lengths: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Σ_{k<m} γᵏ·r_k [B] and γᵐ [B] from windows [B, n] of which the first m = lengths [B] are real."""
    steps = torch.arange(rewards.shape[1], device=rewards.device)
    powers = torch.pow(torch.tensor(gamma, dtype=rewards.dtype, device=rewards.device), steps)
    inside = steps < lengths.unsqueeze(1)
    total = torch.where(inside, rewards * powers, 0.0).sum(1)
    return total, torch.pow(torch.tensor(gamma, dtype=rewards.dtype, device=rewards.device), lengths)

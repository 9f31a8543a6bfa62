"""Whole episodes out of N environments that step together, in an order that no clock decides.

Environment n plays the episodes n, n + N, n + 2N, …, and episodes come out by their number: short ones are not more
likely to be kept than long ones. Where the world seeds episodes one by one and the player is repeatable, episode k is a
function of the seed and k, and playing can begin with any of them. Otherwise they are played in rounds: a round begins
from a seed of its own, so that whoever goes on plays one round again at most.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_up
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.core.batch import Obs
from understudy.core.rng import derived_seed, simulator_seed
from understudy.core.spec import ACTION_MASK, as_actions
from understudy.data.episode import Episode
from understudy.envs.played_env import LONGEST_EPISODE, endless_episode
from understudy.envs.vector.contract import Block, Step
from understudy.envs.vector.step_timeout import TimedVectorEnv
from understudy.sources.playing.players import Player

ROUND = 16
"""Episodes of each environment in a round."""
BLOCK = 128
"""Steps that are kept side by side before they are told apart by environment."""
Columns = dict[str, NDArray[Any]]


@final
@dataclass(frozen=True)
class PlayedEpisode:
    """An episode, its number, and what the environment told of every step beside [n], NaN where it told nothing."""

    number: int
    episode: Episode
    info: Mapping[str, NDArray[np.float64]]


def play_episodes(
    world: TimedVectorEnv, player: Player, seed: int, first: int = 0, info: Sequence[str] = ()
) -> Iterator[PlayedEpisode]:
    """Episodes from number `first` on, for as long as somebody wants more; `info` names numbers to keep."""
    size = ROUND * world.count
    if world.seeds_episodes and player.repeatable:
        yield from Round(world, player, seed, info).play(first)
    elif not world.restartable:
        yield from _from(first, Round(world, player, seed, info).play(0))
    else:
        for number in count_up(first // size):
            own = Round(world, player, seed, info).play(number * size, (number + 1) * size)
            yield from _from(first, own)


def _from(first: int, played: Iterator[PlayedEpisode]) -> Iterator[PlayedEpisode]:
    return (one for one in played if one.number >= first)


@final
class Round:
    """Playing from a reset on."""

    def __init__(self, world: TimedVectorEnv, player: Player, seed: int, info: Sequence[str]) -> None:
        self._world, self._player, self._seed, self._info = world, player, seed, tuple(info)
        self._next: list[int] = []
        """Seeds of the episodes that begin next in each environment."""

    def play(self, first: int, end: int | None = None) -> Iterator[PlayedEpisode]:
        """The episodes from `first` up to before `end`, in order."""
        world, player, space = self._world, self._player, self._world.spec.action
        count = world.count
        numbers = [first + (number - first) % count for number in range(count)]
        obs = self._begin(numbers, first)
        steps = StepBlocks(obs, self._info, world.spec.masked)
        waiting: dict[int, PlayedEpisode] = {}
        while True:
            actions = as_actions(player.act(obs), space)
            steps.put(obs, actions)
            step = world.step(torch.from_numpy(actions))
            steps.answer(step)
            obs, terminated, truncated = step.obs, step.terminated.numpy(force=True), step.truncated.numpy(force=True)
            valid, over = step.valid.numpy(force=True), True in terminated.tobytes() or True in truncated.tobytes()
            if not over and False not in valid.tobytes():  # a tenth of the time of any() and all()
                steps.advance()
                continue
            ended = terminated | truncated
            if over:
                for slot in np.flatnonzero(ended).tolist():
                    if end is None or numbers[slot] < end:
                        waiting[numbers[slot]] = steps.take(slot, step, numbers[slot])
                    numbers[slot] += count
                    self._next[slot] = self._environment_seed(numbers[slot] + count)
                self._seed_next()
                while first in waiting:
                    yield waiting.pop(first)
                    first += 1
                if first == end:
                    return
            fresh = np.flatnonzero(ended | ~valid).tolist()
            steps.skip(fresh)
            player.begin({slot: self._episode_seed(numbers[slot]) for slot in fresh})
            steps.advance()

    def _begin(self, numbers: Sequence[int], first: int) -> Obs:
        own = derived_seed(self._seed, "round", first)
        if self._world.seeds_episodes:
            self._world.seed_episodes([self._environment_seed(number) for number in numbers])
        obs = self._world.reset(own)
        self._next = [self._environment_seed(number + self._world.count) for number in numbers]
        self._seed_next()
        self._player.restart(own)
        self._player.begin({slot: self._episode_seed(number) for slot, number in enumerate(numbers)})
        return obs

    def _seed_next(self) -> None:
        if self._world.seeds_episodes:
            self._world.seed_episodes(self._next)

    def _environment_seed(self, number: int) -> int:
        return simulator_seed(self._episode_seed(number))

    def _episode_seed(self, number: int) -> int:
        return derived_seed(self._seed, "episode", number)


@final
class StepBlocks:
    """Steps of N environments side by side [BLOCK, N, …]; an environment's episode is cut out when it is whole."""

    def __init__(self, obs: Obs, info: Sequence[str], masked: bool) -> None:
        self._info, self._masked = tuple(info), masked
        self._count = len(next(iter(obs.values())))
        self._time = 0
        self._start = [0] * self._count
        self._pieces: list[list[Columns]] = [[] for _ in range(self._count)]
        self._columns: Columns = {
            name: np.empty((BLOCK, *values.shape), values.numpy(force=True).dtype) for name, values in obs.items()
        }
        self._groups = tuple(obs)
        self._columns[".reward"] = np.empty((BLOCK, self._count), np.float32)
        self._columns[".info"] = np.empty((BLOCK, self._count, len(info)))

    def put(self, obs: Obs, actions: NDArray[Any]) -> None:
        """What was seen and done, before the step is taken: afterwards the observations are others."""
        if ".action" not in self._columns:
            self._columns[".action"] = np.empty((BLOCK, *actions.shape), actions.dtype)
        for name, values in obs.items():
            self._columns[name][self._time] = values.numpy(force=True)
        self._columns[".action"][self._time] = actions

    def answer(self, step: Step) -> None:
        self._columns[".reward"][self._time] = step.reward.numpy(force=True)
        told, extras = self._columns[".info"][self._time], step.extras
        if isinstance(extras, Block) and extras.names == self._info:
            told[:] = extras.rows.T.numpy(force=True)
            return
        for place, name in enumerate(self._info):
            told[:, place] = extras[name].numpy(force=True) if name in extras else np.nan

    def take(self, slot: int, step: Step, number: int) -> PlayedEpisode:
        """The episode that this step ended."""
        pieces = [*self._pieces[slot], self._piece(slot, self._time + 1)]
        whole = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        final = {name: step.final_obs[name][slot].numpy(force=True)[None] for name in self._groups}
        seen = {name: np.concatenate([whole[name], final[name]]) for name in self._groups}
        terminated = bool(step.terminated[slot])
        mask = seen.pop(ACTION_MASK, None) if self._masked else None
        episode = Episode(seen, whole[".action"], whole[".reward"], terminated, not terminated, mask=mask)
        return PlayedEpisode(number, episode, dict(zip(self._info, whole[".info"].T, strict=True)))

    def skip(self, slots: Sequence[int]) -> None:
        """What these did until now is of no episode that lasts."""
        for slot in slots:
            self._pieces[slot], self._start[slot] = [], self._time + 1

    def advance(self) -> None:
        self._time += 1
        if self._time < BLOCK:
            return
        for slot in range(self._count):
            if self._start[slot] < BLOCK:
                self._pieces[slot].append(self._piece(slot, BLOCK))
                if len(self._pieces[slot]) * BLOCK > LONGEST_EPISODE:
                    raise endless_episode(f"environment {slot}", "an episode", LONGEST_EPISODE)
            self._start[slot] = 0
        self._time = 0

    def _piece(self, slot: int, end: int) -> Columns:
        """An environment's steps since the last cut."""
        return {name: column[self._start[slot] : end, slot].copy() for name, column in self._columns.items()}

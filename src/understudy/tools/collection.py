"""A collection: which episodes come out, in which order, with which columns.

Episodes are numbered, and a dataset holds them by their number, one policy after the other. What an episode holds
depends on the seed, its number, who plays, and in the last bits on how many environments step together; never on the
clock, on workers, or on where an earlier collection was stopped.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Literal, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from understudy.core.errors import ConfigError, DataError, did_you_mean
from understudy.core.rng import derived_seed
from understudy.core.settings import Count, Settings
from understudy.core.spec import Spec
from understudy.data.byte_columns import to_bytes
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.recipes import COLLECTED, split_by_shares
from understudy.data.success import FLAG, SUCCESS, Outcome, SuccessRule, succeeded
from understudy.envs.vector.step_timeout import TimedVectorEnv
from understudy.run.env_settings import EnvSettings
from understudy.run.meta import versions
from understudy.run.progress import Advance, Reporter
from understudy.sources.playing.vector_episodes import PlayedEpisode, play_episodes
from understudy.tools.behaviours import Behaviour

POLICY, NUMBER = "policy", "episode_number"
"""Columns of steps: which of several policies played, and the number of the episode where some were left out."""
HOPELESS = 1000
"""Episodes in a row that a filter lets none of pass, before it is told."""
PACKAGES = ("understudy", "torch", "numpy", "gymnasium", "mujoco", "envpool")


class Wishes(Settings):
    """What is to be collected, and how it is played."""

    episodes: int | None = Field(None, ge=1)
    """Episodes to keep."""
    steps: int | None = Field(None, ge=1)
    """Steps to keep, in the place of episodes or beside them."""
    successes: int | None = Field(None, ge=1)
    """Successful episodes to keep, whatever is kept beside them."""
    until: Literal["first", "all"] | None = None
    """Where several of these are given: it is enough with the `first` of them, or with `all`."""
    max_time: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Seconds after which it is enough, as soon as every policy has kept an episode."""
    seed: int = Field(0, ge=0)
    """Everything random grows from it."""
    num_envs: Count = 8
    """Environments that step together."""
    greedy: bool = True
    """Policies act with their mean, or sample."""
    noise: float = Field(0.0, ge=0)
    """Standard deviation of Gaussian noise, in halves of the action range."""
    epsilon: float = Field(0.0, ge=0, le=1)
    """Chance of a uniform action at each step."""
    skill: float = Field(1.0, ge=0, le=1)
    """Of the scripted controller."""
    only: Outcome | None = None
    """Keep episodes that succeeded, or those that did not."""
    success_is: SuccessRule = "told"
    """What success is: what the environment `told` in its info, that an episode `terminated`, or that it was
    `truncated`."""
    groups: tuple[str, ...] = ()
    """Observation groups that are kept; all, if none is named."""
    compress: tuple[str, ...] = ()
    """Observation groups of numbers from 0 to 1 that are stored in bytes, 0 to 255: a quarter of the size."""
    min_return: float | None = None
    """Keep episodes of at least this return."""

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        given = [unit for unit in ("episodes", "steps", "successes") if unit in self.amounts]
        if len(given) > 1 and self.until is None:
            raise ValueError(f"{' and '.join(given)} were given: say until=first or until=all")
        if self.until is not None and len(given) < 2:
            raise ValueError(f"until={self.until} is of several of episodes, steps and successes: got {given}")
        return self

    @property
    def amounts(self) -> dict[str, int]:
        """How much is to be kept, by unit; nothing where only the clock decides."""
        given = {"episodes": self.episodes, "steps": self.steps, "successes": self.successes}
        known = {unit: amount for unit, amount in given.items() if amount is not None}
        return known if known or self.max_time is not None else {"episodes": 100}

    @property
    def exact_steps(self) -> bool:
        """The last episode is cut where steps are counted, unless a filter has judged it as a whole."""
        return self.steps is not None and self.until != "all" and not self.filtered

    @property
    def needs_success(self) -> bool:
        """What an environment tells of success decides when it is enough, or what is kept."""
        return self.only is not None or self.successes is not None

    @property
    def filtered(self) -> bool:
        return self.only is not None or self.min_return is not None


@final
@dataclass(frozen=True)
class World:
    """Environments to be made."""

    settings: EnvSettings
    spec: Spec
    make: Callable[[], TimedVectorEnv]
    count: int


@final
@dataclass(frozen=True)
class Position:
    """How far a collection has come: which policy plays, what was kept of it, and the episode that is next."""

    part: int = 0
    episodes: int = 0
    steps: int = 0
    successes: int = 0
    number: int = 0
    told: tuple[str, ...] | None = None
    """Names under which the environment speaks of success; None before the first episode."""

    def after(self, gained: Mapping[str, int], number: int) -> Self:
        """With what an episode adds, by unit; `number` is next."""
        episodes, steps, successes = (self.amounts[unit] + gained[unit] for unit in self.amounts)
        return replace(self, episodes=episodes, steps=steps, successes=successes, number=number)

    @property
    def amounts(self) -> dict[str, int]:
        return {"episodes": self.episodes, "steps": self.steps, "successes": self.successes}


@final
class Collection:
    """Everything that decides which episodes come out."""

    def __init__(self, world: World, behaviours: list[Behaviour], wishes: Wishes, reporter: Reporter) -> None:
        self.world, self.reporter = world, reporter
        self._behaviours, self._wishes = behaviours, wishes
        self._check_groups()
        shares = [behaviour.share for behaviour in behaviours]
        self._time_shares = np.cumsum(shares) / np.sum(shares)
        self._began = monotonic()
        self._quotas = {unit: split_by_shares(amount, shares) for unit, amount in wishes.amounts.items()}
        self._told: tuple[str, ...] | None = None
        self._returns: list[float] = []
        self._played = [0, 0]
        """Episodes and steps, those that were not kept among them."""

    def facts(self) -> dict[str, Any]:
        """What the dataset's card says: all that decides its content, and who played."""
        settings, wishes = self.world.settings, self._wishes
        filters: dict[str, Any] = {"until": wishes.until, "only": wishes.only, "min_return": wishes.min_return}
        filters |= {"max_time": wishes.max_time}
        filters |= {"success_is": wishes.success_is if wishes.success_is != "told" else None}
        filters |= {"groups": list(wishes.groups) or None, "compress": list(wishes.compress) or None}
        return {
            "kind": COLLECTED,
            "env": settings.id,
            "simulator": settings.simulator,
            **({"settings": settings.settings} if settings.settings else {}),
            "policies": [{**behaviour.facts, "share": behaviour.share} for behaviour in self._behaviours],
            **wishes.amounts,
            **{name: value for name, value in filters.items() if value is not None},
            "seed": wishes.seed,
            "num_envs": self.world.count,
            "versions": {name: version for name, version in versions().items() if name in PACKAGES},
        }

    def _check_groups(self) -> None:
        known, kept = self.world.spec.observation, self._wishes.groups
        for name in kept:
            if name not in known:
                raise ConfigError("groups", f"no observation group '{name}'", do=did_you_mean(name, known))
        if len(set(kept)) < len(kept):
            raise ConfigError("groups", "named twice", got=list(kept))
        for name in self._wishes.compress:
            if name not in (kept or known):
                raise ConfigError("compress", f"no observation group '{name}' is kept", do=did_you_mean(name, known))
            if known[name].dtype == "uint8":
                raise ConfigError("compress", f"group '{name}' is bytes already")

    def episodes(self, at: Position) -> Iterator[Episode]:
        """What is kept, from a position on."""
        self._told, self._began = at.told, monotonic()
        clock = ("seconds", round(self._wishes.max_time or 0))
        unit, total = next(iter(self._wishes.amounts.items()), clock)
        quotas = self._quotas.get(unit, [0] * len(self._behaviours))
        done = sum(quotas[: at.part]) + min(at.amounts.get(unit, 0), quotas[at.part])
        with self.reporter.task("collecting", total, unit, done) as advance:
            for part in range(at.part, len(self._behaviours)):
                for episode in self._part(at if part == at.part else Position(part)):
                    yield episode
                    done = round(self._elapsed()) if unit == "seconds" else done + _gained(episode)[unit]
                    self._tell(advance, min(done, total), float(np.sum(episode.rewards, dtype=np.float64)))

    def _elapsed(self) -> float:
        return monotonic() - self._began

    def _enough(self, at: Position) -> bool:
        """Of the policy that plays."""
        limit = self._wishes.max_time
        if limit is not None and at.episodes and self._elapsed() >= limit * self._time_shares[at.part]:
            return True
        reached = [at.amounts[unit] >= quotas[at.part] for unit, quotas in self._quotas.items()]
        return bool(reached) and (all(reached) if self._wishes.until == "all" else any(reached))

    def _tell(self, advance: Advance, done: int, earned: float) -> None:
        self._returns.append(earned)
        notes = [f"mean return {np.mean(self._returns):.1f}"]
        if self._wishes.filtered:
            notes.append(f"kept {len(self._returns)} of {self._played[0]}")
        advance(done, *notes, env_steps=self._played[1])

    def _part(self, at: Position) -> Iterator[Episode]:
        """What is kept of one policy's episodes."""
        wishes, refused, barren = self._wishes, list[float](), 0
        if self._enough(at):
            return
        seed = derived_seed(wishes.seed, "collect", at.part)
        with closing(self.world.make()) as envs:
            player = self._behaviours[at.part].player(envs.count)
            for played in play_episodes(envs, player, seed, at.number, tuple(SUCCESS)):
                if self._told is None:
                    self._told = self._success_names(played)
                self._played[0] += 1
                self._played[1] += len(played.episode)
                if not self._keeps(played):
                    refused.append(_earned(played))
                    self._check_hope(refused)
                    if wishes.max_time is not None and self._enough(at):
                        return
                    continue
                refused.clear()
                left = self._quotas["steps"][at.part] - at.steps if wishes.exact_steps else len(played.episode)
                episode = self._compressed(self._cut(played.episode, left))
                columns = self._columns(played, at.part, len(episode))
                episode = replace(episode, extra=columns)
                gained = _gained(episode)
                barren = 0 if gained["successes"] else barren + 1
                at = at.after(gained, played.number + 1)
                yield episode
                self._check_successes(barren)
                if self._enough(at):
                    return

    def _success_names(self, played: PlayedEpisode) -> tuple[str, ...]:
        """Names under which the first episode spoke of success."""
        told = tuple(name for name, values in played.info.items() if not np.isnan(values).all())
        wishes = self._wishes
        if wishes.needs_success and wishes.success_is == "told" and not told:
            wanted = f"only {wishes.only} episodes are" if wishes.only is not None else f"{wishes.successes} are"
            raise DataError(
                f"environment '{self.world.settings.id}'",
                f"tells nothing of success, and {wanted} wanted",
                expected=f"{' or '.join(SUCCESS)} in its info",
                do="Say what success is (success_is=terminated or truncated), filter by return, or leave it out.",
            )
        return told

    def _keeps(self, played: PlayedEpisode) -> bool:
        wishes = self._wishes
        if wishes.min_return is not None and _earned(played) < wishes.min_return:
            return False
        return wishes.only is None or self._succeeded(played, len(played.episode)) == (wishes.only == "successful")

    def _succeeded(self, played: PlayedEpisode, length: int) -> bool:
        """In its first `length` steps. How an episode would have ended is nothing that happened in a part of it."""
        rule, episode = self._wishes.success_is, played.episode
        if rule == "told":
            return succeeded({name: played.info[name][:length] for name in self._told or ()})
        return length == len(episode) and (episode.terminated if rule == "terminated" else episode.truncated)

    def _check_hope(self, refused: list[float]) -> None:
        """A filter that nothing passes is told, with the best return that did not."""
        if len(refused) < HOPELESS:
            return
        what, least = f"none of the last {len(refused):,} episodes passed it", self._wishes.min_return
        got, expected = (f"returns up to {max(refused):g}", f"{least:g} or more") if least is not None else (None, None)
        raise DataError("filter", what, got=got, expected=expected, do="What was kept is kept.")

    def _check_successes(self, barren: int) -> None:
        """Successes that are waited for and do not come are told; what was kept is kept."""
        if self._wishes.successes is not None and barren >= HOPELESS:
            raise DataError(
                "successes",
                f"none of the last {barren:,} episodes was one",
                do="What was kept is kept: --episodes in its place makes a set of it.",
            )

    def _cut(self, episode: Episode, left: int) -> Episode:
        """Its kept groups, at most so many steps of them."""
        groups = self._wishes.groups or tuple(episode.observations)
        if len(episode) <= left:
            return replace(episode, observations={name: episode.observations[name] for name in groups})
        return replace(
            episode,
            observations={name: episode.observations[name][: left + 1] for name in groups},
            actions=episode.actions[:left],
            rewards=episode.rewards[:left],
            mask=None if episode.mask is None else episode.mask[: left + 1],
            terminated=False,
            truncated=True,
        )

    def _compressed(self, episode: Episode) -> Episode:
        """Its groups that are to be bytes."""
        if not self._wishes.compress:
            return episode
        packed = {name: to_bytes(episode.observations[name], f"compress '{name}'") for name in self._wishes.compress}
        return replace(episode, observations={**episode.observations, **packed})

    def _columns(self, played: PlayedEpisode, part: int, length: int) -> dict[str, NDArray[Any]]:
        columns: dict[str, NDArray[Any]] = {name: played.info[name][:length] > 0 for name in self._told or ()}
        if self._told or self._wishes.success_is != "told":
            columns[FLAG] = np.full(length, self._succeeded(played, length))
        if len(self._behaviours) > 1:
            columns[POLICY] = np.full(length, part, np.int32)
        if self._wishes.filtered:
            columns[NUMBER] = np.full(length, played.number, np.int32)
        return columns

    def position_of(self, dataset: Dataset, first: int = 0) -> Position:
        """Where a collection goes on that kept the episodes of this from number `first` on."""
        starts, lengths = torch.from_numpy(dataset.index.starts[first:]), dataset.index.lengths[first:]
        told = tuple(name for name in SUCCESS if name in dataset.extra)
        if not len(lengths):
            return Position(told=told)
        parts = dataset.extra[POLICY][starts].numpy() if POLICY in dataset.extra else np.zeros(len(lengths), np.int32)
        mine = parts == parts[-1]
        count = int(mine.sum())
        number = int(dataset.extra[NUMBER][starts[-1]]) + 1 if NUMBER in dataset.extra else count
        flags = dataset.extra[FLAG][starts].numpy() if FLAG in dataset.extra else np.zeros(len(lengths), np.bool_)
        return Position(int(parts[-1]), count, int(lengths[mine].sum()), int(flags[mine].sum()), number, told)


def _gained(episode: Episode) -> dict[str, int]:
    """What a kept episode adds, by unit."""
    return {"episodes": 1, "steps": len(episode), "successes": int(FLAG in episode.extra and episode.extra[FLAG][0])}


def _earned(played: PlayedEpisode) -> float:
    return float(np.sum(played.episode.rewards, dtype=np.float64))

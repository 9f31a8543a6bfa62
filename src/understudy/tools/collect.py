"""Collect: anybody plays in any environment, and what happens becomes a dataset in any format we write.

Episodes are numbered, and a dataset holds them by their number, one policy after the other. What an episode holds
depends on the seed, its number, who plays, and in the last bits on how many environments step together; never on the
clock, on workers, or on where an earlier collection was stopped.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from understudy.core.arguments import as_count, as_number, as_path
from understudy.core.errors import ConfigError, DataError
from understudy.core.rng import derived_seed, own_global_generators
from understudy.core.settings import Count, Settings
from understudy.core.siblings import sibling, sweep
from understudy.core.spec import Spec, recordable
from understudy.core.wording import counted
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.formats.d4rl_writer import write_d4rl
from understudy.data.formats.minari.writer import write_minari
from understudy.data.formats.npz_writer import write_npz
from understudy.data.recipes import COLLECTED, split_by_shares
from understudy.data.stores.journal import is_unfinished, open_unfinished, read_journal_card
from understudy.data.stores.recorder import Recorder, settle
from understudy.data.stores.store import is_store, open_store, store_recipe
from understudy.envs.vector.step_timeout import STEP_TIMEOUT, TimedVectorEnv
from understudy.run.config import EnvSettings
from understudy.run.environments import MakeEnvs, make_vector_env, spec_of
from understudy.run.episode_info import SUCCESS
from understudy.run.given_env import GivenEnvs, given_envs
from understudy.run.meta import versions
from understudy.run.progress import Advance, Reporter, reporter_for
from understudy.sources.playing.vector_episodes import PlayedEpisode, play_episodes
from understudy.tools.behaviours import Behaviour, Manner, find_behaviours
from understudy.tools.dataset.conversion import target_kind

Outcome = Literal["successful", "failed"]
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
    """Steps to keep, in the place of episodes."""
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
    min_return: float | None = None
    """Keep episodes of at least this return."""

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.episodes is not None and self.steps is not None:
            raise ValueError("episodes and steps were given: one of them says when it is enough")
        return self

    @property
    def total(self) -> int:
        return self.steps or self.episodes or 100

    @property
    def filtered(self) -> bool:
        return self.only is not None or self.min_return is not None


def collect(
    env: object,
    policy: object = "random",
    out: str | Path | None = None,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    num_envs: int = 8,
    workers: int = 1,
    greedy: bool = True,
    noise: float = 0.0,
    epsilon: float = 0.0,
    skill: float = 1.0,
    only: Outcome | None = None,
    min_return: float | None = None,
    minari_id: str = "",
    step_timeout: float = STEP_TIMEOUT,
    progress: bool = False,
    reporter: Reporter | None = None,
) -> Dataset:
    """Play and keep what happens: 100 episodes, or as many `episodes` or `steps` as are asked for.

    `env` is an id, a mapping as a config's `env` ({id, simulator, settings}), or an environment of your own as `train`
    takes it. `policy` is `"random"`, `"scripted"`, a run or a policy folder (`"runs/x@best"`), an exported `.onnx`
    file, a policy, a function of observations [N, …] that gives actions [N, …], or a list of these, each alone or with
    a share: `[("runs/x", 0.8), ("random", 0.2)]`.

    `out` is a new folder (native store), an .npz or .hdf5 (D4RL) file, or with `minari_id` the folder of Minari
    datasets; without it the dataset is in memory. Stopped or killed, the same call goes on and gives the same bytes.
    `only` keeps "successful" or "failed" episodes, by what the environment tells in its info.
    """
    wishes = Wishes(
        episodes=episodes,
        steps=steps,
        seed=seed,
        num_envs=num_envs,
        greedy=greedy,
        noise=noise,
        epsilon=epsilon,
        skill=skill,
        only=only,
        min_return=min_return,
    )
    world = _world(env, wishes, as_count(workers, "workers"), as_number(step_timeout, "step_timeout"))
    manner = Manner(wishes.greedy, wishes.noise, wishes.epsilon, wishes.skill)
    behaviours = find_behaviours(policy, world.settings.id, world.spec, manner)
    if len(behaviours) > wishes.total:
        raise ConfigError("policy", "more policies than there is to play", got=len(behaviours), expected=wishes.total)
    collection = Collection(world, behaviours, wishes, reporter_for(progress, reporter))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a policy's last bits depend on it, and so would the dataset's
    try:
        with own_global_generators(wishes.seed):
            return _written(collection, None if out is None else as_path(out, "out"), minari_id)
    finally:
        torch.set_num_threads(threads)


@final
@dataclass(frozen=True)
class World:
    """Environments to be made."""

    settings: EnvSettings
    spec: Spec
    make: Callable[[], TimedVectorEnv]
    count: int


def _world(env: object, wishes: Wishes, workers: int, step_timeout: float) -> World:
    given: MakeEnvs | None = None
    count = wishes.num_envs if wishes.episodes is None else min(wishes.num_envs, wishes.episodes)
    if isinstance(env, Mapping):
        settings = EnvSettings.parse(env, "env")
    elif isinstance(found := given_envs(env), GivenEnvs):
        given, settings = found, EnvSettings(id=found.name, simulator="custom")
        count = found.most or count
    else:
        settings = EnvSettings(id=found)
    if workers > 1 and settings.simulator != "gymnasium":
        raise ConfigError("workers", "are for environments of Gymnasium's registry", got=settings.simulator)
    spec = spec_of(settings) if not isinstance(given, GivenEnvs) else given.spec
    recordable(spec.action)

    def make() -> TimedVectorEnv:
        shared = min(workers, count)
        told = tuple(SUCCESS)
        return make_vector_env(settings, count, given, workers=shared, step_timeout=step_timeout, extras=told)

    return World(settings, spec, make, count)


@final
@dataclass(frozen=True)
class Position:
    """How far a collection has come: which policy plays, what was kept of it, and the episode that is next."""

    part: int = 0
    episodes: int = 0
    steps: int = 0
    number: int = 0
    told: tuple[str, ...] | None = None
    """Names under which the environment speaks of success; None before the first episode."""


@final
class Collection:
    """Everything that decides which episodes come out."""

    def __init__(self, world: World, behaviours: list[Behaviour], wishes: Wishes, reporter: Reporter) -> None:
        self.world, self.reporter = world, reporter
        self._behaviours, self._wishes = behaviours, wishes
        self._quotas = split_by_shares(wishes.total, [behaviour.share for behaviour in behaviours])
        self._told: tuple[str, ...] | None = None
        self._returns: list[float] = []
        self._played = [0, 0]
        """Episodes and steps, those that were not kept among them."""

    def facts(self) -> dict[str, Any]:
        """What the dataset's card says: all that decides its content, and who played."""
        settings, wishes = self.world.settings, self._wishes
        filters = {"only": wishes.only, "min_return": wishes.min_return}
        return {
            "kind": COLLECTED,
            "env": settings.id,
            "simulator": settings.simulator,
            **({"settings": settings.settings} if settings.settings else {}),
            "policies": [{**behaviour.facts, "share": behaviour.share} for behaviour in self._behaviours],
            "steps" if wishes.steps else "episodes": wishes.total,
            **{name: value for name, value in filters.items() if value is not None},
            "seed": wishes.seed,
            "num_envs": self.world.count,
            "versions": {name: version for name, version in versions().items() if name in PACKAGES},
        }

    def episodes(self, at: Position) -> Iterator[Episode]:
        """What is kept, from a position on."""
        wishes, unit = self._wishes, "steps" if self._wishes.steps else "episodes"
        before = sum(self._quotas[: at.part]) + min(self._amount(at), self._quotas[at.part])
        with self.reporter.task("collecting", wishes.total, unit, before) as advance:
            self._told = at.told
            for part in range(at.part, len(self._behaviours)):
                for episode in self._part(at if part == at.part else Position(part)):
                    yield episode
                    before += len(episode) if wishes.steps else 1
                    self._tell(advance, min(before, wishes.total), float(np.sum(episode.rewards, dtype=np.float64)))

    def _amount(self, at: Position) -> int:
        return at.steps if self._wishes.steps else at.episodes

    def _tell(self, advance: Advance, done: int, earned: float) -> None:
        self._returns.append(earned)
        notes = [f"mean return {np.mean(self._returns):.1f}"]
        if self._wishes.filtered:
            notes.append(f"kept {len(self._returns)} of {self._played[0]}")
        advance(done, *notes, env_steps=self._played[1])

    def _part(self, at: Position) -> Iterator[Episode]:
        """What is kept of one policy's episodes."""
        quota, wishes = self._quotas[at.part], self._wishes
        refused: list[float] = []
        if self._amount(at) >= quota:
            return
        seed = derived_seed(wishes.seed, "collect", at.part)
        with closing(self.world.make()) as envs:
            player = self._behaviours[at.part].player(envs.count)
            for played in play_episodes(envs, player, seed, at.number, tuple(SUCCESS)):
                if self._told is None:
                    self._told = self._success_names(played)
                self._played[0] += 1
                self._played[1] += len(played.episode)
                if not self._keeps(played, self._told):
                    refused.append(_earned(played))
                    self._check_hope(refused)
                    continue
                refused.clear()
                episode = self._cut(played.episode, quota - at.steps)
                columns = self._columns(played, at.part, len(episode))
                at = replace(at, episodes=at.episodes + 1, steps=at.steps + len(episode), number=played.number + 1)
                yield replace(episode, extra=columns)
                if self._amount(at) >= quota:
                    return

    def _success_names(self, played: PlayedEpisode) -> tuple[str, ...]:
        """Names under which the first episode spoke of success."""
        told = tuple(name for name, values in played.info.items() if not np.isnan(values).all())
        if self._wishes.only is not None and not told:
            raise DataError(
                f"environment '{self.world.settings.id}'",
                f"tells nothing of success, and only {self._wishes.only} episodes are wanted",
                expected=f"{' or '.join(SUCCESS)} in its info",
                do="Filter by return instead, or leave the filter out.",
            )
        return told

    def _keeps(self, played: PlayedEpisode, told: tuple[str, ...]) -> bool:
        wishes = self._wishes
        if wishes.min_return is not None and _earned(played) < wishes.min_return:
            return False
        return wishes.only is None or succeeded(played.info, told) == (wishes.only == "successful")

    def _check_hope(self, refused: list[float]) -> None:
        """A filter that nothing passes is told, with the best return that did not."""
        if len(refused) < HOPELESS:
            return
        what, least = f"none of the last {len(refused):,} episodes passed it", self._wishes.min_return
        got, expected = (f"returns up to {max(refused):g}", f"{least:g} or more") if least is not None else (None, None)
        raise DataError("filter", what, got=got, expected=expected, do="What was kept is kept.")

    def _cut(self, episode: Episode, left: int) -> Episode:
        """The last episode is cut where steps are counted, unless a filter has judged it as a whole."""
        if not self._wishes.steps or self._wishes.filtered or len(episode) <= left:
            return episode
        return replace(
            episode,
            observations={name: values[: left + 1] for name, values in episode.observations.items()},
            actions=episode.actions[:left],
            rewards=episode.rewards[:left],
            mask=None if episode.mask is None else episode.mask[: left + 1],
            terminated=False,
            truncated=True,
        )

    def _columns(self, played: PlayedEpisode, part: int, length: int) -> dict[str, NDArray[Any]]:
        columns: dict[str, NDArray[Any]] = {name: played.info[name][:length] > 0 for name in self._told or ()}
        if len(self._behaviours) > 1:
            columns[POLICY] = np.full(length, part, np.int32)
        if self._wishes.filtered:
            columns[NUMBER] = np.full(length, played.number, np.int32)
        return columns

    def position_of(self, dataset: Dataset) -> Position:
        """Where a collection that kept this goes on."""
        starts, lengths = torch.from_numpy(dataset.index.starts), dataset.index.lengths
        parts = dataset.extra[POLICY][starts].numpy() if POLICY in dataset.extra else np.zeros(len(lengths), np.int32)
        mine = parts == parts[-1]
        count = int(mine.sum())
        number = int(dataset.extra[NUMBER][starts[-1]]) + 1 if NUMBER in dataset.extra else count
        told = tuple(name for name in SUCCESS if name in dataset.extra)
        return Position(int(parts[-1]), count, int(lengths[mine].sum()), number, told)


def succeeded(info: Mapping[str, NDArray[np.float64]], told: tuple[str, ...]) -> bool:
    """Of an episode: `is_success` as it stands in the last step that tells it, `success` if it was ever there."""
    for name in told:
        values = info[name][~np.isnan(info[name])]
        if not len(values):
            return False
        return bool((values[-1] if SUCCESS[name] == "final" else values.max()) > 0)
    return False


def _written(collection: Collection, out: Path | None, minari_id: str) -> Dataset:
    space, name = collection.world.spec.action, collection.world.settings.id
    if out is None:
        return Dataset.from_episodes(collection.episodes(Position()), space, name=f"collected in {name}", env=name)
    if not minari_id and out.suffix == "":
        return _recorded(collection, out)
    store = out.with_name(f"{out.name}{'.' if minari_id else ''}{minari_id.replace('/', '.')}.unfinished")
    kind = ""
    if is_store(store) and (out / minari_id).exists():  # killed when only the store was left to go
        sweep(out.parent)
    else:
        kind = target_kind(out, minari_id)
    dataset = _recorded(collection, store)
    if kind:
        _write(dataset, kind, out, minari_id)
    dataset.name = str(out)
    aside = store.rename(sibling(store, "old"))
    shutil.rmtree(aside, ignore_errors=True)  # what is mapped of it stays until it is let go
    return dataset


def _write(dataset: Dataset, kind: str, out: Path, minari_id: str) -> None:
    if kind == "minari":
        write_minari(dataset, minari_id, out)
    else:
        writers: dict[str, Callable[[Dataset, Path], None]] = {"npz": write_npz, "d4rl": write_d4rl}
        writers[kind](dataset, out)


def _recorded(collection: Collection, path: Path) -> Dataset:
    """The collection as a store; what a stopped one left is kept, and the rest is played."""
    facts = collection.facts()
    settle(path)
    if is_store(path) or is_unfinished(path):
        there = store_recipe(path) if is_store(path) else read_journal_card(path)[1].get("recipe", {})
        _check_same(path, facts, there)
        if is_store(path):
            collection.reporter.say(f"{path}: finished before, nothing to do")
            return open_store(path)
    name = collection.world.settings.id
    with Recorder(path, collection.world.spec.action, recipe=facts, env=name) as recorder:
        at = Position()
        if recorder.episodes:
            at = collection.position_of(open_unfinished(path))
            collection.reporter.say(f"{path}: going on after {counted(recorder.episodes, 'episode')}")
        for episode in collection.episodes(at):
            recorder.add(episode)
    return open_store(path)


def _check_same(path: Path, mine: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    here, other = dict(_flat(mine)), dict(_flat(there))
    apart = [name for name in {**here, **other} if here.get(name) != other.get(name)]
    if apart:
        told = "; ".join(f"{name} {here.get(name, 'none')}, there {other.get(name, 'none')}" for name in apart[:5])
        raise DataError(
            str(path), f"already exists, and is another dataset ({told})", do="Choose another name or remove it first."
        )


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Everything inside, by a dotted name."""
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if parts is None:
        yield name, value
        return
    for key, part in parts:
        yield from _flat(part, f"{name}.{key}" if name else str(key))


def _earned(played: PlayedEpisode) -> float:
    return float(np.sum(played.episode.rewards, dtype=np.float64))

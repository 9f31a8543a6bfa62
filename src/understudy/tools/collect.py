"""Collect: anybody plays in any environment, and what happens becomes a dataset in any format we write."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch

from understudy.core.arguments import as_count, as_number, as_path
from understudy.core.errors import ConfigError, DataError
from understudy.core.rng import own_global_generators
from understudy.core.siblings import sibling, sweep
from understudy.core.spec import recordable
from understudy.core.wording import counted
from understudy.data.assemble import check_action_bounds, check_same
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode, check_episode
from understudy.data.formats.d4rl_writer import write_d4rl
from understudy.data.formats.minari.writer import write_minari
from understudy.data.formats.npz_writer import write_npz
from understudy.data.stores.appending import reopen_store
from understudy.data.stores.journal import is_unfinished, open_unfinished, read_journal_card
from understudy.data.stores.recorder import Recorder, settle
from understudy.data.stores.store import is_store, open_store, store_recipe
from understudy.data.success import SUCCESS, Outcome, SuccessRule
from understudy.envs.vector.step_timeout import STEP_TIMEOUT, TimedVectorEnv
from understudy.run.env_settings import EnvSettings
from understudy.run.environments import MakeEnvs, make_vector_env, spec_of
from understudy.run.given_env import GivenEnvs, given_envs
from understudy.run.progress import Reporter, reporter_for
from understudy.tools.behaviours import Manner, find_behaviours
from understudy.tools.collection import Collection, Position, Wishes, World
from understudy.tools.dataset.conversion import target_kind

APPENDED, FIRST = "appended", "first_episode"
"""In the recipe of a store: what was played behind its first collection, and from which episode on."""


def collect(
    env: object,
    policy: object = "random",
    out: str | Path | None = None,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    successes: int | None = None,
    until: Literal["first", "all"] | None = None,
    max_time: float | None = None,
    seed: int = 0,
    num_envs: int = 8,
    workers: int = 1,
    greedy: bool = True,
    noise: float = 0.0,
    epsilon: float = 0.0,
    skill: float = 1.0,
    only: Outcome | None = None,
    success_is: SuccessRule = "told",
    min_return: float | None = None,
    groups: Sequence[str] = (),
    compress: Sequence[str] = (),
    append: bool = False,
    minari_id: str = "",
    step_timeout: float = STEP_TIMEOUT,
    progress: bool = False,
    reporter: Reporter | None = None,
) -> Dataset:
    """Play and keep what happens: 100 episodes, or as many `episodes`, `steps` or `successes` as are asked for; of
    several, `until` the `first` of them is reached, or `all`; at most `max_time` seconds.

    `env` is an id, a mapping as a config's `env` ({id, simulator, settings}), or an environment of your own as `train`
    takes it. `policy` is `"random"`, `"scripted"`, a run or a policy folder (`"runs/x@best"`), an exported `.onnx`
    file, a policy, a function of observations [N, …] that gives actions [N, …], or a list of these, each alone or with
    a share: `[("runs/x", 0.8), ("random", 0.2)]`.

    `out` is a new folder (native store), an .npz or .hdf5 (D4RL) file, or with `minari_id` the folder of Minari
    datasets; without it the dataset is in memory. Stopped or killed, the same call goes on and gives the same bytes.
    `only` keeps "successful" or "failed" episodes, by what the environment tells in its info, or by how they end
    (`success_is`). `groups` are the observation groups that are kept, `compress` those whose numbers from 0
    to 1 are stored in bytes. `append` plays on behind a folder's episodes.
    """
    wishes = Wishes(
        episodes=episodes,
        steps=steps,
        successes=successes,
        until=until,
        max_time=max_time,
        seed=seed,
        num_envs=num_envs,
        greedy=greedy,
        noise=noise,
        epsilon=epsilon,
        skill=skill,
        only=only,
        success_is=success_is,
        groups=(groups,) if isinstance(groups, str) else tuple(groups),
        compress=(compress,) if isinstance(compress, str) else tuple(compress),
        min_return=min_return,
    )
    world = _world(env, wishes, as_count(workers, "workers"), as_number(step_timeout, "step_timeout"))
    manner = Manner(wishes.greedy, wishes.noise, wishes.epsilon, wishes.skill)
    behaviours = find_behaviours(policy, world.settings.id, world.spec, manner)
    least = min(wishes.amounts.values(), default=len(behaviours))
    if len(behaviours) > least:
        raise ConfigError("policy", "more policies than there is to play", got=len(behaviours), expected=least)
    path = None if out is None else as_path(out, "out")
    if append and (path is None or minari_id or path.suffix):
        raise ConfigError("append", "is for folders (native stores)", got=str(out), expected="out=FOLDER")
    collection = Collection(world, behaviours, wishes, reporter_for(progress, reporter))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a policy's last bits depend on it, and so would the dataset's
    try:
        with own_global_generators(wishes.seed):
            return _appended(collection, path) if append and path else _written(collection, path, minari_id)
    finally:
        torch.set_num_threads(threads)


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


def _appended(collection: Collection, path: Path) -> Dataset:
    """The collection behind the episodes of a store; what a stopped one left is kept, and the rest is played."""
    settle(path)
    unfinished = is_unfinished(path)
    if not unfinished and not is_store(path):
        return _recorded(collection, path)
    recipe = read_journal_card(path)[1].get("recipe", {}) if unfinished else store_recipe(path)
    facts, last = collection.facts(), dict([recipe, *recipe.get(APPENDED, [])][-1])
    first = last.pop(FIRST, 0)
    if unfinished:
        _check_same(path, facts, last)
        if not first:
            return _recorded(collection, path)
    elif facts == last:
        collection.reporter.say(f"{path}: finished before, nothing to do. Another seed gives further episodes")
        return open_store(path)
    there = open_unfinished(path) if unfinished else open_store(path)
    episodes = collection.episodes(collection.position_of(there, first if unfinished else there.episodes))
    if unfinished:
        collection.reporter.say(f"{path}: going on after {counted(there.episodes, 'episode')}")
    else:
        episode = next(episodes)  # what does not fit is told while the store still is one
        _check_fits(episode, there, path)
        episodes = chain([episode], episodes)
        recipe = {**recipe, APPENDED: [*recipe.get(APPENDED, []), {**facts, FIRST: there.episodes}]}
        reopen_store(path, recipe, env=there.env)
    with Recorder(path, there.spec.action, recipe=recipe, env=there.env) as recorder:
        for episode in episodes:
            recorder.add(episode)
    return open_store(path)


def _check_fits(episode: Episode, there: Dataset, path: Path) -> None:
    where = f"dataset '{path}', what is appended"
    checked = check_episode(episode, where, there.spec.action, "float32")
    check_action_bounds(checked.actions, there.spec.action, where)
    check_same(checked, there.episode(0), where)


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

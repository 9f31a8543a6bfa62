"""From words to a dataset: a file of any known kind, a list of episodes, a native store, or a recipe to play."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.core.arguments import as_kind
from understudy.core.errors import DataError
from understudy.core.files import sha256_bytes
from understudy.core.spec import ActionSpace, Box, Discrete, GivenSpace, Spec, as_action_space
from understudy.core.wording import counted
from understudy.data.action_bounds import Bound, given_box, measured_box
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode, Precision
from understudy.data.formats.column_map import ColumnMap
from understudy.data.formats.readers import Origin, open_recording
from understudy.data.recipes import Recipe
from understudy.data.recording import Recording
from understudy.data.stores.recorder import Recorder, settle
from understudy.data.stores.store import is_store, open_store, store_recipe
from understudy.data.success import episode_successes
from understudy.data.transforms import Choosing, Transforms, choose, mend, pick
from understudy.envs.gym import env_spec, make_env
from understudy.run.config import DataSettings
from understudy.run.dataset_tiers import recipe_policies, resolve_recipe
from understudy.run.given_env import given_envs
from understudy.run.progress import SILENT, Advance, Reporter
from understudy.sources.playing.collect import collect, play, recipe_spec


@dataclass(frozen=True)
class Prepared:
    """What a run learns from, and what it is measured on besides."""

    train: Dataset
    validation: Dataset | None

    @property
    def fingerprint(self) -> str:
        """Of both: what is held out decides what evaluations tell."""
        if self.validation is None:
            return self.train.fingerprint
        return sha256_bytes(f"{self.train.fingerprint} {self.validation.fingerprint}".encode())


def load_dataset(
    origin: Origin,
    *,
    columns: ColumnMap = "",
    env: object = None,
    action_space: GivenSpace | None = None,
    transforms: Transforms | None = None,
    precision: Precision = "float32",
    reporter: Reporter = SILENT,
) -> Dataset:
    """A dataset from whatever holds experience: a path, a Minari id, a Dataset, a dict of arrays, a DataFrame, a list
    of episodes. Mended and chosen from as `transforms` says.

    `columns` tells what a table's columns are: `obs=temp,humidity,action=valve,reward=r,episode=day`, or a dict. The
    action space is that of `env` (an id, or an environment of your own as `train` takes it), or `action_space`, or what
    the data itself says.
    """
    space = None if action_space is None else as_action_space(action_space, "action_space")
    if env is not None:
        given = given_envs(env)
        space = space_of_env(given) if isinstance(given, str) else given.spec.action
    transforms = None if transforms is None else as_kind(transforms, Transforms, "transforms")
    return prepare(origin, space, transforms or Transforms(), precision, reporter, columns).train


def prepare(
    origin: Origin,
    space: ActionSpace | None,
    transforms: Transforms,
    precision: Precision,
    reporter: Reporter,
    columns: ColumnMap = "",
    *,
    hold_out: bool = False,
) -> Prepared:
    """Read, mend, choose. `hold_out`: some episodes, where nothing is said of it."""
    if isinstance(origin, Dataset) and not transforms.mends() and (space or origin.spec.action) == origin.spec.action:
        return choose_from(origin, transforms, hold_out=hold_out)
    store = isinstance(origin, (str, Path)) and is_store(Path(origin))
    if store and not transforms.mends() and not (hold_out and space):
        return choose_from(open_store(Path(str(origin))), transforms, hold_out=hold_out)
    recording = open_recording(origin, episode_steps=transforms.episode_steps, columns=columns)
    told = space is not None or recording.space is not None
    space = space or space_of(recording, measure=hold_out and transforms.actions_from is None)
    if hold_out and not told and isinstance(space, Box):
        reporter.say(
            f"{Path(recording.name).name}: actions {space.describe()}, the smallest and largest in the data "
            "(others: data.action_low=… data.action_high=…)"
        )
    recording = mend(recording, transforms, space)
    for note in recording.notes:
        reporter.say(f"{Path(recording.name).name}: {note}")
    return choose_from(read(recording, space, precision, reporter), transforms, hold_out=hold_out)


def read(recording: Recording, space: ActionSpace, precision: Precision, reporter: Reporter) -> Dataset:
    """A recording in memory, if it fits there."""
    check_memory(recording, f"Make it a store first: understudy dataset convert {recording.name} FOLDER")
    with reporter.task(f"reading {Path(recording.name).name}", recording.steps, "steps") as advance:
        # One by one: what the file held in wider numbers is let go as soon as it is converted.
        episodes = _counted(recording.episodes(), advance)
        return Dataset.from_episodes(
            episodes,
            space,
            name=recording.name,
            env=recording.env,
            precision=precision,
            has_rewards=recording.has_rewards,
        )


def _counted(episodes: Iterator[Episode], advance: Advance) -> Iterator[Episode]:
    steps = 0
    for episode in episodes:
        yield episode
        steps += len(episode)
        advance(steps, "")


def check_memory(recording: Recording, do: str) -> None:
    """Two fifths of the machine's memory are a recording's limit, as joining its episodes takes over twice its size."""
    first = next(recording.episodes(), None)
    if first is None or not len(first):
        return
    arrays = [*first.observations.values(), first.actions, first.rewards, *first.extra.values()]
    if first.mask is not None:
        arrays.append(first.mask)
    size = sum(np.asarray(array).nbytes for array in arrays) / len(first) * recording.steps
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 0.4
    if size > limit:
        raise DataError(
            f"dataset '{recording.name}'",
            "too large to be read into memory",
            got=f"about {size / 1e9:.1f} GB",
            expected=f"at most {limit / 1e9:.1f} GB",
            do=do,
        )


def choose_from(dataset: Dataset, choosing: Choosing, *, hold_out: bool = False) -> Prepared:
    """Best, some, held out, as whole episodes. `hold_out`: some, where nothing is said of it."""
    if not choosing.chooses() and not hold_out:
        return Prepared(dataset, None)
    where = f"dataset '{dataset.name}'"
    success = None if choosing.only is None else _successes(dataset, choosing, where)
    choice = choose(choosing, dataset.returns(), where, hold_out=hold_out, success=success)
    if len(choice.train) == dataset.episodes and not choosing.starts_later:
        return Prepared(dataset, None)
    recording = dataset.recording()
    kept = dataset.index.lengths[np.concatenate([choice.train, choice.validation])]
    do = "Choose fewer episodes (max_episodes, best_episodes), or have `dataset convert` write a store of their own."
    check_memory(replace(recording, steps=int(kept.sum())), do)
    parts = [
        Dataset.from_episodes(
            pick(recording, numbers, choice.starts).episodes(),
            dataset.spec.action,
            name=dataset.name,
            env=dataset.env,
            precision="source",
            has_rewards=dataset.has_rewards,
        )
        for numbers in (choice.train, choice.validation)
        if len(numbers)
    ]
    return Prepared(parts[0], parts[1] if len(parts) > 1 else None)


def _successes(dataset: Dataset, choosing: Choosing, where: str) -> NDArray[np.bool_]:
    columns = {name: column.cpu().numpy() for name, column in dataset.extra.items()}
    return episode_successes(columns, dataset.index, choosing.success_is, where)


def space_of_env(env_id: str) -> ActionSpace:
    env = make_env(env_id)
    try:
        return env_spec(env, env_id).action
    finally:
        env.close()


def box_of(
    origin: Origin,
    low: Bound | None,
    high: Bound | None,
    episode_steps: int | None = None,
    columns: ColumnMap = "",
) -> Box | None:
    """Bounds given by hand for the actions of a file; None if none are given."""
    if low is None and high is None:
        return None
    recording = open_recording(origin, episode_steps=episode_steps, columns=columns)
    return given_box(recording, low, high, "--action-low and --action-high")


def space_of(recording: Recording, *, measure: bool = False) -> ActionSpace:
    """What the recording says of its actions; whole numbers speak for themselves. `measure` bounds it does not say."""
    if recording.space is not None:
        return recording.space
    highest = -1
    for episode in recording.episodes():
        actions = np.asarray(episode.actions)
        if actions.dtype.kind not in "iu" or actions.size != len(actions):
            break
        choices = 0 if episode.mask is None or np.ndim(episode.mask) != 2 else np.shape(episode.mask)[1]
        highest = max(highest, int(actions.max()) if actions.size else -1, choices - 1)
    else:
        if highest >= 0:
            return Discrete(highest + 1)
    if measure:
        return measured_box(recording)
    raise DataError(
        f"dataset '{recording.name}'",
        "its action space is not known",
        do="Give the environment (env=…, --env) or bounds (action_space=Box(low, high), --action-low and -high).",
    )


def make_dataset(recipe: Recipe, reporter: Reporter = SILENT) -> Dataset:
    """Play a recipe; levels of runs mean what they mean now, `resolve_recipe` tells what that is."""
    recipe = resolve_recipe(as_kind(recipe, Recipe, "make_dataset"))
    spec = recipe_spec(recipe)
    policies = recipe_policies(recipe, spec)
    torch.set_num_threads(1)  # a policy's last bits depend on it, and so would the dataset's
    with reporter.task("collecting", recipe.episodes, "episodes") as advance:
        return collect(recipe, policies, advance, spec)


def record_recipe(recipe: Recipe, path: Path, reporter: Reporter = SILENT) -> Dataset:
    """Play a recipe into a store; what a killed collection left at `path` is kept, and the rest is played."""
    recipe = resolve_recipe(recipe)
    facts = recipe.model_dump(mode="json")
    if settle(path) and store_recipe(path) == facts:  # killed when all but the clearing away was done
        return open_store(path)
    spec = recipe_spec(recipe)
    policies = recipe_policies(recipe, spec)
    torch.set_num_threads(1)
    with (
        Recorder(path, spec.action, recipe=facts) as recorder,
        reporter.task("collecting", recipe.episodes, "episodes", recorder.episodes) as advance,
    ):
        if recorder.episodes:
            reporter.say(f"{path}: going on after {counted(recorder.episodes, 'episode')}")
        for episode in play(recipe, policies, advance, first=recorder.episodes):
            recorder.add(episode)
    return open_store(path)


def resolve_dataset(
    settings: DataSettings, env_id: str | None, reporter: Reporter = SILENT, spec: Spec | None = None
) -> Prepared:
    """The dataset a config names; if it names a fingerprint, the content must have it.

    `spec`: the environment's, if it is known already. Without an environment the data speak for themselves, and some
    episodes are held out to judge by.
    """
    hold_out = env_id is None
    if settings.recipe is not None:
        played = make_dataset(settings.recipe, reporter)
        if settings.mends():
            mended = mend(played.recording(), settings, played.spec.action)
            played = Dataset.from_episodes(mended.episodes(), played.spec.action, name=played.name)
        prepared = choose_from(played, settings, hold_out=hold_out)
    else:
        space = _asked_space(settings, env_id) if spec is None else spec.action
        prepared = prepare(settings.path, space, settings, "float32", reporter, settings.columns, hold_out=hold_out)
    found = prepared.fingerprint
    if settings.fingerprint and settings.fingerprint != found:
        origin = "the recipe gives" if settings.recipe is not None else f"'{settings.path}' holds"
        raise DataError(
            "data.fingerprint",
            f"{origin} other content than this run was started with",
            got=found[:16] + "…",
            expected=settings.fingerprint[:16] + "…",
            do="Nothing was changed. Bring back the data (or the versions that made it), or start a new run.",
        )
    return prepared


def _asked_space(settings: DataSettings, env_id: str | None) -> ActionSpace | None:
    """What the config says of actions; None where that is left to the data."""
    if env_id is not None:
        return space_of_env(env_id)
    if settings.action_low is None and settings.action_high is None:
        return None
    recording = open_recording(settings.path, episode_steps=settings.episode_steps, columns=settings.columns)
    return given_box(recording, settings.action_low, settings.action_high, "data.action_low and data.action_high")

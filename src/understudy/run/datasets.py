"""From words to a dataset: an npz file, a native store, or a recipe to play."""

from pathlib import Path

import torch

from understudy.core.errors import DataError
from understudy.core.spec import Box
from understudy.data.dataset import Dataset
from understudy.data.npz import read_npz
from understudy.data.recipes import Recipe, RunPolicy
from understudy.data.store import is_store, open_store
from understudy.envs.gym import env_spec, make_env
from understudy.run.config import DataSettings
from understudy.run.policies import load_policy
from understudy.run.progress import SILENT, Reporter
from understudy.sources.collect import collect


def load_dataset(
    path: str | Path,
    *,
    env: str | None = None,
    action_bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    clip_actions: bool = False,
) -> Dataset:
    """A dataset from disk. An .npz needs the action space: an environment id, or (low, high)."""
    path = Path(path)
    if path.is_dir():
        if is_store(path):
            return open_store(path)
        raise DataError(f"dataset '{path}'", "a folder without manifest.json is not a dataset store")
    if not path.exists():
        raise DataError(f"dataset '{path}'", "no such file")
    if path.suffix != ".npz":
        raise DataError(f"dataset '{path}'", "unknown kind of file", got=path.suffix, expected=".npz or a store folder")
    if action_bounds is not None:
        space = Box(*action_bounds)
    elif env is not None:
        space = action_space(env)
    else:
        raise DataError(
            f"dataset '{path}'", "its action space is not known", do="Give env='…' or action_bounds=(low, high)."
        )
    return read_npz(path, space, clip_actions=clip_actions)


def action_space(env_id: str) -> Box:
    env = make_env(env_id)
    try:
        return env_spec(env, env_id).action
    finally:
        env.close()


def make_dataset(recipe: Recipe, reporter: Reporter = SILENT) -> Dataset:
    """Play a recipe."""
    policies = [
        load_policy(behaviour.run, behaviour.checkpoint)
        for behaviour in recipe.behaviours
        if isinstance(behaviour, RunPolicy)
    ]
    torch.set_num_threads(1)  # a policy's last bits depend on it, and so would the dataset's
    with reporter.task("collecting", recipe.episodes, "episodes") as advance:
        return collect(recipe, policies, advance)


def resolve_dataset(settings: DataSettings, env_id: str, reporter: Reporter = SILENT) -> Dataset:
    """The dataset a config names; if it names a fingerprint, the content must have it."""
    if settings.recipe is not None:
        dataset = make_dataset(settings.recipe, reporter)
    else:
        dataset = load_dataset(settings.path, env=env_id, clip_actions=settings.actions == "clip")
    if settings.fingerprint and settings.fingerprint != dataset.fingerprint:
        origin = "the recipe gives" if settings.recipe is not None else f"'{settings.path}' holds"
        raise DataError(
            "data.fingerprint",
            f"{origin} other content than this run was started with",
            got=dataset.fingerprint[:16] + "…",
            expected=settings.fingerprint[:16] + "…",
            do="Nothing was changed. Bring back the data (or the versions that made it), or start a new run.",
        )
    return dataset

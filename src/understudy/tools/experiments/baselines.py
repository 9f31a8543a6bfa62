"""Which of the library's baselines suit data of one's own: those for numbers, or those for choices."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import ActionSpace, Box, Spec
from understudy.data.episode import Episode
from understudy.data.formats.readers import open_recording
from understudy.run.env_settings import EnvSettings
from understudy.run.environments import spec_of
from understudy.run.loading import space_of
from understudy.run.overrides import apply_override
from understudy.run.suites import load_suite

OTHER = "Is the data of another environment?"
CONTINUOUS, DISCRETE = "baselines", "baselines-discrete"


def baselines_for(overrides: Sequence[str], methods: str = "") -> tuple[str, str]:
    """The suite for what is said of data and environment, and which of its methods: those that were chosen, else all.
    Without an environment held-out episodes decide, and who chooses its own would hold out others than the rest.

    Both are looked at, and nothing is read in whole. What would have all runs fail is said now.
    """
    said: dict[str, Any] = {}
    for word in overrides:
        apply_override(said, word)
    if "task" in said:
        do = "Say env.id=… and env.reference=…, or compare on tasks of a suite: understudy bench SUITE --tasks …"
        raise ConfigError("task", "this compares on data of your own", got=f"task={said['task']}", do=do)
    data, env = said.get("data"), said.get("env")
    if not isinstance(data, dict) or not data.get("path"):
        do = "Example: understudy compare data.path=logs.npz env.id=Pendulum-v1"
        raise ConfigError("data.path", "is what is compared on: give it", do=do)
    world = str(env.get("id") or "") if isinstance(env, dict) else ""
    spec = spec_of(EnvSettings(id=world)) if world else None
    space = None if spec is None else spec.action
    recording = open_recording(str(data["path"]), columns=data.get("columns", ""))
    if spec is not None and (episode := next(recording.episodes(), None)) is not None:
        where = f"dataset '{recording.name}'"
        _check_actions(np.asarray(episode.actions), spec.action, where, world)
        if set(data) <= {"path", "columns"} and set(env or {}) == {"id"}:  # else either may be changed on the way
            _check_observations(episode, spec, where, world)
    if not recording.has_rewards and not methods:
        do = "Record them, or clone what was done: --methods BC."
        raise DataError(f"dataset '{recording.name}'", "has no rewards, and all but cloning learn from them", do=do)
    suite = CONTINUOUS if isinstance(space or space_of(recording, measure=True), Box) else DISCRETE
    return suite, methods or ("" if world else ", ".join(_of_all_episodes(suite)))


def _of_all_episodes(suite: str) -> list[str]:
    return [name for name, method in load_suite(suite).methods.items() if "data.best_episodes" not in method.settings]


def _check_actions(actions: NDArray[Any], space: ActionSpace, where: str, world: str) -> None:
    """Those of the first episode are of the environment's kind and size."""
    if isinstance(space, Box) and len(actions) and actions.size != len(actions) * space.size:
        size = f"{space.size}, as in {world}"
        raise DataError(where, "actions have the wrong size", got=actions.size // len(actions), expected=size, do=OTHER)
    if not isinstance(space, Box) and (actions != np.round(actions)).any():
        raise DataError(where, "actions are numbers", expected=f"choices, as in {world}", do=OTHER)


def _check_observations(episode: Episode, spec: Spec, where: str, world: str) -> None:
    """What both call alike is of one shape."""
    for name, group in spec.observation.items():
        known = np.shape(episode.observations.get(name, np.zeros((1, *group.shape))))[1:]
        if known != tuple(group.shape):
            what, expected = f"observation '{name}' has the wrong shape", f"{list(group.shape)}, as in {world}"
            raise DataError(where, what, got=list(known), expected=expected, do=OTHER)

"""Small real things that many tests share: datasets, recipes, run settings."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy import Box, Dataset, Discrete, Episode, Recipe, RunConfig
from understudy.algorithms import algorithm_names, find_algorithm
from understudy.core.protocols import Needs
from understudy.core.rng import stream
from understudy.nn.actor import Actor, ActorSettings
from understudy.run.config import parse_config
from understudy.run.env_settings import EnvSettings
from understudy.run.environments import spec_of
from understudy.run.policy_file import save_policy

SHARED_DATA = Path(os.environ.get("UNDERSTUDY_DATA", Path(__file__).parents[2] / "shared" / "data"))
"""Real recordings that tests may read where they are present; they are never copied into the project."""

PENDULUM_RECIPE: dict[str, Any] = {
    "env": "Pendulum-v1",
    "episodes": 4,
    "seed": 7,
    "behaviours": [
        {"policy": "random", "share": 1},
        {"policy": "scripted", "share": 1, "skill": 0.8, "noise": 0.3, "epsilon": 0.1},
    ],
}

CARTPOLE_RECIPE: dict[str, Any] = {**PENDULUM_RECIPE, "env": "CartPole-v1", "behaviours": [{"policy": "random"}]}


def real_data(name: str) -> Path:
    """A file of real recordings, or a skip that says it is not here."""
    path = SHARED_DATA / name
    if not path.exists():
        pytest.skip(f"the recording {name} is not on this machine")
    return path


def pendulum_recipe(**changes: Any) -> Recipe:
    return Recipe.parse({**PENDULUM_RECIPE, **changes})


def random_episodes(
    count: int = 6, steps: int = 20, state: int = 3, action: int = 2, seed: int = 0, **ends: bool
) -> list[Episode]:
    rng = np.random.default_rng(seed)
    flags: dict[str, Any] = {"terminated": False, "truncated": True, **ends}
    return [
        Episode(
            {"state": rng.standard_normal((steps + 1, state)).astype(np.float32)},
            rng.uniform(-1, 1, (steps, action)).astype(np.float32),
            rng.standard_normal(steps).astype(np.float32),
            **flags,
        )
        for _ in range(count)
    ]


def random_dataset(count: int = 6, steps: int = 20, state: int = 3, action: int = 2, seed: int = 0) -> Dataset:
    box = Box((-1.0,) * action, (1.0,) * action)
    return Dataset.from_episodes(random_episodes(count, steps, state, action, seed), box, name="random")


def random_choices(
    count: int = 6, steps: int = 20, state: int = 3, actions: int = 4, seed: int = 0, *, masked: bool = False
) -> Dataset:
    """Random play over discrete actions; everything is legal."""
    rng = np.random.default_rng(seed)
    episodes = [
        Episode(
            {"state": rng.standard_normal((steps + 1, state)).astype(np.float32)},
            rng.integers(0, actions, steps),
            rng.standard_normal(steps).astype(np.float32),
            terminated=False,
            truncated=True,
            mask=np.ones((steps + 1, actions), bool) if masked else None,
        )
        for _ in range(count)
    ]
    return Dataset.from_episodes(episodes, Discrete(actions), name="random choices")


def takes_boxes(algorithm: str) -> bool:
    """Whether an algorithm learns continuous actions; others are tried with discrete ones."""
    return Box in usual_needs(algorithm).actions


def takes_choices(algorithm: str) -> bool:
    return Discrete in usual_needs(algorithm).actions


def usual_needs(algorithm: str) -> Needs:
    """What an algorithm asks for with the settings that it has by default."""
    module = find_algorithm(algorithm)
    return module.needs(module.Config())


def judges_only(algorithm: str) -> bool:
    """Whether it judges a policy that stays what it is, and learns none."""
    return "target" in usual_needs(algorithm).policies


def learning_from(kind: str) -> list[str]:
    """Algorithms that can learn from a source of this kind."""
    return [name for name in sorted(algorithm_names()) if kind in usual_needs(name).sources]


def tiny_settings(algorithm: str, out: Path, **changes: Any) -> dict[str, Any]:
    """A run of a few seconds at most, as plain data."""
    run = _tiny_rollouts(algorithm) if algorithm in learning_from("rollout") else _tiny_offline(algorithm)
    intervals = {"updates": 60, "log_every": 10, "eval_every": 30, "eval_episodes": 2, "save_every": 20}
    settings = {**run, **intervals, "tensorboard": False, "out": str(out), **changes}
    roles = usual_needs(algorithm).policies
    if roles and "policies" not in settings:
        env_id = settings["env"]["id"] if settings["env"] else settings["data"]["recipe"]["env"]
        settings["policies"] = {role: {"path": str(saved_policy(env_id))} for role in roles}
    return settings


@cache
def saved_policy(env_id: str) -> Path:
    """The folder of a small policy that could act there, and has not learned anything."""
    spec = spec_of(EnvSettings(id=env_id))
    folder = Path(tempfile.mkdtemp(prefix="understudy-policy-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    save_policy(Actor(spec, ActorSettings(hidden=(16, 16)), stream(0, "saved")), folder / "policy", {"env": env_id})
    return folder / "policy"


def _tiny_rollouts(algorithm: str) -> dict[str, Any]:
    network = {"hidden": [16, 16]}
    return {
        "algo": {"name": algorithm, "actor": network, "critic": network, "epochs": 2, "minibatches": 2},
        "env": {"id": "Pendulum-v1"},
        "source": {"num_envs": 3, "rollout_length": 16},
    }


def _tiny_offline(algorithm: str) -> dict[str, Any]:
    network = {"hidden": [16, 16]}
    algo: dict[str, Any] = {"name": algorithm}
    if not judges_only(algorithm):
        algo["actor"] = network
    if algorithm != "bc":
        algo["critic"] = network
    recipe = PENDULUM_RECIPE if takes_boxes(algorithm) else CARTPOLE_RECIPE
    return {
        "algo": algo,
        "data": {"recipe": recipe},
        "env": {"id": recipe["env"]},
        "source": offline_settings(algorithm, batch_size=32),
    }


def offline_settings(algorithm: str, **settings: Any) -> dict[str, Any]:
    """Of a source over a dataset, named where the algorithm has a more usual one."""
    return settings if usual_needs(algorithm).sources[0] == "offline" else {"kind": "offline", **settings}


def tiny_config(algorithm: str, out: Path, **changes: Any) -> RunConfig:
    return parse_config(tiny_settings(algorithm, out, **changes))

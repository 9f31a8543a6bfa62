"""Worlds and settings of runs that end in a blink, and what must be equal between two runs."""

import hashlib
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from understudy.envs.builtin.battle.env import BattleEnv  # noqa: F401 (registered by its name here)
from understudy.run.checkpoint import list_checkpoints
from worlds import learning_from, offline_settings, tiny_settings

SHORT = "Short/Pendulum-v0"
"""Pendulum with episodes of ten steps."""
BATTLE = "Short/Battle-v0"
"""Ten steps of a battle: choices, and not all of them legal."""
BROKEN = "Broken/Pendulum-v0"
"""Pendulum whose fourth reward is NaN."""
FAULTS = ("exit", "interrupt", "leave", "crash", "alarm", "slow")
"""Short pendulums that misbehave while they are armed: see `faulty_worlds`."""


class BrokenPendulum(PendulumEnv):
    """Pays NaN at its fourth step."""

    paid = 0

    def step(self, u: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(u)  # type: ignore[no-untyped-call]
        self.paid += 1
        return observation, np.nan if self.paid == 4 else reward, terminated, truncated, info


def register_worlds() -> None:
    """Make the worlds known to Gymnasium, once per process."""
    if SHORT not in gymnasium.registry:
        gymnasium.register(SHORT, "small:PendulumEnv", max_episode_steps=10)
        gymnasium.register(BATTLE, "small:BattleEnv", max_episode_steps=10)
        gymnasium.register(BROKEN, "small:BrokenPendulum", max_episode_steps=10)
        for fault in FAULTS:
            gymnasium.register(
                f"Faulty/{fault}-v0", "faulty_worlds:make_faulty", max_episode_steps=10, kwargs={"fault": fault}
            )


register_worlds()


def short_settings(algorithm: str, out: Path, **changes: Any) -> dict[str, Any]:
    """A run of about a tenth of a second: 12 updates, logs, evaluations and saves on different beats."""
    world = changes.pop("world", SHORT)
    recipe = {"env": world, "episodes": 4, "seed": 7, "behaviours": [{"policy": "random"}]}
    offline = {"data": {"recipe": recipe}, "source": offline_settings(algorithm, batch_size=8)}
    small = {
        **(offline if algorithm in learning_from("offline") else {"source": {"num_envs": 3, "rollout_length": 7}}),
        "env": {"id": world},
        "updates": 12,
        "log_every": 2,
        "eval_every": 3,
        "save_every": 4,
    }
    settings = tiny_settings(algorithm, out, **{**small, **changes})
    for network in ("actor", "critic"):
        if network in settings["algo"] and algorithm in learning_from("offline"):
            # Dropout draws random numbers in every update, so a forgotten stream shows.
            settings["algo"][network] = {"hidden": [8], "dropout": 0.1}
    return settings


def write_settings(path: Path, settings: dict[str, Any]) -> Path:
    """Settings as a YAML file at `path` (JSON is YAML)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings), encoding="utf-8")
    return path


def short_config(folder: Path, algorithm: str = "iql", name: str = "run", **changes: Any) -> Path:
    """The YAML file of a short run whose directory is `folder/name`."""
    return write_settings(folder / f"{name}.yaml", short_settings(algorithm, folder / name, **changes))


LOGS = ("metrics.jsonl", "eval.jsonl")
POLICIES = tuple(
    f"policy/{name}/{file}" for name in ("final", "best") for file in ("policy.json", "policy.safetensors")
)


def content(run: Path) -> dict[str, str]:
    """sha256 of everything that two equal runs have in common: final state, logs, policies, result."""
    newest = f"{list_checkpoints(run / 'checkpoints')[-1]:09d}"
    state = [f"checkpoints/{newest}/{file}" for file in ("state.safetensors", "manifest.json")]
    names = [*state, "checkpoints/latest", *LOGS, *POLICIES, "result.json"]
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}


def leftovers(run: Path) -> list[str]:
    """Drafts and doomed folders that a dead process left and nobody cleared away."""
    return sorted(str(path.relative_to(run)) for path in run.rglob(".*") if path.name != ".lock")


class StoppedAt:
    """Stops a run at an update that is saved."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def on_checkpoint(self, updates: int, path: Path) -> None:
        if updates >= self.updates:
            raise KeyboardInterrupt

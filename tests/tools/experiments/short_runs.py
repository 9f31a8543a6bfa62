"""Runs of a second or less that are worked off, and what two equal ones have in common."""

import hashlib
import json
from pathlib import Path
from typing import Any

from understudy.core.files import seal
from understudy.run.checkpoint import list_checkpoints
from understudy.run.config import load_config

SHORT: dict[str, Any] = {
    "data.recipe.episodes": 4,
    "source.batch_size": 16,
    "algo.actor.hidden": [8],
    "eval_episodes": 2,
    "eval_max_steps": 10,
    "updates": 400,
    "log_every": 50,
    "eval_every": 200,
    "save_every": 20,
    "tensorboard": "false",
}


def config_words(**changes: Any) -> list[str]:
    """The settings of a short run; dots of keys are `__`."""
    settings = {**SHORT, **{key.replace("__", "."): value for key, value in changes.items()}}
    return [f"{key}={value}" for key, value in settings.items()]


def config_text(config: str = "bc/pendulum", **changes: Any) -> str:
    """A short run's config, everything written out."""
    return load_config(config, config_words(**changes)).to_yaml()


def written_with(run: Path, package: str, version: str) -> None:
    """Make it a run whose newest checkpoint, if it has one, and birth were with another version of a package."""
    for update in list_checkpoints(run / "checkpoints")[-1:]:
        file = run / "checkpoints" / f"{update:09d}" / "manifest.json"
        manifest = json.loads(file.read_text())
        del manifest["seal"]
        manifest["facts"]["versions"][package] = version
        file.write_bytes(seal(manifest))
    meta = json.loads((run / "meta.json").read_text())
    meta["versions"][package] = version
    (run / "meta.json").write_text(json.dumps(meta))


def small_suite() -> dict[str, Any]:
    """Three methods, a task, two seeds."""
    play = {"env": "Pendulum-v1", "episodes": 4, "seed": 1, "behaviours": [{"policy": "random"}]}
    return {
        "name": "small",
        "about": "Three short ways to learn.",
        "tasks": [{"id": "swing", "env": "Pendulum-v1", "recipe": play}],
        "methods": {
            "BC": "bc/pendulum",
            "half of BC": {"config": "bc/pendulum", "settings": {"data.best_episodes": 0.5}},
            "IQL, τ 0.9": {"config": "iql/pendulum", "settings": {"algo.expectile": 0.9}},
        },
        "seeds": 2,
        "settings": {key: value for key, value in SHORT.items() if not key.startswith("data.")},
    }


def run_content(run: Path) -> dict[str, str]:
    """sha256 of what two equal runs have in common: final state, logs, policies, result."""
    newest = f"checkpoints/{list_checkpoints(run / 'checkpoints')[-1]:09d}"
    policies = [f"policy/{name}/policy.safetensors" for name in ("final", "best")]
    names = [f"{newest}/state.safetensors", "metrics.jsonl", "eval.jsonl", *policies, "result.json"]
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}

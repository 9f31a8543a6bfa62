"""What the quality benchmark compares: sets, methods and the peers' scores, read from plan.yaml."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Trial:
    """One run: a method, a set, a seed."""

    set: str
    method: str
    seed: int

    @property
    def folder(self) -> Path:
        plain = "".join(letter if letter.isalnum() else "_" for letter in self.method).lower()
        return Path(self.set, plain, str(self.seed))


@dataclass(frozen=True)
class Plan:
    updates: int
    batch_size: int
    sets: dict[str, dict[str, Any]]
    methods: dict[str, dict[str, Any]]
    peers: dict[str, dict[str, list[float]]]
    data: dict[str, dict[str, float]]
    reading: str
    """What the table says, and what it does not."""

    def command(self, trial: Trial, folder: Path) -> list[str]:
        """What follows `understudy train`."""
        world, method = self.sets[trial.set], self.methods[trial.method]
        task = [f"task={trial.set}-v2"] if method.get("per_set") else []
        return [
            method["config"],
            *task,
            *method.get("changes", []),
            f"data.path={folder / trial.set}.npz",
            f"env.id={world['env']}",
            f"env.reference=[{world['low']}, {world['high']}]",
            f"source.batch_size={self.batch_size}",
            f"seed={trial.seed}",
            f"updates={self.updates}",
            "log_every=1000",
            "eval_every=5000",
            "eval_episodes=10",
            "save_every=5000",
            "keep_checkpoints=2",
            "tensorboard=false",
        ]


def read_plan(path: Path) -> Plan:
    return Plan(**yaml.safe_load(path.read_text()))

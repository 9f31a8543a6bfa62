"""A small learner with a large state, and a run of it without the rest of the house: log, check, save, resume."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from understudy.core.large_state import LargeState, StoredRows
from understudy.core.protocols import Metrics
from understudy.core.segments import SUFFIX
from understudy.core.state import Static, capture, place_large_state, restore
from understudy.run.checkpoint import (
    LATEST,
    SEGMENTS,
    list_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    point_latest,
    save_checkpoint,
)
from understudy.run.guard import Guard
from understudy.run.rundir import RunDir

NAME = "ring-job"

FACTS: dict[str, Any] = {
    "settings": {},
    "updates": 1,
    "sources": {},
    "versions": {},
    "policy": {"kind": "policy", "spec": {}, "settings": {}},
    "networks": {},
}


@dataclass
class RingLearner:
    """Each update adds rows to a ring, draws a batch of what is there, and takes one step of regression."""

    rows: LargeState
    weight: Tensor
    priorities: Tensor
    """What changes in place: how often each slot was drawn."""
    rng: torch.Generator
    added: Static[int]
    poisoned: Static[int]
    """The number of the row whose target no float32 can square."""

    @classmethod
    def build(cls, capacity: int, segment_rows: int, added: int, poisoned: int = -1) -> "RingLearner":
        rows = LargeState({"obs": torch.zeros(3), "target": torch.zeros(())}, capacity, segment_rows=segment_rows)
        return cls(rows, torch.zeros(3), torch.zeros(capacity), torch.Generator().manual_seed(3), added, poisoned)

    def update(self) -> Metrics:
        obs = torch.randn(self.added, 3, generator=self.rng)
        target = obs.sum(dim=-1)
        target[torch.arange(self.rows.written, self.rows.written + self.added) == self.poisoned] = 1e25
        self.rows.append({"obs": obs, "target": target})
        slots = torch.randint(len(self.rows), (64,), generator=self.rng)
        slots[0] = (self.rows.written - 1) % self.rows.capacity
        self.priorities[slots] += 1
        batch = self.rows.gather(slots)
        error = batch["obs"] @ self.weight - batch["target"]
        self.weight -= 0.1 * (error[:, None] * batch["obs"]).mean(dim=0)
        return {"loss": error.square().mean()}


@dataclass(frozen=True)
class Job:
    folder: Path
    capacity: int = 200
    segment_rows: int = 32
    added: int = 37
    """Rows of an update."""
    updates: int = 24
    """More than four times around."""
    log_every: int = 3
    save_every: int = 4

    def learner(self) -> RingLearner:
        return RingLearner.build(self.capacity, self.segment_rows, self.added)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def run(self, updates: int | None = None) -> RingLearner:
        """Begin, or go on from the newest whole checkpoint, as runs do."""
        learner, done = self.learner(), 0
        self.folder.mkdir(exist_ok=True)
        found, _ = newest_checkpoint(self.checkpoints)
        RunDir(self.folder).clear_leftovers()
        if found is not None:
            restore(learner, found.state, "checkpoint")
            point_latest(self.checkpoints, found.updates)
            done = found.updates
        place_large_state(learner, self.checkpoints / SEGMENTS)
        guard = Guard.over(learner, done)
        for count in range(done + 1, (updates or self.updates) + 1):
            metrics = learner.update()
            if count % self.log_every == 0 or count % self.save_every == 0:
                assert guard.check(count, metrics)
            if count % self.save_every == 0:
                save_checkpoint(self.checkpoints, count, capture(learner), FACTS, keep=2)
        return learner

    def content(self) -> dict[str, bytes]:
        """The newest checkpoint and all that it lists."""
        newest = list_checkpoints(self.checkpoints)[-1:]
        files = [self.checkpoints / LATEST, *(self.checkpoints / f"{newest[0]:09d}").iterdir()]
        files += [self.checkpoints / SEGMENTS / f"{sha256}{SUFFIX}" for sha256 in self.listed(newest)]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files}

    def listed(self, checkpoints: list[int] | None = None) -> set[str]:
        """The files of large state that kept checkpoints list."""
        chosen = list_checkpoints(self.checkpoints) if checkpoints is None else checkpoints
        leaves = [leaf for updates in chosen for leaf in load_checkpoint(self.checkpoints, updates).state.values()]
        return {sha256 for leaf in leaves if isinstance(leaf, StoredRows) for sha256 in leaf.segments}

    def segments(self) -> set[str]:
        """The files of large state that are there."""
        return {path.stem for path in (self.checkpoints / SEGMENTS).iterdir()}

    @property
    def words(self) -> list[str]:
        """What a process is told to do this job."""
        return [NAME, json.dumps({**vars(self), "folder": str(self.folder)})]


def main() -> None:
    told = json.loads(sys.argv[2])
    Job(**{**told, "folder": Path(told["folder"])}).run()

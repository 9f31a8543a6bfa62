"""What came before a run: its stages, or the run it started from, and its own logs as one history."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from understudy.core.errors import UnderstudyError
from understudy.run.config import RunConfig
from understudy.run.rundir import RunDir
from understudy.run.stages import stage_folder

Lines = list[dict[str, Any]]
COUNTERS = ("updates", "env_steps")
"""What goes on counting where another run began."""
LONGEST = 16
"""Runs of a line: who started from whom beyond that is not drawn."""


@final
@dataclass(frozen=True)
class Switch:
    """Where one run ended and the next began."""

    at: Mapping[str, float]
    """By counter."""
    name: str
    """Of what began."""


@final
@dataclass(frozen=True)
class Lineage:
    """Logs of runs that started from each other, the counters of each going on where the one before ended."""

    evaluations: Lines = field(default_factory=list)
    metrics: Lines = field(default_factory=list)
    switches: tuple[Switch, ...] = ()
    ended: Mapping[str, float] = field(default_factory=dict)
    """Where the counters stand."""

    def followed_by(self, run: RunDir, config: RunConfig) -> "Lineage":
        """With a run that started where this ends."""
        evaluations, metrics = (self._counted_on(lines) for lines in (run.evaluations(), run.metrics()))
        ended = dict(self.ended)
        for line in (*evaluations, *metrics):
            ended |= {name: max(ended.get(name, 0), line[name]) for name in COUNTERS if _is_count(line.get(name))}
        begins = (Switch({**dict.fromkeys(COUNTERS, 0), **self.ended}, f"{config.algorithm}, {config.source_kind}"),)
        switches = (*self.switches, *(begins if self.evaluations or self.metrics else ()))
        return Lineage([*self.evaluations, *evaluations], [*self.metrics, *metrics], switches, ended)

    def _counted_on(self, lines: Lines) -> Lines:
        before = self.ended
        return [
            {**line, **{name: line[name] + before[name] for name in before if _is_count(line.get(name))}}
            for line in lines
        ]


def lineage(run: RunDir, config: RunConfig) -> Lineage:
    """Of a run and what it started from, as far as that can still be read."""
    told = Lineage()
    for one, settings in (*reversed(_before(run, config, LONGEST)), (run, config)):
        told = told.followed_by(one, settings)
    return told


def _before(run: RunDir, config: RunConfig, most: int) -> list[tuple[RunDir, RunConfig]]:
    """The runs before this one, the last first."""
    stages = [stage_folder(run.path, number, stage.algorithm) for number, stage in enumerate(config.stages, 1)]
    origin = [Path(config.init_from)] if config.init_from else []
    found: list[tuple[RunDir, RunConfig]] = []
    for path in reversed([*origin, *stages]):
        try:
            earlier = RunDir.open(path)
            found.append((earlier, earlier.config))
        except UnderstudyError:  # a policy folder, or what is not there any more
            break
        if path in origin and len(found) < most:
            found += _before(*found[-1], most - len(found))
    return found[:most]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

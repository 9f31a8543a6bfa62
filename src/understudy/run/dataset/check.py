"""A dataset checked: against itself, and against the environment it is said to come from."""

import re
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from understudy.core.errors import DataError
from understudy.data.episode import Episode
from understudy.data.formats.readers import open_recording
from understudy.data.recording import Recording
from understudy.data.surveys.action_tally import BoxActions
from understudy.data.surveys.findings import LEVELS, Finding, findings
from understudy.data.surveys.survey import Survey, survey
from understudy.data.transforms import Mending
from understudy.envs.physics import Physics
from understudy.envs.poses import POSES
from understudy.run.dataset.end_findings import end_findings, ends_are_settled
from understudy.run.dataset.fit_findings import Dropped, Fit, fit
from understudy.run.dataset.replay_findings import clips_itself, replay_findings, settled_kinds
from understudy.run.dataset.replay_sample import GROUP, Replay, gather, replay
from understudy.run.dataset.world import World, open_world, recorded_world
from understudy.run.progress import SILENT, Reporter

SETTING = re.compile(r"(drop_columns=\{[^}]*\}|actions_from=\[[^]]*\]|(?:time_limit|late_rewards|actions)=\w+)")
"""A setting of `data:` inside the words of a fix."""
FOR_ITS_OWN = {"action-scale", "out-of-range", "no-such-action", "untried-actions"}
"""What only means something against the environment the data was made for."""
LONG = 200_000
"""Steps from which on a check takes long enough to show how far it is."""


@final
@dataclass(frozen=True)
class Report:
    """What was found; errors first."""

    name: str
    env_id: str
    """What the data was checked against; empty: only against itself."""
    findings: list[Finding]
    physics: Physics | None = None
    survey: Survey | None = None
    """Absent: the file could not be read at all."""
    fits: bool = True
    """False: made for another environment, which no setting mends."""

    @property
    def passed(self) -> bool:
        return not self.count("error")

    def count(self, level: str) -> int:
        return sum(finding.level == level for finding in self.findings)

    @property
    def settings(self) -> list[str]:
        """What mends the errors, as key=value, each key once and in the order they are applied."""
        first: dict[str, str] = {}
        if not self.fits:
            return []
        for finding in self.findings:
            setting = SETTING.match(finding.fix) if finding.level == "error" else None
            if setting is not None:
                first.setdefault(setting[0].partition("=")[0], setting[0])
        return [first[key] for key in Mending.model_fields if key in first]

    def command(self, source: str) -> str:
        """The one command that writes a mended copy, or nothing if there is nothing to mend.

        Where no action space is known, the reader has to fill in the environment's ID.
        """
        if not self.settings:
            return ""
        unknown = self.survey is not None and self.survey.space is None and isinstance(self.survey.actions, BoxActions)
        env = ["--env", self.env_id or "ID"] if self.env_id or unknown else []
        target = Path(source).with_suffix("").name + "-mended"
        return shlex.join(["understudy", "dataset", "convert", source, target, *env, *self.settings])

    def to_json(self, source: str) -> dict[str, Any]:
        facts = self.survey
        return {
            "data": source,
            "env": self.env_id,
            "passed": self.passed,
            **{f"{level}s": self.count(level) for level in LEVELS},
            "episodes": 0 if facts is None else facts.episodes,
            "steps": 0 if facts is None else facts.steps,
            "findings": [finding.to_json() for finding in self.findings],
            "settings": self.settings,
            "convert": self.command(source),
            "physics": None if self.physics is None else _plain(asdict(self.physics)),
        }


def check_file(source: str, env_id: str = "", reporter: Reporter = SILENT) -> Report:
    """Check anything that can be opened; what cannot be is an error like the others."""
    world = open_world(env_id) if env_id else None
    try:
        recording = open_recording(source)
    except DataError as error:
        return _unreadable(source, env_id, error)
    return _check(recording, world, reporter)


def check_dataset(recording: Recording, env_id: str | None = None, reporter: Reporter = SILENT) -> Report:
    """Two passes over a recording, in bounded memory: one for its survey, one for a sample to replay."""
    return _check(recording, open_world(env_id) if env_id else None, reporter)


def _check(recording: Recording, given: World | None, reporter: Reporter) -> Report:
    """Absurd numbers are told as findings; NumPy's own words on them help nobody."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return _checked(recording, given, reporter)


def _checked(recording: Recording, given: World | None, reporter: Reporter) -> Report:
    world, own = (given, []) if given is not None else _own_world(recording)
    env_id = world.env_id if world is not None else ""
    try:
        space = world.spec.action if world is not None else None
        facts = survey(_watched(recording, "surveying", reporter), space)
    except DataError as error:
        return _unreadable(recording.name, env_id, error)
    found = findings(facts)
    played, fits = None, True
    if world is not None and facts.episodes:
        fitting = fit(facts, recording.space, world)
        fits = fitting.observations and fitting.actions
        played, about = _replayed(recording, facts, world, fits, fitting.dropped, reporter)
        found = [*about, *_judged(found, facts, world, fitting, played)]
    found += [*own, *(Finding("note", "reader", note) for note in recording.notes)]
    found.sort(key=lambda finding: LEVELS.index(finding.level))
    return Report(recording.name, env_id, found, played.physics if played is not None else None, facts, fits)


def _own_world(recording: Recording) -> tuple[World | None, list[Finding]]:
    """What the file says it came from is only a word: it must be registered here, or it counts for nothing."""
    more = "With --env ID, bounds, time limits and physics are checked too."
    if not recording.env:
        return None, [Finding("note", "no-env", more)]
    world, why_not = recorded_world(recording.env)
    if world is None:
        message = f"It says it comes from '{recording.env}', which cannot be used here ({why_not.rstrip('.')}). {more}"
        return None, [Finding("note", "no-env", message)]
    return world, [Finding("note", "env", f"It says it comes from {world.env_id}: checked against that.")]


def _unreadable(name: str, env_id: str, error: DataError) -> Report:
    return Report(name, env_id, [Finding("error", "unreadable", str(error))])


def _watched(recording: Recording, doing: str, reporter: Reporter) -> Recording:
    """The same recording, showing how far it has been read."""
    if recording.steps < LONG:
        return recording

    def play() -> Iterator[Episode]:
        done = 0
        with reporter.task(f"{doing} {Path(recording.name).name}", recording.steps, "steps") as advance:
            for episode in recording.episodes():
                yield episode
                done += len(episode.actions) if np.ndim(episode.actions) else 0
                advance(done, "")

    return replace(recording, play=play)


def _replayed(
    recording: Recording, facts: Survey, world: World, fits: bool, dropped: Dropped, reporter: Reporter
) -> tuple[Replay | None, list[Finding]]:
    """The environment's verdict, or why it has none."""
    if world.stepper is None:
        known = ", ".join(dict.fromkeys(env_id.rpartition("-v")[0] for env_id in POSES))
        message = (
            f"{world.env_id} cannot set its state from an observation, so no step was replayed. Those can: {known}."
        )
        return None, [Finding("note", "no-replay", message)]
    if not fits:
        return None, []
    sample = gather(_watched(recording, "sampling", reporter), facts, dropped.get(GROUP, ()))
    played = replay(world.stepper, sample) if sample is not None else None
    if played is None:
        message = (
            "No sampled step could be replayed: each lacks part of the state, a next observation or a possible action."
        )
        return None, [Finding("note", "no-replay", message)]
    return played, []


def _judged(found: list[Finding], facts: Survey, world: World, fitting: Fit, played: Replay | None) -> list[Finding]:
    """Guesses make room for what the environment knows."""
    if not (fitting.observations and fitting.actions):
        return [*fitting.findings, *(finding for finding in found if finding.kind not in FOR_ITS_OWN)]
    terminals = played.physics.terminals if played is not None else None
    ends = end_findings(facts, world, terminals)
    settled = {"time-feature"}
    if ends_are_settled(world, terminals) or any(finding.kind == "time-limit-as-terminal" for finding in ends):
        settled.add("time-limit-as-terminal")
    known = settled_kinds(played) if played is not None else set()
    fits = [finding for finding in fitting.findings if finding.kind not in known]
    kept = [finding for finding in found if finding.kind not in settled | known]
    if played is None:
        return [*fits, *ends, *kept]
    kept = [_cut_by_the_environment(finding, played.physics) for finding in kept]
    return [*fits, *ends, *replay_findings(facts, world, played), *kept]


def _cut_by_the_environment(finding: Finding, physics: Physics) -> Finding:
    """Of several ways to mend actions out of range, the replay knows the right one."""
    if finding.kind != "out-of-range" or not clips_itself(physics):
        return finding
    told = f"{finding.message} {physics.env_id} cuts them itself: `clip` changes no motion."
    return replace(finding, message=told, fix="actions=clip")


def _plain(value: Any) -> Any:
    """What strict JSON can hold; a number that is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value

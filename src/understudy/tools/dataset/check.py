"""A dataset checked: against itself, and against the environment it is said to come from."""

import shlex
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from understudy.core.errors import DataError
from understudy.core.wording import counted
from understudy.data.episode import Episode
from understudy.data.formats.readers import open_recording
from understudy.data.recording import Recording
from understudy.data.transforms import Mending, mend
from understudy.envs.physics.agreement import Physics
from understudy.envs.physics.poses import POSES
from understudy.run.overrides import apply_override
from understudy.run.progress import SILENT, Reporter
from understudy.tools.dataset.action_tally import BoxActions
from understudy.tools.dataset.end_findings import end_findings, ends_are_settled, is_irregular, joints
from understudy.tools.dataset.findings import LEVELS, Finding, findings, setting_text
from understudy.tools.dataset.fit_findings import Dropped, Fit, fit
from understudy.tools.dataset.physics_findings import hardly_moves, judged_excess, replay_findings, settled_kinds
from understudy.tools.dataset.physics_replay import Replay, replay
from understudy.tools.dataset.physics_sample import GROUP, gather
from understudy.tools.dataset.reference_env import World, open_world, recorded_world
from understudy.tools.dataset.survey import Survey, survey

FOR_ITS_OWN = {"action-scale", "out-of-range", "no-such-action", "untried-actions"}
"""What only means something against the environment the data was made for."""
GUESSED = {"time-limit-as-terminal", "late-rewards", "action-scale"}
NOT_ITS_OWN = "The steps are not of this environment: no fix is sure. Is it the right one?"
MORE = "With --env ID, bounds, time limits and physics are checked too."
UNCUT = 1 << 60
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
    columns: str = ""
    """What was said of its columns."""
    outcome: "Outcome | None" = None
    """What the fixes make of it; absent: there is none, or it could not be tried."""

    @property
    def passed(self) -> bool:
        return not self.count("error")

    def count(self, level: str) -> int:
        return sum(finding.level == level for finding in self.findings)

    @property
    def settings(self) -> list[str]:
        """What mends the errors, as key=value, each key once and in the order they are applied.

        Rewards that only look late count as well: whoever writes a new copy shall not keep them so.
        """
        if not self.fits or (self.outcome is not None and self.outcome.worse):
            return []
        return self._offered

    @property
    def _offered(self) -> list[str]:
        first: dict[str, str] = {}
        for finding in self.findings:
            mends = finding.level == "error" or finding.kind == "late-rewards"
            for name, value in list(finding.settings.items())[:1] if mends else []:
                first.setdefault(name, setting_text(name, value))
        return [first[key] for key in Mending.model_fields if key in first]

    def command(self, source: str) -> str:
        """The one command that writes a mended copy, or nothing if there is nothing to mend.

        Where no action space is known, the reader has to fill in its bounds.
        """
        if not self.settings:
            return ""
        unknown = self.survey is not None and self.survey.space is None and isinstance(self.survey.actions, BoxActions)
        bounds = ["--action-low", "LOW", "--action-high", "HIGH"] if unknown and not self.env_id else []
        env = ["--env", self.env_id] if self.env_id else bounds
        target = Path(source).stem.replace(".", "_") + "-mended"  # what stands after a dot would be a format
        columns = ["--columns", self.columns] if self.columns else []
        return shlex.join(["understudy", "dataset", "convert", source, target, *env, *columns, *self.settings])

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
            "mended": None if self.outcome is None else asdict(self.outcome),
            "physics": None if self.physics is None else _plain(asdict(self.physics)),
        }


@final
@dataclass(frozen=True)
class Outcome:
    """A dataset after the fixes that were found, checked once more."""

    steps: int
    steps_before: int
    terminals: int
    """Episodes that terminate."""
    terminals_before: int
    errors: tuple[str, ...]
    """Kinds of errors that are still there."""
    worse: bool
    """There are errors that were not there before: the fixes are not offered."""

    def sentence(self) -> str:
        kept = f"It keeps {self.steps:,} of {counted(self.steps_before, 'step')}"
        if self.terminals_before:
            kept += f" and {self.terminals:,} of {counted(self.terminals_before, 'terminal')}"
        left = f"still to be mended by hand: {', '.join(self.errors)}" if self.errors else "it passes"
        return f"{kept}. Checked again: {left}."


def check_file(source: str, env_id: str = "", reporter: Reporter = SILENT, columns: str = "") -> Report:
    """Check anything that can be opened; what cannot be is an error like the others."""
    world = open_world(env_id) if env_id else None
    try:
        return replace(check_dataset(open_recording(source, columns=columns), world, reporter), columns=columns)
    except DataError as error:
        cut = _cut_by_the_clock(source, world, reporter)
        return cut or _unreadable(source, env_id, error)


def _cut_by_the_clock(source: str, world: World | None, reporter: Reporter) -> Report | None:
    """A file that marks no end at all: read whole to see where it breaks off, then cut there, or at the time limit."""
    if world is None or world.time_limit is None:
        return None
    try:
        whole = check_dataset(open_recording(source, episode_steps=UNCUT), world, reporter)
    except DataError:
        return None
    fixes = [finding for finding in whole.findings if finding.kind == "longer-than-limit"]
    if any(finding.level == "error" and not finding.settings for finding in fixes):
        message = f"dataset '{whole.name}': marks no end of any episode. What follows is said of it as one."
        uncut = Finding("error", "no-boundary", message, "Write the ends of episodes into the file.")
        return replace(whole, findings=[uncut, *whole.findings])
    steps = next((fix.settings["episode_steps"] for fix in fixes if fix.settings), world.time_limit)
    told = f"as {world.env_id} does" if steps == world.time_limit else f"where they break off in {world.env_id}"
    message = (
        f"dataset '{whole.name}': marks no end of any episode. What follows is said of episodes that are cut after "
        f"every {counted(steps, 'step')}, {told}."
    )
    recording = open_recording(source, episode_steps=steps)
    report = check_dataset(recording, world, reporter)
    uncut = Finding("error", "no-boundary", message, settings={"episode_steps": steps})
    return _tried(replace(report, findings=[uncut, *report.findings]), recording, world, reporter)


def check_dataset(recording: Recording, given: World | None = None, reporter: Reporter = SILENT) -> Report:
    """Two passes over a recording, in bounded memory: one for its survey, one for a sample to replay.

    A third looks at what surrounds steps that do not follow, and where fixes are offered, all is done again with them.
    Absurd numbers are told as findings; NumPy's own words on them help nobody.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return _tried(_checked(recording, given, reporter), recording, given, reporter)


def _tried(report: Report, recording: Recording, given: World | None, reporter: Reporter) -> Report:
    """With the outcome of the fixes it offers."""
    facts = report.survey
    report = replace(report, outcome=None)
    settings = report.settings
    world = given if given is not None else (recorded_world(report.env_id)[0] if report.env_id else None)
    space = world.spec.action if world is not None else recording.space
    if not settings or facts is None or space is None:
        return report
    words: dict[str, Any] = {}
    for setting in settings:
        apply_override(words, setting)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        again = _checked(mend(recording, Mending.parse(words), space), world, reporter)
    before, after = ({f.kind for f in one.findings if f.level == "error"} for one in (report, again))
    outcome = Outcome(
        0 if again.survey is None else again.survey.steps,
        facts.steps,
        0 if again.survey is None else int(again.survey.terminated.sum()),
        int(facts.terminated.sum()),
        tuple(sorted(after)),
        worse=bool(after - before),
    )
    return replace(report, outcome=outcome)


def _checked(recording: Recording, given: World | None, reporter: Reporter) -> Report:
    world, own = (given, []) if given is not None else _own_world(recording)
    env_id = world.env_id if world is not None else ""
    try:
        space = world.spec.action if world is not None else None
        facts = survey(_watched(recording, "surveying", reporter), space)
    except DataError as error:
        return _unreadable(recording.name, env_id, error)
    if (
        given is None
        and world is not None
        and facts.observations.keys() != world.spec.observation.keys()
        and facts.episodes
    ):
        own = [_made_otherwise(facts, world)]
        world, env_id = None, ""
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
    if not recording.env:
        return None, [Finding("note", "no-env", MORE)]
    world, why_not = recorded_world(recording.env)
    if world is None:
        message = f"It says it comes from '{recording.env}', which cannot be used here ({why_not.rstrip('.')}). {MORE}"
        return None, [Finding("note", "no-env", message)]
    return world, [Finding("note", "env", f"It says it comes from {world.env_id}: checked against that.")]


def _made_otherwise(facts: Survey, world: World) -> Finding:
    """A name says nothing of the arguments an environment was made with (FrankaKitchen's tasks)."""
    message = (
        f"It says it comes from {world.env_id}, but shows other groups of observations: got "
        f"{', '.join(sorted(facts.observations))}. It was made with other arguments: not checked against that. {MORE}"
    )
    return Finding("note", "no-env", message)


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
    watched = _watched(recording, "sampling", reporter)
    without = dropped.get(GROUP, ())
    sample = gather(watched, facts, without, world.time_limit, world.stepper)
    played = replay(world.stepper, sample, recording, facts, without) if sample is not None else None
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
    late = any(f.kind == "late-rewards" for f in found) or (played is not None and played.physics.rewards == "late")
    ends = end_findings(
        facts,
        world,
        terminals,
        played.sample if played is not None else None,
        joints(facts, world, played),
        late=late,
        irregular=is_irregular(facts, world, played),
    )
    settled = {"time-feature"}
    if ends_are_settled(world, terminals) or any(finding.kind == "time-limit-as-terminal" for finding in ends):
        settled.add("time-limit-as-terminal")
    if played is not None and played.physics.grade == "different" and not hardly_moves(played.physics):
        ends = [replace(finding, settings={}, advice=NOT_ITS_OWN) for finding in ends]
        found = [replace(f, settings={}, advice=NOT_ITS_OWN) if f.kind in GUESSED else f for f in found]
    known = settled_kinds(played) if played is not None else set()
    fits = [finding for finding in fitting.findings if finding.kind not in known]
    kept = [finding for finding in found if finding.kind not in settled | known]
    if played is None:
        return [*fits, *ends, *kept]
    kept = [judged_excess(f, played.physics) if f.kind == "out-of-range" else f for f in kept]
    return [*fits, *ends, *replay_findings(facts, world, played), *kept]


def _plain(value: Any) -> Any:
    """What strict JSON can hold; a number that is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value

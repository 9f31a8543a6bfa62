"""Motions on one screen: tables of clips and joints; or what a check found."""

import math
from collections.abc import Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from understudy.cli.findings import finding_lines
from understudy.cli.fitting_table import FittingTable
from understudy.core.wording import counted, folded
from understudy.tools.dataset.findings import Finding
from understudy.tools.motions.check import MotionReport
from understudy.tools.motions.survey import ClipFacts, MotionSurvey

MOST_CLIPS, MOST_JOINTS, MOST_FINDINGS = 12, 32, 40
"""So many are shown; the rest is counted."""
CLIPS = ("clip", "frames", "fps", "seconds", "loops", "speed m/s", "height m", "seam rad")
CLIPS_LEFT_OUT = ("loops", "seconds", "seam rad", "height m", "fps", "speed m/s")
JOINTS = ("joint", "min", "max", "peak speed")


def inspection_screen(survey: MotionSurvey) -> RenderableType:
    """About forty lines of a hundred columns."""
    parts: list[RenderableType] = [_title(survey), "", _clips(survey)]
    if survey.joints:
        parts += ["", _joints(survey)]
    parts += ["", _channels(survey)]
    return Group(*parts)


def _title(survey: MotionSurvey) -> Text:
    seconds = f", {_seconds(survey.seconds)}" if math.isfinite(survey.seconds) else ""
    size = f"{counted(len(survey.clips), 'clip')}, {counted(survey.frames, 'frame')}{seconds}"
    text = Text(Path(survey.path).name, "bold").append(f"  ({survey.kind})\n", "not bold dim")
    return text.append(size, "not bold")


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _clips(survey: MotionSurvey) -> FittingTable:
    empty = [head for head in CLIPS if not any(_cells(clip)[head] for clip in survey.clips)]
    heads = [head for head in CLIPS if head not in empty]
    table = FittingTable(heads, ("clip", "loops"), CLIPS_LEFT_OUT)
    for clip in survey.clips[:MOST_CLIPS]:
        cells = _cells(clip)
        table.add_row(*(cells[head] for head in heads))
    if len(survey.clips) > MOST_CLIPS:
        table.add_row(f"… and {len(survey.clips) - MOST_CLIPS:,} more (--json)")
    return table


def _cells(clip: ClipFacts) -> dict[str, str]:
    timed = math.isfinite(clip.fps)
    return {
        "clip": clip.name,
        "frames": f"{clip.frames:,}",
        "fps": f"{clip.fps:.4g}" if timed else "",
        "seconds": f"{clip.seconds:.2f}" if timed else "",
        "loops": "yes" if clip.loop else "",
        "speed m/s": "" if clip.speed is None else f"{clip.speed:.2f}",
        "height m": "" if clip.height is None else f"{clip.height[0]:.2f} to {clip.height[1]:.2f}",
        "seam rad": "" if clip.seam is None else f"{clip.seam:.2f}",
    }


def _joints(survey: MotionSurvey) -> FittingTable:
    table = FittingTable(JOINTS, ("joint",), ("peak speed",))
    for name, joint in list(survey.joints.items())[:MOST_JOINTS]:
        peak = "" if joint.peak_speed is None else f"{joint.peak_speed:.1f}"
        table.add_row(name, f"{joint.low:.2f}", f"{joint.high:.2f}", peak)
    if len(survey.joints) > MOST_JOINTS:
        table.add_row(f"… and {len(survey.joints) - MOST_JOINTS} more (--json)")
    return table


def _channels(survey: MotionSurvey) -> Text:
    told = ", ".join(f"{name} {len(components)}" for name, components in survey.channels.items())
    return Text("channels  ", "dim").append(told, "not dim")


def check_screen(report: MotionReport, width: int) -> Iterator[Text]:
    """The title and the findings, line by line."""
    size = f"{counted(report.clips, 'clip')}, {counted(report.frames, 'frame')}"
    title = Text(folded(f"{report.path}: {size}", width))
    title.stylize("bold", 0, len(report.path))
    yield title
    yield from finding_lines(report.findings[:MOST_FINDINGS], width, lambda finding: finding.message, remedy)
    if len(report.findings) > MOST_FINDINGS:
        yield Text(f"… and {len(report.findings) - MOST_FINDINGS:,} more (--json)", "dim")


def remedy(finding: Finding) -> str:
    """Settings as a run config has them, `fix: motions.up=y`; other advice as it is."""
    return f"fix: {finding.fix_within('motions.')}" if finding.settings else finding.advice

"""understudy motion …: look at reference motions, check them, pack them."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.dataset import PIPE_WIDTH, AsJson
from understudy.cli.learn import Quiet
from understudy.cli.streams import OUT, edge
from understudy.core.errors import ConfigError
from understudy.core.stopping import stoppable
from understudy.core.wording import counted

if TYPE_CHECKING:
    from understudy.data.motions.settings import MotionSettings

Motions = Annotated[
    str,
    typer.Argument(help="A clip (.npz, .txt, .json, .csv), a folder of clips, a packed folder, or a dataset."),
]
Further = Annotated[list[str] | None, typer.Argument(help="Settings of motions, as key=value: up=y joints=[hip,knee].")]
Step = Annotated[
    float | None, typer.Option("--step", help="Resample to this control step, in seconds; absent: frames as they are.")
]


def register(app: typer.Typer) -> None:
    commands = typer.Typer(
        help="Look at reference motions, check and pack them.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for command in (inspect, check, pack):
        commands.command()(command)
    app.add_typer(commands, name="motion")


def inspect(
    path: Motions,
    further: Further = None,
    step: Step = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the first clip to this .png file.")] = None,
    as_json: AsJson = False,
) -> None:
    """What is in motions, on one screen: clips, frames, fps, joints, ranges, speeds, and whether they close."""
    from rich.console import Console

    from understudy.cli.motion_screens import inspection_screen
    from understudy.tools.motions.plots import draw_motions
    from understudy.tools.motions.survey import survey_motions

    with stoppable(f"motions '{path}'", "They were only read."):
        seen = survey_motions(_settings(path, further, step))
    drawn = "" if plot is None else f"drawn: {draw_motions(seen, plot)}"
    if as_json:
        print(json.dumps(seen.to_json(), allow_nan=False))
        return
    console = Console(file=sys.stdout, width=edge(OUT, PIPE_WIDTH), highlight=False)
    console.print(inspection_screen(seen))
    if drawn:
        print(drawn)


def check(
    path: Motions,
    further: Further = None,
    step: Step = None,
    window: Annotated[int, typer.Option("--window", min=1, help="Frames of a window that clips must be long for.")] = 2,
    limit: Annotated[
        list[str] | None, typer.Option("--limit", help="Limits of joints, by name or pattern: '*knee*=0:2.5'.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check motions: numbers, jumps, fps, quaternions, seams of loops, joint limits.

    Exit code 0: passed, 1: failed, 2: not checked (the command is wrong).
    """
    from understudy.tools.motions.check import check_motions

    settings, limits = _settings(path, further, step), dict(_limit(text) for text in limit or [])
    with stoppable(f"motions '{path}'", "They were only read."):
        report = check_motions(settings, window=window, limits=limits)
    if as_json:
        print(json.dumps(report.to_json(), allow_nan=False))
    else:
        from rich.console import Console

        from understudy.cli.findings import told_verdict
        from understudy.cli.motion_screens import check_screen

        console = Console(file=sys.stdout, width=edge(OUT, PIPE_WIDTH), highlight=False)
        for line in check_screen(report, min(console.width, PIPE_WIDTH)):
            console.print(line, soft_wrap=True)
        console.print()
        console.print(told_verdict(report.count("error"), report.count("warning")))
    raise typer.Exit(0 if report.passed else 1)


def pack(
    path: Motions,
    further: Further = None,
    step: Step = None,
    out: Annotated[Path | None, typer.Option("--out", help="A new folder.")] = None,
    channels: Annotated[
        str, typer.Option("--channels", help="Only what these need: joint_positions,gravity; absent: all.")
    ] = "",
    quiet: Quiet = False,
) -> None:
    """Write clips, resampled, as one mapped folder: any number of them, opened at once.

    Example: understudy motion pack clips --step 0.02 --out packed
    """
    from understudy.data.motions.loading import pack_motions

    if step is None:
        raise ConfigError("--step", "missing", expected="the control step, in seconds", do="Say --step 0.02.")
    if out is None:
        raise ConfigError("--out", "missing", expected="a new folder")
    with stoppable(f"motions '{out}'", "Nothing was written."):
        done = pack_motions(_settings(path, further, step), out, [word for word in channels.split(",") if word])
    if not quiet:
        size = f"{counted(len(done.clips), 'clip')}, {counted(done.frames, 'frame')}"
        print(f"{size} written to {out}, fingerprint {done.fingerprint}")


def _settings(path: str, further: list[str] | None, step: float | None) -> "MotionSettings":
    from understudy.data.motions.settings import MotionSettings
    from understudy.run.overrides import apply_override

    words: dict[str, Any] = {"path": path, **({} if step is None else {"step": step})}
    for word in further or []:
        if word.startswith("motions."):
            raise ConfigError(word, "settings have no 'motions.' here", do=f"Say {word.removeprefix('motions.')}.")
        apply_override(words, word)
    return MotionSettings.parse(words)


def _limit(text: str) -> tuple[str, tuple[float, float]]:
    pattern, _, ends = text.partition("=")
    low, _, high = ends.partition(":")
    try:
        found = float(low), float(high)
    except ValueError as error:
        raise ConfigError("--limit", "wrong value", got=repr(text), expected="JOINT=LOW:HIGH") from error
    if not pattern or not found[0] < found[1]:
        raise ConfigError("--limit", "wrong value", got=repr(text), expected="JOINT=LOW:HIGH, low below high")
    return pattern, found

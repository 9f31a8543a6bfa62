"""video: what can be seen of a run."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.learn import CheckpointChoice, Quiet, RunPath, Sampled
from understudy.core.stopping import stoppable


def register(app: typer.Typer) -> None:
    for command in (video,):
        app.command()(command)


def video(
    run: RunPath,
    out: Annotated[
        Path | None, typer.Option("--out", help="An .mp4 or .gif; RUN/videos/<checkpoint>.mp4 if not given.")
    ] = None,
    episodes: Annotated[int, typer.Option("--episodes", "-n", help="Episodes to film, one after another.")] = 1,
    checkpoint: CheckpointChoice = "last",
    stochastic: Sampled = False,
    fps: Annotated[int | None, typer.Option("--fps", help="Frames per second; the environment's if not given.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps after which an episode is cut.")] = None,
    quiet: Quiet = False,
) -> None:
    """Film a run's policy at work: the first episodes of its evaluation, as .mp4 or .gif."""
    from understudy.run.progress import Reporter
    from understudy.run.run import Run
    from understudy.run.video import LONGEST

    with stoppable(f"run '{run}'", "It was only read."):
        filmed = Run(run).video(
            out or "",
            episodes=episodes,
            checkpoint=checkpoint,
            greedy=not stochastic,
            fps=fps,
            max_steps=LONGEST if steps is None else steps,
            reporter=Reporter(quiet=quiet),
        )
    if not quiet:
        for number, (value, length) in enumerate(zip(filmed.returns, filmed.lengths, strict=True)):
            print(f"episode {number:>3}  return {value:>10.2f}  length {length:>5}")
    print(f"written to {filmed.path}")

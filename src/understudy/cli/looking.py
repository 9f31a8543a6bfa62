"""video, plot, runs: what can be seen of runs."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.learn import CheckpointChoice, Quiet, RunPath, Sampled
from understudy.core.stopping import stoppable


def register(app: typer.Typer) -> None:
    for command in (video, plot, runs):
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
    env: Annotated[str | None, typer.Option("--env", help="Another registered environment than the run's.")] = None,
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
            env=env,
            reporter=Reporter(quiet=quiet),
        )
    if not quiet:
        for number, (value, length) in enumerate(zip(filmed.returns, filmed.lengths, strict=True)):
            print(f"episode {number:>3}  return {value:>10.2f}  length {length:>5}")
    print(f"written to {filmed.path}")


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders with runs below them.")],
    metric: Annotated[
        str, typer.Option("--metric", "-m", help="return, score, success, length, or any logged name: loss/critic.")
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", help="A .png; plot.png if several runs are drawn.")] = None,
) -> None:
    """Draw a run, also one that trains or was killed; or compare several in one picture, seeds as one curve."""
    from understudy.run.comparison import plot as draw
    from understudy.run.rundir import RunDir
    from understudy.tools.runs import find_runs

    found = [one for path in runs for one in (find_runs(path) or [RunDir.open(path).path])]
    with stoppable("plot", "Runs were only read."):
        pictures = draw(found, metric=metric, out=out or "")
    for picture in pictures:
        for path in picture.left_out:
            print(f"left out, it has no such number: {path}")
        print(f"written to {picture.path}")


def runs(
    folder: Annotated[Path, typer.Argument(help="A folder with runs somewhere below it.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run.")] = False,
) -> None:
    """List runs: finished, running, stopped, failed or killed; how far they are and what they reached."""
    import json
    import shutil

    from understudy.core.errors import RunError
    from understudy.tools.runs import describe_run_folder, find_runs, runs_table

    if not folder.is_dir():
        raise RunError(f"folder '{folder}'", "no such directory")
    rows = [describe_run_folder(path) for path in find_runs(folder)]
    if as_json:
        for row in rows:
            print(json.dumps(row.to_json()))
        return
    if not rows:
        print(f"no runs below {folder}")
        return
    for line in runs_table(rows, folder, shutil.get_terminal_size().columns):
        print(line)

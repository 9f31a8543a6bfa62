"""understudy ope: what policies are worth that never acted, from data of others."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.learn import Columns, Quiet
from understudy.core.stopping import stoppable


def register(app: typer.Typer) -> None:
    app.command()(ope)


def ope(
    candidates: Annotated[
        list[str],
        typer.Argument(help="Runs, folders of runs, RUN@UPDATES, policy folders, exported policies."),
    ],
    data: Annotated[str, typer.Option("--data", "-d", help="Episodes of others; the first run's data if absent.")] = "",
    method: Annotated[
        str,
        typer.Option("--method", "-m", help="fqe; is, wis, pdis, wpdis; dr, wdr; or initial: a run's own critics."),
    ] = "fqe",
    checkpoints: Annotated[
        str, typer.Option("--checkpoints", "-c", help="Of runs: last, best, a number of updates, or all that are kept.")
    ] = "last",
    gamma: Annotated[float, typer.Option("--gamma", help="Discount per step.")] = 0.99,
    seeds: Annotated[
        int, typer.Option("--seeds", help="Critics of each candidate; fqe's learn from resampled episodes.")
    ] = 5,
    updates: Annotated[int, typer.Option("--updates", help="Of every critic.")] = 20_000,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Rows per update.")] = 256,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Adam's step size.")] = 3e-4,
    polyak: Annotated[float, typer.Option("--polyak", help="Share of the way that targets move per update.")] = 0.02,
    hidden: Annotated[str, typer.Option("--hidden", help="Units of the critics' layers.")] = "256,256",
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Judge policies as they draw.")] = False,
    samples: Annotated[int, typer.Option("--samples", help="Draws of each continuous action.")] = 10,
    columns: Columns = "",
    threads: Annotated[int | None, typer.Option("--threads", help="Of torch; as many as cores if absent.")] = None,
    out: Annotated[
        Path, typer.Option("--out", help="A folder that keeps what is done; the same command goes on there.")
    ] = Path("runs/ope"),
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Rank policies without an environment, by what data of others say of them. Example:
    understudy ope runs/iql/pendulum/0 runs/bc/pendulum/0 --checkpoints all"""
    import json

    import torch

    from understudy.core.arguments import as_count
    from understudy.run.progress import Reporter
    from understudy.tools.ope.evaluation import evaluate_offline

    if threads is not None:
        torch.set_num_threads(as_count(threads, "--threads"))
    with stoppable("ope", f"Seeds that are done lie in '{out}'; the same command goes on."):
        ranking = evaluate_offline(
            candidates,
            data or None,
            method=method,
            checkpoints=checkpoints,
            gamma=gamma,
            seeds=seeds,
            updates=updates,
            batch_size=batch_size,
            learning_rate=learning_rate,
            polyak=polyak,
            hidden=_widths(hidden),
            stochastic=stochastic,
            samples=samples,
            columns=columns,
            out=out,
            reporter=Reporter(quiet=quiet or as_json),
        )
    if as_json:
        print(json.dumps(ranking.to_json()))
        return
    for line in ranking.lines():
        print(line)
    for warning in ranking.warnings:
        print(f"note: {warning}")
    print(ranking.verdict())


def _widths(text: str) -> list[int]:
    """`256,256`."""
    from understudy.core.errors import ConfigError

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isdecimal() and len(word) < 8 for word in words):
        raise ConfigError("--hidden", "not numbers of units", got=repr(text), expected="256,256")
    return [int(word) for word in words]

"""export: a run's policy as a file for other runtimes."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.learn import Choice, Quiet, RunPath
from understudy.core.stopping import stoppable


def register(app: typer.Typer) -> None:
    app.command()(export)


def export(
    run: RunPath,
    format: Annotated[str, typer.Option("--format", "-f", help="onnx or torchscript.")] = "onnx",
    checkpoint: Choice = "last",
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write to; RUN/export if not given.")] = None,
    quiet: Quiet = False,
) -> None:
    """Write a run's policy, normaliser and memory inside, as ONNX or TorchScript with a card, checked against it."""
    from understudy.run.progress import Reporter
    from understudy.tools.export import export_policy

    with stoppable(f"export of '{run}'", "The same command writes it anew."):
        exported = export_policy(run, format, checkpoint, out, reporter=Reporter(quiet=quiet))
    if not quiet:
        ins, outs = (", ".join(_port(port) for port in exported.card[side]) for side in ("inputs", "outputs"))
        worst, rows = exported.parity.difference, exported.parity.rows
        print(f"{ins} → {outs}; largest difference from the live policy {worst:.1e} over {rows} rows")
        print(f"written to {exported.path}  card: {exported.path.with_name('card.md')}")


def _port(port: dict[str, object]) -> str:
    shape = port["shape"]
    assert isinstance(shape, list)
    return f"{port['name']} [{', '.join(map(str, shape))}]"

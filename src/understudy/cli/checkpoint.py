"""understudy checkpoint …: what stands in a checkpoint, and how to change it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.learn import CheckpointChoice, RunPath
from understudy.core.stopping import stoppable

if TYPE_CHECKING:
    from torch import Tensor

Changes = list[str] | None


def register(app: typer.Typer) -> None:
    app.command()(checkpoint)


def checkpoint(
    run: RunPath,
    set_to: Annotated[Changes, typer.Option("--set", help="Fill tensors: '*.log_std=-1.6'.")] = None,
    scale: Annotated[Changes, typer.Option("--scale", help="Multiply tensors: 'algorithm.value.*=0.5'.")] = None,
    take: Annotated[Changes, typer.Option("--take", help="From another run: 'algorithm.value.*=RUN'.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A new run that holds what comes out.")] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Replace the checkpoint; asks first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --in-place: do not ask.")] = False,
    which: CheckpointChoice = "last",
    as_json: Annotated[bool, typer.Option("--json", help="List one JSON object per tensor.")] = False,
) -> None:
    """List the tensors of a run's checkpoint, or change them: into a new run, or in place if you say so. Example:
    understudy checkpoint runs/a --set 'algorithm.policy.distribution.log_std=-1.6' --out runs/b"""
    from understudy.core.errors import ConfigError
    from understudy.core.files import read_json
    from understudy.tools.checkpoint_edits import EDITS, Edit, edit_checkpoint

    edits = [
        *(Edit.read("take", text) for text in take or []),
        *(Edit.read("set", text) for text in set_to or []),
        *(Edit.read("scale", text) for text in scale or []),
    ]
    if not edits:
        if out is not None or in_place:
            raise ConfigError("checkpoint", "nothing to change", do="Give --set, --scale or --take.")
        _list(run, which, as_json=as_json)
        return
    if in_place and not yes and not typer.confirm(f"Replace checkpoint '{which}' of {run}?", err=True):
        raise ConfigError("--in-place", "not confirmed; nothing was changed", do="Give --out for a new run.")

    def change(tensors: "dict[str, Tensor]") -> None:
        for edit in edits:
            edit.apply(tensors)

    with stoppable(f"run '{run}'", "It is as it was, or the change is whole."):
        made = edit_checkpoint(run, change, out=out or "", in_place=in_place, checkpoint=which)
    for name in read_json(made.path / "meta.json")[EDITS][-1]["changed"]:
        print(f"changed {name}")
    print(f"written to {made.path}")


def _list(run: Path, which: str, *, as_json: bool) -> None:
    import json

    from understudy.run.policies import find_checkpoint
    from understudy.run.rundir import RunDir
    from understudy.tools.checkpoint_edits import checkpoint_tensors, describe_tensor

    found = find_checkpoint(RunDir.open(run), which)
    for name, tensor in checkpoint_tensors(found).items():
        row = describe_tensor(name, tensor)
        if as_json:
            print(json.dumps(row))
        else:
            told = f"  mean {row['mean']:.4g}, deviation {row['std']:.4g}" if "mean" in row else ""
            print(f"{name}  {row['shape']}{told}")

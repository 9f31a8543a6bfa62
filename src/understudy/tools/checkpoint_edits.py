"""Change what stands in a checkpoint's tensors, safely: as a new run unless it is asked for in place.

What comes out has the names, shapes and kinds of numbers that went in, and nothing is infinite or NaN that was not. Its
hashes and its seal are its own, and it is there whole or not at all. The checkpoint and `meta.json` say what was
changed, and of what.
"""

import fnmatch
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import torch
from torch import Tensor

from understudy.core.arguments import as_path
from understudy.core.drafts import new_folder
from understudy.core.errors import CheckpointError, ConfigError, RunError, did_you_mean
from understudy.core.files import read_bytes, read_json, sha256_file, write_json, write_new
from understudy.core.state import State
from understudy.nn.network_layout import NetworkLayout
from understudy.run.checkpoint import (
    LAYOUTS_FACT,
    NETWORKS_FACT,
    TENSORS,
    Checkpoint,
    list_checkpoints,
    point_latest,
    save_checkpoint,
)
from understudy.run.policies import find_checkpoint, policy_of, updates_of
from understudy.run.policy_file import read_card, save_policy
from understudy.run.run import Run
from understudy.run.rundir import RunDir

EDITS = "edits"
"""What was changed since the run wrote it, in checkpoints and meta.json."""
Change = Callable[[dict[str, Tensor]], object]
"""Of tensors by name, layers and gates by themselves: it writes into them, or puts others of the same shape there."""


def edit_checkpoint(
    run: str | Path | Run,
    change: Change,
    *,
    out: str | Path = "",
    in_place: bool = False,
    checkpoint: str | int = "last",
) -> Run:
    """Change tensors of a run's checkpoint. `out`: a new run that holds it; `in_place`: it replaces the old one.

    The new run has the origin's settings and logs, and can be evaluated, exported, started from and resumed like it.
    """
    origin = RunDir.open(as_path(run, "edit_checkpoint"))
    if in_place == bool(str(out)):
        raise ConfigError(
            "edit_checkpoint",
            "both a new place and in place" if in_place else "no place for what comes out",
            do="Give out=<a new folder>; or in_place=True, and the checkpoint is replaced.",
        )
    if not in_place:
        place = as_path(out, "out")
        RunDir(place).check_free()
        found = find_checkpoint(origin, str(checkpoint))
        _write_new(origin, place, _changed(found, change))
        return Run(place)
    with origin.locked():
        found = find_checkpoint(origin, str(checkpoint))
        if found.path.is_symlink():
            raise CheckpointError(f"checkpoint '{found.path}'", "is a link: what it leads to is somebody else's")
        _replace(origin, _changed(found, change))
    return Run(origin.path)


def checkpoint_tensors(checkpoint: Checkpoint, state: State | None = None) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, layers and gates by themselves; views of what is in `state`."""
    left = {path: leaf for path, leaf in (state or checkpoint.state).items() if isinstance(leaf, Tensor)}
    named: dict[str, Tensor] = {}
    for role, place in checkpoint.facts[NETWORKS_FACT].items():
        told = checkpoint.facts.get(LAYOUTS_FACT, {}).get(role, {})  # older ones do not say
        layout = NetworkLayout.parse(told, f"checkpoint '{checkpoint.path}', {LAYOUTS_FACT}")
        start = f"algorithm.{place}."
        own = {path.removeprefix(start): left.pop(path) for path in list(left) if path.startswith(start)}
        named |= {start + name: view for name, view in layout.unfold(own).items()}
    return dict(sorted({**left, **named}.items()))


def _changed(found: Checkpoint, change: Change) -> Checkpoint:
    """The same checkpoint with other numbers; an error unless they may stand there."""
    where = f"checkpoint '{found.path}'"
    state: State = {path: leaf.clone() if isinstance(leaf, Tensor) else leaf for path, leaf in found.state.items()}
    before, after = checkpoint_tensors(found), checkpoint_tensors(found, state)
    given = dict(after)
    with torch.no_grad():
        change(given)
        if unknown := given.keys() - after.keys():
            name = sorted(unknown)[0]
            raise CheckpointError(where, f"has no tensor '{name}'", do=did_you_mean(name, after))
        for name, place in after.items():
            _place(place, given.get(name), f"{where}, {name}")
            if not bool(torch.isfinite(place).all()) and bool(torch.isfinite(before[name]).all()):
                raise CheckpointError(f"{where}, {name}", "would not be finite any more")
    names = [name for name, place in after.items() if not torch.equal(place, before[name])]
    if not names:
        raise CheckpointError(where, "nothing would be changed")
    edit = {"of": str(found.path.absolute()), "sha256": sha256_file(found.path / TENSORS), "changed": names}
    facts = {**found.facts, EDITS: [*found.facts.get(EDITS, []), edit]}
    changed = Checkpoint(found.path, found.updates, state, facts)
    policy_of(changed)  # whoever loads it finds a policy
    return changed


def _place(place: Tensor, given: object, where: str) -> None:
    """Write numbers where others of the same shape and kind were."""
    if not isinstance(given, Tensor):
        raise CheckpointError(where, "is gone" if given is None else "is no tensor any more", do="Write into it.")
    if given.shape != place.shape:
        raise CheckpointError(
            where,
            "has another shape",
            got=list(given.shape),
            expected=list(place.shape),
            do="For a network of another shape start a run from this one: init_from, init_mismatch=overlap.",
        )
    if given.is_floating_point() != place.is_floating_point():
        raise CheckpointError(where, "is of another kind of numbers", got=given.dtype, expected=place.dtype)
    if given is not place:
        place.copy_(given)


def _write_new(origin: RunDir, place: Path, checkpoint: Checkpoint) -> None:
    """A run with this checkpoint alone: unfinished, so that it can go on, if there is something left to do."""
    with new_folder(place) as draft:
        made = RunDir(draft)
        for file in (origin.config_file, origin.metrics_file, origin.eval_file, origin.timing_file):
            if file.exists():
                write_new(draft / file.name, read_bytes(file, links=False))
        write_json(made.meta_file, {**read_json(origin.meta_file), EDITS: checkpoint.facts[EDITS]})
        save_checkpoint(made.checkpoints, checkpoint.updates, checkpoint.state, checkpoint.facts, keep=1)
        best = origin.policies / "best"
        if updates_of(best) is not None:
            made.policies.mkdir()
            (made.policies / "best").mkdir()
            for file in sorted(best.iterdir()):
                write_new(made.policies / "best" / file.name, read_bytes(file, links=False))


def _replace(run: RunDir, checkpoint: Checkpoint) -> None:
    there = list_checkpoints(run.checkpoints)
    save_checkpoint(run.checkpoints, checkpoint.updates, checkpoint.state, checkpoint.facts, keep=len(there))
    point_latest(run.checkpoints, there[-1])
    final = run.policies / "final"
    if updates_of(final) == checkpoint.updates:
        save_policy(policy_of(checkpoint), final, read_card(final).facts)
    write_json(run.meta_file, {**read_json(run.meta_file), EDITS: checkpoint.facts[EDITS]})


@final
@dataclass(frozen=True)
class Edit:
    """One change as a command line says it: `<pattern of names>=<value>`."""

    kind: Literal["set", "scale", "take"]
    pattern: str
    value: str
    """A number; of `take` a run whose checkpoint has the same tensors."""

    @classmethod
    def read(cls, kind: Literal["set", "scale", "take"], text: str) -> "Edit":
        pattern, _, value = text.rpartition("=")
        if not pattern or not value:
            raise ConfigError(f"--{kind}", "not a change", got=repr(text), expected="NAMES=VALUE, names with * or ?")
        if kind != "take":
            _number(value, f"--{kind} {pattern}")
        return cls(kind, pattern, value)

    def apply(self, tensors: Mapping[str, Tensor]) -> None:
        """Write into the tensors that are meant."""
        found = [name for name in tensors if fnmatch.fnmatchcase(name, self.pattern)]
        where = f"--{self.kind} {self.pattern}"
        if not found:
            raise ConfigError(where, "no tensor has such a name", do=did_you_mean(self.pattern, tensors))
        others = checkpoint_tensors(find_checkpoint(RunDir.open(self.value), "last")) if self.kind == "take" else {}
        for name in found:
            if self.kind == "take":
                if name not in others:
                    raise RunError(f"run '{self.value}'", f"has no tensor '{name}'", do=did_you_mean(name, others))
                if others[name].shape != tensors[name].shape:
                    got, expected = list(others[name].shape), list(tensors[name].shape)
                    raise RunError(
                        f"run '{self.value}'", f"'{name}' has another shape there", got=got, expected=expected
                    )
                tensors[name].copy_(others[name])
            elif not tensors[name].is_floating_point():
                raise ConfigError(where, f"'{name}' is no tensor of real numbers", got=tensors[name].dtype)
            elif self.kind == "set":
                tensors[name].fill_(_number(self.value, where))
            else:
                tensors[name].mul_(_number(self.value, where))


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(where, "not a number", got=repr(text))
    return value


def describe_tensor(name: str, tensor: Tensor) -> dict[str, Any]:
    """A line of a list: shape, kind, mean and deviation."""
    numbers = tensor.double()
    told = {"mean": float(numbers.mean()), "std": float(numbers.std(correction=0))} if tensor.numel() else {}
    return {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch."), **told}

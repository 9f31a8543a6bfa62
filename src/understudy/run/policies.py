"""Policies of a run: the last one, the best one, or that of a numbered checkpoint."""

from pathlib import Path

from understudy.core.errors import CheckpointError
from understudy.core.spec import Spec
from understudy.core.state import State
from understudy.nn.actor import Actor
from understudy.run.checkpoint import CARD_FACT, Checkpoint, load_checkpoint, newest_checkpoint
from understudy.run.policy_file import CARD, load_policy_file, rebuild_policy
from understudy.run.rundir import RunDir

PREFIX = "algorithm.policy."


def load_policy(path: str | Path, checkpoint: str | int = "last") -> Actor:
    """A policy from a run directory (last, best, or a number of updates) or from a policy folder."""
    path = Path(path)
    if (path / CARD).is_file():
        return load_policy_file(path)[0]
    run = RunDir.open(path)
    if checkpoint == "best":
        return load_policy_file(run.policies / "best")[0]
    return policy_of(find_checkpoint(run, str(checkpoint)))


def find_checkpoint(run: RunDir, name: str) -> Checkpoint:
    """`last` is the newest whole checkpoint; a number must be there and whole."""
    if name == "last":
        found, broken = newest_checkpoint(run.checkpoints)
        if found is None:
            told = f" Broken: {' '.join(broken)}" if broken else ""
            raise CheckpointError(f"run '{run.path}'", f"has no whole checkpoint.{told}")
        if broken:
            raise CheckpointError(
                f"run '{run.path}'",
                f"its last checkpoint is broken: {' '.join(broken)}",
                do=f"The newest whole one is {found.updates}: use --checkpoint {found.updates}.",
            )
        return found
    if not name.isdecimal():
        raise CheckpointError(
            "checkpoint", "no such choice", got=repr(name), expected="last, best or a number of updates"
        )
    return load_checkpoint(run.checkpoints, int(name))


def policy_of(checkpoint: Checkpoint) -> Actor:
    """The policy inside a training checkpoint."""
    card = checkpoint.facts[CARD_FACT]
    state: State = {
        path.removeprefix(PREFIX): leaf for path, leaf in checkpoint.state.items() if path.startswith(PREFIX)
    }
    where = f"checkpoint '{checkpoint.path}'"
    return rebuild_policy(Spec.from_json(where, card["spec"]), card["settings"], state, where)

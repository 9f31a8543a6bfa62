"""Policies of a run: the last one, the best one, or that of a numbered checkpoint."""

from pathlib import Path

from torch import Tensor

from understudy.core.arguments import as_path
from understudy.core.errors import CheckpointError
from understudy.core.state import State
from understudy.nn.deployed import Deployed
from understudy.run.checkpoint import CARD_FACT, Checkpoint, list_checkpoints, load_checkpoint, newest_checkpoint
from understudy.run.policy_file import CARD, fill_policy, load_policy_file, outline_policy, read_card
from understudy.run.rundir import RunDir

PREFIX = "algorithm.policy."
LONGEST_NUMBER = 18
"""Digits of a number of updates: a checkpoint's folder has half of them."""


def load_policy(path: str | Path, checkpoint: str | int = "last") -> Deployed:
    """A policy from a run directory (last, best, or a number of updates) or from a policy folder."""
    path, name = as_path(path, "load_policy"), str(checkpoint)
    updates = updates_named(name)
    if (path / CARD).is_file():
        return _policy_in(path, updates)
    run = RunDir.open(path)
    best = run.policies / "best"
    if name == "best" and not (best / CARD).is_file():
        raise CheckpointError(f"run '{path}'", "has no best policy: it was not evaluated yet", do="Take the last one.")
    if name == "best" or (updates is not None and not _is_kept(run, updates) and updates_of(best) == updates):
        return _policy_in(best, updates)
    return policy_of(find_checkpoint(run, name))


def updates_named(name: str) -> int | None:
    """The number of updates that is asked for; None for `last` and `best`."""
    if name in ("last", "best"):
        return None
    if not name.isdecimal() or len(name) > LONGEST_NUMBER:
        raise CheckpointError(
            "checkpoint", "no such choice", got=repr(name), expected="last, best or a number of updates"
        )
    return int(name)


def updates_of(folder: Path) -> int | None:
    """Updates behind the policy in a folder; None if there is no policy, or if its card does not say."""
    return read_card(folder).facts.get("updates") if (folder / CARD).is_file() else None


def _policy_in(folder: Path, updates: int | None) -> Deployed:
    """The policy of a folder; if a number is asked for, it must be of that many updates."""
    policy, card = load_policy_file(folder)
    found = card.facts.get("updates")
    if updates is not None and found != updates:
        raise CheckpointError(f"policy '{folder}'", "of another update", got=found, expected=updates)
    return policy


def _is_kept(run: RunDir, updates: int) -> bool:
    return updates in list_checkpoints(run.checkpoints)


def find_checkpoint(run: RunDir, name: str) -> Checkpoint:
    """`last` is the newest whole checkpoint; `best` that of the best policy, and a number, must be there and whole."""
    updates = updates_of(run.policies / "best") if name == "best" else updates_named(name)
    if name == "best" and updates is None:
        raise CheckpointError(f"run '{run.path}'", "has no best policy yet", do="Use --checkpoint last.")
    if updates is None:
        found, broken = newest_checkpoint(run.checkpoints, large=False)
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
    return load_checkpoint(run.checkpoints, updates)


def policy_of(checkpoint: Checkpoint) -> Deployed:
    """The policy inside a training checkpoint."""
    where, card = f"checkpoint '{checkpoint.path}'", checkpoint.facts[CARD_FACT]
    state: State = {
        path.removeprefix(PREFIX): leaf for path, leaf in checkpoint.state.items() if path.startswith(PREFIX)
    }
    size = sum(leaf.nbytes for leaf in state.values() if isinstance(leaf, Tensor))
    return fill_policy(outline_policy(card["kind"], card["spec"], card["settings"], size, where), state, where)

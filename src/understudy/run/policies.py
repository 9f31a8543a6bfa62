"""Policies of a run: the last one, the best one, or that of a numbered checkpoint."""

from pathlib import Path

from understudy.core.errors import CheckpointError
from understudy.core.files import read_sealed
from understudy.core.spec import Spec
from understudy.core.state import State
from understudy.nn.deployed import Deployed
from understudy.run.checkpoint import CARD_FACT, Checkpoint, list_checkpoints, load_checkpoint, newest_checkpoint
from understudy.run.policy_file import CARD, load_policy_file, rebuild_policy
from understudy.run.rundir import RunDir

PREFIX = "algorithm.policy."


def load_policy(path: str | Path, checkpoint: str | int = "last") -> Deployed:
    """A policy from a run directory (last, best, or a number of updates) or from a policy folder."""
    path, name = Path(path), str(checkpoint)
    if (path / CARD).is_file():
        return _policy_in(path, name)
    run = RunDir.open(path)
    best = run.policies / "best"
    if name == "best" or (name.isdecimal() and not _is_kept(run, int(name)) and updates_of(best) == int(name)):
        return _policy_in(best, name)
    return policy_of(find_checkpoint(run, name))


def updates_of(folder: Path) -> int | None:
    """Updates behind the policy in a folder; None if there is no policy, or if its card does not say."""
    if not (folder / CARD).is_file():
        return None
    facts = read_sealed(folder / CARD).get("facts")
    updates = facts.get("updates") if isinstance(facts, dict) else None
    return updates if isinstance(updates, int) else None


def _policy_in(folder: Path, name: str) -> Deployed:
    """The policy of a folder; if a number is asked for, it must be of that many updates."""
    policy, card = load_policy_file(folder)
    found = card["facts"].get("updates")
    if name.isdecimal() and found != int(name):
        raise CheckpointError(f"policy '{folder}'", "of another update", got=found, expected=int(name))
    return policy


def _is_kept(run: RunDir, updates: int) -> bool:
    return updates in list_checkpoints(run.checkpoints)


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


def policy_of(checkpoint: Checkpoint) -> Deployed:
    """The policy inside a training checkpoint."""
    card = checkpoint.facts[CARD_FACT]
    state: State = {
        path.removeprefix(PREFIX): leaf for path, leaf in checkpoint.state.items() if path.startswith(PREFIX)
    }
    where = f"checkpoint '{checkpoint.path}'"
    return rebuild_policy(Spec.from_json(where, card["spec"]), card["settings"], state, where)

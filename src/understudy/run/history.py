"""What a checkpoint knows of the run before it: how far its logs had come, its best policy, and what was lost."""

from pydantic import Field

from understudy.core.errors import UnderstudyError
from understudy.core.files import read_bytes, read_sealed, sha256_bytes
from understudy.core.settings import Settings
from understudy.run.checkpoint import Checkpoint
from understudy.run.logs import LogMark
from understudy.run.policy_file import CARD, TENSORS
from understudy.run.rundir import RunDir

FACT = "history"


class Best(Settings):
    """The best evaluation, and the policy that was kept of it."""

    updates: int
    return_mean: float
    sha256: str = ""
    """Of the policy's tensors."""


class History(Settings):
    logs: dict[str, LogMark] = Field(default_factory=dict)
    """By the name of the file."""
    best: Best | None = None
    lost: tuple[str, ...] = ()
    """Sentences: what of the run was lost or damaged and could not be brought back."""


def recall(checkpoint: Checkpoint | None) -> History:
    """What a checkpoint remembers; before the first one logs speak for themselves."""
    if checkpoint is None:
        return History()
    return History.parse(checkpoint.facts.get(FACT), f"checkpoint '{checkpoint.path}'")


def best_evaluation(run: RunDir) -> Best | None:
    """The first of the best in the log."""
    found = max(run.evaluations(), key=lambda line: float(line["eval/return_mean"]), default=None)
    return None if found is None else Best(updates=found["updates"], return_mean=found["eval/return_mean"])


def check_best(run: RunDir, best: Best | None, updates: int, coming: int) -> str:
    """A sentence if policy/best is not the one that is known; one of an evaluation from update `coming` on, which comes
    again, may be."""
    if best is None:
        return ""
    known = f"the best up to update {updates:,} was that of update {best.updates:,}, return {best.return_mean:.2f}"
    folder = run.policies / "best"
    try:
        found = read_sealed(folder / CARD)["facts"]["updates"]
        if found >= coming:
            return ""
        digest = sha256_bytes(read_bytes(folder / TENSORS))
    except (UnderstudyError, OSError, KeyError, TypeError) as error:
        return f"policy/best: missing or damaged ({error}); {known}"
    if found == best.updates and best.sha256 in ("", digest):
        return ""
    return f"policy/best: not what was written there (it says update {found}); {known}"

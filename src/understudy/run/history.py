"""What a checkpoint knows of the run before it: how far its logs had come, its best policy, and what was lost."""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, Field

from understudy.core.errors import ConfigError, UnderstudyError
from understudy.core.files import read_bytes, read_sealed, sha256_bytes
from understudy.core.settings import Settings
from understudy.run.checkpoint import Checkpoint
from understudy.run.config import RETURN, RunConfig
from understudy.run.logs import LogMark
from understudy.run.policy_file import CARD, TENSORS
from understudy.run.rundir import RunDir

FACT = "history"
NOTHING_HELD_OUT = "there is no environment, and no episode is held out"


class Best(Settings):
    """The best evaluation, and the policy that was kept of it."""

    updates: int
    value: float = Field(validation_alias=AliasChoices("value", "return_mean"))
    """Of the number that decides (`best` in the config)."""
    sha256: str = ""
    """Of the policy's tensors."""


class History(Settings):
    logs: dict[str, LogMark] = Field(default_factory=dict)
    """By the name of the file."""
    best: Best | None = None
    stale: int = 0
    """Evaluations since the best one."""
    lost: tuple[str, ...] = ()
    """Sentences: what of the run was lost or damaged and could not be brought back."""


def recall(checkpoint: Checkpoint | None) -> History:
    """What a checkpoint remembers; before the first one logs speak for themselves."""
    if checkpoint is None:
        return History()
    return History.parse(checkpoint.facts.get(FACT), f"checkpoint '{checkpoint.path}'")


def measured(record: Mapping[str, Any], config: RunConfig) -> float:
    """The number of an evaluation that decides which policy is the best."""
    if config.best_metric not in record:
        if config.best_metric.removeprefix("eval/") in config.task_metrics:
            return math.nan  # of this evaluation nobody could say: a robot that stands has no cost of transport
        numbers = [name for name in record if name.startswith("eval/")]
        raise ConfigError("best", "no evaluation of this run measures it", got=config.best_metric, expected=numbers)
    return float(record[config.best_metric])


def is_better(value: float, best: Best | None, config: RunConfig) -> bool:
    if best is None:
        return not math.isnan(value)
    return value < best.value if config.best_lowest else value > best.value


def best_evaluation(run: RunDir, config: RunConfig) -> Best | None:
    """The first of the best in the log."""
    best: Best | None = None
    sometimes = config.best_metric.removeprefix("eval/") in config.task_metrics
    for line in run.evaluations(("updates",) if sometimes else ("updates", config.best_metric)):
        if is_better(value := measured(line, config), best, config):
            best = Best(updates=line["updates"], value=value)
    return best


def best_facts(best: Best | None, config: RunConfig) -> dict[str, Any]:
    """What result.json says of it."""
    if best is None:
        return {"best": None, "not_evaluated": NOTHING_HELD_OUT if config.eval_every else "eval_every is 0"}
    facts = {"metric": config.best_metric, "value": best.value, "updates": best.updates}
    return {"best": facts, **({"best_return_mean": best.value} if config.best_metric == RETURN else {})}


def check_best(run: RunDir, best: Best | None, updates: int, coming: int, config: RunConfig) -> str:
    """A sentence if policy/best is not the one that is known; one of an evaluation from update `coming` on, which comes
    again, may be."""
    if best is None:
        return ""
    known = f"the best up to update {updates:,} was that of update {best.updates:,}, "
    known += f"{config.best_metric.removeprefix('eval/')} {best.value:.5g}"
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

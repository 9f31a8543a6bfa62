"""Which rows of a rollout are of an episode that failed."""

import torch
from torch import Tensor

from understudy.core.batch import Rollout
from understudy.core.errors import DataError, did_you_mean

ENDS = ("terminated", "truncated")


def kept_rows(rollout: Rollout, success: str) -> Tensor:
    """[T, N], False where the row's episode ended in this rollout without success.

    Success is what `success` names: how the episode ended (`terminated`, `truncated`), or a number above 0 that the
    environment told at its last step. Of an episode that goes on nobody knows, and its rows are kept.
    """
    kept = torch.ones_like(rollout.valid)
    good, ended = _good_ends(rollout, success), rollout.ended
    outcome = kept[-1]
    for t in range(len(kept) - 1, -1, -1):
        outcome = torch.where(ended[t], good[t], outcome | ~rollout.valid[t])
        kept[t] = outcome
    return kept


def _good_ends(rollout: Rollout, success: str) -> Tensor:
    """[T, N], what an end there would be."""
    if success in ENDS:
        return rollout.terminated if success == "terminated" else rollout.truncated
    told = rollout.reward_terms
    if success not in told:
        raise DataError(
            "algo.objectives.teacher.success",
            f"the environment tells nothing of the name '{success}'",
            got=sorted(told) or "nothing",
            expected=f"{', '.join(ENDS)}, or a number that it tells at every step",
            do=did_you_mean(success, [*ENDS, *told]),
        )
    return told[success] > 0

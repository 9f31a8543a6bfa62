"""Which rows are of an episode that failed, against a loop over every environment."""

import torch
from torch import Tensor

from understudy.core.batch import Rollout
from understudy.core.rng import stream
from understudy.parts.distillation.success import kept_rows

STEPS, COUNT = 40, 9


def a_rollout() -> Rollout:
    rng = stream(0, "ends")

    def chance(share: float) -> Tensor:
        return torch.rand(STEPS, COUNT, generator=rng) < share

    valid = chance(0.9)
    terminated = chance(0.1) & valid
    truncated = chance(0.1) & valid & ~terminated
    told = torch.where(chance(0.5), 1.0, torch.nan)
    zeros = torch.zeros(STEPS, COUNT)
    columns = {"state": zeros}
    return Rollout(columns, zeros, zeros, zeros, columns, terminated, truncated, valid, (), {"reward_goal": told})


def by_hand(rollout: Rollout, good: Tensor) -> Tensor:
    kept = torch.ones(STEPS, COUNT, dtype=torch.bool)
    for env in range(COUNT):
        begin = 0
        for t in range(STEPS):
            if not rollout.valid[t, env]:
                begin = t + 1
            elif rollout.ended[t, env]:
                kept[begin : t + 1, env] = good[t, env]
                begin = t + 1
    return kept


def test_an_episode_counts_whole_or_not_at_all() -> None:
    rollout = a_rollout()
    ends = {
        "terminated": rollout.terminated,
        "truncated": rollout.truncated,
        "reward_goal": rollout.reward_terms["reward_goal"] > 0,
    }
    for success, good in ends.items():
        kept, expected = kept_rows(rollout, success), by_hand(rollout, good)
        assert torch.equal(kept & rollout.valid, expected & rollout.valid), success
        assert 0 < int((kept & rollout.valid).sum()) < int(rollout.valid.sum())

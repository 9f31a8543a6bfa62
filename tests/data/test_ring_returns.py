"""What was earned from each row of a replay buffer on, against lists of what happened."""

import numpy as np
import pytest
import torch

from understudy.core.spec import Box, Group, Spec
from understudy.core.state import capture, restore
from understudy.data.replay_ring import ReplayRing, row_flags
from understudy.data.rewards import RewardTransform
from understudy.data.ring_returns import UNKNOWN, RingReturns

SPEC = Spec({"state": Group((1,), "float32")}, Box((-1.0,), (1.0,)))
GAMMA, SHIFTED = 0.9, RewardTransform(scale=2.0, shift=-1.0)


def test_a_row_knows_its_return_once_its_episode_has_ended() -> None:
    """Three environments, forty steps, room for twelve: ends of both kinds, steps in which nothing happened, a cut."""
    rng, count, room = np.random.default_rng(0), 3, 12
    ring = ReplayRing.empty(SPEC, room * count, count)
    returns = RingReturns.of(ring, GAMMA, SHIFTED)
    truth: list[list[float]] = []
    running: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    known = 0
    for step in range(40):
        if step == 25:
            ring.cut({"state": torch.zeros(count, 1)})
            returns.forget_unfinished()
            truth.append([UNKNOWN] * count)
            running = [[] for _ in range(count)]
        valid, ends = rng.random(count) < 0.9, rng.random(count)
        terminated, truncated = valid & (ends < 0.1), valid & (ends > 0.9)
        reward, seen = rng.standard_normal(count), {"state": torch.zeros(count, 1)}
        flags = row_flags(*(torch.from_numpy(part) for part in (terminated, truncated, valid)))
        ring.add(seen, torch.zeros(count, 1), torch.from_numpy(reward).float(), seen, flags)
        returns.follow(ring, flags)
        truth.append([UNKNOWN] * count)
        for env in range(count):
            running[env] = [*running[env], (len(truth) - 1, 2 * reward[env] - 1)] if valid[env] else []
            if terminated[env] or truncated[env]:
                total = 0.0
                for place, earned in reversed(running[env]):
                    total = earned + GAMMA * total
                    truth[place][env] = total
                running[env] = []
        newest = torch.arange(max(0, len(truth) - room), len(truth))
        slots = (newest.unsqueeze(1) * count + torch.arange(count)) % ring.rows.capacity
        drawable = ring.valid(slots.flatten()).view_as(slots)
        found, expected = returns.values[slots][drawable], torch.tensor(truth)[newest][drawable]
        assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-5), step
        known += int((found > UNKNOWN).sum())
    assert known > 100
    again = RingReturns.of(ring, GAMMA, SHIFTED)
    restore(again, capture(returns), "itself")
    assert torch.equal(again.values, returns.values)

"""Normalised rewards: what was paid so far by brute force, its deviation by NumPy and by Gymnasium."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.wrappers.utils import RunningMeanStd

from understudy.core.batch import Rollout
from understudy.core.rng import stream
from understudy.parts.ppo.reward_normalizer import RewardNormalizer

T, N, GAMMA = 30, 4, 0.9


def rollout(seed: int) -> Rollout:
    """Episodes that end, and steps that only begin another."""
    rng = stream(seed, "rewards")
    chance = torch.rand(3, T, N, generator=rng)
    truncated = chance[0] < 0.1
    valid = torch.ones(T, N, dtype=torch.bool)
    valid[1:][truncated[:-1] & (chance[1, 1:] < 0.5)] = False
    reward = 5.0 + 3.0 * torch.randn(T, N, generator=rng)
    empty = torch.zeros(T, N)
    obs = {"state": empty}
    return Rollout(obs, empty, empty, reward, obs, torch.zeros_like(valid), truncated & valid, valid, ())


def brute_force(rollouts: list[Rollout]) -> tuple[list[float], list[np.ndarray]]:
    """R of every step that counts, and those of each step of all environments."""
    running, counted, steps = np.zeros(N), [], []
    for played in rollouts:
        running = np.zeros(N) if played.anew else running
        for t in range(T):
            valid = played.valid[t].numpy()
            running = np.where(valid, running * GAMMA + played.reward[t].double().numpy(), 0.0)
            counted += list(running[valid])
            steps.append(running[valid].copy())
            running = np.where(played.ended[t].numpy(), 0.0, running)
    return counted, steps


@pytest.mark.parametrize("anew", [False, True])
def test_rewards_are_divided_by_the_deviation_of_what_was_paid(anew: bool) -> None:
    normalizer = RewardNormalizer.build(N, torch.device("cpu"))
    played = [rollout(0), replace(rollout(1), anew=anew), rollout(2)]
    theirs: Any = RunningMeanStd(shape=())  # type: ignore[no-untyped-call]
    for number, one in enumerate(played):
        found = normalizer.normalize(one, GAMMA)
        returns, steps = brute_force(played[: number + 1])
        expected = one.reward.numpy() / np.sqrt(np.var(returns) + 1e-8)
        np.testing.assert_allclose(found.numpy(), expected.clip(-10, 10), rtol=1e-5)
    for batch in steps:
        theirs.update(batch)
    assert float(normalizer.statistics.variance) == pytest.approx(float(theirs.var), rel=1e-3)


def test_what_is_not_valid_is_not_counted_and_nothing_is_huge() -> None:
    normalizers = [RewardNormalizer.build(N, torch.device("cpu")) for _ in range(2)]
    one = rollout(0)
    poisoned = replace(one, reward=torch.where(one.valid, one.reward, 1e9))
    assert not bool(one.valid.all())
    found = [normalizer.normalize(each, GAMMA) for normalizer, each in zip(normalizers, (one, poisoned), strict=True)]
    assert torch.equal(found[0][one.valid], found[1][one.valid])
    same = replace(one, reward=torch.full((T, N), 3.0), truncated=torch.ones(T, N, dtype=torch.bool))
    assert float(RewardNormalizer.build(N, torch.device("cpu")).normalize(same, GAMMA).max()) == 10.0

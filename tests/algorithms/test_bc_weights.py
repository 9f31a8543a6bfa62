"""Weighted cloning: a row that weighs nothing is not there."""

import numpy as np
import torch

from learners import start, tiny_algorithm
from understudy import Box, Dataset, Episode


def two_teachers(weights: tuple[float, float]) -> Dataset:
    """One always pulls left, the other always right."""
    rng = np.random.default_rng(0)
    episodes = [
        Episode(
            {"state": rng.standard_normal((51, 2)).astype(np.float32)},
            np.full((50, 1), action),
            np.zeros(50),
            False,
            True,
            extra={"trust": np.full(50, weight)},
        )
        for action, weight in zip((-0.8, 0.8), weights, strict=True)
    ]
    return Dataset.from_episodes(episodes, Box((-1.0,), (1.0,)))


def mean_action(weights: tuple[float, float]) -> float:
    learner = start(tiny_algorithm("bc", weights="trust", learning_rate=1e-2), two_teachers(weights), batch_size=64)
    learner.update(200)
    action, _ = learner.algorithm.policy.act({"state": torch.zeros(1, 2)}, (), greedy=True)
    return float(action)


def test_the_trusted_teacher_is_cloned() -> None:
    assert mean_action((1.0, 0.0)) < -0.7
    assert mean_action((0.0, 3.0)) > 0.7
    assert abs(mean_action((1.0, 1.0))) < 0.3

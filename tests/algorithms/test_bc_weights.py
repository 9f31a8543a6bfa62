"""Weighted cloning: a row that weighs nothing is not there."""

import numpy as np
import pytest
import torch

from learners import source_of, start, tiny_algorithm
from understudy import Box, Dataset, Episode
from understudy.algorithms import find_algorithm
from understudy.core.errors import DataError
from understudy.core.protocols import BuildContext
from understudy.data.experience import LoggedExperience


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


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_weights_that_cannot_serve_are_refused_before_the_first_update(memory: str) -> None:
    actor = {"hidden": [8], "memory": {"kind": memory}}
    config, kind = tiny_algorithm("bc", weights="trust", actor=actor), "offline" if memory == "none" else "sequences"
    for weights, told in (((1.0, -1.0), "row 50: cannot be a weight: got -1"), ((0.0, 0.0), "has a weight above 0")):
        data = two_teachers(weights)
        demand = find_algorithm("bc").build(config, BuildContext.over(LoggedExperience.of(data))).demand
        with pytest.raises(DataError, match=rf"column 'trust'.*{told}"):
            source_of(kind, data, demand)
    with pytest.raises(DataError, match=r"column 'trst': no such column to weigh rows by. Did you mean 'trust'"):
        start(tiny_algorithm("bc", weights="trst"), two_teachers((1.0, 1.0)))


def test_the_trusted_teacher_is_cloned() -> None:
    assert mean_action((1.0, 0.0)) < -0.7
    assert mean_action((0.0, 3.0)) > 0.7
    assert abs(mean_action((1.0, 1.0))) < 0.3

"""Runs whose rows are drawn by priority: going on to the bit, and what is refused before the first step."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small import StoppedAt, content, short_settings

import understudy as us
from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.errors import ConfigError
from understudy.core.protocols import PRIORITY
from understudy.run.build import build_learner
from understudy.run.config import parse_config
from understudy.sources.replay import ReplaySource

pytestmark = pytest.mark.usefixtures("no_plots")


BY_PRIORITY = {"exponent": 0.7, "correction": {"over": 15}}
REPLAY = {"kind": "replay", "batch_size": 8, "learning_starts": 15, "buffer_size": 24, "priority": BY_PRIORITY}


def test_a_run_killed_anywhere_goes_on_to_the_bit(tmp_path: Path) -> None:
    """From a dataset, from a ring that wraps, and from both; what it draws by is in every checkpoint."""
    cases: list[dict[str, Any]] = [
        {"batch_size": 8, "priority": BY_PRIORITY},
        {**REPLAY, "num_envs": 3, "utd_ratio": 1.7},
        {**REPLAY, "data_share": {"start": 1.0, "end": 0.0, "over": 12}, "utd_ratio": 4},
    ]
    for number, source in enumerate(cases):
        config = short_settings("td3bc", tmp_path / f"{number}-whole", source=source, updates=20, eval_every=10)
        if number == 1:
            config.pop("data")
        whole = us.train(parse_config(config))
        killed = tmp_path / f"{number}-killed"
        with pytest.raises(KeyboardInterrupt):
            us.train(parse_config({**config, "out": str(killed)}), callbacks=[StoppedAt(8)])
        us.resume(killed)
        assert content(killed) == content(whole.path), source


def test_what_a_learner_was_wrong_about_comes_again(tmp_path: Path) -> None:
    """In a ring of three environments: one row is all that is drawn, until others take its place."""
    config = short_settings("td3bc", tmp_path, source={**REPLAY, "num_envs": 3, "priority": {"exponent": 1.0}})
    config.pop("data")
    learner = build_learner(parse_config(config))
    source, policy = learner.source, learner.algorithm.policy
    assert isinstance(source, ReplaySource)
    (priorities,) = source.priorities
    first = _next(source, policy)
    assert first.extra[SAMPLE_WEIGHT].tolist() == [1.0] * 8
    assert priorities.rows == len(source.ring) == 18
    priorities.set(torch.arange(18), torch.zeros(18))
    priorities.set(torch.tensor([4]), torch.tensor([1e3]))
    chosen = source.ring.transitions(torch.tensor([4]), source.demand, lambda reward: reward)
    batch = _next(source, policy)
    assert torch.equal(batch.obs["state"], chosen.obs["state"].expand(8, -1))
    source.feedback({PRIORITY: torch.zeros(8)})
    batches = [_next(source, policy).obs["state"] for _ in range(4)]
    assert source.env_steps == 21, "three updates for each step of three environments"
    newest = source.ring.transitions(torch.arange(18, 21), source.demand, lambda reward: reward).obs["state"].tolist()
    assert all(row in newest for row in batches[-1].tolist()), "new rows have the largest priority there was"
    source.close()


def test_exponent_0_draws_as_if_there_were_no_priorities(tmp_path: Path) -> None:
    drawn = []
    for priority in ({}, {"exponent": 0.0, "epsilon": 0.5}):
        config = short_settings("td3bc", tmp_path, source={**REPLAY, "utd_ratio": 3, "priority": priority})
        config.pop("data")
        learner = build_learner(parse_config(config))
        drawn.append([_next(learner.source, learner.algorithm.policy) for _ in range(6)])
        learner.close()
    for one, other in zip(*drawn, strict=True):
        assert torch.equal(one.obs["state"], other.obs["state"])
        assert SAMPLE_WEIGHT not in other.extra


def _next(source: Any, policy: Any) -> Transitions:
    while (batch := source.next(policy)) is None:
        pass
    assert isinstance(batch, Transitions)
    return batch


def test_what_is_refused(tmp_path: Path) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("bc", {"priority": {"exponent": 0.6}}, "this algorithm does not say how wrong it was"),
        ("iql", {"priority": {"exponent": 1.5}}, "source.priority.exponent"),
        ("iql", {"priority": {"exponent": 0.6, "correction": 2}}, "source.priority.correction.start"),
        ("iql", {"priority": {"correction": 0.5}}, "correction means nothing with exponent=0"),
        ("iql", {"priority": {"exponent": 0.6, "epsilon": 0}}, "source.priority.epsilon"),
        ("iql", {"priority": {"exponent": 0.6}, "replacement": False}, "by priority.exponent or by replacement=false"),
        ("iql", {"priority": {"exponent": 0.6}, "weights": "x"}, "by priority.exponent or by weights=x"),
    ]
    for algorithm, source, told in cases:
        with pytest.raises(ConfigError, match=told):
            us.train(parse_config(short_settings(algorithm, tmp_path, source=source)))

"""Each seed of FQE learns from its own resample of the episodes, the same for every candidate."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from judged_policies import boxes, choices, constant, favouring

import understudy as us
from understudy.algorithms import fqe
from understudy.core.protocols import Demand
from understudy.data.experience import LoggedExperience
from understudy.data.transforms import Transforms
from understudy.tools.ope.resamples import Resample
from understudy.tools.ope.stacked import ask, train_stack

QUICK: dict[str, Any] = {"updates": 20, "hidden": (8,), "gamma": 0.5, "progress": False}


def uneven() -> us.Dataset:
    """Episodes of one to six steps."""
    parts = [boxes(1, steps, seed=steps) for steps in (3, 1, 6, 2, 5)]
    return us.Dataset.from_episodes([part.episode(0) for part in parts], parts[0].spec.action)


def test_rows_are_those_of_the_episodes_that_were_drawn() -> None:
    """One behind the other, whoever was drawn twice twice; as many episodes as there are, and of all as likely."""
    index = uneven().index
    steps = [list(range(start, end)) for start, end in zip(index.starts, index.ends, strict=True)]
    counts = np.zeros(5)
    for seed in range(400):
        resample = Resample.drawn(index, seed)
        assert resample.rows().tolist() == [row for number in resample.episodes.tolist() for row in steps[number]]
        counts += np.bincount(resample.episodes.numpy(), minlength=5)
        assert torch.equal(resample.episodes, Resample.drawn(index, seed).episodes)
    assert counts.sum() == 5 * 400
    assert counts == pytest.approx(400, rel=0.2)
    assert len({Resample.drawn(index, seed).digest for seed in range(10)}) == 10
    assert torch.equal(Resample.whole(index).rows(), torch.arange(17))


def test_the_value_is_the_mean_of_resamples_and_its_interval_of_students_t() -> None:
    """Of what critics of each seed say of the starts of its own resample: v̄ ± t₂·s·√(4/3), t₂ = 4.30265."""
    dataset, policy = uneven(), constant(uneven().spec, 0.3)
    found = us.evaluate_offline(policy, dataset, seeds=3, **QUICK).best
    asked = Demand(("return_to_go",), gamma=0.5)
    spread = float(dataset.rows(torch.arange(17), asked).extra["return_to_go"].double().std(correction=0))
    data = LoggedExperience.of(dataset, Transforms(normalize_observations=True, scale_rewards=1 / spread))
    config = fqe.Config.parse({"gamma": 0.5, "critic": {"hidden": (8,)}}, "algo")
    values = []
    for seed in range(3):
        resample = Resample.drawn(dataset.index, seed)
        judged = train_stack(config, data, policy, ask([policy], data, 0, seed), resample.rows(), seed, 20, 256)
        values.append(float(judged.starts[0, resample.episodes].mean()))
    margin = 4.302653 * np.std(values, ddof=1) * math.sqrt(4 / 3)
    assert found.estimate.value == pytest.approx(np.mean(values), rel=1e-9)
    assert found.estimate.low == pytest.approx(np.mean(values) - margin, rel=1e-6)
    assert found.estimate.high == pytest.approx(np.mean(values) + margin, rel=1e-6)


def test_of_one_seed_there_is_no_interval_and_nobody_is_told_apart() -> None:
    data = boxes()
    one, other = constant(data.spec, 0.5), constant(data.spec, -0.5)
    both = us.evaluate_offline([one, other], data, seeds=1, **QUICK)
    assert len(both.rivals) == 1
    assert "has the highest value (of nobody a lower bound is known), but cannot be told apart" in both.verdict()
    assert "one seed says nothing of others: there is no interval, and nobody is told apart." in " ".join(both.warnings)
    assert [(row["low"], row["high"]) for row in both.to_json()["candidates"]] == [(None, None)] * 2
    assert "(no interval)" in us.evaluate_offline(one, data, seeds=1, **QUICK).verdict()
    value = us.offline_value(one, data, seeds=1, **QUICK)
    assert [math.isnan(number) for number in (value.value, value.low, value.high)] == [False, True, True]


def test_doubly_robust_critics_learn_from_every_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    """What resamples them is the bootstrap: as many draws as ever, and an interval of one seed."""
    monkeypatch.setattr(Resample, "drawn", None)
    data = choices(200)
    policy = favouring(data.spec, (0.25, 0.25, 0.5))
    words: dict[str, Any] = {**QUICK, "seeds": 1, "method": "wdr", "stochastic": True}
    ranking = us.evaluate_offline(policy, data, **words)
    assert len(ranking.best.draws) == 1000
    assert ranking.best.estimate.low < 0.875 < ranking.best.estimate.high
    assert any("no interval shows how far seeds are apart" in told for told in ranking.warnings)

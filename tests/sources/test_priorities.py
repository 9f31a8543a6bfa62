"""Prioritised sampling: its formulas, what it learns sooner, and what it must not bend."""

from typing import Any

import numpy as np
import pytest
import torch

from learners import Learning, differences, offline_source, start, tiny_algorithm
from nobody import Nobody
from understudy import Box, Dataset, Discrete, Episode
from understudy.core.batch import SAMPLE_WEIGHT
from understudy.core.protocols import PRIORITY, Demand
from understudy.core.state import capture, restore
from understudy.losses.value import absolute_error, bootstrap_target, mean_over, squared_error
from understudy.losses.weights import weigh
from understudy.sources.offline import OfflineSource
from understudy.sources.sampling.priorities import Priorities, PrioritySampler, PrioritySettings
from worlds import judges_only, learning_from, random_dataset

TOLD = Demand(("td_valid", "discount"), 1, 0.9, priorities=True)


def settings(**changes: Any) -> PrioritySettings:
    return PrioritySettings.parse(changes, "source.priority")


def prioritised(dataset: Dataset, batch_size: int = 32, seed: int = 0, **changes: Any) -> OfflineSource:
    return offline_source(dataset, TOLD, batch_size, seed, priority=changes)


def sampler(source: OfflineSource) -> PrioritySampler:
    assert isinstance(source.sampler, PrioritySampler)
    return source.sampler


def test_rows_are_drawn_by_their_errors_and_weighed_by_the_inverse() -> None:
    """p = (|δ| + ε)^α, P = p/Σp and w = (N·P)^−β over the largest, each written out."""
    source = prioritised(random_dataset(), 120, exponent=0.5, correction=0.7, epsilon=0.01)
    priorities = sampler(source).priorities
    errors = torch.rand(120, generator=torch.Generator().manual_seed(0)) * 3
    priorities.set(torch.arange(120), errors)
    p = (errors.double() + 0.01) ** 0.5
    batch = source.next(Nobody())
    rows = sampler(source).priorities.last
    expected = (120 * p[rows] / p.sum()) ** -0.7
    torch.testing.assert_close(batch.extra[SAMPLE_WEIGHT], (expected / expected.max()).float())
    counts, times = torch.zeros(120), 120 * 50 * p / p.sum()
    for _ in range(50):
        source.next(Nobody())
        counts += torch.bincount(sampler(source).priorities.last, minlength=120)
    assert bool(((counts - times).abs() < 5 * times.sqrt() + 1).all())


def test_new_rows_have_the_largest_priority_there_was() -> None:
    """A ring of six places: two rows that may not be drawn, errors, and rows that take others' places."""
    priorities = Priorities.over(settings(exponent=1.0, epsilon=1e-12), 6)
    priorities.admit(np.arange(4), np.array([True, False, True, True]))
    assert (priorities.rows, priorities.tree.leaves.tolist()) == (3, [1, 0, 1, 1, 0, 0])
    priorities.set(torch.tensor([0, 3, 0]), torch.tensor([9.0, 5.0, 0.25]))
    priorities.admit(np.array([4, 5, 0, 1]), np.array([True, True, False, True]))
    assert (priorities.rows, priorities.tree.leaves.tolist()) == (5, [0, 9, 1, 5, 9, 9])
    priorities.set(torch.tensor([2, 3]), torch.tensor([float("nan"), float("inf")]))
    assert priorities.tree.leaves.tolist() == [0, 9, 9, 9, 9, 9], "what is no number is told elsewhere"


def test_the_correction_grows_with_the_updates() -> None:
    source = prioritised(random_dataset(), exponent=0.6, correction={"start": 0.2, "end": 1.0, "over": 4})
    told = []
    for _ in range(6):
        told.append(float(source.metrics()["priority/correction"]))
        source.next(Nobody())
        source.feedback({PRIORITY: torch.ones(32)})
    assert told == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert [source.metrics()[f"priority/{name}"].item() for name in ("largest", "mean")] == pytest.approx(
        [1, 1], rel=1e-5
    )


def chain(states: int, wrong: int) -> Dataset:
    """One walk along all states to a reward of 1, and many that leave at once with nothing."""
    eye = np.eye(states, dtype=np.float32)
    reward = np.zeros(states, np.float32)
    reward[-1] = 1.0
    walk = Episode({"state": eye[[*range(states), states - 1]]}, np.zeros(states, np.int64), reward, True, False)
    left = [
        Episode({"state": eye[[state, state]]}, np.ones(1, np.int64), np.zeros(1, np.float32), True, False)
        for state in range(states)
        for _ in range(wrong)
    ]
    return Dataset.from_episodes([walk, *left], Discrete(2), name="chain")


def updates_until_right(dataset: Dataset, states: int, **priority: Any) -> int:
    """Steps of a table of Q until the walk is worth 0.9^k at every state, within 0.05."""
    source, q = prioritised(dataset, 8, **priority), torch.zeros(states, 2)
    truth = 0.9 ** torch.arange(states - 1, -1, -1)
    for number in range(1, 2000):
        batch = source.next(Nobody())
        state, after = batch.obs["state"].argmax(1), batch.next_obs["state"].argmax(1)
        value = q[state, batch.action].unsqueeze(0)
        y = bootstrap_target(batch.reward, batch.extra["discount"], batch.terminated, q[after].amax(1))
        source.feedback({PRIORITY: absolute_error(value, y, batch.extra["td_valid"])})
        step = weigh(y - value, batch.extra.get(SAMPLE_WEIGHT))[0]
        q.index_put_((state, batch.action), 0.5 * step, accumulate=True)
        if float((q[:, 0] - truth).abs().max()) < 0.05:
            return number
    return 2000


def test_a_rare_reward_is_learned_in_far_fewer_updates() -> None:
    data = chain(6, 60)
    alike = updates_until_right(data, 6)
    sooner = updates_until_right(data, 6, exponent=1.0, correction=0.4, epsilon=0.01)
    assert sooner * 2 < alike < 2000


def test_weights_leave_the_fixed_point_where_it_was() -> None:
    """A coin of 10 % worth 1: values go to q, q/(1−q) = (p/(1−p))^(1/(1+α·(1−β))); that is p only with β = 1."""
    rewards = (np.arange(200) % 10 == 0).astype(np.float32)
    episodes = [
        Episode(
            {"state": np.ones((2, 1), np.float32)}, np.zeros((1, 1), np.float32), rewards[row : row + 1], True, False
        )
        for row in range(200)
    ]
    data = Dataset.from_episodes(episodes, Box((-1.0,), (1.0,)), name="coin")
    for beta in (1.0, 0.0):
        source, q, found = prioritised(data, 64, exponent=1.0, correction=beta), torch.tensor(0.2), []
        for number in range(500):
            batch = source.next(Nobody())
            value = q.expand(1, 64).clone().requires_grad_()
            losses = weigh(squared_error(value, batch.reward), batch.extra[SAMPLE_WEIGHT])
            (slope,) = torch.autograd.grad(mean_over(losses, batch.extra["td_valid"]).sum(), value)
            source.feedback({PRIORITY: absolute_error(value, batch.reward, batch.extra["td_valid"])})
            q = q - 0.1 * slope.sum()
            found += [float(q)] * (number >= 100)
        odds = (1 / 9) ** (1 / (1 + (1 - beta)))
        assert np.mean(found) == pytest.approx(odds / (1 + odds), abs=0.012), beta


def learning(name: str, **priority: Any) -> Learning:
    told = start(tiny_algorithm(name))
    data = told.source.data.recorded
    return Learning(told.algorithm, offline_source(data, told.algorithm.demand, priority=priority))


def test_every_value_learner_learns_by_priority_and_exponent_0_is_nothing_at_all() -> None:
    for name in (name for name in learning_from("offline") if not judges_only(name)):
        off, plain = learning(name, exponent=0.0), start(tiny_algorithm(name))
        for one in (off, plain):
            one.update(3)
        assert differences(capture(off), capture(plain)) == []
        if name == "bc":
            continue
        on = learning(name, exponent=0.6)
        for _ in range(3):
            told = on.algorithm.update(on.batch())
            on.source.feedback(told.feedback)
        assert differences(capture(on.algorithm), capture(off.algorithm)) != []
        leaves = sampler(on.source).priorities.tree.leaves
        assert len(set(leaves.tolist())) > 20
        other = learning(name, exponent=0.6)
        other.batch()
        restore(other, capture(on), "test")
        assert torch.equal(on.batch().obs["state"], other.batch().obs["state"])

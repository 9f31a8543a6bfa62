"""FQE: a frozen candidate, members that do not know of each other, an estimate in every line of the log."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import understudy as us
from learners import differences, frozen, start, tiny_algorithm
from understudy.algorithms import fqe
from understudy.core.errors import ConfigError
from understudy.core.protocols import MAIN, BuildContext, Demand
from understudy.core.rng import stream
from understudy.core.state import capture
from understudy.data.experience import LoggedExperience
from understudy.nn.actor import Actor, ActorSettings
from worlds import random_dataset, tiny_config


def test_the_candidate_never_moves_and_is_a_copy() -> None:
    learning = start(tiny_algorithm("fqe"))
    before = capture(learning.algorithm.policy)
    learning.update(5)
    assert differences(before, capture(learning.algorithm.policy)) == []
    data = random_dataset()
    given = frozen(tiny_algorithm("fqe"), data.spec)
    context = BuildContext(data.spec, 9, 0, torch.device("cpu"), data={MAIN: LoggedExperience.of(data)}, policies=given)
    assert fqe.build(fqe.Config(), context).policy is not given[fqe.TARGET]


def test_each_member_learns_from_its_own_target() -> None:
    """Of two critics the first stays what it was in every bit, whatever the second's target says."""
    plain, other = (start(tiny_algorithm("fqe", critics=2, stochastic=True)) for _ in range(2))
    with torch.no_grad():
        other.algorithm.target.network.trunk.layers()[-1].bias[1].add_(3.0)
    for learning in (plain, other):
        learning.update(3)
    mine, theirs = (learning.algorithm.critic.trunk.layers() for learning in (plain, other))
    assert all(torch.equal(a.weight[0], b.weight[0]) for a, b in zip(mine, theirs, strict=True))
    assert not torch.equal(mine[-1].bias[1], theirs[-1].bias[1])


def test_rows_whose_successor_is_unknown_teach_nothing() -> None:
    """Whatever was earned there: critics move as if they had not been among the others."""
    plain, other = (start(tiny_algorithm("fqe")) for _ in range(2))
    batch = plain.batch()
    known = torch.arange(len(batch.reward)) % 2 == 0
    known_only = replace(batch, extra={**batch.extra, "td_valid": known})
    plain.algorithm.update(known_only)
    other.algorithm.update(replace(known_only, reward=torch.where(known, batch.reward, batch.reward + 100.0)))
    assert differences(capture(plain.algorithm), capture(other.algorithm)) == []


def test_what_is_logged_is_the_mean_over_the_starts_of_all_episodes() -> None:
    data = LoggedExperience.of(random_dataset())
    context = BuildContext(
        data.spec, 9, 0, torch.device("cpu"), data={MAIN: data}, policies=frozen(tiny_algorithm("fqe"), data.spec)
    )
    learner = fqe.build(fqe.Config(), context)
    obs = data.rows(data.starts(), Demand()).obs
    expected = learner.value(obs, learner.choices(obs, None, learner.draws)).mean()
    torch.testing.assert_close(learner.measure()["estimate/mean"], expected)


def test_a_policy_that_draws_is_asked_for_draws() -> None:
    """The mean over draws: with a σ near 0 it is the greedy value, with a large one it is not."""
    learning = start(tiny_algorithm("fqe"))
    batch = learning.batch()
    drawing = start(tiny_algorithm("fqe", stochastic=True, samples=200)).algorithm
    greedy = learning.algorithm.choices(batch.next_obs, None, learning.algorithm.draws)
    drawn = drawing.choices(batch.next_obs, None, drawing.draws)
    assert greedy.shape == (1, 32, 2)
    assert drawn.shape == (200, 32, 2)
    assert drawn.abs().max() <= 1.0, "inside the box, as they are sent"
    assert drawn.std(0).min() > 0.2
    value = learning.algorithm.value(batch.next_obs, drawn)
    brute = torch.stack([learning.algorithm.value(batch.next_obs, one[None]) for one in drawn]).mean(0)
    torch.testing.assert_close(value, brute)


def test_whom_it_cannot_judge_it_refuses() -> None:
    data = random_dataset()
    remembering = Actor(data.spec, ActorSettings.parse({"memory": {"kind": "gru", "units": 4}}), stream(0, "candidate"))
    other = Actor(random_dataset(action=3).spec, ActorSettings(), stream(0, "candidate"))
    for policy, told in (
        (remembering, "has a memory"),
        (other, "does not fit the data: actions are"),
        (object(), "an exported policy cannot be kept in checkpoints"),
    ):
        context = BuildContext(data.spec, 9, 0, torch.device("cpu"), policies={fqe.TARGET: policy})  # type: ignore[dict-item]
        with pytest.raises(ConfigError, match=rf"policies\.target: {told}"):
            fqe.build(fqe.Config(), context)


@pytest.mark.usefixtures("no_plots")
def test_a_run_logs_its_estimate(tmp_path: Path) -> None:
    run = us.train(tiny_config("fqe", tmp_path / "run", env=None), progress=False)
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert all({"estimate/mean", "estimate/std", "alarm/diverging"} <= line.keys() for line in lines)
    assert run.config.policies[fqe.TARGET].fingerprint

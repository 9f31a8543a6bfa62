"""The numbers a person watches: right, on the same rows at every log, and without any effect on what is learned."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from small import short_settings

import understudy as us
from learners import differences
from understudy.algorithms.td3bc import TD3BC
from understudy.core.protocols import Demand
from understudy.core.state import capture
from understudy.data.rewards import RewardTransform
from understudy.nn.actor import Actor
from understudy.nn.distributions.categorical import Categorical, forbid
from understudy.run.build import build_learner
from understudy.run.config import parse_config
from understudy.run.monitor import largest_return
from understudy.run.progress import Reporter
from worlds import CARTPOLE_RECIPE, learning_from, random_dataset, takes_boxes, tiny_config


def tiny_learner(algorithm: str, folder: Path, **changes: Any) -> Any:
    return build_learner(tiny_config(algorithm, folder, **changes))


def looked(learner: Any) -> dict[str, float]:
    return {name: float(value) for name, value in learner.probes[0].metrics(learner.algorithm).items()}


@pytest.mark.parametrize("algorithm", [*filter(takes_boxes, learning_from("offline"))])
def test_looking_changes_nothing(algorithm: str, tmp_path: Path) -> None:
    """With dropout, whose stream must not move."""
    settings = short_settings(algorithm, tmp_path)
    one, other = (build_learner(parse_config(settings)) for _ in range(2))
    monitor = one.probes[0]
    for _ in range(3):
        one.update()
        other.update()
        monitor.metrics(one.algorithm)
    assert differences(capture(one), capture(other)) == []
    assert one.policy.training == other.policy.training


def test_values_are_those_of_the_critics(tmp_path: Path) -> None:
    """Asked by hand about every row of a dataset of no more rows than are looked at."""
    recipe = {"env": "Pendulum-v1", "episodes": 2, "seed": 0, "behaviours": [{"policy": "random"}]}
    learner = tiny_learner("td3bc", tmp_path, data={"recipe": recipe})
    learner.update()
    seen, algorithm, dataset = looked(learner), learner.algorithm, learner.data["main"].recorded
    assert isinstance(algorithm, TD3BC)
    rows = dataset.rows(torch.arange(dataset.steps), Demand())
    chosen = torch.as_tensor(us.predict(learner.policy, rows.obs["state"])) / 2.0
    with torch.no_grad():
        state = learner.policy.perception.look(rows.obs)
        data, policy = (algorithm.critic(state, action) for action in (rows.action / 2.0, chosen))
    assert seen["value/q_data"] == pytest.approx(float(data.mean()), rel=1e-5)
    assert seen["value/q_policy"] == pytest.approx(float(policy.mean()), rel=1e-5)
    assert seen["value/q_gap"] == pytest.approx(float(policy.mean() - data.mean()), abs=1e-5)
    assert seen["value/q_largest"] == pytest.approx(max(float(part.abs().max()) for part in (data, policy)), rel=1e-5)


def test_choices_and_masks_are_understood(tmp_path: Path) -> None:
    """In the battle every policy action must be legal, or its value would be asked for nothing."""
    recipe = {"env": "UnderstudyBattle-v0", "episodes": 3, "seed": 0, "behaviours": [{"policy": "random"}]}
    world = {"data": {"recipe": recipe}, "env": {"id": "UnderstudyBattle-v0"}}
    for algorithm in ("iql", "discrete_cql"):
        seen = looked(tiny_learner(algorithm, tmp_path / algorithm, **world))
        assert {"value/q_data", "value/q_policy", "policy/entropy_on_data"} <= seen.keys()
        assert 0.0 <= seen["policy/entropy_on_data"] <= math.log(10)


def test_an_action_that_is_forbidden_adds_no_entropy() -> None:
    logits = forbid(torch.zeros(1, 4), torch.tensor([[True, False, True, False]]))
    assert float(Categorical(4).entropy(logits)) == pytest.approx(math.log(2))


def test_the_entropy_of_a_gaussian_is_known(tmp_path: Path) -> None:
    learner = tiny_learner("bc", tmp_path)
    log_std = dict(learner.policy.named_parameters())["distribution.log_std"]
    with torch.no_grad():
        log_std.fill_(-0.7)
    assert looked(learner)["policy/entropy_on_data"] == pytest.approx(-0.7 + 1.4189385, rel=1e-5)


def test_the_entropy_of_a_uniform_choice_is_known(tmp_path: Path) -> None:
    learner = tiny_learner("bc", tmp_path, data={"recipe": CARTPOLE_RECIPE}, env={"id": "CartPole-v1"})
    assert isinstance(learner.policy, Actor)
    with torch.no_grad():
        learner.policy.trunk.flat.zero_()
    assert looked(learner)["policy/entropy_on_data"] == pytest.approx(math.log(2), rel=1e-5)


@pytest.mark.parametrize(
    ("gamma", "transform", "bound"),
    [
        (0.99, RewardTransform(), 300.0),
        (0.9, RewardTransform(), 30.0),
        (0.9, RewardTransform(scale=10.0, shift=-5.0), 350.0),
        (0.9, RewardTransform(shift=4.0), 60.0),
        (1.0, RewardTransform(), 3.0 * 20),
    ],
)
def test_the_largest_return_is_that_of_the_largest_reward_forever(
    gamma: float, transform: RewardTransform, bound: float
) -> None:
    """Rewards from −3 to 2, episodes of 20 steps."""
    dataset = random_dataset()
    dataset.rewards.copy_(torch.linspace(-3, 2, dataset.steps))
    assert largest_return(dataset, transform, gamma) == pytest.approx(bound, rel=1e-5)


def test_gradient_norms_are_those_of_the_last_update(tmp_path: Path) -> None:
    learner = tiny_learner("bc", tmp_path)
    assert looked(learner)["gradient/policy"] == 0.0
    twin = tiny_learner("bc", tmp_path)
    batch = twin.source.next(twin.policy)
    assert isinstance(twin.policy, Actor)
    log_prob = twin.policy.log_prob(twin.policy.perception.look(batch.obs), batch.action)
    gradients = torch.autograd.grad(-log_prob.mean(), list(twin.policy.parameters()))
    learner.update()
    expected = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
    assert looked(learner)["gradient/policy"] == pytest.approx(expected, rel=1e-4)


def test_a_run_whose_values_are_too_large_says_so_once_and_every_log_holds_it(tmp_path: Path) -> None:
    """Rewards of a ten-thousandth can never add up to what critics say that have learned next to nothing."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {"observations": rng.standard_normal((200, 3)), "actions": rng.uniform(-1, 1, (200, 1))}
    ends: dict[str, Any] = {"terminals": np.zeros(200, bool), "timeouts": np.arange(1, 201) % 20 == 0}
    np.savez(tmp_path / "poor.npz", rewards=np.full(200, 1e-4), **columns, **ends)
    console = Console(record=True, width=300)
    config = tiny_config("td3bc", tmp_path / "run", data={"path": str(tmp_path / "poor.npz")}, log_every=5, updates=20)
    run = us.train(config, reporter=Reporter(console=console))
    assert console.export_text().count("the critics diverge") == 1
    assert {line["alarm/diverging"] for line in run.metrics()} == {1.0}
    calm = us.train(tiny_config("td3bc", tmp_path / "calm", log_every=5, updates=20))
    assert {line["alarm/diverging"] for line in calm.metrics()} == {0.0}
    assert np.isfinite([value for line in calm.metrics() for value in line.values()]).all()


def test_what_an_algorithm_adds_to_rewards_widens_the_bound_or_takes_it_away(tmp_path: Path) -> None:
    """ReBRAC's penalty has a largest value, of one dimension 4·β₂·γ at a step; CQL's and entropy's have none."""
    recipe = {"env": "Pendulum-v1", "episodes": 2, "seed": 0, "behaviours": [{"policy": "random"}]}

    def learner(number: int, algo: dict[str, Any]) -> Any:
        name = algo["name"]
        own = {**short_settings(name, tmp_path / str(number))["algo"], **algo}
        return tiny_learner(name, tmp_path / str(number), data={"recipe": recipe}, algo=own)

    plain, *penalised = (learner(number, {"name": "rebrac", "critic_penalty": b}) for number, b in enumerate((0, 0.5)))
    gamma = plain.algorithm.demand.gamma
    difference = penalised[0].probes[0].bound - plain.probes[0].bound
    assert difference == pytest.approx(4 * 0.5 * gamma / (1 - gamma), rel=1e-5)
    quiet: list[dict[str, Any]] = [
        {"name": "cql"},
        {"name": "ciql"},
        {"name": "iact", "base": "sac_bc", "entropy_weight": 0.1},
    ]
    told: list[dict[str, Any]] = [
        {"name": "cql", "penalty_weight": 0},
        {"name": "ciql", "alpha": 0},
        {"name": "iact"},
        {"name": "td3bc"},
    ]
    for number, algo in enumerate([*quiet, *told], 10):
        assert ("alarm/diverging" in looked(learner(number, algo))) == (algo in told)


def test_without_rewards_there_is_no_bound() -> None:
    dataset = random_dataset()
    dataset.rewards.zero_()
    assert largest_return(dataset, RewardTransform(), 0.99) == math.inf

"""Everybody who learns values by bootstrapping: n-step targets, the smallest of any number of critics, and both off."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from learners import Learning, differences, start, tiny_algorithm
from understudy import Box, Dataset, Discrete, Episode
from understudy.algorithms import find_algorithm
from understudy.core.batch import SAMPLE_WEIGHT
from understudy.core.errors import ConfigError
from understudy.core.protocols import PRIORITY
from understudy.core.state import State, capture
from understudy.data.experience import LoggedExperience
from understudy.parts.value_learning import ValueLearningSettings
from understudy.run.handed_networks import hand_over, parts_by_role
from understudy.run.partial_loading import Part
from worlds import learning_from, takes_boxes

LEARNERS = [name for name in learning_from("offline") if issubclass(find_algorithm(name).Config, ValueLearningSettings)]
GAMMA, PENALTY, VALUE = 0.8, 0.3, 1.5
LEVELS = (2.0, 3.0, -1.0, 0.5)
"""What each target critic says of every state and action."""
STILL: dict[str, dict[str, Any]] = {
    "td3bc": {"target_noise": 0.0},
    "rebrac": {"target_noise": 0.0, "critic_penalty": PENALTY},
    "iact": {"target_noise": 0.0},
    "iql": {"value_learning_rate": 1e-30},
    "ciql": {"value_learning_rate": 1e-30},
    "sac": {"entropy_weight": 1e-30},
    "redq": {"entropy_weight": 1e-30},
    "discrete_sac": {"entropy_weight": 1e-30},
}
"""Settings under which nothing moves or trembles before the targets are made."""


def every_end(boxes: bool) -> Dataset:
    """Episodes of one to five steps that terminate or are cut."""
    rng = np.random.default_rng(0)
    episodes = []
    for steps in (1, 2, 3, 4, 5):
        for terminated in (True, False):
            seen = {"state": rng.standard_normal((steps + 1, 3)).astype(np.float32)}
            action = rng.uniform(-1, 1, (steps, 2)).astype(np.float32) if boxes else rng.integers(0, 4, steps)
            reward = rng.standard_normal(steps).astype(np.float32)
            episodes.append(Episode(seen, action, reward, terminated, not terminated))
    return Dataset.from_episodes(episodes, Box((-1.0,) * 2, (1.0,) * 2) if boxes else Discrete(4), name="every end")


def says(network: Any, *levels: float) -> None:
    """Whatever it is asked, member j answers with the j-th of these."""
    output = network.trunk.layers()[-1]
    output.weight.zero_()
    output.bias.copy_(torch.tensor(levels).view(-1, *[1] * (output.bias.dim() - 1)).expand_as(output.bias))


def standing(name: str, n_step: int, critics: int) -> Learning:
    """Q ≡ 0, Q̄_j and V are known numbers, and π(s) = 0 where it is asked for its action."""
    changes = {"gamma": GAMMA, "n_step": n_step, "critics": critics, **STILL.get(name, {})}
    if name == "redq":
        changes["target_subset"] = critics
    learning = start(tiny_algorithm(name, **changes), every_end(takes_boxes(name)))
    networks: dict[str, nn.Module] = learning.algorithm.networks()
    for role, network in networks.items():
        if role.endswith("target_critic"):
            says(network, *LEVELS[:critics])
        elif role.endswith("critic"):
            says(network, *[0.0] * critics)
        elif role == "value":
            says(network, VALUE)
        elif role.endswith("target_policy"):
            says(network, 0.0)
    return learning


def walked_targets(data: Dataset, n_step: int, bootstrap: float, penalty: float) -> Tensor:
    """y of every row by walking: rewards of up to n steps, then what is expected after, unless the episode is over."""
    targets = []
    starts, ends = data.index.starts.tolist(), data.index.ends.tolist()
    for first, end, terminated in zip(starts, ends, data.index.terminated.tolist(), strict=True):
        for row in range(first, end):
            y, factor, step = 0.0, 1.0, row
            while step < end and step < row + n_step:
                y += factor * float(data.rewards[step])
                factor, step = factor * GAMMA, step + 1
            if step < end or not terminated:
                away = float(data.actions[step].square().sum()) if step < end and penalty else 0.0
                y += factor * (bootstrap - penalty * away)
            targets.append(y)
    return torch.tensor(targets)


def updated(name: str, n_step: int, critics: int) -> tuple[dict[str, Tensor], Dataset]:
    """What one update on all rows says."""
    learning = standing(name, n_step, critics)
    data = learning.source.data.recorded
    batch = LoggedExperience.of(data).rows(torch.arange(data.steps), learning.algorithm.demand)
    return dict(learning.algorithm.update(batch).metrics), data


def test_nobody_who_bootstraps_is_without() -> None:
    """But who clones, and who judges: n rewards of those who made the data are not the candidate's."""
    assert {*learning_from("offline")} - {*LEARNERS} == {"bc", "fqe"}


@pytest.mark.parametrize("name", LEARNERS)
def test_targets_are_those_of_n_steps_and_of_the_smallest_critic(name: str) -> None:
    """With Q ≡ 0 the loss of K critics is K·mean y², and y is found by walking."""
    for n_step, critics in ((1, 2), (1, 1), (3, 2), (9, 3), (2, 4)):
        metrics, data = updated(name, n_step, critics)
        bootstrap = VALUE if "loss/value" in metrics else min(LEVELS[:critics])
        targets = walked_targets(data, n_step, bootstrap, PENALTY if name == "rebrac" else 0.0)
        (loss,) = [metrics[key] for key in ("loss/td", "loss/critic", "loss/critic_a") if key in metrics][:1]
        assert float(loss) == pytest.approx(critics * float(targets.square().mean()), rel=1e-4), (n_step, critics)


@pytest.mark.parametrize("name", LEARNERS)
def test_rows_are_told_by_their_error_and_count_as_they_are_weighed(name: str) -> None:
    """With Q ≡ 0 the error of every critic is |y|; where y is unknown it is 0, and nothing is learned there."""
    rng = torch.Generator().manual_seed(0)
    losses = {}
    for how in ("plain", "weighed", "even"):
        learning = standing(name, 2, 3)
        data = learning.source.data.recorded
        batch = LoggedExperience.of(data).rows(torch.arange(data.steps), learning.algorithm.demand)
        known = torch.arange(data.steps) % 5 != 2
        weight = torch.rand(data.steps, generator=rng) if how == "weighed" else torch.ones(data.steps)
        columns = {SAMPLE_WEIGHT: weight} if how != "plain" else {}
        told = learning.algorithm.update(replace(batch, extra={**batch.extra, "td_valid": known, **columns}))
        bootstrap = VALUE if "loss/value" in told.metrics else min(LEVELS[:3])
        targets = walked_targets(data, 2, bootstrap, PENALTY if name == "rebrac" else 0.0)
        torch.testing.assert_close(told.feedback[PRIORITY], torch.where(known, targets.abs(), 0.0))
        assert not told.feedback[PRIORITY].requires_grad
        (loss,) = [told.metrics[key] for key in ("loss/td", "loss/critic", "loss/critic_a") if key in told.metrics][:1]
        expected = 3 * float((weight * targets.square())[known].mean())
        assert float(loss) == pytest.approx(expected, rel=1e-4), how
        losses[how] = capture(learning.algorithm)
    assert differences(losses["plain"], losses["even"]) == []
    assert differences(losses["plain"], losses["weighed"]) != []


@pytest.mark.parametrize("name", [name for name in LEARNERS if "expectile" in find_algorithm(name).Config.model_fields])
def test_values_of_states_follow_the_smallest_critic(name: str) -> None:
    """V ≡ 1.5 against min_j Q̄_j: τ·x² where x is above 0, (1 − τ)·x² where it is below."""
    for critics in (1, 2, 3, 4):
        metrics, _ = updated(name, 1, critics)
        gap = min(LEVELS[:critics]) - VALUE
        assert float(metrics["loss/value"]) == pytest.approx((0.7 if gap > 0 else 0.3) * gap**2, rel=1e-5)


@pytest.mark.parametrize("name", LEARNERS)
def test_one_step_and_so_many_critics_are_what_there_was(name: str) -> None:
    usual = 10 if name == "redq" else 2
    plain, spelled_out = start(tiny_algorithm(name)), start(tiny_algorithm(name, n_step=1, critics=usual))
    for learning in (plain, spelled_out):
        learning.update(4)
    assert differences(capture(plain), capture(spelled_out)) == []


@pytest.mark.parametrize("name", LEARNERS)
def test_other_numbers_learn_finitely_and_differently(name: str) -> None:
    plain = start(tiny_algorithm(name))
    plain.update(4)
    several: tuple[dict[str, Any], ...] = ({"n_step": 3}, {"critics": 5})
    for knobs in several:
        other = start(tiny_algorithm(name, **knobs))
        metrics = other.update(4)
        assert all(bool(value.isfinite()) for value in metrics.values())
        assert differences(capture(plain.algorithm), capture(other.algorithm)) != []


LEARNED: dict[str, dict[str, Any]] = {"discrete_cql": {"policy": "softmax"}, "cql": {"entropy_learning_rate": 1e-2}}
"""Settings with a policy that is not its critics, and with a temperature that moves."""


@pytest.mark.parametrize("name", LEARNERS)
def test_a_policy_waits_for_its_critics(name: str) -> None:
    """Of every bit that moves in the first five updates none is the policy's or a temperature's, until then."""
    waiting = start(tiny_algorithm(name, critic_warmup=5, **LEARNED.get(name, {})))
    began = capture(waiting.algorithm)
    waiting.update(5)
    moved = differences(began, capture(waiting.algorithm))
    roles = {role: network for role, network in waiting.algorithm.networks().items() if "target" not in role}
    critics = [role for role in roles if role.endswith("critic")]
    assert critics
    assert not any(path.startswith("policy.") or path.endswith("log_alpha") for path in moved), moved
    assert all(differences(before, capture(roles[role])) for role in critics for before in [fresh(name, role)])
    waiting.update(2)
    moved = differences(began, capture(waiting.algorithm))
    assert any(path.startswith("policy.") for path in moved)
    assert any(path.endswith("log_alpha") for path in moved) == ("temperature.log_alpha" in began)


def fresh(name: str, role: str) -> State:
    return capture(start(tiny_algorithm(name, **LEARNED.get(name, {}))).algorithm.networks()[role])


def test_critics_that_never_ask_the_policy_learn_the_same_while_it_waits() -> None:
    plain, waiting = (start(tiny_algorithm("iql", critic_warmup=updates)) for updates in (0, 5))
    for learning in (plain, waiting):
        learning.update(8)
    told = differences(capture(plain), capture(waiting))
    assert told
    assert not [path for path in told if not path.startswith(("algorithm.policy.", "algorithm.policy_optimizer."))]


def test_a_policy_that_would_only_wait_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algo\.critic_warmup: the policy would never learn: got 100, expected"):
        start(tiny_algorithm("rebrac", critic_warmup=100), updates=100)
    with pytest.raises(ConfigError, match="critic_warmup: is for policy=softmax: a greedy policy is its critics"):
        tiny_algorithm("discrete_cql", critic_warmup=1)


BEGINS_ANEW = ("optimizer", "noise", "stream", "proposals", "coin", "updates")
"""Whose paths hold moments of optimisers, random streams and counters."""


@pytest.mark.parametrize("name", LEARNERS)
def test_all_that_was_learned_can_be_handed_on(name: str) -> None:
    """Networks and multipliers are everything that moves, but for optimisers, streams and counters."""
    learner, other = (start(tiny_algorithm(name, **LEARNED.get(name, {})), seed=seed) for seed in (0, 1))
    learner.update(4)
    first, heir = learner.algorithm, other.algorithm
    start_from = {role: Part.of(part) for role, part in parts_by_role(first).items()}
    assert hand_over(heir, start_from, {}, "refuse", "the first").keys() == start_from.keys()
    left = differences(capture(first), capture(heir))
    assert [path for path in left if not any(word in path for word in BEGINS_ANEW)] == []

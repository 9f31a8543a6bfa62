"""IACT with nothing left out and every row alike is its base, to the bit (oracle O-33); new knobs, off, are nothing."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from learners import Learning, differences, start, tiny_algorithm
from understudy import Dataset, Discrete, Transitions
from understudy.core.rng import stream
from understudy.core.state import State, capture
from understudy.losses.policy import value_scale
from understudy.losses.value import bootstrap_target, mean_over
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.critic import CriticSettings, QEnsemble
from understudy.nn.distributions.gaussians import TanhGaussian
from understudy.parts.noise import Noise
from understudy.parts.optim import Adam
from understudy.parts.target import Target
from worlds import random_choices, random_dataset

UPDATES = 12
EVERYTHING: dict[str, Any] = {"keep": {"kind": "linear", "start": 1.0, "end": 1.0, "after": 0, "over": 4}}
"""Every row is chosen, one by one: the path that leaves rows out, leaving out none."""


def weighed(batch: Transitions, weight: float) -> Transitions:
    return replace(batch, extra={**batch.extra, "importance": torch.full_like(batch.reward, weight)})


def branch(learning: Learning, name: str = "a") -> dict[str, Any]:
    networks = learning.algorithm.branches[name]
    return capture({"policy": networks.policy, "critic": networks.critic, "critic_target": networks.critic_target})


@pytest.mark.parametrize("network", [{}, {"layer_norm": True, "dropout": 0.1}])
@pytest.mark.parametrize(
    "teaching",
    [
        {"keep": 1},
        EVERYTHING,
        {**EVERYTHING, "score": "adv"},
        {**EVERYTHING, "score": "td", "select_critic": True},
        {**EVERYTHING, "score": "adv", "select_critic": True},
        {**EVERYTHING, "score": "log_product", "select_critic": True},
    ],
    ids=str,
)
def test_a_branch_is_td3bc(teaching: dict[str, Any], network: dict[str, Any]) -> None:
    parent = start(tiny_algorithm("td3bc", network))
    child = start(tiny_algorithm("iact", network, teaching=teaching))
    for _ in range(UPDATES):
        told, learned = parent.update(), child.update()
    algorithm = parent.algorithm
    expected = capture(
        {"policy": algorithm.policy, "critic": algorithm.critic, "critic_target": algorithm.critic_target}
    )
    assert differences(expected, branch(child)) == []
    assert torch.equal(told["loss/actor"], learned["loss/actor_a"])
    assert torch.equal(told["loss/critic"], learned["loss/critic_a"])
    assert differences(branch(child, "a"), branch(child, "b")) != []


AS_DISCRETE_CQL: dict[str, Any] = {
    "base": "discrete_cql",
    "policy_delay": 1,
    "cloning": {"weight": 0},
    "alpha": 1.0,
    "q_norm": False,
    "entropy_weight": 0.02,
}
"""A discrete branch without cloning, and a value that is not scaled."""


@pytest.mark.parametrize("conservatism", [0.0, 1.5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "teaching", [{"keep": 1}, {**EVERYTHING, "score": "agreement", "select_critic": True}], ids=str
)
def test_a_branch_is_discrete_cql(teaching: dict[str, Any], masked: bool, conservatism: float) -> None:
    data = some_forbidden() if masked else random_choices()
    settings: dict[str, Any] = {"policy": "softmax", "alpha": conservatism, "entropy_weight": 0.02}
    network = {"init": "orthogonal"}
    parent = start(tiny_algorithm("discrete_cql", network, **settings), data)
    settings = {**AS_DISCRETE_CQL, "conservative_weight": conservatism, "teaching": teaching}
    child = start(tiny_algorithm("iact", network, **settings), data)
    for _ in range(UPDATES):
        told, learned = parent.update(), child.update()
    algorithm = parent.algorithm
    expected = capture({"policy": algorithm.policy, "critic": algorithm.critic, "critic_target": algorithm.target})
    assert differences(expected, branch(child)) == []
    assert torch.equal(told["loss/actor"], learned["loss/actor_a"])
    assert torch.equal(told["loss/critic"], learned["loss/critic_a"])
    assert differences(branch(child, "a"), branch(child, "b")) != []


def some_forbidden() -> Dataset:
    """Random choices of four, of which the fourth is legal only where it was taken, or when all is over."""
    played, episodes = random_choices(masked=True), []
    for episode in map(played.episode, range(played.episodes)):
        mask = np.ones((len(episode) + 1, 4), bool)
        mask[:-1, 3] = episode.actions == 3
        episodes.append(replace(episode, mask=mask))
    return Dataset.from_episodes(episodes, Discrete(4), name="some forbidden")


@pytest.mark.parametrize("space", ["box", "discrete"])
def test_new_knobs_that_are_off_move_no_bit_and_on_they_do(space: str) -> None:
    data = random_dataset() if space == "box" else random_choices()

    def trained(**changes: Any) -> State:
        settings: dict[str, Any] = {"teaching": {"keep": 0.8}, **changes}
        learning = start(tiny_algorithm("iact", **settings), data)
        learning.update(UPDATES)
        return capture(learning.algorithm)

    plain = trained()
    named = "mse" if space == "box" else "log_prob"
    assert differences(plain, trained(cloning={"kind": named, "confidence": 0, "confidence_bound": 3.0})) == []
    assert differences(plain, trained(base="td3bc" if space == "box" else "discrete_cql")) == []
    assert differences(plain, trained(cloning={"confidence": 1.0})) != []
    assert differences(plain, trained(teaching={"keep": 0.8, "score": "agreement"})) != []


@pytest.mark.parametrize("weight", [1.0, 2.0, 0.1, 3.3])
@pytest.mark.parametrize("base", ["td3bc", "sac_bc"])
def test_equal_weights_are_no_weights(base: str, weight: float) -> None:
    plain, even = (start(tiny_algorithm("iact", base=base, teaching={"keep": 0.8})) for _ in range(2))
    for _ in range(UPDATES):
        batch = plain.batch()
        plain.algorithm.update(batch)
        even.algorithm.update(weighed(batch, weight))
    assert differences(capture(plain.algorithm), capture(even.algorithm)) == []


@pytest.mark.parametrize("base", ["td3bc", "sac_bc"])
@pytest.mark.parametrize("score", ["log_product", "td", "adv", "random"])
def test_swapped_branches_give_swapped_results(base: str, score: str) -> None:
    config = tiny_algorithm("iact", base=base, teaching={"keep": 0.5, "score": score})
    one, other = start(config), start(config)
    branches, policy = other.algorithm.branches, other.algorithm.policy
    branches["a"], branches["b"] = branches["b"], branches["a"]
    policy.a, policy.b = policy.b, policy.a
    for _ in range(UPDATES):
        first, second = one.update(), other.update()
    assert differences(branch(one, "a"), branch(other, "b")) == []
    assert differences(branch(one, "b"), branch(other, "a")) == []
    assert torch.equal(first["loss/actor_a"], second["loss/actor_b"])
    assert torch.equal(first["selection/overlap"], second["selection/overlap"])


@dataclass
class PlainSac:
    """SAC with a behaviour-cloning term and nothing else, written down on its own."""

    policy: Actor
    critic: QEnsemble
    target: Target[QEnsemble]
    policy_optimizer: Adam
    critic_optimizer: Adam
    backup_noise: Noise
    actor_noise: Noise
    entropy_weight: float

    def update(self, data: Transitions, *, actor: bool) -> None:
        state, next_state = self.policy.perception.look(data.obs), self.policy.perception.look(data.next_obs)
        with torch.no_grad():
            q, log_prob, _ = self._drawn(next_state, self.target.network, self.backup_noise)
            value = q - self.entropy_weight * log_prob if self.entropy_weight else q
        y = bootstrap_target(data.reward, 0.99, data.terminated, value)
        error = (self.critic(state, data.action) - y).square()
        self.critic_optimizer.minimise(mean_over(error, data.extra["td_valid"]).sum(), 3e-4)
        if not actor:
            return
        q, log_prob, features = self._drawn(state, self.critic, self.actor_noise)
        distance = (self.policy.distribution.mode(features) - data.action).square().mean(-1)
        soft = q - self.entropy_weight * log_prob if self.entropy_weight else q
        loss = (distance - 2.5 * value_scale(q) * soft).mean()
        self.policy_optimizer.minimise(loss, 3e-4)
        self.target.follow(self.critic, 0.005)

    def _drawn(self, state: Tensor, critic: QEnsemble, noise: Noise) -> tuple[Tensor, Tensor, Tensor]:
        features = self.policy.features(state)
        action, log_prob = TanhGaussian.draw(features, noise.normal(len(state), features.shape[-1] // 2))
        return critic.frozen(state, action).amin(0), log_prob, features


@pytest.mark.parametrize("entropy_weight", [0.0, 0.1])
@pytest.mark.parametrize("teaching", [EVERYTHING, {**EVERYTHING, "score": "nll", "select_critic": True}], ids=str)
def test_a_branch_is_sac_with_cloning(entropy_weight: float, teaching: dict[str, Any]) -> None:
    data = random_dataset()
    config = tiny_algorithm("iact", base="sac_bc", teaching=teaching, entropy_weight=entropy_weight)
    child = start(config, data, seed=3)
    shape: dict[str, Any] = {"hidden": [16, 16], "init": "default"}
    policy = Actor(data.spec, ActorSettings.parse({**shape, "distribution": "tanh_gaussian"}), stream(3, "init/actor"))
    policy.perception.fit(data.moments(), data.steps)
    settings, rng = CriticSettings.parse(shape), stream(3, "init/critic")
    critic = QEnsemble(data.spec, settings, rng, perception=policy.perception)
    plain = PlainSac(
        policy,
        critic,
        Target.of(critic),
        Adam.over(policy.parameters()),
        Adam.over(critic.parameters()),
        Noise.named(3, "noise/backup"),
        Noise.named(3, "noise/actor"),
        entropy_weight,
    )
    for number in range(1, UPDATES + 1):
        batch = child.batch()
        child.algorithm.update(batch)
        plain.update(batch, actor=number % 2 == 0)
    expected = capture({"policy": plain.policy, "critic": plain.critic, "critic_target": plain.target})
    assert differences(expected, branch(child)) == []

"""Offline learners with memory, images, segments and roles."""

from typing import Any

import numpy as np
import pytest
import torch

from learners import CPU, NORMALIZED, Learning, differences, source_of, start, tiny_algorithm
from understudy import Box, Dataset, Discrete, Episode
from understudy.algorithms import find_algorithm
from understudy.core.errors import ConfigError
from understudy.core.protocols import MAIN, BuildContext
from understudy.core.settings import Settings
from understudy.core.spec import Spec
from understudy.core.state import capture
from understudy.data.experience import LoggedExperience
from understudy.nn.perception import Seen

STEPS, CUES = 8, 4
GRU = {"kind": "gru", "units": 16}
SEGMENTS = {"state": {"useful": (0, 2), "noise": (2, 5)}}
CONV = {"kind": "conv", "layers": [{"channels": 4, "kernel": 3, "stride": 2}], "size": 16, "hidden": [16]}


def built(config: Settings, dataset: Dataset, spec: Spec | None = None, updates: int = 300) -> Any:
    context = BuildContext(spec or dataset.spec, updates, 0, CPU, data={MAIN: LoggedExperience.of(dataset, NORMALIZED)})
    return find_algorithm(config.model_dump()["name"]).build(config, context)


def recall() -> Dataset:
    """The first observation says which action is right in every step after it; the others say nothing."""
    rng = np.random.default_rng(0)

    def episode() -> Episode:
        cue = int(rng.integers(CUES))
        state = rng.standard_normal((STEPS + 1, CUES)).astype(np.float32)
        state[0] = 4.0 * np.eye(CUES, dtype=np.float32)[cue]
        return Episode(
            {"state": state}, np.full(STEPS, cue), np.zeros(STEPS, np.float32), terminated=False, truncated=True
        )

    return Dataset.from_episodes((episode() for _ in range(60)), Discrete(CUES))


def recalled(policy: Any) -> float:
    """The share of right actions in steps after the first, one step at a time."""
    right = []
    for cue in range(CUES):
        carry = policy.initial(20)
        rng = torch.Generator().manual_seed(cue)
        for t in range(STEPS):
            state = torch.randn(20, CUES, generator=rng)
            obs = {"state": 4.0 * torch.eye(CUES)[cue].expand(20, -1) if t == 0 else state}
            action, carry = policy.act(obs, carry, greedy=True)
            if t > 0:
                right.append(float((action == cue).float().mean()))
    return float(np.mean(right))


def test_a_clone_with_memory_recalls_what_it_saw_first_and_one_without_cannot() -> None:
    dataset = recall()
    config = tiny_algorithm("bc", learning_rate=1e-2, actor={"hidden": [16], "memory": GRU})
    assert find_algorithm("bc").needs(config).sources == ("sequences", "interactive")
    algorithm = built(config, dataset)
    source = source_of("sequences", dataset, algorithm.demand, batch_size=16, length=STEPS, starts="episode")
    for _ in range(150):
        algorithm.update(source.next(algorithm.policy))
    assert recalled(algorithm.policy) > 0.95
    forgetful = start(tiny_algorithm("bc", learning_rate=1e-2, actor={"hidden": [16]}), dataset)
    forgetful.update(150)
    assert recalled(forgetful.algorithm.policy) < 0.5


def test_steps_behind_an_episodes_end_are_not_learned_from() -> None:
    dataset, config = recall(), tiny_algorithm("bc", actor={"hidden": [16], "memory": GRU})
    one, other = (built(config, dataset) for _ in range(2))
    batch = source_of("sequences", dataset, one.demand, batch_size=8, length=STEPS + 3, starts="episode").next(
        one.policy
    )
    assert not bool(batch.valid.all())
    spoilt = torch.where(batch.valid, batch.action, (batch.action + 1) % CUES)
    one.update(batch)
    other.update(type(batch)(batch.obs, spoilt, *(getattr(batch, name) for name in batch.__slots__[2:])))
    assert differences(capture(one), capture(other)) == []


def pictures() -> Dataset:
    """A bright bar in the left or the right half of a small image says what to do."""
    rng = np.random.default_rng(0)

    def episode() -> Episode:
        side = rng.integers(0, 2, 11)
        image = rng.integers(0, 60, (11, 1, 8, 10)).astype(np.uint8)
        for row, half in enumerate(side):
            column = int(rng.integers(0, 4)) + 6 * int(half)
            image[row, 0, :, column] = 250
        state = rng.standard_normal((11, 2)).astype(np.float32)
        return Episode(
            {"pixels": image, "state": state}, side[:10], np.zeros(10, np.float32), terminated=False, truncated=True
        )

    return Dataset.from_episodes((episode() for _ in range(40)), Discrete(2))


def test_a_clone_learns_from_images() -> None:
    dataset = pictures()
    learning = start(
        tiny_algorithm("bc", learning_rate=3e-3, actor={"hidden": [16], "encoders": {"pixels": CONV}}), dataset
    )
    learning.update(150)
    rows = dataset.rows(torch.arange(dataset.steps), learning.algorithm.demand)
    found, _ = learning.algorithm.policy.act(rows.obs, (), greedy=True)
    assert float((found == rows.action).float().mean()) > 0.95
    with pytest.raises(ConfigError, match=r"algo\.actor\.sees: 'pixels' .* Say algo\.actor\.encoders=\{pixels: \{kind"):
        start(tiny_algorithm("bc"), dataset)


def bandit() -> Dataset:
    """One step an episode. The reward of an action depends on a segment of the state and on an image; some of the data
    is good."""
    rng = np.random.default_rng(0)

    def episode() -> Episode:
        state = rng.standard_normal((2, 5)).astype(np.float32)
        image = rng.integers(0, 40, (2, 1, 6, 6)).astype(np.uint8)
        bright = bool(rng.integers(2))
        image[0, 0, 2:4] = 250 if bright else 90
        best = np.float32(0.4 * np.sign(state[0, 0]) + (0.4 if bright else -0.4))
        action = rng.uniform(-1, 1, (1, 1)).astype(np.float32)
        reward = -3.0 * np.abs(action[0] - best)
        return Episode(
            {"state": state, "camera": image}, action, reward.astype(np.float32), terminated=True, truncated=False
        )

    return Dataset.from_episodes((episode() for _ in range(600)), Box((-1.0,), (1.0,)))


ROLE = {"hidden": [32], "sees": ["state.useful", "camera"], "encoders": {"camera": {**CONV, "size": 8}}}


@pytest.mark.parametrize("share", [False, True])
def test_iql_learns_from_a_segment_and_an_encoded_image(share: bool) -> None:
    dataset = bandit()
    spec = dataset.spec.with_segments(SEGMENTS)
    rates: dict[str, Any] = {f"{role}_learning_rate": 3e-3 for role in ("actor", "critic", "value")}
    config = tiny_algorithm("iql", actor=ROLE, critic={**ROLE, "share_encoder": share}, beta=5.0, polyak=0.05, **rates)
    algorithm = built(config, dataset, spec)
    learning = Learning(algorithm, source_of("offline", dataset, algorithm.demand, batch_size=64))
    learning.update(250)
    rows = dataset.rows(torch.arange(dataset.steps), algorithm.demand)
    found, _ = algorithm.policy.act(rows.obs, (), greedy=True)
    bright = rows.obs["camera"][:, 0, 2, 0] > 200
    best = 0.4 * rows.obs["state"][:, 0].sign() + torch.where(bright, 0.4, -0.4)
    assert float((found[:, 0] - best).abs().mean()) < 0.25
    blind = {**rows.obs, "state": torch.cat([rows.obs["state"][:, :2], torch.zeros(dataset.steps, 3)], 1)}
    assert torch.equal(algorithm.policy.act(blind, (), greedy=True)[0], found), "it does not see the noise"


def encoder_of(network: Any) -> torch.Tensor:
    (encoder,) = network.perception.encoders.values()
    first: torch.Tensor = next(iter(encoder.parameters())).detach()
    return first


def test_a_shared_encoder_is_trained_by_the_critics_loss_alone_and_copied_by_the_target() -> None:
    dataset = bandit()
    spec = dataset.spec.with_segments(SEGMENTS)
    for share in (True, False):
        config = tiny_algorithm("iql", actor=ROLE, critic={**ROLE, "share_encoder": share})
        algorithm = built(config, dataset, spec)
        policy, critic, target = algorithm.policy, algorithm.critic, algorithm.target.network
        assert encoder_of(critic).data_ptr() != encoder_of(target).data_ptr()
        assert torch.equal(encoder_of(critic), encoder_of(target))
        assert (encoder_of(policy).data_ptr() == encoder_of(critic).data_ptr()) == share
        batch = source_of("offline", dataset, algorithm.demand, batch_size=32).next(policy)
        state = Seen(batch.obs).by(policy)
        assert state.requires_grad != share, "the actor sees a shared encoder detached"
        trained = {id(parameter) for parameter in algorithm.policy_optimizer.parameters}
        assert (id(next(iter(critic.perception.encoders.parameters()))) in trained) is False
        before = encoder_of(target).clone()
        algorithm.update(batch)
        assert not torch.equal(encoder_of(target), before), "a target follows its critic's encoder, too"


def test_a_critic_may_see_what_the_policy_does_not() -> None:
    dataset = bandit()
    spec = dataset.spec.with_segments(SEGMENTS)
    narrow = {"hidden": [16], "sees": ["state.useful"]}
    algorithm = built(tiny_algorithm("td3bc", actor=narrow, critic={"hidden": [16], "sees": ["state"]}), dataset, spec)
    batch = source_of("offline", dataset, algorithm.demand, batch_size=32).next(algorithm.policy)
    algorithm.update(batch)
    changed = {**batch.obs, "state": batch.obs["state"] + torch.tensor([0.0, 0, 1, 1, 1])}
    here, there = (Seen(obs) for obs in (batch.obs, changed))
    policy, critic = algorithm.policy, algorithm.critic
    assert torch.equal(policy.greedy(here.by(policy)), policy.greedy(there.by(policy)))
    with torch.no_grad():
        assert not torch.equal(critic(here.by(critic), batch.action), critic(there.by(critic), batch.action))


def test_what_is_seen_alike_is_looked_at_once() -> None:
    algorithm = start(tiny_algorithm("iql")).algorithm
    shared = {id(network.perception) for network in algorithm.networks().values()}
    assert len(shared) == 1
    apart = start(tiny_algorithm("iql", critic={"hidden": [16], "normalizer": {"clip": 5.0}})).algorithm
    assert apart.policy.perception is not apart.critic.perception
    assert apart.critic.perception is apart.value.perception is apart.target.network.perception


@pytest.mark.parametrize(
    "name", ["iql", "ciql", "cql", "td3bc", "rebrac", "iact", "discrete_cql", "sac", "redq", "discrete_sac"]
)
def test_memory_is_refused_with_a_sentence_by_those_who_learn_values(name: str) -> None:
    for role in ("actor", "critic"):
        if (name, role) == ("discrete_cql", "actor"):  # a greedy policy is its critics
            continue
        with pytest.raises(ConfigError, match=rf"algo\.{role}\.memory: this algorithm learns from single steps"):
            start(tiny_algorithm(name, **{role: {"hidden": [16], "memory": GRU}}))


def test_hidden_columns_are_left_out_of_every_network() -> None:
    dataset = bandit()
    hidden = NORMALIZED.model_copy(update={"hide_columns": {"state": (-1, 2)}})
    context = BuildContext(dataset.spec, 100, 0, CPU, data={MAIN: LoggedExperience.of(dataset, hidden)})
    plain = {"hidden": [16], "sees": ["state"]}
    algorithm: Any = find_algorithm("iql").build(tiny_algorithm("iql", actor=plain, critic=plain), context)
    assert algorithm.policy.perception.size == algorithm.critic.perception.size == 3
    assert algorithm.policy.settings.hide == {"state": (2, 4)}
    obs = {"state": torch.randn(9, 5), "camera": torch.zeros(9, 1, 6, 6)}
    changed = {**obs, "state": obs["state"] + torch.tensor([0.0, 0, torch.inf, 0, 7])}
    assert torch.equal(*(algorithm.policy.act(one, (), greedy=True)[0] for one in (obs, changed)))

"""What the updates of TD3+BC and ReBRAC read, proved by changing one thing and looking at who notices."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from learners import Learning, differences, start, tiny_algorithm
from understudy.core.errors import ConfigError
from understudy.core.state import capture
from understudy.nn.actor import Actor

BOTH = pytest.mark.parametrize("name", ["td3bc", "rebrac"])
NETWORK = {"init": "default", "layer_norm": False}
VALUES = {"critic_penalty": 0.3}
"""A penalty of the critics that can be seen."""


def weights(learning: Learning, network: str) -> Tensor:
    """Every number that is trained in a network, as it is now."""
    return torch.cat([parameter.detach().flatten() for parameter in getattr(learning.algorithm, network).parameters()])


def fresh(name: str, **changes: Any) -> Learning:
    return start(tiny_algorithm(name, NETWORK, **changes))


@BOTH
@pytest.mark.parametrize("delay", [1, 2, 3])
def test_the_actor_moves_when_it_is_its_turn_and_the_critics_always(name: str, delay: int) -> None:
    learning = fresh(name, policy_delay=delay)
    for number in range(1, 8):
        before = {network: weights(learning, network) for network in ("policy", "critic")}
        metrics = learning.update()
        moved = {network: not torch.equal(old, weights(learning, network)) for network, old in before.items()}
        assert moved == {"policy": number % delay == 0, "critic": True}
        assert ("loss/actor" in metrics) == (number % delay == 0)
    assert learning.algorithm.updates == 7


@BOTH
@pytest.mark.parametrize("done", [1, 2])
def test_a_restored_learner_knows_whose_turn_it_is(name: str, done: int) -> None:
    old, new = fresh(name), fresh(name)
    old.update(done)
    new.algorithm.updates, new.source.sampler.drawn = old.algorithm.updates, old.source.sampler.drawn
    assert old.algorithm.turn().__name__ == new.algorithm.turn().__name__
    assert "updates" in capture(old.algorithm)


def changed_critic(name: str, member: int, by: float, network: str = "critic", **changes: Any) -> Learning:
    """One update of everything after one critic's output was raised by so much everywhere."""
    learning = fresh(name, policy_delay=1, **changes)
    critic = learning.algorithm.critic if network == "critic" else learning.algorithm.critic_target.network
    critic.trunk.layers()[-1].bias[member] += by
    learning.update()
    return learning


def test_td3bc_climbs_the_first_critic() -> None:
    plain, other = changed_critic("td3bc", 1, 0.0), changed_critic("td3bc", 1, 50.0)
    assert torch.equal(weights(plain, "policy"), weights(other, "policy"))
    assert not torch.equal(weights(plain, "policy"), weights(changed_critic("td3bc", 0, 50.0), "policy"))


def test_rebrac_climbs_the_smaller_critic() -> None:
    for member in (0, 1):
        high, higher = (changed_critic("rebrac", member, by, normalize_q=False) for by in (1e3, 2e3))
        assert torch.equal(weights(high, "policy"), weights(higher, "policy"))
    low = changed_critic("rebrac", 0, -1e3, normalize_q=False)
    assert not torch.equal(weights(high, "policy"), weights(low, "policy"))


@BOTH
def test_only_the_smaller_target_critic_counts(name: str) -> None:
    for member in (0, 1):
        high, higher = (changed_critic(name, member, by, "critic_target") for by in (1e3, 2e3))
        assert torch.equal(weights(high, "critic"), weights(higher, "critic"))
    low = changed_critic(name, 0, -1e3, "critic_target")
    assert not torch.equal(weights(high, "critic"), weights(low, "critic"))


@BOTH
def test_target_actions_come_from_the_target_actor(name: str) -> None:
    def critics_after(change: Callable[[Any], Actor]) -> Tensor:
        learning = fresh(name)
        change(learning.algorithm).trunk.layers()[-1].bias.add_(1.0)
        learning.update()
        return weights(learning, "critic")

    plain = fresh(name)
    plain.update()
    assert torch.equal(weights(plain, "critic"), critics_after(lambda algorithm: algorithm.policy))
    assert not torch.equal(weights(plain, "critic"), critics_after(lambda algorithm: algorithm.policy_target.network))


def updated(name: str, change: dict[str, Any], extra: dict[str, Tensor], **settings: Any) -> Learning:
    learning = fresh(name, **settings)
    batch = learning.batch()
    learning.algorithm.update(replace(batch, extra={**batch.extra, **extra}, **change))
    return learning


@BOTH
def test_rows_without_a_successor_are_left_out_of_the_critics(name: str) -> None:
    batch = fresh(name).batch()
    half = torch.arange(len(batch.reward)) % 2 == 0
    garbage = {"reward": torch.where(half, batch.reward, 1e6)}
    clean, dirty = (updated(name, change, {"td_valid": half}) for change in ({}, garbage))
    assert torch.equal(weights(clean, "critic"), weights(dirty, "critic"))
    everywhere = updated(name, garbage, {"td_valid": torch.ones_like(half)})
    assert not torch.equal(weights(dirty, "critic"), weights(everywhere, "critic"))


@BOTH
def test_a_terminal_row_ignores_its_successor_and_a_cut_one_does_not(name: str) -> None:
    batch = fresh(name).batch()
    elsewhere = {"next_obs": {"state": batch.next_obs["state"] + 10}}
    for terminated in (True, False):
        flags = {"terminated": torch.full_like(batch.terminated, terminated)}
        here, there = (updated(name, {**flags, **change}, {}) for change in ({}, elsewhere))
        assert torch.equal(weights(here, "critic"), weights(there, "critic")) == terminated


def test_a_next_action_of_another_episode_is_never_looked_at() -> None:
    batch = fresh("rebrac").batch()
    known = torch.arange(len(batch.reward)) % 2 == 0
    other = torch.where(known.unsqueeze(1), batch.extra["next_action"], 77.0)
    clean, dirty = (
        updated("rebrac", {}, {"next_action_valid": known, "next_action": action}, **VALUES)
        for action in (batch.extra["next_action"], other)
    )
    assert torch.equal(weights(clean, "critic"), weights(dirty, "critic"))
    everywhere = updated("rebrac", {}, {"next_action_valid": torch.ones_like(known), "next_action": other}, **VALUES)
    assert not torch.equal(weights(dirty, "critic"), weights(everywhere, "critic"))


def test_the_last_step_of_an_episode_has_no_next_action() -> None:
    """120 steps in episodes of 20: one row in twenty."""
    learning = start(tiny_algorithm("rebrac"), batch_size=4096)
    assert float(learning.batch().extra["next_action_valid"].float().mean()) == pytest.approx(0.95, abs=0.01)


def test_the_penalty_lowers_the_target_by_itself() -> None:
    """Mean target without β₂ minus with it is γ·β₂·mean d' where the data has a next action."""
    first = {penalty: fresh("rebrac", critic_penalty=penalty, gamma=0.9).update() for penalty in (0.0, 0.3)}
    learning = fresh("rebrac")
    share = float(learning.batch().extra["next_action_valid"].float().mean())
    lowered = float(first[0.0]["value/target"] - first[0.3]["value/target"])
    assert lowered == pytest.approx(0.9 * share * float(first[0.3]["value/penalty"]), rel=1e-4)
    assert lowered > 0.05


@BOTH
def test_the_critics_do_not_learn_from_the_climb(name: str) -> None:
    """The actor's step leaves no trace in the critics: only its later actions in the target do."""
    slow, fast = (fresh(name, policy_delay=1, actor_learning_rate=rate) for rate in (1e-5, 1e-2))
    for learning in (slow, fast):
        learning.update()
    assert torch.equal(weights(slow, "critic"), weights(fast, "critic"))
    assert not torch.equal(weights(slow, "policy"), weights(fast, "policy"))


@BOTH
def test_noise_has_a_stream_of_its_own(name: str) -> None:
    """Neither rows nor first weights depend on it."""
    quiet, loud = (fresh(name, target_noise=std) for std in (0.0, 0.4))
    assert differences(capture(quiet), capture(loud)) == []
    for learning in (quiet, loud):
        learning.update()
    assert torch.equal(quiet.batch().action, loud.batch().action)
    assert not torch.equal(weights(quiet, "critic"), weights(loud, "critic"))


@BOTH
@pytest.mark.parametrize(
    "setting",
    [
        {"policy_delay": 0},
        {"policy_delay": 1.5},
        {"target_noise": -0.1},
        {"target_noise_clip": -1},
        {"polyak": 0},
        {"gamma": 1.1},
        {"actor": {"distribution": "tanh_mean_gaussian"}},
    ],
    ids=str,
)
def test_settings_that_mean_nothing_are_refused(name: str, setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        tiny_algorithm(name, **setting)


@pytest.mark.parametrize(
    ("name", "setting"),
    [("td3bc", {"alpha": -1}), ("rebrac", {"actor_penalty": -1}), ("rebrac", {"policy_critic": "mean"})],
)
def test_own_settings_that_mean_nothing_are_refused(name: str, setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        tiny_algorithm(name, **setting)

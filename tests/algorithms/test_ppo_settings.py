"""What PPO's settings do, each by itself: in closed form, or by what it leaves as it was."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from learners import differences
from rollouts import build_ppo
from understudy.algorithms import ppo
from understudy.core.batch import Rollout
from understudy.core.errors import ConfigError
from understudy.core.state import State, capture, restore
from understudy.envs.vector.local import LocalVectorEnv
from understudy.losses.surrogate import estimated_kl
from understudy.parts.ppo.batch import Tally
from understudy.sources.rollout import RolloutSource

COUNT = 4
WORLD = LocalVectorEnv("Pendulum-v1", COUNT)
ROLE = {"hidden": [16]}


def number(leaf: object) -> float:
    assert isinstance(leaf, Tensor)
    return float(leaf)


def make(**settings: Any) -> ppo.PPO:
    small = {"actor": ROLE, "critic": ROLE, "epochs": 2, "minibatches": 3, "schedule": "constant"}
    return build_ppo(WORLD.spec, COUNT, **{**small, **settings})


@pytest.fixture(scope="module")
def rollouts() -> list[Rollout]:
    """Of a policy as it is at first."""
    policy = make().policy
    source = RolloutSource.build(WORLD, policy, 24, 0)
    return [source.next(policy) for _ in range(3)]


@pytest.fixture(params=["fused", "plain"])
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(ppo, "fused_steps_for", lambda learner, batch: None)


def learned(rollouts: list[Rollout], **settings: Any) -> State:
    algorithm = make(**settings)
    for rollout in rollouts:
        algorithm.update(rollout)
    return capture(algorithm)


def apart(one: State, other: State, path: str) -> float:
    """The largest difference of two tensors."""
    return float((torch.as_tensor(one[path]) - torch.as_tensor(other[path])).abs().max())


def part(state: State, name: str) -> State:
    return {path: leaf for path, leaf in state.items() if path.startswith(name)}


@pytest.mark.usefixtures("_path")
def test_a_clip_that_falls_is_at_every_update_the_share_that_is_left(rollouts: list[Rollout]) -> None:
    falling = make(clip=0.05, clip_schedule="linear", learning_rate=1e-2)
    for done, rollout in enumerate(rollouts):
        steady = make(clip=0.05 * (1.0 - done / 10), learning_rate=1e-2)
        restore(steady, capture(falling), "test")
        other = make(clip=0.05, learning_rate=1e-2)
        restore(other, capture(falling), "test")
        for algorithm in (falling, steady, other):
            algorithm.update(rollout)
        assert differences(capture(falling), capture(steady)) == []
        assert bool(differences(capture(falling), capture(other))) == (done > 0)
    falling.updates = 12
    assert falling.clip == 0.0


@pytest.mark.usefixtures("_path")
def test_a_critic_with_its_own_step_size(rollouts: list[Rollout]) -> None:
    for schedule in ("constant", "linear"):
        common = learned(rollouts, schedule=schedule)
        same = learned(rollouts, schedule=schedule, critic_learning_rate=1e-3)
        assert differences(common, same) == ["rates.value"]
        common, other = (learned(rollouts[:1], schedule=schedule, critic_learning_rate=rate) for rate in (None, 3e-3))
        assert differences(part(common, "policy"), part(other, "policy")) == []
        assert differences(part(common, "value"), part(other, "value")) == ["value.trunk.flat"]
    other = learned(rollouts, schedule="linear", critic_learning_rate=3e-3)
    assert number(other["rates.value"]) == pytest.approx(3e-3 * 0.8), "the third of ten updates"
    adaptive = learned(rollouts, schedule="adaptive", critic_learning_rate=3e-3)
    assert number(adaptive["rates.value"]) == 3e-3
    assert number(adaptive["rates.policy"]) != 1e-3


def test_a_critic_that_shares_parameters_has_no_step_size_of_its_own() -> None:
    memory = {**ROLE, "memory": {"kind": "gru", "units": 4}}
    with pytest.raises(ConfigError, match=r"algo\.critic_learning_rate: the critic shares parameters"):
        make(actor=memory, critic={**memory, "share_memory": True}, critic_learning_rate=1e-3)


def test_truth_about_advantages_is_what_it_was() -> None:
    for given, meant in ((True, "rollout"), (False, "none"), ("minibatch", "minibatch")):
        assert ppo.Config.parse({"normalize_advantage": given}).normalize_advantage == meant
    for wrong in ("minibatches", 1, None):
        with pytest.raises(ConfigError, match=r"normalize_advantage: wrong value.*'rollout', 'minibatch' or 'none'"):
            ppo.Config.parse({"normalize_advantage": wrong})
    with pytest.raises(ConfigError, match=r"epochs: wrong value: got true"):
        ppo.Config.parse({"epochs": True})


@pytest.mark.usefixtures("_path")
def test_advantages_over_one_minibatch_are_those_over_the_rollout(rollouts: list[Rollout]) -> None:
    kinds = ("rollout", "minibatch", "none")
    whole, single, none = (learned(rollouts, minibatches=1, normalize_advantage=kind) for kind in kinds)
    flat = "policy.trunk.flat"
    assert apart(whole, single, flat) < 1e-5
    assert apart(whole, none, flat) > 1e-3
    whole, parts = (learned(rollouts, normalize_advantage=kind) for kind in kinds[:2])
    assert apart(whole, parts, flat) > 1e-4, "of several minibatches each has its own mean"


def test_an_update_stops_before_the_first_step_that_begins_too_far_away(
    rollouts: list[Rollout], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it is the update without a limit; the critic stops with the actor."""
    tallies: list[Tally] = []

    def tally() -> Tally:
        tallies.append(Tally())
        return tallies[-1]

    monkeypatch.setattr(ppo, "Tally", tally)
    settings: dict[str, Any] = {"learning_rate": 3e-3, "epochs": 4}
    free = learned(rollouts[:1], **settings, early_stop_kl=1e6)
    with monkeypatch.context() as patch:
        patch.setattr(ppo, "fused_steps_for", lambda learner, batch: None)
        assert differences(free, learned(rollouts[:1], **settings)) == []
    kls = [float(estimated_kl(ratios)) for ratios in tallies[-1].log_ratios]
    assert len(kls) == 12
    for limit in (1e-12, 0.5 * max(kls)):
        stopped = learned(rollouts[:1], **settings, early_stop_kl=limit)
        steps = next(number for number, kl in enumerate(kls) if number and kl > limit)
        assert 0 < steps < 12
        assert [number(stopped[f"optimizers.{network}.count"]) for network in ("policy", "value")] == [steps, steps]


@pytest.mark.usefixtures("_path")
def test_normalised_rewards_have_no_unit(rollouts: list[Rollout]) -> None:
    """Paid in cents or in thousands, the same is learned; without it, it is not."""
    paid = [[_paid(rollout, unit) for rollout in rollouts] for unit in (0.25, 1024.0)]
    one, other = (learned(each, normalize_reward=True) for each in paid)
    raw, raw_other = (learned(each) for each in paid)
    for network in ("policy", "value"):
        assert apart(one, other, f"{network}.trunk.flat") < 1e-5
    assert apart(raw, raw_other, "value.trunk.flat") > 1e-3
    assert "reward_normalizer.0.paid" in one.keys() - raw.keys()


def _paid(rollout: Rollout, unit: float) -> Rollout:
    return replace(rollout, reward=unit * rollout.reward)


def test_a_target_that_nothing_aims_at_is_an_error() -> None:
    for schedule in ("constant", "linear"):
        with pytest.raises(
            ConfigError, match=rf"target_kl=0\.02 is what .* the schedule is {schedule}: .*early_stop_kl"
        ):
            ppo.Config.parse({"schedule": schedule, "target_kl": 0.02}, "algo")
        ppo.Config.parse({"schedule": schedule, "target_kl": 0.01}, "algo")  # as a run's own file says it
    assert ppo.Config.parse({"target_kl": 0.02}).target_kl == 0.02


def test_neither_network_drops_units() -> None:
    """The first ratio would not be 1, and advantages would be of another critic than the one that learns."""
    for role in ("actor", "critic"):
        told = rf"algo\.{role}\.dropout: PPO compares what its networks thought.*got 0\.1, expected 0\. A stage before"
        with pytest.raises(ConfigError, match=told):
            make(**{role: {**ROLE, "dropout": 0.1}})
        make(**{role: {**ROLE, "dropout": 0.0}})

"""PPO's update: what it begins with, what it leaves alone, and that it learns."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from learners import differences
from rollouts import build_ppo
from understudy import evaluate_policy
from understudy.algorithms.ppo import PPO, Config
from understudy.core.batch import Rollout
from understudy.core.errors import ConfigError
from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.envs.vector.local import LocalVectorEnv
from understudy.losses.surrogate import adapted_rate
from understudy.nn.distributions import ActionEvaluation
from understudy.parts.optim import Adam, clipped_step
from understudy.parts.parallel import run_both
from understudy.parts.ppo import fused_steps
from understudy.sources.rollout import RolloutSource

TRUNK = {"hidden": [32, 32], "activation": "tanh"}


def learner(
    env: str, count: int, steps: int, memory: dict[str, Any] | None = None, share: bool = False, **settings: Any
) -> tuple[PPO, RolloutSource]:
    world = LocalVectorEnv(env, count)
    role = {**TRUNK, **({"memory": memory} if memory else {})}
    ppo = build_ppo(world.spec, count, actor=role, critic={**role, "share_memory": share}, **settings)
    return ppo, RolloutSource.build(world, ppo.policy, steps, 0)


@pytest.mark.parametrize("memory", [None, {"kind": "gru", "units": 8}, {"kind": "lstm", "units": 8}])
@pytest.mark.parametrize("share", [False, True])
def test_the_first_ratio_is_one_with_normaliser_and_memory(memory: dict[str, Any] | None, share: bool) -> None:
    """Also in the second rollout, whose normalisers have seen the first one, and whose memory is not empty."""
    ppo, source = learner("Pendulum-v1", 4, 24, memory, share, epochs=2)
    for _ in range(3):
        rollout = source.next(ppo.policy)
        judged = ppo.policy.evaluate(rollout.obs, rollout.carry, rollout.resets, rollout.action)
        assert torch.allclose(judged.log_prob, rollout.log_prob, atol=2e-6)
        ppo.update(rollout)


@pytest.mark.parametrize("kind", ["none", "gru", "lstm"])
@pytest.mark.parametrize("schedule", ["linear", "adaptive"])
def test_side_by_side_the_networks_learn_what_they_learn_one_after_the_other(
    schedule: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_after_the_other(one: Callable[[], object], other: Callable[[], object]) -> None:
        one()
        other()

    after = []
    for at_once in (True, False):
        monkeypatch.setattr(fused_steps, "run_both", run_both if at_once else one_after_the_other)
        ppo, source = learner("Pendulum-v1", 4, 24, {"kind": kind, "units": 8}, schedule=schedule, epochs=2)
        for _ in range(3):
            ppo.update(source.next(ppo.policy))
        after.append([*ppo.policy.state_dict().values(), *ppo.value.state_dict().values()])
    assert all(torch.equal(*pair) for pair in zip(*after, strict=True))


def test_what_only_started_an_episode_is_not_learned_from() -> None:
    """Poisoned where `valid` is False: nothing notices."""
    states = []
    for poison in (0.0, 1e6):
        ppo, source = learner("Pendulum-v1", 4, 16, epochs=2)
        rollout = source.next(ppo.policy)
        valid, truncated = torch.ones_like(rollout.valid), rollout.truncated.clone()
        valid[5, 1] = valid[11, 3] = False
        truncated[4, 1] = truncated[10, 3] = True
        columns = {name: getattr(rollout, name) for name in Rollout.__slots__}
        poisoned = {"valid": valid, "truncated": truncated, "reward": torch.where(valid, rollout.reward, poison)}
        ppo.update(Rollout(**{**columns, **poisoned}))
        states.append(capture(ppo))
    assert differences(*states) == []


def test_an_update_is_repeatable_from_its_state() -> None:
    ppo, source = learner("Pendulum-v1", 4, 16, {"kind": "gru", "units": 8}, epochs=2)
    ppo.update(source.next(ppo.policy))
    rollout, before = source.next(ppo.policy), capture(ppo)
    ppo.update(rollout)
    first = capture(ppo)
    restore(ppo, before, "test")
    ppo.update(rollout)
    assert differences(first, capture(ppo)) == []
    assert {"rates.policy", "updates"} <= before.keys()


def test_a_linear_rate_reaches_its_end_with_the_planned_updates() -> None:
    ppo, source = learner("Pendulum-v1", 1, 4, learning_rate=0.5, schedule="linear", epochs=1)
    told = [float(ppo.update(source.next(ppo.policy)).metrics["policy/learning_rate"]) for _ in range(12)]
    assert told == pytest.approx([0.5 - 0.05 * done for done in range(10)] + [0.0, 0.0])


def test_the_rate_falls_where_the_policy_moved_too_far_and_rises_where_too_little() -> None:
    rate = torch.tensor(1e-3, dtype=torch.float64)
    for kl, expected in ((0.03, 1e-3 / 1.5), (0.01, 1e-3 / 1.5), (0.001, 1e-3), (0.0, 1e-3), (1.0, 1e-3 / 1.5)):
        rate = adapted_rate(rate, torch.tensor(kl), 0.01)
        assert float(rate) == pytest.approx(expected)
    for _ in range(30):
        rate = adapted_rate(rate, torch.tensor(1.0), 0.01)
    assert float(rate) == pytest.approx(1e-5)


@pytest.mark.parametrize("memory", [None, {"kind": "gru", "units": 8}])
def test_before_the_first_step_there_is_nothing_to_adapt_to(memory: dict[str, Any] | None) -> None:
    """There KL(before‖now) is rounding, of either sign, here magnified: that it is above 0 must not matter."""
    for count, factor in ((1, 1.0), (2, 1.5)):
        settings: dict[str, Any] = {"epochs": 1, "minibatches": count, "learning_rate": 1e-4}
        ppo, source = learner("Pendulum-v1", 4, 24, memory, **settings)
        evaluate = ppo.policy.evaluate

        def rounded(*given: Any, evaluate: Callable[..., ActionEvaluation] = evaluate) -> ActionEvaluation:
            judged = evaluate(*given)
            return judged._replace(features=judged.features + 1e-3)

        ppo.policy.evaluate = rounded  # type: ignore[assignment, method-assign]
        for done in range(1, 4):
            metrics = ppo.update(source.next(ppo.policy)).metrics
            assert 0 < float(metrics["policy/kl"]) < 1e-3
            assert float(ppo.rates["policy"]) == pytest.approx(1e-4 * factor**done)


def test_gradients_are_cut_to_their_limit() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    adam = Adam.over([parameter])
    adam.minimise((parameter * torch.tensor([3.0, 4.0, 0.0])).sum(), 1e-3, max_norm=1.0)
    assert float(adam.norm) == pytest.approx(5.0)
    assert adam.first_moments[0].tolist() == pytest.approx([0.06, 0.08, 0.0])


@pytest.mark.parametrize("largest", [0.1, 100.0])
def test_a_step_for_the_compiler_is_adams_own_to_the_bit(largest: float) -> None:
    rng, rate = stream(0, "step"), torch.tensor(3e-3, dtype=torch.float64)
    parameters = [torch.nn.Parameter(torch.randn(size, generator=rng)) for size in (3, 300)]
    twins = [torch.nn.Parameter(one.detach().clone()) for one in parameters]
    adam, twin = Adam.over(parameters), Adam.over(twins)
    for _ in range(4):
        gradients = [torch.randn(one.shape, generator=rng) for one in parameters]
        adam.step(gradients, rate, max_norm=largest)
        clipped_step(twin.state(twins), gradients, rate, largest)
    assert all(torch.equal(*pair) for pair in zip(parameters, twins, strict=True))
    assert torch.equal(adam.norm, twin.norm)
    assert float(twin.count) == 4


def test_an_adaptive_rate_beyond_its_range_is_told() -> None:
    with pytest.raises(ConfigError, match="stays within"):
        Config.parse({"learning_rate": 0.5})


def test_cartpole_is_learned_in_seconds() -> None:
    ppo, source = learner(
        "CartPole-v1", 8, 64, epochs=6, minibatches=4, learning_rate=3e-3, schedule="constant", entropy_coef=0.01
    )
    before = evaluate_policy(ppo.policy, "CartPole-v1", 5, 0).mean
    for _ in range(30):
        ppo.update(source.next(ppo.policy))
    assert before < 100
    assert evaluate_policy(ppo.policy, "CartPole-v1", 5, 0).mean > 250


def test_new_episodes_find_an_empty_memory_in_the_critic_too() -> None:
    """A world that cannot be put back begins anew: what was remembered belongs to episodes that are gone."""
    memory = {"kind": "gru", "units": 8}
    ppo, source = learner("Pendulum-v1", 3, 8, memory, minibatches=3)
    ppo.update(source.next(ppo.policy))
    assert float(ppo.value_carry[0].abs().max()) > 0
    source.env_state = {}
    source.envs_moved()
    rollout = source.next(ppo.policy)
    assert rollout.anew
    seen = []
    around = ppo.value.around
    ppo.value.around = lambda obs, beyond, carry, resets: seen.append(carry) or around(obs, beyond, carry, resets)  # type: ignore[func-returns-value, assignment, method-assign]
    ppo.update(rollout)
    assert float(seen[0][0].abs().max()) == 0
    assert not source.next(ppo.policy).anew


@pytest.mark.parametrize("memory", [None, {"kind": "gru", "units": 8}])
def test_a_rollout_in_which_nothing_happened_teaches_nothing(memory: dict[str, Any] | None) -> None:
    ppo, source = learner("Pendulum-v1", 3, 4, memory, epochs=1, minibatches=3)
    rollout = source.next(ppo.policy)
    before = capture(ppo.policy)
    assert "loss/policy" not in ppo.update(replace(rollout, valid=torch.zeros_like(rollout.valid))).metrics
    assert differences(before, capture(ppo.policy)) == []

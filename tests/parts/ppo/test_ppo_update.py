"""PPO's update: what it begins with, what it leaves alone, and that it learns."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from learners import differences
from understudy import evaluate_policy
from understudy.core.batch import Rollout
from understudy.core.errors import ConfigError
from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.envs.vector.local import LocalVectorEnv
from understudy.nn.exploring_policy import ExplorerSettings, ExploringPolicy
from understudy.nn.value_network import ValueNetwork, ValueSettings
from understudy.parts.optim import Adam, clipped_step
from understudy.parts.parallel import run_both
from understudy.parts.ppo import update as proximal_part
from understudy.parts.ppo.fused_steps import adapted_rate
from understudy.parts.ppo.settings import PPOSettings
from understudy.parts.ppo.update import Proximal, resets_of
from understudy.sources.rollout import RolloutSource

TRUNK = {"hidden": [32, 32], "activation": "tanh"}


def learner(
    env: str, count: int, steps: int, memory: dict[str, Any] | None = None, share: str = "nothing", **settings: Any
) -> tuple[Proximal, RolloutSource]:
    world = LocalVectorEnv(env, count)
    eyes = {"trunk": TRUNK, **({"memory": memory} if memory else {})}
    policy = ExploringPolicy(world.spec, ExplorerSettings.parse(eyes), stream(0, "policy"))
    critic = ValueSettings.parse({**eyes, "share": share})
    value = ValueNetwork(world.spec, critic, stream(0, "value"), actor=policy.perception)
    proximal = Proximal.of(PPOSettings.parse(settings), policy, value, stream(0, "shuffle"), count, updates=10)
    return proximal, RolloutSource.build(world, policy, steps, 0)


@pytest.mark.parametrize("memory", [None, {"kind": "gru", "units": 8}, {"kind": "lstm", "units": 8}])
@pytest.mark.parametrize("share", ["nothing", "everything"])
def test_the_first_ratio_is_one_with_normaliser_and_memory(memory: dict[str, Any] | None, share: str) -> None:
    """Also in the second rollout, whose normalisers have seen the first one, and whose memory is not empty."""
    proximal, source = learner("Pendulum-v1", 4, 24, memory, share, epochs=2)
    for _ in range(3):
        rollout = source.next(proximal.policy)
        judged = proximal.policy.evaluate(rollout.obs, rollout.carry, resets_of(rollout), rollout.action)
        assert torch.allclose(judged.log_prob, rollout.log_prob, atol=2e-6)
        proximal.update(rollout)


@pytest.mark.parametrize("kind", ["none", "gru", "lstm"])
def test_side_by_side_the_networks_learn_what_they_learn_one_after_the_other(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_after_the_other(one: Callable[[], object], other: Callable[[], object]) -> None:
        one()
        other()

    after = []
    for at_once in (True, False):
        monkeypatch.setattr(proximal_part, "run_both", run_both if at_once else one_after_the_other)
        proximal, source = learner("Pendulum-v1", 4, 24, {"kind": kind, "units": 8}, schedule="linear", epochs=2)
        for _ in range(3):
            proximal.update(source.next(proximal.policy))
        after.append([*proximal.policy.state_dict().values(), *proximal.value.state_dict().values()])
    assert all(torch.equal(*pair) for pair in zip(*after, strict=True))


def test_every_row_is_seen_once_in_each_epoch_and_in_another_order() -> None:
    proximal, source = learner("CartPole-v1", 3, 11, minibatches=4)
    lesson, _ = proximal._prepare(source.next(proximal.policy))
    passes = [
        torch.cat([lesson.some(order).log_prob for order in lesson.orders(4, proximal.shuffle)]) for _ in range(2)
    ]
    expected = lesson.log_prob.flatten().sort().values
    for found in passes:
        assert torch.equal(found.sort().values, expected)
    assert not torch.equal(*passes)


def test_what_only_started_an_episode_is_not_learned_from() -> None:
    """Poisoned where `valid` is False: nothing notices."""
    states = []
    for poison in (0.0, 1e6):
        proximal, source = learner("Pendulum-v1", 4, 16, epochs=2)
        rollout = source.next(proximal.policy)
        valid, truncated = torch.ones_like(rollout.valid), rollout.truncated.clone()
        valid[5, 1] = valid[11, 3] = False
        truncated[4, 1] = truncated[10, 3] = True
        columns = {name: getattr(rollout, name) for name in Rollout.__slots__}
        poisoned = {"valid": valid, "truncated": truncated, "reward": torch.where(valid, rollout.reward, poison)}
        proximal.update(Rollout(**{**columns, **poisoned}))
        states.append(capture(proximal))
    assert differences(*states) == []


def test_an_update_is_repeatable_from_its_state() -> None:
    proximal, source = learner("Pendulum-v1", 4, 16, {"kind": "gru", "units": 8}, epochs=2)
    proximal.update(source.next(proximal.policy))
    moving = [proximal, proximal.policy, proximal.value]
    rollout, before = source.next(proximal.policy), [capture(part) for part in moving]
    proximal.update(rollout)
    first = [capture(part) for part in moving]
    for part, state in zip(moving, before, strict=True):
        restore(part, state, "test")
    proximal.update(rollout)
    assert [differences(was, capture(part)) for was, part in zip(first, moving, strict=True)] == [[]] * 3
    assert {"rate", "updates"} <= before[0].keys()


def test_a_linear_rate_reaches_its_end_with_the_planned_updates() -> None:
    proximal, source = learner("Pendulum-v1", 1, 4, learning_rate=0.5, schedule="linear", epochs=1)
    told = [float(proximal.update(source.next(proximal.policy))["policy/learning_rate"]) for _ in range(12)]
    assert told == pytest.approx([0.5 - 0.05 * done for done in range(10)] + [0.0, 0.0])


def test_the_rate_falls_where_the_policy_moved_too_far_and_rises_where_too_little() -> None:
    rate = torch.tensor(1e-3, dtype=torch.float64)
    for kl, expected in ((0.03, 1e-3 / 1.5), (0.01, 1e-3 / 1.5), (0.001, 1e-3), (0.0, 1e-3), (1.0, 1e-3 / 1.5)):
        rate = adapted_rate(rate, torch.tensor(kl), 0.01)
        assert float(rate) == pytest.approx(expected)
    for _ in range(30):
        rate = adapted_rate(rate, torch.tensor(1.0), 0.01)
    assert float(rate) == pytest.approx(1e-5)


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
        clipped_step(twin.moments(twins), gradients, rate, largest)
    assert all(torch.equal(*pair) for pair in zip(parameters, twins, strict=True))
    assert torch.equal(adam.norm, twin.norm)
    assert float(twin.count) == 4


def test_an_adaptive_rate_beyond_its_range_is_told() -> None:
    with pytest.raises(ConfigError, match="stays within"):
        PPOSettings.parse({"learning_rate": 0.5})


def test_cartpole_is_learned_in_seconds() -> None:
    proximal, source = learner(
        "CartPole-v1", 8, 64, epochs=6, minibatches=4, learning_rate=3e-3, schedule="constant", entropy_coef=0.01
    )
    before = evaluate_policy(proximal.policy, "CartPole-v1", 5, 0).mean
    for _ in range(30):
        proximal.update(source.next(proximal.policy))
    assert before < 100
    assert evaluate_policy(proximal.policy, "CartPole-v1", 5, 0).mean > 250


def test_new_episodes_find_an_empty_memory_in_the_critic_too() -> None:
    """A world that cannot be put back begins anew: what was remembered belongs to episodes that are gone."""
    memory = {"kind": "gru", "units": 8}
    proximal, source = learner("Pendulum-v1", 3, 8, memory)
    proximal.update(source.next(proximal.policy))
    assert float(proximal.value_carry[0].abs().max()) > 0
    source.standing = {}
    source.envs_moved()
    rollout = source.next(proximal.policy)
    assert rollout.anew
    seen = []
    around = proximal.value.around
    proximal.value.around = lambda obs, beyond, carry, resets: seen.append(carry) or around(obs, beyond, carry, resets)  # type: ignore[func-returns-value, assignment, method-assign]
    proximal.update(rollout)
    assert float(seen[0][0].abs().max()) == 0
    assert not source.next(proximal.policy).anew


@pytest.mark.parametrize("memory", [None, {"kind": "gru", "units": 8}])
def test_a_rollout_in_which_nothing_happened_teaches_nothing(memory: dict[str, Any] | None) -> None:
    proximal, source = learner("Pendulum-v1", 3, 4, memory, epochs=1)
    rollout = source.next(proximal.policy)
    before = capture(proximal.policy)
    assert "loss/policy" not in proximal.update(replace(rollout, valid=torch.zeros_like(rollout.valid)))
    assert differences(before, capture(proximal.policy)) == []

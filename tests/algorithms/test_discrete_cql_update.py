"""What discrete CQL's update reads, proved by changing one thing and looking at who notices."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from learners import Learning, start, tiny_algorithm
from understudy import Dataset, load_policy
from understudy.core.errors import ConfigError
from understudy.core.spec import ACTION_MASK
from understudy.nn.value_policy import ValuePolicy
from understudy.run.policy_file import save_policy
from worlds import random_choices

SOFTMAX = {"policy": "softmax"}
KINDS: list[dict[str, Any]] = [{}, {"penalty": "sampled", "negatives": 2}, SOFTMAX, {"td_loss": "quantile"}]
any_kind = pytest.mark.parametrize("kind", KINDS)


def masked() -> Dataset:
    return random_choices(masked=True)


def learner(**changes: Any) -> Learning:
    return start(tiny_algorithm("discrete_cql", **{"quantiles": 5, **changes}), masked())


def critic(learning: Learning) -> Tensor:
    flat: Tensor = learning.algorithm.critic.trunk.flat
    return flat.detach()


def updated(kind: dict[str, Any], spoil: Any = None, **columns: Any) -> Learning:
    """One update on a first batch with some of its columns replaced, after something was done to the algorithm."""
    learning = learner(**kind)
    batch = learning.batch()
    further: dict[str, Tensor] = {name: columns.pop(name) for name in batch.extra if name in columns}
    extra = {**batch.extra, **further}
    if spoil is not None:
        spoil(learning.algorithm)
    learning.algorithm.update(replace(batch, extra=extra, **columns))
    return learning


def only(actions: list[int], rows: int = 32) -> Tensor:
    mask = torch.zeros(rows, 4, dtype=torch.bool)
    mask[:, actions] = True
    return mask


def rate_last_action(online: float, target: float) -> Callable[[Any], None]:
    """Raises what critics and target critics say of action 3."""

    def spoil(algorithm: Any) -> None:
        for network, by in ((algorithm.critic, online), (algorithm.target.network, target)):
            network.trunk.layers()[-1].bias.view(2, 4, -1)[:, 3] += by

    return spoil


@any_kind
def test_the_target_never_asks_about_illegal_actions(kind: dict[str, Any]) -> None:
    """However good they look to the critics that choose, and to those that rate the choice."""
    for mask, blind in ((only([0, 1, 2]), True), (only([0, 1, 2, 3]), False)):
        low, high = (updated(kind, rate_last_action(100.0, by), next_mask=mask) for by in (0.0, 100.0))
        assert torch.equal(critic(low), critic(high)) == blind


@any_kind
def test_a_terminal_row_with_no_legal_action_after_it_is_finite_and_ignores_its_successor(kind: dict[str, Any]) -> None:
    """O-21."""
    over = torch.ones(32, dtype=torch.bool)
    empty, full = only([]), only([0, 1, 2, 3])
    here = updated(kind, terminated=over, next_mask=empty)
    there = updated(kind, terminated=over, next_mask=full, next_obs={"state": torch.full((32, 3), 9.0)})
    assert bool(critic(here).isfinite().all())
    assert torch.equal(critic(here), critic(there))


@pytest.mark.parametrize("kind", [{}, {"penalty": "sampled", "negatives": 9}])
def test_values_of_illegal_actions_are_left_alone(kind: dict[str, Any]) -> None:
    """With one layer, each action has its own outputs: those of a forbidden one stay where they were born."""
    learning = learner(**kind)
    batch = learning.batch()
    legal = only([0, 1])
    born = learning.algorithm.critic.trunk.layers()[-1].weight.clone()
    learning.algorithm.update(replace(batch, action=batch.action % 2, extra={**batch.extra, "mask": legal}))
    moved = (learning.algorithm.critic.trunk.layers()[-1].weight != born).any(1)
    assert moved.tolist() == [[True, True, False, False]] * 2


@any_kind
def test_only_the_smaller_target_critic_counts(kind: dict[str, Any]) -> None:
    def raised(by: float) -> Tensor:
        def spoil(algorithm: Any) -> None:
            algorithm.target.network.trunk.layers()[-1].bias[1] += by

        return critic(updated(kind, spoil))

    assert torch.equal(raised(1e3), raised(2e3))
    assert not torch.equal(raised(1e3), raised(-1e3))


def test_rows_without_a_successor_are_left_out_of_the_temporal_difference_but_not_of_the_penalty() -> None:
    half = torch.arange(32) % 2 == 0
    reward = learner().batch().reward
    clean, dirty = updated({}, td_valid=half), updated({}, td_valid=half, reward=torch.where(half, reward, 1e6))
    assert torch.equal(critic(clean), critic(dirty))
    free = torch.where(half.unsqueeze(1), only([0, 1, 2, 3]), only([0, 1, 2, 3]))
    action = learner().batch().action
    free[torch.arange(32), (action + 1) % 4] &= half
    assert not torch.equal(critic(clean), critic(updated({}, td_valid=half, mask=free)))


def test_the_policy_is_its_critics_to_the_bit() -> None:
    for kind in ({}, {"td_loss": "quantile"}, {"temperature": 0.25}):
        learning = learner(**kind)
        learning.update(5)
        algorithm = learning.algorithm
        assert algorithm.policy.critic is algorithm.critic
        obs = learning.batch().obs
        values = algorithm.critic.every(algorithm.policy.perception.look(obs)).mean(0) / kind.get("temperature", 1.0)
        assert torch.equal(algorithm.policy.features(algorithm.policy.perception.look(obs)), values)
        for forbidden in range(4):
            mask = torch.arange(4).expand(32, 4) != forbidden
            action, _ = algorithm.policy.act({**obs, ACTION_MASK: mask}, (), greedy=True)
            assert torch.equal(action, torch.where(mask, values, -torch.inf).argmax(1))


def test_a_policy_of_quantiles_survives_its_file(tmp_path: Path) -> None:
    learning = learner(td_loss="quantile", temperature=0.5)
    learning.update(3)
    save_policy(learning.algorithm.policy, tmp_path / "policy", {})
    loaded, state = load_policy(tmp_path / "policy"), learning.algorithm.policy.perception.look(learning.batch().obs)
    assert isinstance(loaded, ValuePolicy)
    assert torch.equal(loaded.features(state), learning.algorithm.policy.features(state))


def test_hard_targets_stand_still_and_then_jump() -> None:
    learning = learner(polyak=1.0, target_every=3)
    target = learning.algorithm.target.network.trunk.flat
    for number in range(1, 8):
        before = target.clone()
        learning.update()
        assert torch.equal(target, critic(learning) if number % 3 == 0 else before)


def test_the_softmax_policy_climbs_the_smaller_critic_after_its_step() -> None:
    slow, fast = (updated({**SOFTMAX, "critic_learning_rate": rate}) for rate in (1e-5, 1e-2))
    assert not torch.equal(slow.algorithm.policy.trunk.flat, fast.algorithm.policy.trunk.flat)


def test_the_policy_teaches_critics_only_through_the_target() -> None:
    slow, fast = (updated({**SOFTMAX, "actor_learning_rate": rate}) for rate in (1e-5, 1e-2))
    assert torch.equal(critic(slow), critic(fast))


@pytest.mark.parametrize("wrong", [{"penalty": "sampled_seed"}, {**SOFTMAX, "target_action": "policy_argmax"}])
def test_what_is_known_to_be_wrong_is_reachable_behind_a_warning(wrong: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="known to be wrong"):
        learning = learner(**wrong)
    learning.update(3)
    assert bool(critic(learning).isfinite().all())
    assert not torch.equal(critic(learning), critic(updated(SOFTMAX if "policy" in wrong else {})))


def test_the_wrong_penalty_goes_below_zero_and_the_right_ones_do_not() -> None:
    """Seed 003's: for Q = (10, 0, 0, 0) and the first action taken."""
    for penalty, negative in (("sampled_seed", True), ("sampled", False), ("exact", False)):
        config = tiny_algorithm("discrete_cql", penalty=penalty, negatives=2)
        if negative:
            with pytest.warns(UserWarning, match="wrong"):
                algorithm = start(config).algorithm
        else:
            algorithm = start(config).algorithm
        q = torch.tensor([10.0, 0.0, 0.0, 0.0]).expand(1, 32, 4)
        gap = algorithm._penalty(q, torch.zeros(32, dtype=torch.int64), None)
        assert bool((gap < 0).any()) == negative


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"target_action": "policy_argmax"}, "is for policy=softmax"),
        ({"policy": "softmax", "td_loss": "quantile"}, "is for policy=greedy"),
        ({"alpha": -1}, "algo.alpha"),
        ({"temperature": 0}, "algo.temperature"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        tiny_algorithm("discrete_cql", **settings)


def test_where_there_is_one_action_no_penalty_is_to_pay() -> None:
    """There is nothing that could be rated above it."""
    for penalty in ("exact", "sampled"):
        learning = start(tiny_algorithm("discrete_cql", penalty=penalty), random_choices(actions=1))
        assert float(learning.update(3)["loss/penalty"]) == pytest.approx(0, abs=1e-6)

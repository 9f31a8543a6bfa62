"""Weights of rows: gathered with their batch, refreshed on time, resumed to the bit, refused where senseless."""

from typing import Any

import numpy as np
import pytest
import torch
from drift_world import GAMMA, Steady, lazy_play, states_of
from torch import Tensor
from weighing import after_refresh, weighed, weights_of

from learners import offline_source
from nobody import Nobody
from understudy.core.errors import CheckpointError, ConfigError, DataError
from understudy.core.protocols import Demand
from understudy.core.spec import Box, Discrete
from understudy.core.state import capture, restore
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.offline import OfflineSource
from understudy.sources.sampling.blocks import BlockSampler
from worlds import random_choices, random_dataset

DRIFT = lazy_play(episodes=40, steps=15)
QUICK: dict[str, Any] = {"rows": 100, "iterations": 2, "behaviour": {"updates": 20, "hidden": (8,)}}


def trusted(values: Any = None, name: str = "trust") -> Dataset:
    dataset = random_dataset()
    return dataset.with_extra(name, torch.arange(120) / 60 if values is None else torch.as_tensor(values))


def drawn(source: OfflineSource, batches: int, pushes: float = 0.01) -> list[dict[str, Tensor]]:
    """So many batches, while the policy changes with every one."""
    found = []
    for _ in range(batches):
        policy = Steady(pushes * source.sampler.drawn)
        found.append(dict(source.next(policy).extra))
    return found


def same(one: list[dict[str, Tensor]], two: list[dict[str, Tensor]]) -> bool:
    return all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a) for a, b in zip(one, two, strict=True)
    )


def test_none_weighs_nothing_and_asks_nobody() -> None:
    source = weighed(DRIFT, every=1, provider="none", estimator="kliep", column="trust")
    for _ in range(20):
        assert "importance" not in source.next(Nobody()).extra
    assert source.metrics() == {}


def test_batches_are_those_of_the_plain_source() -> None:
    demand = Demand(("td_valid", "importance"), 2, GAMMA)
    source = weighed(trusted(), demand, provider="column", column="trust")
    plain = offline_source(trusted(), Demand(("td_valid", "row"), 2, GAMMA))
    for _ in range(40):
        batch, other = source.next(Nobody()), plain.next(Nobody())
        assert torch.equal(batch.reward, other.reward)
        assert torch.equal(batch.next_obs["state"], other.next_obs["state"])
        assert set(batch.extra) == {"td_valid", "row", "importance"}
        assert torch.equal(batch.extra["importance"], weights_of(source)[other.extra["row"]])
        assert batch.extra["importance"].dtype == torch.float32


def test_a_column_is_clipped_and_averages_one() -> None:
    source = weighed(trusted(), provider="column", column="trust", low=0.5, high=1.5)
    source.next(Nobody())
    clipped = (torch.arange(120) / 59.5).clamp(0.5, 1.5)
    torch.testing.assert_close(weights_of(source), clipped / clipped.mean())
    told = source.metrics()
    known = ("effective_share", "largest", "smallest", "clipped_share", "std")
    assert set(told) == {f"importance/{name}" for name in known}
    weights = weights_of(source).double()
    assert {value.shape for value in told.values()} == {torch.Size([])}
    assert float(told["importance/effective_share"]) == pytest.approx(1 / float(weights.square().mean()))
    assert float(told["importance/largest"]) == pytest.approx(float(weights.max()))
    assert float(told["importance/smallest"]) == pytest.approx(float(weights.min()))
    assert float(told["importance/clipped_share"]) == pytest.approx(60 / 120)
    spread = float((weights - weights.mean()).square().mean().sqrt())
    assert float(told["importance/std"]) == pytest.approx(spread) == pytest.approx((1 / 6) ** 0.5, abs=0.002)
    assert float(told["importance/effective_share"]) == pytest.approx(1 / (1 + spread**2))


def test_before_the_first_refresh_all_rows_are_alike() -> None:
    told = weighed(DRIFT, provider="coptd").metrics()
    assert {name.split("/")[1]: float(value) for name, value in told.items()} == {
        "effective_share": 1.0,
        "largest": 1.0,
        "smallest": 1.0,
        "clipped_share": 0.0,
        "std": 0.0,
    }


@pytest.mark.parametrize(
    ("provider", "refreshed"), [("coptd", [5, 10]), ("dualdice", [5, 10]), ("batch_seed", [0, 5, 10])]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_refreshes_come_on_time_also_within_a_block(provider: str, refreshed: list[int]) -> None:
    """A block has 16 batches: each batch has the weights of its own time, not of its block's."""
    source, policy = weighed(DRIFT, provider=provider, **QUICK), Steady(0.5)
    before, changed = weights_of(source), []
    for number in range(14):
        policy.push += 0.02
        batch = source.next(policy)
        if not torch.equal(weights_of(source), before):
            changed.append(number)
        before = weights_of(source)
        assert torch.equal(batch.extra["importance"], weights_of(source)[batch.extra["row"]])
        assert number >= refreshed[0] or torch.equal(batch.extra["importance"], torch.ones(32))
    assert changed == refreshed
    assert isinstance(source.sampler, BlockSampler)
    assert source.sampler.block[0] == 0
    assert (policy.asked > 0) == (provider != "batch_seed")


@pytest.mark.parametrize("provider", ["elite", "column"])
def test_what_does_not_depend_on_the_policy_is_found_once(provider: str) -> None:
    settings: dict[str, Any] = {"column": "trust"} if provider == "column" else {}
    source = weighed(trusted(), provider=provider, every=1, **settings)
    first = source.next(Nobody()).extra["importance"]
    weights = weights_of(source)
    assert not torch.equal(first, torch.ones(32))
    for _ in range(20):
        source.next(Nobody())
    assert weights_of(source) is weights


@pytest.mark.parametrize("provider", ["coptd", "dualdice", "elite", "column", "batch_seed"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_restored_source_goes_on_with_the_same_bits(provider: str) -> None:
    """Stopped before the first batch, within a block, just before a refresh, just after one, and between blocks."""
    dataset = DRIFT.with_extra("trust", torch.arange(DRIFT.steps) % 7)
    settings: dict[str, Any] = {"provider": provider, "every": 7, **QUICK}
    settings |= {"column": "trust"} if provider == "column" else {}
    straight = drawn(weighed(dataset, **settings), 20)
    assert not torch.equal(straight[-1]["importance"], torch.ones(32))
    for stop in (0, 3, 7, 8, 16):
        stopped = weighed(dataset, **settings)
        assert same(drawn(stopped, stop), straight[:stop])
        state = capture(stopped)
        resumed = weighed(dataset, **settings)
        if stop == 8:  # one that was elsewhere already
            drawn(resumed, 9, pushes=-0.02)
        restore(resumed, state, "x")
        assert all(torch.equal(value, resumed.metrics()[name]) for name, value in stopped.metrics().items())
        assert same(drawn(resumed, 20 - stop), straight[stop:])


def test_the_inventory() -> None:
    plain = {"sampler.drawn", "weighing.0.refreshes", "weighing.0.weights"}
    facts = {
        f"weighing.0.facts.importance/{name}" for name in ("effective_share", "largest", "smallest", "clipped_share")
    }
    assert set(capture(weighed(trusted(), provider="column", column="trust"))) == plain | facts
    followed = set(capture(weighed(DRIFT, provider="coptd")))
    assert "weighing.0.provider.behaviour.learned" in followed
    assert any(name.startswith("weighing.0.provider.behaviour.actor.trunk") for name in followed)


def test_weights_of_other_data_do_not_fit() -> None:
    state = capture(weighed(random_dataset(count=5), provider="elite"))
    with pytest.raises(CheckpointError, match=r"weights is torch.float32 \[100\] in the file and .*\[120\]"):
        restore(weighed(random_dataset(), provider="elite"), state, "x")


def test_seeds_differ_and_repeat() -> None:
    one, again, other = (weighed(DRIFT, seed=seed, provider="elite") for seed in (1, 1, 2))
    for source in (one, again, other):
        source.next(Nobody())
    assert torch.equal(weights_of(one), weights_of(again))
    assert not torch.equal(weights_of(one), weights_of(other))


def test_elite_prefers_the_states_of_good_episodes() -> None:
    """Rewards are where the point is: the best episodes are on the right."""
    source = weighed(DRIFT, provider="elite", elite_share=0.2, rows=600)
    source.next(Nobody())
    best = np.repeat(DRIFT.returns() >= np.sort(DRIFT.returns())[-8], DRIFT.index.lengths)
    weights, states = weights_of(source).numpy(), states_of(DRIFT)
    assert weights[best].mean() > 1.3 * weights[~best].mean()
    assert np.corrcoef(weights, states)[0, 1] > 0.6
    assert abs(float(weights_of(source).double().mean()) - 1) < 1e-6


def test_elite_goes_by_true_rewards() -> None:
    changed = weighed(DRIFT.with_rewards(lambda reward: -reward), provider="elite")
    plain = weighed(DRIFT, provider="elite")
    changed.next(Nobody())
    plain.next(Nobody())
    assert torch.equal(weights_of(changed), weights_of(plain))


def test_elite_and_columns_know_discrete_actions() -> None:
    choices = random_choices().with_extra("trust", torch.arange(120))
    assert isinstance(choices.spec.action, Discrete)
    ways: list[dict[str, Any]] = [{"provider": "elite"}, {"provider": "column", "column": "trust"}]
    for settings in ways:
        source = weighed(choices, **settings)
        source.next(Nobody())
        assert float(weights_of(source).std()) > 0


def test_a_sample_against_itself_warns_and_is_wrong() -> None:
    with pytest.warns(UserWarning, match="provider batch_seed: compares a sample with itself.*known to be wrong"):
        source = weighed(DRIFT, provider="batch_seed")
    source.next(Nobody())
    rare = np.abs(states_of(DRIFT)) > 1.0
    assert float(weights_of(source)[rare].mean()) < 0.8 * float(weights_of(source)[~rare].mean())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"provider": "magic"}, "provider"),
        ({"provider": "column"}, "needs the name of a column"),
        ({"provider": "elite", "column": "trust"}, "column=trust means nothing with provider=elite"),
        ({"provider": "dualdice", "estimator": "kliep"}, "estimator=kliep means nothing"),
        ({"provider": "batch_seed", "estimator": "ulsif"}, "estimator=ulsif means nothing"),
        ({"low": 2.0}, "do not enclose 1"),
        ({"high": 0.5}, "do not enclose 1"),
        ({"low": 1.0, "high": 1.0}, "do not enclose 1"),
        ({"low": -0.1}, "low"),
        ({"every": 0}, "every"),
        ({"rows": 10}, "rows"),
        ({"iterations": 0}, "iterations"),
        ({"ratio_ceiling": 0.0}, "ratio_ceiling"),
        ({"elite_share": 1.0}, "elite_share"),
        ({"elite_share": 0.0}, "elite_share"),
        ({"behaviour": {"updates": 0}}, "behaviour.updates"),
        ({"behaviour": {"hidden": []}}, "behaviour.hidden"),
        ({"behaviour": {"smallest_sigma": 0}}, "behaviour.smallest_sigma"),
        ({"ridge": 0}, "ridge"),
        ({"evry": 5}, "every"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ImportanceSettings.parse(settings, "source.importance")


@pytest.mark.parametrize("provider", ["coptd", "dualdice"])
def test_a_policy_is_only_followed_through_continuous_actions(provider: str) -> None:
    with pytest.raises(ConfigError, match=rf"source.importance.provider: {provider} needs continuous.*Use elite"):
        weighed(random_choices(), provider=provider)
    with pytest.raises(ConfigError, match="discounted visits: got gamma 1"):
        weighed(random_dataset(), Demand(gamma=1.0), provider=provider)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1.0] * 119 + [float("nan")], "row 119: cannot be a weight"),
        ([1.0] * 119 + [-1.0], "row 119: cannot be a weight"),
        ([0.0] * 120, "has a weight above 0"),
        (torch.ones(120, 2), "one number per step"),
    ],
)
def test_a_column_that_cannot_weigh_is_refused_before_the_first_batch(values: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        weighed(trusted(values), provider="column", column="trust")


def test_a_column_that_is_not_there_is_told_with_the_nearest_name() -> None:
    with pytest.raises(DataError, match="Did you mean 'trust'"):
        weighed(trusted(), provider="column", column="trusts")


def test_a_column_of_the_weights_own_name_is_used_or_refused() -> None:
    named = trusted(name="importance")
    with pytest.raises(DataError, match="its name is taken"):
        weighed(named, provider="elite")
    source = weighed(named, provider="column", column="importance", low=0.0)
    source.next(Nobody())
    torch.testing.assert_close(weights_of(source), torch.arange(120) / 59.5)


def level_play(state: np.ndarray, rewards: float | None = None) -> Dataset:
    """Four episodes of `state` [n+1, d]."""
    rng, steps = np.random.default_rng(0), len(state) - 1
    earned = [rng.standard_normal(steps) if rewards is None else np.full(steps, rewards) for _ in range(4)]
    episodes = [
        Episode({"state": state.astype(np.float32)}, rng.uniform(-1, 1, (steps, 1)).astype(np.float32), r, False, True)
        for r in earned
    ]
    return Dataset.from_episodes(episodes, Box((-1.0,), (1.0,)))


def test_no_episode_is_best_among_equals() -> None:
    with pytest.raises(DataError, match=r"source.importance, provider elite: no episode is better than another"):
        weighed(level_play(np.random.default_rng(0).standard_normal((21, 2)), rewards=1.0), provider="elite")


@pytest.mark.parametrize("provider", ["coptd", "dualdice", "elite", "batch_seed"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_constant_features_are_told_before_the_first_step(provider: str) -> None:
    state = np.random.default_rng(0).standard_normal((81, 3))
    state[:, 1] = 4.0
    with pytest.raises(DataError, match=rf"provider {provider}: constant features: got columns \[1\] of 3.*leave_out"):
        weighed(level_play(state), provider=provider).next(Steady(0.1))
    source = weighed(level_play(state), provider=provider, leave_out_constant=True)
    assert float(after_refresh(source, Steady(0.1)).std()) > 0
    with pytest.raises(DataError, match="all states are the same"):
        weighed(level_play(0 * state), provider=provider, leave_out_constant=True).next(Steady(0.1))


@pytest.mark.parametrize("provider", ["coptd", "dualdice"])
def test_rows_that_all_end_at_once_lead_nowhere(provider: str) -> None:
    with pytest.raises(DataError, match="too few rows lead to a known next state: got 0"):
        weighed(lazy_play(episodes=60, steps=1, final_known=False), provider=provider)


def test_what_an_estimator_refuses_is_told_in_the_settings_name() -> None:
    few = lazy_play(episodes=2, steps=1)
    with pytest.raises(DataError, match=r"source.importance, provider elite: no ratio could be fitted: ratios.RuLSIF"):
        weighed(few, provider="elite").next(Nobody())

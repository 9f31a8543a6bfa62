"""Schedules at known points (oracles O-31 and O-35), before their start and after their end."""

import math
from collections.abc import Callable

import pytest
import torch

from understudy.core.errors import ConfigError
from understudy.core.schedule import Schedule, ScheduledShare, ScheduledWeight, ScheduleKind
from understudy.objectives import demonstrations
from understudy.objectives.demonstrations import Config as DemonstrationSettings
from understudy.objectives.teacher import Config as TeacherSettings
from understudy.parts.cloning import CloningSettings
from understudy.parts.co_teaching import KeepSchedule, TeachingSettings

AT = {
    "constant": [0.8, 0.8, 0.8, 0.8, 0.8],
    "linear": [0.8, 0.7, 0.6, 0.5, 0.4],
    "cosine": [0.8, 0.741421, 0.6, 0.458579, 0.4],
    "exponential": [0.8, 0.672717, 0.565685, 0.475683, 0.4],
    "tanh": [0.8, 0.721355, 0.6, 0.478645, 0.4],
    "exp5": [0.8, 0.514602, 0.432834, 0.409407, 0.402695],
}


def at(schedule: Schedule, updates: int) -> float:
    return float(schedule.value(torch.tensor(updates)))


@pytest.mark.parametrize("kind", AT)
def test_known_points(kind: ScheduleKind) -> None:
    schedule = Schedule(kind=kind, start=0.8, end=0.4, after=100, over=200)
    assert [at(schedule, updates) for updates in (100, 150, 200, 250, 300)] == pytest.approx(AT[kind], abs=1e-6)


@pytest.mark.parametrize("kind", AT)
def test_nothing_changes_before_the_start_or_after_the_end(kind: ScheduleKind) -> None:
    schedule = Schedule(kind=kind, start=0.8, end=0.4, after=100, over=200)
    assert at(schedule, 0) == at(schedule, 100)
    assert at(schedule, 300) == at(schedule, 10**9)


def test_co_teachings_own_rate() -> None:
    """1 − min(τ·T/T_k, τ) with τ = .2 and T_k = 10."""
    keep = KeepSchedule(start=1.0, end=0.8, after=0, over=10)
    assert [at(keep, updates) for updates in range(12)] == pytest.approx(
        [1.0, 0.98, 0.96, 0.94, 0.92, 0.9, 0.88, 0.86, 0.84, 0.82, 0.8, 0.8]
    )


def test_the_seeds_schedules_can_be_written() -> None:
    """GET_PROB_FUNC of scale 50 in its words: linear and exp to the number, tanh stretched to its ends."""
    seeds: dict[str, Callable[[float], float]] = {
        "linear": lambda x: max(0.0, 1 - x / 50),
        "exp": lambda x: (1 - 1 / 50) ** x,
        "tanh": lambda x: 0.5 * (1 - math.tanh(x / 50 - 1)),
    }
    ours = {
        "linear": Schedule(kind="linear", start=1, end=0, over=50),
        "exp": Schedule(kind="exponential", start=1, end=0, over=50),
        "tanh": Schedule(kind="tanh", start=1, end=0, over=100),
    }
    first, last = seeds["tanh"](0), seeds["tanh"](100)
    for updates in (0, 1, 25, 50, 77, 100):
        assert at(ours["linear"], updates) == pytest.approx(seeds["linear"](updates))
        assert at(ours["exp"], updates) == pytest.approx(seeds["exp"](updates))
        assert at(ours["tanh"], updates) == pytest.approx((seeds["tanh"](updates) - last) / (first - last), abs=1e-12)
    assert ours["tanh"].at(0) == 1.0
    assert ours["exp"].at(5000) == pytest.approx((1 - 1 / 50) ** 5000, rel=1e-12), "it tends to 0, and never ends"
    at_once, later = (Schedule(kind="exponential", start=0.5, end=0, over=over, after=3) for over in (1, 4))
    assert [at_once.at(updates) for updates in (0, 3, 4, 9)] == [0.5, 0.5, 0.0, 0.0]
    assert [later.at(updates) for updates in (3, 4, 5)] == [0.5, 0.375, 0.28125]


def test_a_number_is_a_constant_and_a_share_stays_a_share() -> None:
    assert Schedule.parse(0.3) == Schedule(kind="constant", start=0.3, end=0.3)
    assert Schedule.parse("0.3").at(7) == 0.3
    for kind, wrong in ((ScheduledShare, 1.5), (ScheduledShare, {"start": 1, "end": -0.1}), (ScheduledWeight, -1)):
        with pytest.raises(ConfigError, match="than or equal to"):
            kind.parse(wrong)
    with pytest.raises(ConfigError, match="number"):
        Schedule.parse("often")


def test_rising_schedules_rise() -> None:
    schedule = Schedule(kind="exponential", start=0.1, end=10.0, over=2)
    assert [at(schedule, updates) for updates in range(3)] == pytest.approx([0.1, 1.0, 10.0])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"keep": {"start": 0.0}}, "greater than 0"),
        ({"keep": {"end": 1.2}}, "less than or equal to 1"),
        ({"keep": {"over": -5}}, "greater than or equal to 1"),
        ({"keep": {"after": -1}}, "greater than or equal to 0"),
        ({"keep": 0}, "greater than 0"),
        ({"keep": "most"}, "number"),
        ({"keep": {"kind": "sudden"}}, "linear"),
        ({"disagreement": 0}, "greater than 0"),
    ],
)
def test_impossible_rates_are_told(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TeachingSettings.parse(settings, "algo.teaching")


def test_an_exponential_through_zero_is_told() -> None:
    for start, end in ((0.0, 1.0), (1.0, -1.0), (-1.0, 1.0)):
        with pytest.raises(ConfigError, match=r"above 0, or an end of 0: got start="):
            Schedule.parse({"kind": "exponential", "start": start, "end": end}, "weight")


def test_whoever_names_an_end_means_a_change() -> None:
    """Without a kind it is a straight line; a kind that was chosen stays."""
    assert CloningSettings.parse({"weight": {"start": 2.0, "end": 0.5, "over": 10}}).weight.kind == "linear"
    assert CloningSettings.parse({"weight": {"end": 0.5}}).weight.kind == "linear"
    assert CloningSettings.parse({"weight": {"start": 2.0}}).weight.kind == "constant"
    assert CloningSettings.parse({"weight": {"kind": "constant", "start": 2.0, "end": 0.5}}).weight.kind == "constant"
    written = CloningSettings.parse({"weight": 0.3})
    assert CloningSettings.parse(written.model_dump(mode="json")) == written


def test_a_number_is_a_constant_rate() -> None:
    assert TeachingSettings.parse({"keep": "0.8"}).keep.constant_at(0.8)
    assert Schedule(kind="linear", start=0.0, end=0.0, over=5).constant_at(0.0)
    assert not Schedule(kind="linear", start=0.0, end=1.0, over=5).constant_at(0.0)
    assert not TeachingSettings.parse({"keep": 1}).chooses
    assert TeachingSettings.parse({"keep": 1, "disagreement": 0.5}).chooses


def test_what_is_left_out_of_a_schedule_is_that_of_its_default() -> None:
    for given, kind, ends in (
        ({"end": 0.25}, "linear", (1.0, 0.25)),
        ({"start": 0.5, "over": 10}, "linear", (0.5, 1.0)),
        ({"start": 0.5}, "constant", (0.5, 0.5)),
        ({"kind": "cosine", "end": 0.0}, "cosine", (1.0, 0.0)),
    ):
        weight = TeacherSettings.parse({"weight": given}).weight
        assert (weight.kind, (weight.start, weight.end)) == (kind, ends), given
    cloning = DemonstrationSettings.parse({"weight": {"start": 2}}).weight
    assert (cloning.kind, cloning.start, cloning.end) == ("linear", 2.0, 0.0), "whose default falls"
    with pytest.raises(ConfigError, match=r"weight\.start: is required"):
        TeacherSettings.parse({"weight": {}})


def test_what_is_left_out_of_a_group_is_as_the_default_says() -> None:
    """Whoever changes how much cloning counts at first does not say that it counts for 100,000 updates."""
    weight = demonstrations.Config.parse({"weight": {"start": 2}}).weight
    assert (weight.kind, weight.start, weight.end, weight.over) == ("linear", 2.0, 0.0, 100)
    slower = demonstrations.Config.parse({"weight": {"over": 300, "kind": "cosine"}}).weight
    assert (slower.kind, slower.start, slower.end, slower.over) == ("cosine", 1.0, 0.0, 300)
    steady = demonstrations.Config.parse({"weight": 2}).weight
    assert steady.constant_at(2.0)

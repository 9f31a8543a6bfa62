"""Checking datasets made from real rollouts, each broken in one way, as files come broken."""

from dataclasses import replace

import numpy as np
import pytest
from checked_rollouts import PENDULUM, check, cut, found, frozen_lake, mended, played, recording, rollouts

from understudy.core.spec import Box, Discrete
from understudy.data.episode import Episode
from understudy.data.formats.readers import open_recording
from understudy.envs.physics.agreement import Terminals
from understudy.tools.dataset.check import check_dataset
from understudy.tools.dataset.end_findings import end_findings
from understudy.tools.dataset.reference_env import open_world
from understudy.tools.dataset.survey import survey
from worlds import random_episodes, real_data


@pytest.fixture(scope="module")
def pendulum() -> list[Episode]:
    return rollouts("Pendulum-v1")


@pytest.fixture(scope="module")
def hopper() -> list[Episode]:
    return rollouts("Hopper-v5", count=12)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1", "Hopper-v5", "MountainCar-v0"])
def test_what_an_environment_did_passes(env_id: str) -> None:
    report = check(rollouts(env_id, count=4, limit=150), env_id)
    assert report.passed
    assert not found(report, "warning")
    assert report.physics is not None
    assert report.physics.grade == "exact"
    assert f"repeats in {env_id}: " in found(report, "note")["physics"]


# What the environment knows better.


def test_late_rewards_are_found_and_the_fix_is_one(pendulum: list[Episode]) -> None:
    late = [replace(episode, rewards=np.append(0.0, episode.rewards[:-1])) for episode in pendulum]
    report = check(late, "Pendulum-v1")
    assert "rewards are late by one row" in found(report, "error")["late-rewards"]
    assert report.settings == ["late_rewards=true"]
    assert check_dataset(mended(report, late, PENDULUM), open_world("Pendulum-v1")).passed


def test_actions_in_a_policys_own_units(pendulum: list[Episode]) -> None:
    halved = [replace(episode, actions=episode.actions / 2) for episode in pendulum]
    report = check(halved, "Pendulum-v1")
    assert list(found(report, "error")) == ["action-scale"]
    assert not found(report, "warning")
    assert report.settings == ["actions_from=[-1, 1]"]
    assert check_dataset(mended(report, halved, PENDULUM), open_world("Pendulum-v1")).passed


def test_out_of_range_is_judged_in_the_units_of_the_recording(pendulum: list[Episode]) -> None:
    """1.5 lies inside [-2, 2], but nobody can have meant it in [-1, 1]."""
    halved = [replace(episode, actions=episode.actions / 2) for episode in pendulum]
    halved[1].actions[[3, 7, 20]] = 1.5
    errors = found(check(halved, "Pendulum-v1"), "error")
    assert "3 of 600 actions (0.5%) lie outside the range they were recorded in" in errors["out-of-range"]
    assert "got up to 1.5, expected [-1, 1]" in errors["out-of-range"]


def test_units_wider_than_the_environments_are_no_excess() -> None:
    """Humanoid takes [-0.4, 0.4]: actions of [-1, 1] are no mistake there, only other units."""
    wide = [replace(episode, actions=episode.actions / 0.4) for episode in rollouts("Humanoid-v5", 3, 25)]
    report = check(wide, "Humanoid-v5")
    assert list(found(report, "error")) == ["action-scale"]
    assert report.settings == ["actions_from=[-1, 1]"]


def test_excess_that_the_environment_cuts_itself() -> None:
    wild = np.random.default_rng(0).normal(0, 2, (200, 1)).astype(np.float32)
    wild[7] = 42.0
    episodes = [played("Pendulum-v1", wild), played("Pendulum-v1", wild[::-1])]
    report = check(episodes, "Pendulum-v1")
    message = found(report, "error")["out-of-range"]
    assert f"{2 * (np.abs(wild) > 2).sum()} of 400 actions" in message
    assert "got up to 42, expected [-2, 2]" in message
    assert "Pendulum-v1 cuts them itself" in message
    assert report.settings == ["actions=clip"]
    assert check_dataset(mended(report, episodes, PENDULUM), open_world("Pendulum-v1")).passed


def test_a_suspicion_of_late_rewards_gives_way_to_the_physics() -> None:
    """Every episode begins with a reward of 0 and ends with an action of 0: late, or just as it was?"""
    actions = np.random.default_rng(0).uniform(-2, 2, (100, 1)).astype(np.float32)
    actions[-1] = 0
    true = [played("Pendulum-v1", actions, seed) for seed in (1, 2)]
    late = [replace(episode, rewards=np.append(0.0, episode.rewards[:-1])) for episode in true]
    assert "late-rewards" in found(check(late), "warning")
    report = check(late, "Pendulum-v1")
    assert "late-rewards" in found(report, "error")
    assert "late-rewards" not in found(report, "warning")


def test_rewards_of_ones_own_are_a_warning(pendulum: list[Episode]) -> None:
    own = [replace(episode, rewards=np.sin(np.arange(len(episode.rewards)))) for episode in pendulum]
    report = check(own, "Pendulum-v1")
    assert report.passed
    assert "rewards are not those of Pendulum-v1" in found(report, "warning")["rewards"]


def test_actions_cut_after_they_were_rewarded() -> None:
    """The simulator cuts them itself, but takes the cost of what it was given."""
    wild = np.random.default_rng(0).uniform(-0.9, 0.9, (120, 6)).astype(np.float32)
    wild[::2, 0] = 3.0
    episode = played("HalfCheetah-v5", wild)
    assert "rewards" not in found(check([episode], "HalfCheetah-v5"), "note")
    report = check([replace(episode, actions=np.clip(wild, -1, 1))], "HalfCheetah-v5")
    assert report.passed
    assert "cut after they had been rewarded" in (found(report, "note") | found(report, "warning"))["rewards"]


def test_a_step_that_leads_elsewhere_is_named_and_no_error(pendulum: list[Episode]) -> None:
    episode = pendulum[1]
    state = episode.observations["state"].copy()
    state[-1] = [-1.0, 0.0, 5.0]
    broken = [pendulum[0], replace(episode, observations={"state": state}), pendulum[2]]
    report = check(broken, "Pendulum-v1")
    assert report.passed
    message = found(report, "warning")["wrong-finals"]
    assert "final observations are not those of their steps: 0.2% of the steps do not follow" in message
    assert message.endswith("The first: episode 1, row 199.")
    assert report.physics is not None
    assert report.physics.grade == "exact"


def test_lost_ends_everywhere_leave_the_physics_exact(pendulum: list[Episode]) -> None:
    """A quarter of what is replayed are ends: they must not spoil the verdict on the rest."""
    short = [cut(episode, start, start + 10) for episode in pendulum for start in range(0, 190, 10)]
    for episode in short:
        episode.observations["state"][-1] = [0.0, -1.0, 7.5]
    report = check(short, "Pendulum-v1")
    assert report.physics is not None
    assert report.physics.grade == "exact"
    assert "10.0% of the steps do not follow" in found(report, "error")["wrong-finals"]


# Ends.


def test_terminals_where_nothing_terminates(pendulum: list[Episode]) -> None:
    ended = [replace(episode, terminated=True, truncated=False) for episode in pendulum]
    report = check(ended, "Pendulum-v1")
    assert "3 of 3 episodes are marked terminated, but Pendulum-v1 never terminates" in str(found(report, "error"))
    assert report.settings == ["time_limit=200"]
    assert check_dataset(mended(report, ended, PENDULUM), open_world("Pendulum-v1")).passed


def test_true_terminals_at_one_length_are_not_suspected(hopper: list[Episode]) -> None:
    """From lengths alone they look like a time limit; the physics say that the hopper fell."""
    falls = [cut(episode, len(episode.actions) - 8, len(episode.actions)) for episode in hopper if episode.terminated]
    assert len(falls) > 5
    assert "time-limit-as-terminal" in found(check(falls), "error")
    assert check(falls, "Hopper-v5").passed


def test_terminals_that_physics_deny(hopper: list[Episode]) -> None:
    early = [replace(cut(episode, 0, 5), terminated=True, truncated=False) for episode in hopper]
    report = check(early, "Hopper-v5")
    assert "Hopper-v5 goes on after 12 of 12 of them" in found(report, "error")["time-limit-as-terminal"]
    assert report.settings == ["time_limit=5"]


def test_terminals_that_are_missing(hopper: list[Episode]) -> None:
    report = check([replace(e, terminated=False, truncated=True) for e in hopper], "Hopper-v5")
    ended = sum(episode.terminated for episode in hopper)
    message = found(report, "error")["missed-terminals"]
    assert f"{ended} of {ended} episodes that Hopper-v5 ended, of those looked at, are marked as cut off" in message


@pytest.mark.parametrize(("at_limit", "level"), [(1, "warning"), (2, "error")])
def test_terminals_at_the_time_limit_where_nothing_can_be_replayed(at_limit: int, level: str) -> None:
    lengths = [100] * at_limit + [30, 44, 52, 60]
    report = check([frozen_lake(length) for length in lengths], "FrozenLake-v1")
    assert f"{at_limit} of them at step 100, the time limit of FrozenLake-v1" in str(found(report, level))
    assert "FrozenLake-v1 cannot set its state" in found(report, "note")["no-replay"]
    assert "Those can: Pendulum, CartPole, " in found(report, "note")["no-replay"]
    assert report.settings == (["time_limit=100"] if level == "error" else [])


def test_confirmed_terminals_may_lie_at_the_time_limit() -> None:
    facts, world = survey(recording([frozen_lake(100), frozen_lake(100)])), open_world("FrozenLake-v1")
    assert end_findings(facts, world, None) != []
    assert end_findings(facts, world, Terminals(confirmed=2, denied=0, missed=0)) == []


# Columns.


def test_a_time_feature_goes_by_its_group(pendulum: list[Episode]) -> None:
    timed = []
    for episode in pendulum:
        state = episode.observations["state"]
        clock = 1 - np.arange(len(state)) / 200
        timed.append(replace(episode, observations={"state": np.column_stack([state[:, :1], clock, state[:, 1:]])}))
    report = check(timed, "Pendulum-v1")
    assert "column 1 looks like an appended time feature" in found(report, "error")["time-feature"]
    assert report.settings == ["drop_columns={state: [1]}"]
    assert report.physics is not None
    assert report.physics.grade == "exact"
    assert check_dataset(mended(report, timed, PENDULUM), open_world("Pendulum-v1")).passed


@pytest.mark.parametrize(
    "name", [pytest.param("ant_opolo_300", marks=pytest.mark.slow), "ant_opolo_1200", "ant_opolo_5400"]
)
def test_columns_of_earlier_versions(name: str) -> None:
    report = check_dataset(open_recording(real_data(f"{name}.npz")), open_world("Ant-v5"))
    assert "got 112 columns, expected 105" in found(report, "error")["time-feature"]
    assert report.settings == ["drop_columns={state: [27, 28, 29, 30, 31, 32, -1]}"]
    assert list(found(report, "error")) == ["time-feature"]
    assert "physics" in found(report, "warning")


@pytest.mark.parametrize("env_id", ["MountainCarContinuous-v0", "CartPole-v1", "HalfCheetah-v5"])
def test_another_environment_altogether_is_not_mended(pendulum: list[Episode], env_id: str) -> None:
    ended = [replace(episode, terminated=True, truncated=False) for episode in pendulum]
    report = check(ended, env_id)
    assert "observation-shape" in found(report, "error")
    assert report.settings == []
    assert report.command("log") == ""


def test_the_same_shapes_from_another_world(pendulum: list[Episode]) -> None:
    """Shapes agree, physics do not."""
    foreign = [replace(episode, observations={"state": episode.observations["state"] * 0.3}) for episode in pendulum]
    report = check(foreign, "Pendulum-v1")
    assert "does not match Pendulum-v1" in found(report, "error")["physics"]


def test_the_version_that_repeats_is_named() -> None:
    report = check(rollouts("Walker2d-v4", 4, 100), "Walker2d-v5")
    fixes = [finding.fix for finding in report.findings if finding.kind == "physics"]
    assert fixes == ["It repeats exactly in Walker2d-v4: use --env Walker2d-v4"]


def test_groups_and_kinds_of_actions() -> None:
    named = [replace(e, observations={"position": e.observations["state"]}) for e in random_episodes(action=1)]
    report = check(named, "Pendulum-v1")
    assert "got ['position'], expected ['state']" in found(report, "error")["observation-groups"]
    choices = [replace(episode, actions=np.zeros(20, np.int64)) for episode in random_episodes()]
    assert "actions are choices" in found(check(choices, "Pendulum-v1"), "error")["action-kind"]
    several = found(check(random_episodes(action=3), "Pendulum-v1"), "error")
    assert "expected [1] float32" in several["action-shape"]
    images = [replace(e, observations={"state": np.zeros((21, 3), np.uint8)}) for e in random_episodes(action=1)]
    assert "got uint8, expected float32" in found(check(images, "Pendulum-v1"), "error")["observation-dtype"]


def test_a_declared_space_gives_way_to_the_physics(pendulum: list[Episode]) -> None:
    assert not found(check(pendulum, "Pendulum-v1", space=Box((-3.0,), (3.0,))), "warning")
    report = check(random_episodes(state=23, action=7), "Pusher-v5", space=Box((-1.0,) * 7, (1.0,) * 7))
    assert "declares another action space than Pusher-v5" in found(report, "warning")["declared-space"]
    lake = check([frozen_lake(30)], "FrozenLake-v1", space=Discrete(5))
    assert "got one of 5, expected one of 4" in found(lake, "warning")["declared-space"]

"""Actions in other units, and actions out of range: which setting the physics bear out, and which they do not."""

from dataclasses import replace

import numpy as np
import pytest
from checked_rollouts import PENDULUM, check, found, mended, played, rollouts

from understudy.core.spec import Box
from understudy.data.episode import Episode
from understudy.data.formats.readers import open_recording
from understudy.tools.dataset.check import check_dataset
from understudy.tools.dataset.reference_env import open_world
from worlds import real_data


@pytest.fixture(scope="module")
def pendulum() -> list[Episode]:
    return rollouts("Pendulum-v1")


def scaled(episodes: list[Episode], factor: float) -> list[Episode]:
    return [replace(episode, actions=episode.actions * np.float32(factor)) for episode in episodes]


@pytest.mark.parametrize(("factor", "reach"), [(3, "6"), (0.1, "0.2"), (50, "100"), (1.7, "3.4"), (1.234, "2.468")])
def test_any_symmetric_range_is_found_and_the_fix_is_one(pendulum: list[Episode], factor: float, reach: str) -> None:
    wrong = scaled(pendulum, factor)
    report = check(wrong, "Pendulum-v1")
    assert list(found(report, "error")) == ["action-scale"]
    assert f"recorded in [-{reach}, {reach}], and Pendulum-v1 takes [-2, 2]" in found(report, "error")["action-scale"]
    assert report.settings == [f"actions_from=[-{reach}, {reach}]"]
    assert check_dataset(mended(report, wrong, PENDULUM), open_world("Pendulum-v1")).passed


def test_a_real_file_times_three() -> None:
    """Its actions are in [-1, 1], a half of the environment's."""
    episodes = scaled(list(open_recording(str(real_data("pendulum_medium.npz"))).episodes()), 3)
    assert check(episodes, "Pendulum-v1").settings == ["actions_from=[-3, 3]"]


def test_a_range_that_no_action_reaches(pendulum: list[Episode]) -> None:
    """It is told from the motion, not from the largest action."""
    shy = [played("Pendulum-v1", episode.actions * np.float32(0.61)) for episode in pendulum]
    wrong = scaled(shy, 3)
    assert max(np.abs(episode.actions).max() for episode in wrong) < 4
    assert check(wrong, "Pendulum-v1").settings == ["actions_from=[-6, 6]"]


@pytest.mark.parametrize(("env_id", "half"), [("HalfCheetah-v5", 1.0), ("Humanoid-v5", 0.4)])
def test_a_simulator_with_contacts(env_id: str, half: float) -> None:
    episodes = rollouts(env_id, 3, 60)
    report = check(scaled(episodes, 3), env_id)
    assert report.settings == [f"actions_from=[-{3 * half:g}, {3 * half:g}]"]
    box = Box((-half,) * episodes[0].actions.shape[1], (half,) * episodes[0].actions.shape[1])
    assert check_dataset(mended(report, scaled(episodes, 3), box), open_world(env_id)).passed


def test_actions_outside_the_range_that_was_found(pendulum: list[Episode]) -> None:
    wrong = scaled(pendulum, 3)
    wrong[1].actions[7] = 9.0
    report = check(wrong, "Pendulum-v1")
    message = found(report, "error")["out-of-range"]
    assert (
        "1 of 600 actions (0.2%) lies outside the range they were recorded in: got up to 9, expected [-6, 6]" in message
    )
    assert report.settings == ["actions_from=[-6, 6]", "actions=clip"]


def test_another_world_is_not_explained_by_a_scale(pendulum: list[Episode]) -> None:
    foreign = [replace(e, observations={"state": e.observations["state"] * 0.3}) for e in scaled(pendulum, 3)]
    report = check(foreign, "Pendulum-v1")
    assert "physics" in found(report, "error")
    assert "action-scale" not in found(report, "error")
    still = [replace(episode, actions=np.zeros_like(episode.actions)) for episode in pendulum]
    assert "physics" in found(check(still, "Pendulum-v1"), "error")


def test_the_environments_own_units_are_left_alone(pendulum: list[Episode]) -> None:
    """Another simulator version is no other scale."""
    assert check(pendulum, "Pendulum-v1").settings == []
    hopper = check_dataset(open_recording(str(real_data("hopper_opolo_3500.npz"))), open_world("Hopper-v5"))
    assert hopper.physics is not None
    assert (hopper.physics.actions, hopper.physics.reach) == ("recorded", None)


# Out of range.


def test_a_few_that_the_environment_cut(pendulum: list[Episode]) -> None:
    """Two of 600 steps: chance would hardly sample them."""
    actions = pendulum[0].actions.copy()
    actions[[20, 150]] = [[2.5], [-40.0]]
    episodes = [played("Pendulum-v1", actions), *pendulum[1:]]
    report = check(episodes, "Pendulum-v1")
    assert "Pendulum-v1 cuts them itself: `clip` changes no motion." in found(report, "error")["out-of-range"]
    assert report.settings == ["actions=clip"]
    assert check_dataset(mended(report, episodes, PENDULUM), open_world("Pendulum-v1")).passed


def test_clipping_is_not_advised_against_the_physics(pendulum: list[Episode]) -> None:
    """Numbers that were written over later: what was really done cannot be told."""
    actions = pendulum[0].actions.copy()
    actions[[20, 90, 150]] = np.where(actions[[20, 90, 150]] > 0, -40.0, 40.0)
    report = check([replace(pendulum[0], actions=actions), *pendulum[1:]], "Pendulum-v1")
    assert "do not lead in Pendulum-v1 where they led" in found(report, "error")["out-of-range"]
    assert report.settings == []
    fix = next(finding.fix for finding in report.findings if finding.kind == "out-of-range")
    assert "clip" not in fix
    assert "data.actions_from=[low, high]" in fix


def test_cut_before_they_were_played() -> None:
    """The cheetah pays for the action it is given, so rewards tell who did the cutting."""
    wild = np.random.default_rng(0).normal(0, 2, (120, 6)).astype(np.float32)
    episode = replace(played("HalfCheetah-v5", np.clip(wild, -1, 1)), actions=wild)
    report = check([episode], "HalfCheetah-v5")
    assert "They were cut before they were played" in found(report, "error")["out-of-range"]
    assert report.settings == ["actions=clip"]


def test_what_cannot_be_replayed_leaves_the_choice_open() -> None:
    rng = np.random.default_rng(0)
    state = {"state": rng.standard_normal((51, 23)).astype(np.float32)}
    actions = rng.uniform(-5, 5, (50, 7)).astype(np.float32)
    report = check([Episode(state, actions, rng.standard_normal(50), False, True)], "Pusher-v5")
    assert report.physics is None
    fix = next(finding.fix for finding in report.findings if finding.kind == "out-of-range")
    assert fix.startswith("actions=clip, or actions_from=[low, high]")

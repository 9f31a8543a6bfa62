"""Episodes that are longer than their environment lasts: several joined to one, or recorded under another limit?"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checked_rollouts import PENDULUM, check, cut, found, frozen_lake, mended, rollouts

from understudy.data.episode import Episode
from understudy.tools.dataset.check import check_dataset, check_file
from understudy.tools.dataset.reference_env import open_world
from worlds import real_data


@pytest.fixture(scope="module")
def pendulum() -> list[Episode]:
    return rollouts("Pendulum-v1", count=4)


def joined(episodes: list[Episode], **changes: Any) -> Episode:
    """One after the other, as a file without marks has them."""
    state = [episode.observations["state"][:-1] for episode in episodes]
    last = episodes[-1].observations["state"][-1:]
    actions, rewards = (np.concatenate([getattr(e, name) for e in episodes]) for name in ("actions", "rewards"))
    return replace(
        Episode({"state": np.concatenate([*state, last])}, actions, rewards, False, False),
        **changes,
    )


@pytest.mark.parametrize("truncated", [False, True])
def test_joints_are_seen_by_replaying_them(pendulum: list[Episode], truncated: bool) -> None:
    log = [joined(pendulum, truncated=truncated)]
    report = check(log, "Pendulum-v1")
    message = found(report, "error")["longer-than-limit"]
    assert "1 of 1 episode lasts longer than Pendulum-v1: got up to 800 steps, expected at most 200." in message
    assert "for they break off every 200 steps" in message
    assert "breaks" not in found(report, "warning")
    assert report.settings == ["episode_steps=200"]
    again = check_dataset(mended(report, log, PENDULUM), open_world("Pendulum-v1"))
    assert again.passed
    assert again.survey is not None
    assert again.survey.lengths.tolist() == [200] * 4
    assert "breaks" not in found(again, "warning")


def test_a_joint_is_looked_at_in_a_recording_of_many_steps() -> None:
    """It is one row of thousands, and among those that are drawn besides."""
    many = rollouts("Pendulum-v1", count=16)
    report = check([joined(many[:2], truncated=True), *many[2:]], "Pendulum-v1")
    assert "for they break off every 200 steps" in found(report, "error")["longer-than-limit"]
    assert report.settings == ["episode_steps=200"]


def test_recorders_that_lose_a_step_join_sooner(pendulum: list[Episode]) -> None:
    report = check([joined([cut(episode, 0, 199) for episode in pendulum])], "Pendulum-v1")
    assert "they break off every 199 steps" in found(report, "error")["longer-than-limit"]
    assert report.settings == ["episode_steps=199"]


def test_a_longer_limit_is_told_from_joints() -> None:
    report = check(rollouts("Pendulum-v1", count=2, limit=250), "Pendulum-v1")
    assert report.passed
    assert "2 of 2 episodes last longer than Pendulum-v1" in found(report, "warning")["longer-than-limit"]
    assert "goes on from there" in found(report, "warning")["longer-than-limit"]
    assert report.settings == []


def test_other_breaks_are_still_told(pendulum: list[Episode]) -> None:
    log = joined(pendulum)
    for row in range(5, 800, 10):
        log.observations["state"][row] = [0.0, -1.0, 7.5]
    report = check([log], "Pendulum-v1")
    assert "longer-than-limit" in found(report, "error")
    assert "The first: episode 0, row " in found(report, "error")["wrong-observations"]


@pytest.mark.parametrize(("truncated", "level"), [(False, "error"), (True, "warning")])
def test_where_nothing_can_be_replayed_the_marks_decide(truncated: bool, level: str) -> None:
    """Terminals alone leave open how many time limits lie before one."""
    unfinished = replace(frozen_lake(40), terminated=False, truncated=truncated)
    report = check([frozen_lake(250), unfinished], "FrozenLake-v1")
    fix = next(finding.fix for finding in report.findings if finding.kind == "longer-than-limit")
    assert "1 of 2 episodes lasts longer than FrozenLake-v1" in found(report, level)["longer-than-limit"]
    assert "episode_steps=100" in fix
    assert report.settings == ([] if truncated else ["episode_steps=100"])


def test_a_file_without_any_mark_is_read_with_the_environments_clock(pendulum: list[Episode], tmp_path: Path) -> None:
    log, path = joined(pendulum), str(tmp_path / "log.npz")
    flat = {"observations": log.observations["state"][:-1], "actions": log.actions, "rewards": log.rewards}
    save(path, flat)
    assert list(found(check_file(path), "error")) == ["unreadable"]
    report = check_file(path, "Pendulum-v1")
    assert list(found(report, "error")) == ["no-boundary"]
    assert "cut after every 200 steps, as Pendulum-v1 does." in found(report, "error")["no-boundary"]
    assert report.settings == ["episode_steps=200"]
    assert report.command(path).endswith("log-mended --env Pendulum-v1 episode_steps=200")
    assert report.survey is not None
    assert report.survey.lengths.tolist() == [200] * 4
    save(path, {**flat, "rewards": log.rewards[:-1]})
    assert list(found(check_file(path, "Pendulum-v1"), "error")) == ["unreadable"]


def test_a_real_file_without_its_marks(tmp_path: Path) -> None:
    """Its episodes have 199 steps: the last one of each was not written."""
    with np.load(real_data("pendulum_replay.npz")) as file:
        save(str(tmp_path / "log.npz"), {name: file[name] for name in ("observations", "actions", "rewards")})
    report = check_file(str(tmp_path / "log.npz"), "Pendulum-v1")
    assert "cut after every 199 steps, where they break off in Pendulum-v1." in found(report, "error")["no-boundary"]
    assert report.settings == ["episode_steps=199"]
    assert "breaks" not in found(report, "warning")


def save(path: str, columns: dict[str, Any]) -> None:
    np.savez(path, **columns)


def test_numbered_episodes_under_a_longer_limit_are_not_called_joined() -> None:
    """25 demonstrations of a door, each numbered, longer than today's limit; nothing of them can be replayed."""
    pytest.importorskip("gymnasium_robotics")
    report = check_file(str(real_data("adroit_door_human.npz")), "AdroitHandDoor-v1")
    assert "longer-than-limit" not in found(report, "error")
    assert "25 of 25 episodes last longer" in found(report, "warning")["longer-than-limit"]
    assert "episode_steps" not in " ".join(report.settings)

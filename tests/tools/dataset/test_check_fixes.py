"""Fixes: only where the evidence bears them, with what they cost, and tried before they are offered."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checked_rollouts import PENDULUM, check, cut, found, rollouts

from understudy.data.episode import Episode
from understudy.data.formats.readers import open_recording
from understudy.data.transforms import Mending, mend, without_broken_final
from understudy.tools.dataset.check import Outcome, Report, check_file
from understudy.tools.dataset.findings import Finding


@pytest.fixture(scope="module")
def pendulum() -> list[Episode]:
    return rollouts("Pendulum-v1", count=4)


def with_last(episode: Episode, value: float) -> Episode:
    state = episode.observations["state"].copy()
    state[-1] = value
    return replace(episode, observations={"state": state})


def test_finals_that_are_not_finite_cost_no_step(pendulum: list[Episode]) -> None:
    lost = [with_last(episode, np.nan) for episode in pendulum]
    report = check(lost, "Pendulum-v1")
    fix = next(finding.fix for finding in report.findings if finding.kind == "non-finite")
    assert fix == "not_finite=drop takes 4 final observations as unknown, and no step is lost by it."
    assert report.outcome is not None
    assert (report.outcome.steps, report.outcome.errors) == (800, ())
    lost[0].observations["state"][7] = np.inf
    report = check(lost, "Pendulum-v1")
    fix = next(finding.fix for finding in report.findings if finding.kind == "non-finite")
    assert fix.startswith("not_finite=drop leaves 1 episode out (200 of 800 steps) and takes 3 final observations as")
    assert report.outcome is not None
    assert report.outcome.sentence() == "It keeps 600 of 800 steps. Checked again: it passes."


def test_a_broken_final_is_unknown_and_everything_else_stays(pendulum: list[Episode]) -> None:
    lost = without_broken_final(with_last(pendulum[0], np.inf))
    assert not lost.final_known
    np.testing.assert_array_equal(lost.observations["state"], pendulum[0].observations["state"][:-1])
    assert without_broken_final(pendulum[0]) is pendulum[0]
    assert without_broken_final(lost) is lost


def test_what_a_time_limit_costs_in_terminals(pendulum: list[Episode]) -> None:
    ended = [replace(episode, terminated=True, truncated=False) for episode in pendulum]
    report = check(ended, "Pendulum-v1")
    assert report.settings == ["time_limit=200"]
    assert report.outcome is not None
    assert report.outcome.sentence() == "It keeps 800 of 800 steps and 0 of 4 terminals. Checked again: it passes."


def test_one_denied_end_of_six_is_no_time_limit() -> None:
    falls = rollouts("Hopper-v5", 6)
    early = [*falls[:5], replace(cut(falls[5], 0, 5), terminated=True, truncated=False)]
    report = check(early, "Hopper-v5")
    assert report.settings == []
    assert "goes on after 1 of 6 of them" in found(report, "warning")["time-limit-as-terminal"]


def test_ends_of_many_lengths_are_no_time_limit(pendulum: list[Episode]) -> None:
    cuts = [cut(pendulum[0], 0, length) for length in (20, 20, 31, 44, 60)]
    report = check([replace(e, terminated=True, truncated=False) for e in cuts], "Pendulum-v1")
    assert report.settings == []
    assert "terminals that are none" in found(report, "error")["time-limit-as-terminal"]


def test_no_fix_is_printed_where_the_physics_are_anothers(pendulum: list[Episode]) -> None:
    foreign = [
        replace(e, observations={"state": e.observations["state"] * 0.3}, terminated=True, truncated=False)
        for e in pendulum
    ]
    report = check(foreign, "Pendulum-v1")
    assert {"physics", "time-limit-as-terminal"} <= set(found(report, "error"))
    assert (report.settings, report.command("log.npz")) == ([], "")
    assert not any("data.time_limit" in finding.fix_within("data.") for finding in report.findings)


def test_part_of_the_rewards_late_is_not_mended_by_moving_all(pendulum: list[Episode]) -> None:
    late = [replace(e, rewards=np.append(0.0, e.rewards[:-1])) for e in pendulum[:3]]
    report = check([*late, pendulum[3]], "Pendulum-v1")
    assert "in part of the data" in found(report, "error")["late-rewards"]
    assert report.settings == []
    assert check(late, "Pendulum-v1").settings == ["late_rewards=true"]


def test_fixes_that_make_it_worse_are_not_offered() -> None:
    """Cut where the clock says, every piece would have lost its end."""
    finding = Finding("error", "any", "", settings={"time_limit": 3})
    better = Outcome(10, 10, 0, 1, (), worse=False)
    assert Report("log", "", [finding], outcome=better).settings == ["time_limit=3"]
    assert Report("log", "", [finding], outcome=replace(better, worse=True)).settings == []


def test_a_file_without_marks_that_no_clock_can_cut(tmp_path: Path) -> None:
    falls = rollouts("Hopper-v5", 60)
    flat: dict[str, Any] = {
        "observations": np.concatenate([e.observations["state"][:-1] for e in falls]),
        "actions": np.concatenate([e.actions for e in falls]),
        "rewards": np.concatenate([e.rewards for e in falls]),
    }
    np.savez(tmp_path / "log.npz", **flat)
    report = check_file(str(tmp_path / "log.npz"), "Hopper-v5")
    assert {"no-boundary", "longer-than-limit"} <= set(found(report, "error"))
    assert report.settings == []


def test_the_name_of_a_mended_copy_has_no_format_of_its_own() -> None:
    finding = Finding("error", "any", "", settings={"time_limit": 3})
    words = shlex.split(Report("log", "", [finding]).command("data/log.v1.2.npz"))
    assert words[3:5] == ["data/log.v1.2.npz", "log_v1_2-mended"]


def test_dropping_keeps_what_only_lost_its_end(pendulum: list[Episode]) -> None:
    lost = [with_last(pendulum[0], np.nan), pendulum[1]]
    kept = list(mend(open_recording(lost), Mending(not_finite="drop"), PENDULUM).episodes())
    assert [(len(episode), episode.final_known) for episode in kept] == [(200, False), (200, True)]

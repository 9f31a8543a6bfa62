"""Which environment a recording is checked against, how it is sampled, and that nothing in it stops a check."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from checked_rollouts import PENDULUM, check, cut, found, odd_episode, recording, rollouts

from understudy.cli.dataset_screens import remedy
from understudy.core.errors import ConfigError, DataError, MissingPackageError
from understudy.data.episode import Episode
from understudy.data.recording import Recording
from understudy.data.transforms import Mending
from understudy.run.overrides import apply_override
from understudy.tools.dataset.check import Report, check_dataset
from understudy.tools.dataset.findings import Finding
from understudy.tools.dataset.physics_sample import SAMPLE, gather, wanted_steps
from understudy.tools.dataset.reference_env import open_world
from understudy.tools.dataset.survey import survey
from worlds import random_episodes


@pytest.fixture(scope="module")
def pendulum() -> list[Episode]:
    return rollouts("Pendulum-v1")


# Which environment.


def test_the_files_own_word_is_used_if_it_is_registered(pendulum: list[Episode]) -> None:
    report = check(pendulum, env="Pendulum-v1")
    assert report.env_id == "Pendulum-v1"
    assert "It says it comes from Pendulum-v1" in found(report, "note")["env"]
    assert report.physics is not None


@pytest.mark.parametrize("word", ["subprocess:Popen", "os", "Hopper-v2", "Imaginary-v9", "../x"])
def test_any_other_word_means_nothing(pendulum: list[Episode], word: str) -> None:
    report = check(pendulum, env=word)
    assert report.passed
    assert report.env_id == ""
    assert f"comes from '{word}', which cannot be used here" in found(report, "note")["no-env"]


def test_a_name_says_nothing_of_the_arguments_an_environment_was_made_with(pendulum: list[Episode]) -> None:
    named = [replace(episode, observations={"other": episode.observations["state"]}) for episode in pendulum]
    report = check(named, env="Pendulum-v1")
    assert report.passed
    assert report.env_id == ""
    assert "but shows other groups of observations: got other." in found(report, "note")["no-env"]
    assert not check(named, "Pendulum-v1", env="Pendulum-v1").passed


def test_an_environment_that_was_asked_for_must_exist(pendulum: list[Episode]) -> None:
    assert "With --env ID" in found(check(pendulum), "note")["no-env"]
    with pytest.raises(ConfigError, match="Did you mean 'Pendulum-v1'"):
        check(pendulum, "Pendulun-v1")
    with pytest.raises(MissingPackageError, match=r"cannot be made here\. Try Hopper-v4 or Hopper-v5\."):
        check(pendulum, "Hopper-v2")


# Broken data.


def test_a_number_that_is_none_has_a_place(pendulum: list[Episode]) -> None:
    state = pendulum[2].observations["state"].copy()
    state[17, 1] = np.nan
    report = check([*pendulum[:2], replace(pendulum[2], observations={"state": state})], "Pendulum-v1")
    message = found(report, "error")["non-finite"]
    assert message.startswith(
        "dataset 'log', episode 2, observation 'state', row 17, column 1: not finite: 1 such value"
    )
    assert report.physics is not None
    assert report.physics.grade == "exact"


@pytest.mark.parametrize("column", ["rewards", "actions"])
def test_infinite_numbers_do_not_stop_the_replay(pendulum: list[Episode], column: str) -> None:
    values = getattr(pendulum[0], column).astype(np.float64)
    values[5] = np.inf
    report = check([replace(pendulum[0], **{column: values}), *pendulum[1:]], "Pendulum-v1")
    assert "non-finite" in found(report, "error")
    assert report.physics is not None


def test_lengths_that_disagree(pendulum: list[Episode]) -> None:
    short = replace(pendulum[1], rewards=pendulum[1].rewards[:-1])
    report = check([pendulum[0], short], "Pendulum-v1")
    assert "episode 1: has 200 actions and rewards of shape [199], expected [200]" in str(found(report, "error"))


def test_a_recording_that_breaks_off(pendulum: list[Episode]) -> None:
    def play() -> Iterator[Episode]:
        yield from pendulum[:2]
        raise DataError("dataset 'log'", "is damaged")

    report = check_dataset(Recording("log", 600, play), open_world("Pendulum-v1"))
    assert "From episode 2 on: dataset 'log': is damaged." in found(report, "error")["unreadable"]
    assert report.physics is not None
    nothing = check_dataset(Recording("log", 600, lambda: iter([])), open_world("Pendulum-v1"))
    assert "no-episodes" in found(nothing, "error")


# How.


def test_recordings_are_walked_twice_and_keep_their_precision(pendulum: list[Episode]) -> None:
    walks = 0

    def play() -> Iterator[Episode]:
        nonlocal walks
        walks += 1
        yield from pendulum

    log = Recording("log", 600, play, PENDULUM)
    check_dataset(log)
    assert walks == 1
    check_dataset(log, open_world("Pendulum-v1"))
    assert walks == 3
    sample = gather(log, survey(log), ())
    assert sample is not None
    together = np.concatenate([episode.observations["state"][:-1] for episode in pendulum])
    np.testing.assert_array_equal(sample.steps.observations, together[sample.numbers])
    after = np.concatenate([episode.observations["state"][1:] for episode in pendulum])
    np.testing.assert_array_equal(sample.steps.next_observations, after[sample.numbers])


def test_samples_are_small_and_hold_ends() -> None:
    facts = survey(recording([cut(e, 0, 20) for e in random_episodes(count=300)]))
    wanted = wanted_steps(facts)
    assert 400 < len(wanted) <= SAMPLE
    assert (np.diff(wanted) > 0).all()
    assert (wanted % 20 == 19).sum() >= 40


def test_unknown_finals_and_following_rewards_are_not_made_up(pendulum: list[Episode]) -> None:
    lost = [
        replace(episode, observations={"state": episode.observations["state"][:-1]}, final_known=False)
        for episode in pendulum
    ]
    sample = gather(recording(lost), survey(recording(lost)), ())
    assert sample is not None
    last = sample.numbers % 200 == 199
    assert last.any()
    assert np.isnan(sample.steps.next_observations[last]).all()
    assert not np.isnan(sample.steps.next_observations[~last]).any()
    assert sample.steps.following_rewards is not None
    assert (np.isnan(sample.steps.following_rewards) == last).all()


def test_every_setting_of_a_finding_is_written_as_a_command_line_reads_it() -> None:
    settings: dict[str, tuple[Any, str]] = {
        "not_finite": ("drop", "not_finite=drop"),
        "episode_steps": (1000, "episode_steps=1000"),
        "decompress": (["camera"], "decompress=[camera]"),
        "drop_columns": ({"state": [27, -1], "other": [0]}, "drop_columns={state: [27, -1], other: [0]}"),
        "time_limit": (1000, "time_limit=1000"),
        "late_rewards": (True, "late_rewards=true"),
        "actions_from": ([-1.0, 0.5], "actions_from=[-1, 0.5]"),
        "actions": ("clip", "actions=clip"),
    }
    assert list(settings) == list(Mending.model_fields)
    for name, (value, text) in settings.items():
        words: dict[str, Any] = {}
        apply_override(words, text)
        assert Mending.parse(words) == Mending.parse({name: value}) != Mending()
        finding = Finding("error", "any", "log: is wrong.", ", if you like", {name: value})
        assert (finding.fix, finding.fix_within("data.")) == (f"{text}, if you like", f"data.{text}, if you like")
        assert Report("log", "", [finding]).settings == [text]
        assert remedy(finding) == f"fix: data.{text}, if you like"


def test_of_several_settings_the_first_mends_and_the_others_are_told() -> None:
    either = Finding("error", "any", "", " by hand", {"actions": "clip", "actions_from": ["low", "high"]})
    assert Report("log", "", [either]).settings == ["actions=clip"]
    assert remedy(either) == "fix: data.actions=clip, or data.actions_from=[low, high] by hand"
    assert remedy(Finding("error", "any", "", "Mend data.actions=clip yourself.")) == "Mend data.actions=clip yourself."
    later = Finding("error", "other", "", settings={"actions": "refuse"})
    assert Report("log", "", [either, later]).settings == ["actions=clip"]
    assert Report("log", "", [Finding("warning", "any", "", settings={"time_limit": 3})]).settings == []


def test_whatever_the_numbers_are_there_is_a_report() -> None:
    rng = np.random.default_rng(0)
    replayed = 0
    for _ in range(80):
        episodes = [odd_episode(rng) for _ in range(rng.integers(0, 4))]
        report = check_dataset(Recording("log", 60, episodes.__iter__), open_world("Pendulum-v1"))
        replayed += report.physics is not None
        json.dumps(report.to_json("log"), allow_nan=False)
        assert report.findings
    assert replayed > 10

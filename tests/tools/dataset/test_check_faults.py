"""Faults in a small share of the rows: each is found, called by its name, and fails from a hundredth of them on."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from checked_rollouts import check, found, rollouts

from understudy.data.corruption import corrupt
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.envs.gym import make_env
from understudy.envs.physics.poses import POSES
from understudy.tools.dataset.check import check_dataset, check_file
from understudy.tools.dataset.reference_env import open_world, quiet_versions
from worlds import real_data

Change = Callable[[Episode], Episode]


@pytest.fixture(scope="module")
def sets() -> dict[str, list[Episode]]:
    """In the precision people store."""
    counts = {"Pendulum-v1": 4, "CartPole-v1": 20, "Hopper-v5": 15}
    return {env_id: [single(e) for e in rollouts(env_id, count)] for env_id, count in counts.items()}


def single(episode: Episode) -> Episode:
    state, rewards = episode.observations["state"].astype(np.float32), episode.rewards.astype(np.float32)
    return replace(episode, observations={"state": state}, rewards=rewards)


def every(step: int, episode: Episode) -> Any:
    """Rows that are made wrong."""
    return np.arange(2, len(episode) - 1, step)


def with_rewards(wrong: Callable[[Any], Any], step: int = 20) -> Change:
    def change(episode: Episode) -> Episode:
        rewards = episode.rewards.copy()
        rows = every(step, episode)
        rewards[rows] = wrong(episode.rewards)[rows]
        return replace(episode, rewards=rewards)

    return change


def with_states(wrong: Callable[[Any, int], Any], step: int = 20) -> Change:
    """`wrong(state, row)` gives the rows from `row` on that are put in their place."""

    def change(episode: Episode) -> Episode:
        state = episode.observations["state"].copy()
        for row in every(step, episode):
            made = wrong(episode.observations["state"], row)
            state[row : row + len(made)] = made
        return replace(episode, observations={"state": state})

    return change


def with_actions(wrong: Callable[[Any, int], Any], step: int = 20) -> Change:
    def change(episode: Episode) -> Episode:
        actions = episode.actions.copy()
        for row in every(step, episode):
            actions[row] = wrong(episode.actions, row)
        return replace(episode, actions=actions)

    return change


def jumbled(state: Any, row: int) -> Any:
    made = state[row : row + 1].copy()
    made[0, 1] += 0.3
    return made


FAULTS: dict[str, tuple[str, str, Change]] = {
    "negated rewards": ("rewards", "have the wrong sign", with_rewards(lambda r: -r)),
    "tenths of rewards": ("rewards", " are 0.1 × reward. ", with_rewards(lambda r: 0.1 * r)),
    "other rewards": (
        "rewards",
        "are off, and the others are right",
        with_rewards(lambda r: r + np.arange(len(r)) ** 2),
    ),
    "late rewards": ("late-rewards", "in the row after", lambda e: replace(e, rewards=np.append(0, e.rewards[:-1]))),
    "early rewards": ("early-rewards", "in the row before", lambda e: replace(e, rewards=np.append(e.rewards[1:], 0))),
    "stale observations": ("repeated-observations", "", with_states(lambda s, row: s[row - 1 : row])),
    "swapped observations": ("wrong-observations", "exchanged", with_states(lambda s, row: s[[row + 1, row]])),
    "a wrong column": ("wrong-observations", "", with_states(jumbled)),
    "flipped actions": ("wrong-actions", "", with_actions(lambda a, row: 1 - a[row] if a.ndim == 1 else -a[row])),
    "late actions": ("late-actions", "", with_actions(lambda a, row: a[row - 1], step=1)),
}
CONSTANT = {"late rewards", "early rewards", "tenths of rewards"}
"""Where all rewards are the same, nobody can see these."""


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found_by_name(fault: str, sets: dict[str, list[Episode]]) -> None:
    kind, words, change = FAULTS[fault]
    for env_id, episodes in sets.items():
        if env_id == "CartPole-v1" and fault in CONSTANT:
            continue
        report = check([change(episode) for episode in episodes], env_id)
        assert words in found(report, "error")[kind], env_id
        assert set(found(report, "error")) - {"physics"} == {kind}, env_id
        assert set(report.settings) <= {"late_rewards=true"}, env_id


def test_a_few_are_a_warning_and_places_are_told(sets: dict[str, list[Episode]]) -> None:
    episodes = list(sets["Pendulum-v1"])
    rewards = episodes[1].rewards.copy()
    rewards[[17, 90]] += 1
    episodes[1] = replace(episodes[1], rewards=rewards)
    report = check(episodes, "Pendulum-v1")
    assert report.passed
    message = found(report, "warning")["rewards"]
    assert "2 of 498 rewards whose steps repeat in Pendulum-v1 (0.4%) are off, and the others are right." in message
    assert f"episode 1, row 17 (got {rewards[17]:.4g}, expected {rewards[17] - 1:.4g}); episode 1, row 90 (" in message


def test_our_own_corruption_is_found_and_known_by_its_column(sets: dict[str, list[Episode]]) -> None:
    world = open_world("Hopper-v5")
    data = Dataset.from_episodes(sets["Hopper-v5"], world.spec.action, name="log")
    report = check_dataset(corrupt(data, "reward_flip", share=0.3), world)
    assert "-1 × reward + " in found(report, "error")["rewards"]
    marked = found(report, "warning")["corrupted"]
    assert f"of {data.steps:,} are marked as made wrong on purpose. Corrupted on purpose: reward_flip" in marked
    shuffled = check_dataset(corrupt(data, "dynamics_shuffle", share=0.1), world)
    assert "final observations are not those of their steps" in found(shuffled, "error")["wrong-finals"]


def test_a_column_in_degrees() -> None:
    """In all episodes, and in some."""
    episodes = []
    clean = rollouts("Pendulum-v1", 8, 60)
    for episode in clean:
        state = episode.observations["state"].copy()
        state[:, 2] = np.rad2deg(state[:, 2])
        episodes.append(replace(episode, observations={"state": state}))
    report = check(episodes, "Pendulum-v1")
    assert set(found(report, "error")) == {"physics", "wrong-column"}
    assert "an observation is in degrees (column 2)" in found(report, "error")["wrong-column"]
    some = check([*episodes[:2], *clean[2:]], "Pendulum-v1")
    assert set(found(some, "error")) == {"wrong-column"}


def test_two_worlds_in_one_recording(sets: dict[str, list[Episode]]) -> None:
    foreign = rollouts("Pendulum-v1", 2, seed=50)
    light = make_env("Pendulum-v1").unwrapped
    for number, episode in enumerate(foreign):
        light.reset(seed=number)
        vars(light)["g"] = 3.0
        state = [np.asarray(light.reset(seed=number)[0])]
        state += [np.asarray(light.step(action)[0]) for action in episode.actions]
        foreign[number] = replace(episode, observations={"state": np.array(state)})
    report = check([*sets["Pendulum-v1"], *foreign], "Pendulum-v1")
    message = found(report, "error")["mixed-environments"]
    assert "whole episodes do not follow" in message
    assert "episode 4, row " in message


def test_lost_boundaries_are_not_mended_by_a_clock(sets: dict[str, list[Episode]]) -> None:
    """Joined where each fell: to cut every thousand steps would leave nearly all of them joined."""
    episodes = sets["Hopper-v5"] * 5
    state = [*(e.observations["state"][:-1] for e in episodes), episodes[-1].observations["state"][-1:]]
    actions, rewards = (np.concatenate([getattr(e, name) for e in episodes]) for name in ("actions", "rewards"))
    whole = Episode({"state": np.concatenate(state)}, actions, rewards, True, False)
    assert len(whole) > 1000
    report = check([whole], "Hopper-v5")
    assert "joined at places that no length tells" in found(report, "error")["longer-than-limit"]
    assert "No action leads there" in str([finding.advice for finding in report.findings])
    assert report.settings == []


def test_actions_counted_from_one(sets: dict[str, list[Episode]]) -> None:
    episodes = [replace(episode, actions=episode.actions + 1) for episode in sets["CartPole-v1"]]
    errors = found(check(episodes, "CartPole-v1"), "error")
    assert "counted from 1: got 1 to 2, expected 0 to 1." in errors["actions-from-one"]
    assert "no-such-action" not in errors
    two = [replace(episode, actions=episode.actions + 2) for episode in sets["CartPole-v1"]]
    assert "no-such-action" in found(check(two, "CartPole-v1"), "error")


def test_frames_that_were_dropped_show_without_an_environment(sets: dict[str, list[Episode]]) -> None:
    change = FAULTS["stale observations"][2]
    report = check([change(episode) for episode in sets["Pendulum-v1"]])
    assert "lead to the very observation they started from" in found(report, "warning")["repeated-observations"]


def test_terminals_are_judged_where_no_step_can_be_replayed() -> None:
    """A walker falls faster than it shows: the rule is asked of the observation instead."""
    falls = [single(episode) for episode in rollouts("Walker2d-v5", 20, 60)]
    assert all(episode.terminated for episode in falls)
    hidden = [replace(e, observations={"state": np.clip(e.observations["state"], -10, 10)}) for e in falls]
    for episode in hidden:
        episode.observations["state"][:-1, -1] = 10.0
    lost = [replace(e, terminated=False, truncated=True) for e in hidden]
    assert check(hidden, "Walker2d-v5").physics is None
    assert (
        "terminals are missing"
        in found(check([*lost, *rollouts("Walker2d-v5", 2, 60, seed=99)], "Walker2d-v5"), "error")["missed-terminals"]
    )
    clean = check([*hidden, *rollouts("Walker2d-v5", 2, 60, seed=99)], "Walker2d-v5")
    assert clean.passed
    assert clean.physics is not None
    assert clean.physics.terminals is not None
    assert (clean.physics.terminals.confirmed, clean.physics.terminals.missed) == (22, 0)


def test_rewards_of_another_version() -> None:
    """Hopper-v5 rewards being healthy only while it is; Hopper-v4 always."""
    report = check(rollouts("Hopper-v4", 20), "Hopper-v5")
    assert report.passed
    told = next(finding for finding in report.findings if finding.kind == "rewards")
    assert (told.level, told.fix) == ("warning", "Use --env Hopper-v4")
    assert not found(check(rollouts("Hopper-v4", 20), "Hopper-v4"), "warning")


def test_whole_numbers_are_no_fault_of_theirs() -> None:
    """A lake of sixteen fields: episodes repeat, and who records them writes down the number of the field."""
    rng = np.random.default_rng(0)
    paths = [rng.integers(0, 3, length + 1) for length in [1, 2, 2, 3] * 30]
    numbered = [Episode({"state": p}, 0 * p[1:], 0.0 * p[1:], True, False) for p in paths]
    shown = [replace(e, observations={"state": np.eye(16, dtype=np.uint8)[e.observations["state"]]}) for e in numbered]
    report = check(shown, "FrozenLake-v1")
    assert "duplicate-episodes" in found(report, "note")
    assert not {"duplicate-episodes", "duplicate-steps", "repeated-observations"} & set(found(report, "warning"))
    told = next(f for f in check(numbered, "FrozenLake-v1").findings if f.kind == "observation-shape")
    assert "numbers of states: got int64 up to 2, expected one of 16" in told.message
    assert told.fix == "Write np.eye(16, dtype=np.uint8)[observations]."


@pytest.mark.parametrize(
    "env_id",
    [
        pytest.param(env_id, marks=[] if env_id in ("Acrobot-v1", "Reacher-v5", "Swimmer-v5") else pytest.mark.slow)
        for env_id in POSES
    ],
)
def test_clean_recordings_raise_no_alarm(env_id: str) -> None:
    with quiet_versions():
        episodes = [single(episode) for episode in rollouts(env_id, 20, 50)]
    for report in (check(episodes, env_id), check(episodes)):
        assert not found(report, "error")
        assert not found(report, "warning")


@pytest.mark.parametrize(
    ("name", "env_id"), [("pendulum_replay", "Pendulum-v1"), ("cartpole_expert_sb2", "CartPole-v1")]
)
def test_clean_files_raise_no_alarm(name: str, env_id: str) -> None:
    report = check_file(str(real_data(f"{name}.npz")), env_id)
    assert not found(report, "error")
    assert not found(report, "warning")

"""Each finding fires on its case, names its remedy, and stays silent on clean data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from understudy import Box, Episode
from understudy.core.spec import ActionSpace, Discrete
from understudy.data.formats.readers import open_recording
from understudy.data.recording import Recording
from understudy.tools.dataset.findings import Finding, findings
from understudy.tools.dataset.survey import survey
from worlds import random_episodes, real_data

BOX = Box((-1.0, -1.0), (1.0, 1.0))
PENDULUM = Box((-2.0,), (2.0,))


def found(episodes: Sequence[Episode], space: ActionSpace | None = BOX, **facts: Any) -> dict[str, Finding]:
    steps = sum(len(episode) for episode in episodes)
    told = findings(survey(Recording("some.npz", steps, lambda: iter(episodes), **facts), space))
    return {finding.kind: finding for finding in told}


def only(told: dict[str, Finding], kind: str, level: str) -> Finding:
    """The one finding, at its level."""
    assert list(told) == [kind]
    assert told[kind].level == level
    return told[kind]


def choosing_episode(**changes: Any) -> Episode:
    """Six steps of a world with two actions."""
    states = np.random.default_rng(0).standard_normal((7, 2)).astype(np.float32)
    episode = Episode({"state": states}, np.array([0, 1, 0, 1, 1, 0]), np.arange(6, dtype=np.float32), False, True)
    return replace(episode, **changes)


def test_clean_data_is_left_in_peace() -> None:
    assert found(random_episodes()) == {}
    assert found(random_episodes(truncated=False, terminated=True)[:1] + random_episodes(5, 30, seed=1)) == {}
    lengths = (5, 9, 12, 20)
    assert found([random_episodes(1, n, seed=n, terminated=True, truncated=False)[0] for n in lengths]) == {}


@pytest.mark.parametrize(
    ("column", "place"),
    [
        ("state", "episode 2, observation 'state', row 20, column 1"),
        ("actions", "episode 2, actions, row 3, column 0"),
        ("rewards", "episode 2, rewards, row 4:"),
        ("extra", "episode 2, log_prob, row 5:"),
    ],
)
def test_not_finite(column: str, place: str) -> None:
    episodes = [replace(episode, extra={"log_prob": np.zeros(20, np.float32)}) for episode in random_episodes()]
    for number, episode in enumerate(episodes):
        episode.extra["log_prob"][:] = np.arange(20) + number
    broken = episodes[2]
    {
        "state": broken.observations["state"][20],
        "actions": broken.actions[3],
        "rewards": broken.rewards,
        "extra": broken.extra["log_prob"],
    }[column][{"state": 1, "actions": 0, "rewards": 4, "extra": 5}[column]] = np.nan
    told = only(found(episodes), "non-finite", "error")
    assert told.message.startswith("dataset 'some.npz', ")
    assert place in told.message
    assert "1 such value" in told.message


def test_a_time_limit_stored_as_terminal() -> None:
    told = only(found(random_episodes(2, terminated=True, truncated=False)), "time-limit-as-terminal", "error")
    assert told.fix == "time_limit=20"
    assert "both episodes" in told.message


def test_nearly_all_at_the_limit_is_enough_and_fewer_are_not() -> None:
    def ended(count: int, steps: int, seed: int) -> list[Episode]:
        return random_episodes(count, steps, seed=seed, terminated=True, truncated=False)

    assert "time-limit-as-terminal" in found(ended(18, 20, 0) + ended(2, 11, 1))
    assert found(ended(17, 20, 0) + ended(3, 11, 1)) == {}
    assert found(ended(18, 20, 0) + random_episodes(1, 21, seed=2)) == {}  # a longer one: no limit there
    assert found(ended(1, 20, 0) + random_episodes(3, 20, seed=2)) == {}  # one end proves nothing
    assert "time-limit-as-terminal" not in found(ended(5, 1, 0))


def test_actions_out_of_range() -> None:
    episodes = random_episodes()
    episodes[3].actions[7, 1] = -8995
    told = only(found(episodes), "out-of-range", "error")
    assert "1 of 120 actions (0.8%)" in told.message
    assert "got up to 8,995, expected [-1, 1]" in told.message
    assert "episode 3, row 7" in told.message
    assert "actions=clip" in told.fix
    assert "actions_from=[" in told.fix


def test_large_actions_without_bounds_to_hold_them_against() -> None:
    assert found(random_episodes(), None) == {}
    episodes = random_episodes()
    episodes[3].actions[7, 1] = -8995
    assert "actions=clip" in only(found(episodes, None), "large-actions", "warning").fix


def test_actions_in_a_policys_own_units() -> None:
    wide = Box((-2.0, -2.0), (2.0, 2.0))
    told = only(found(random_episodes(), wide), "action-scale", "warning")
    assert told.fix.startswith("actions_from=[-1, 1]")
    half = [replace(episode, actions=episode.actions / 2) for episode in random_episodes()]
    assert found(half, wide) == {}  # a timid policy is no other unit


def test_actions_of_another_space() -> None:
    assert only(found(random_episodes(action=3)), "action-shape", "error").message.count("[3]") == 1
    assert only(found(random_episodes(), Discrete(3)), "action-shape", "error")


def test_choices() -> None:
    pair = [choosing_episode(), choosing_episode(rewards=-np.ones(6, np.float32))]
    assert found(pair, Discrete(2)) == {}
    assert found(pair, None) == {}
    assert "action 2 of 3" in only(found(pair, Discrete(3)), "untried-actions", "note").message
    pair[1] = choosing_episode(actions=np.array([0, 1, 2, 0, 0, 1]), rewards=-np.ones(6, np.float32))
    told = only(found(pair, Discrete(2)), "no-such-action", "error")
    assert "episode 1, actions, row 2: no such action: got 2, expected a whole number from 0 to 1" in told.message


def test_masks() -> None:
    legal = np.ones((7, 2), bool)
    other = choosing_episode(rewards=-np.ones(6, np.float32), mask=legal)
    assert found([choosing_episode(mask=legal), other], Discrete(2)) == {}
    forbidding, empty = legal.copy(), legal.copy()
    forbidding[3, 1], empty[6] = False, False
    told = found([choosing_episode(mask=forbidding), other], Discrete(2))
    assert "episode 0, row 3" in only(told, "mask-forbids", "error").message
    told = found([choosing_episode(mask=empty), other], Discrete(2))
    assert "episode 0, mask, row 6" in only(told, "mask-empty", "error").message
    assert found([choosing_episode(mask=legal), other], Discrete(3))["mask-shape"].level == "error"
    over = choosing_episode(mask=empty, terminated=True, truncated=False)
    assert found([over, other], Discrete(2)) == {}


def test_late_rewards() -> None:
    episodes = random_episodes()
    for episode in episodes:
        episode.rewards[0], episode.actions[-1] = 0, 0
    assert only(found(episodes), "late-rewards", "warning").fix == "late_rewards=true"
    episodes[2].rewards[0] = 1
    assert found(episodes) == {}


def test_sparse_rewards_are_not_late() -> None:
    episodes = random_episodes()
    for episode in episodes:
        episode.rewards[:19] = 0
    assert found(episodes) == {}


def test_no_rewards() -> None:
    silent = [replace(episode, rewards=np.zeros(20, np.float32)) for episode in random_episodes()]
    only(found(silent), "no-rewards", "warning")
    only(found(random_episodes(), facts={"rewards": "absent"}), "no-rewards", "warning")
    ones = [replace(episode, rewards=np.ones(20, np.float32)) for episode in random_episodes()]
    only(found(ones), "constant-reward", "note")


def test_constant_columns() -> None:
    episodes = random_episodes()
    for episode in episodes:
        episode.observations["state"][:, 1] = 3
    assert "column 1 of observation 'state' (3 wide)" in only(found(episodes), "constant-columns", "note").message
    for episode in (episodes := random_episodes()):
        episode.actions[:, 0] = 0.5
    assert "dimension 0" in only(found(episodes), "constant-actions", "warning").message


def test_unknown_finals() -> None:
    cut = [
        replace(episode, observations={"state": episode.observations["state"][:-1]}, final_known=False)
        for episode in random_episodes(5, 30)
    ]
    assert "5 episodes" in only(found(cut), "unknown-final", "note").message
    short = [
        replace(episode, observations={"state": episode.observations["state"][:-1]}, final_known=False)
        for episode in random_episodes(5, 3)
    ]
    only(found(short), "unknown-final", "warning")
    lengths = (30, 31)
    ended = [
        replace(episode, observations={"state": episode.observations["state"][:-1]}, final_known=False)
        for steps in lengths
        for episode in random_episodes(2, steps, seed=steps, terminated=True, truncated=False)
    ]
    assert found(ended) == {}  # nothing follows a terminal step, known or not


def test_episodes_without_an_end() -> None:
    assert "6 episodes" in only(found(random_episodes(truncated=False)), "no-end", "note").message


def test_short_and_single_episodes() -> None:
    only(found(random_episodes(5, 1, terminated=True, truncated=False)), "one-step", "note")
    only(found(random_episodes() + random_episodes(1, 1, seed=5)), "one-step", "warning")
    only(found(random_episodes(1)), "single-episode", "warning")


def test_duplicates() -> None:
    episodes = random_episodes()
    told = only(found([*episodes, episodes[2]]), "duplicate-episodes", "warning")
    assert "1 of 7 episodes" in told.message
    short = episodes[0]
    part = replace(short, observations={"state": short.observations["state"][:8]}, actions=short.actions[:7])
    only(found([*episodes, replace(part, rewards=short.rewards[:7])]), "duplicate-steps", "warning")


def test_a_world_of_few_states_repeats_itself() -> None:
    rng = np.random.default_rng(0)
    episodes = [
        Episode({"state": np.eye(3)[rng.integers(0, 3, 31)]}, rng.integers(0, 2, 30), np.arange(30) % 2, False, True)
        for _ in range(4)
    ]
    told = found(episodes, Discrete(2))
    assert told["duplicate-steps"].level == "note"


def test_a_time_feature() -> None:
    episodes = [
        replace(
            episode,
            observations={"state": np.column_stack([episode.observations["state"], np.arange(21, dtype=np.float32)])},
        )
        for episode in random_episodes()
    ]
    told = only(found(episodes), "time-feature", "note")
    assert told.message.endswith("looks like a time feature: it only counts the steps of an episode.")
    assert told.fix.startswith("drop_columns={state: [3]}, if it was appended")


def test_precision() -> None:
    wide = [replace(episode, rewards=episode.rewards.astype(np.float64)) for episode in random_episodes()]
    assert "rewards in float64" in only(found(wide), "float64", "note").message
    mixed = random_episodes()
    mixed[0] = replace(mixed[0], rewards=mixed[0].rewards.astype(np.float64))
    assert "not in every episode" in only(found(mixed), "float64", "note").message
    mixed = random_episodes()
    mixed[0] = replace(mixed[0], observations={"state": (mixed[0].observations["state"] > 0).astype(np.uint8)})
    assert found(mixed)["mixed-dtypes"].level == "error"


def test_broken_episodes() -> None:
    episodes = random_episodes()
    episodes[4] = replace(episodes[4], observations={"state": episodes[4].observations["state"][:-1]})
    told = found(episodes)
    assert told["final-missing"].message == (
        "dataset 'some.npz', episode 4: has 20 actions and 20 observations, expected 21."
    )
    assert told["final-missing"].fix == "Was the final observation dropped?"
    empty = replace(episodes[0], actions=episodes[0].actions[:0], rewards=episodes[0].rewards[:0])
    assert set(found([empty])) == {"empty", "no-episodes"}
    assert only(found([]), "no-episodes", "error")


def test_errors_come_first() -> None:
    episodes = random_episodes(terminated=True, truncated=False)
    episodes[0].observations["state"][:, 0] = episodes[0].actions[:] = 5
    levels = [finding.level for finding in found([episodes[0], *episodes]).values()]
    assert levels == sorted(levels, key=("error", "warning", "note").index)
    assert levels[0] == "error"


REAL: dict[str, tuple[ActionSpace | None, set[str]]] = {
    "pendulum_replay.npz": (PENDULUM, set()),
    "pendulum_out_of_range.npz": (PENDULUM, {"out-of-range"}),
    "pendulum_medium.npz": (PENDULUM, {"action-scale"}),
    "pendulum_expert.npz": (PENDULUM, {"action-scale"}),
    "pendulum_expert_imitation.npz": (PENDULUM, {"time-limit-as-terminal"}),
    "halfcheetah_cs285.npz": (Box((-1.0,) * 6, (1.0,) * 6), {"time-limit-as-terminal", "out-of-range"}),
    "hopper_opolo_3500.npz": (Box((-1.0,) * 3, (1.0,) * 3), set()),
    "hopper_csc2541.npz": (None, {"no-rewards"}),
    "cartpole_rllib.npz": (Discrete(2), {"time-limit-as-terminal"}),
    "cartpole_expert_sb2.npz": (Discrete(2), set()),
}


@pytest.mark.parametrize("name", REAL)
def test_real_recordings(name: str) -> None:
    space, expected = REAL[name]
    told = findings(survey(open_recording(real_data(name)), space))
    assert {finding.kind for finding in told if finding.level != "note"} == expected


def test_numbers_of_real_recordings() -> None:
    def told(name: str, space: ActionSpace | None) -> dict[str, Finding]:
        return {finding.kind: finding for finding in findings(survey(open_recording(real_data(name)), space))}

    assert "8,995" in told("pendulum_out_of_range.npz", PENDULUM)["out-of-range"].message
    assert "8,995" in told("pendulum_out_of_range.npz", None)["large-actions"].message
    assert told("halfcheetah_cs285.npz", None)["time-limit-as-terminal"].fix == "time_limit=1000"
    assert told("hopper_opolo_3500.npz", None)["time-feature"].settings == {"drop_columns": {"state": [11]}}


@pytest.mark.parametrize("kind", ["float64", "int64"])
def test_differences_that_float32_rounds_away(kind: str) -> None:
    """A clock in seconds since 1970 moves in jumps of 128 s; counted from another zero point it is fine."""

    def told(zero: float) -> dict[str, Finding]:
        episodes = random_episodes(3, 20)
        clock = np.arange(21)[:, None] * 3 + zero
        return found([replace(e, observations={"state": clock.astype(kind)}) for e in episodes])

    assert told(1.7e9)["lost-in-float32"].level == "warning"
    assert "column 0 of observation 'state'" in told(1.7e9)["lost-in-float32"].message
    assert "lost-in-float32" not in told(0)

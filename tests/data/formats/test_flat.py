"""Flat columns: every rule on where episodes end, how, and what is known there."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from understudy.core.errors import DataError
from understudy.data.episode import Array, Episode
from understudy.data.formats import flat
from understudy.data.formats.flat import flat_recording
from understudy.data.recording import Recording

ROWS = 6
STATES = np.array([0, 1, 2, 10, 11, 12], np.float32)[:, None]
"""Two episodes of three steps; each successor is its state plus one."""


def at(*rows: int) -> Array:
    return np.isin(np.arange(ROWS), rows)


def columns(**changes: Any) -> dict[str, Any]:
    plain = {
        "observations": STATES,
        "actions": np.linspace(-1, 1, ROWS, dtype=np.float32)[:, None],
        "rewards": np.arange(ROWS, dtype=np.float32),
    }
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


def read(given: Mapping[str, Any] | None = None, **changes: Any) -> Recording:
    return flat_recording(columns(**{**changes, **(given or {})}), "x", "file 'x'")


def ends(recording: Recording) -> list[tuple[int, bool, bool, bool]]:
    """Length, terminated, truncated, final known, of every episode."""
    return [(len(e), e.terminated, e.truncated, e.final_known) for e in recording.episodes()]


def told(recording: Recording) -> str:
    return " ".join(recording.notes)


def complaint(given: Mapping[str, Any] | None = None, **changes: Any) -> str:
    with pytest.raises(DataError) as caught:
        list(read(given, **changes).episodes())
    return str(caught.value)


@pytest.mark.parametrize("name", ["terminals", "terminal", "terminations", "terminated", "source_terminal"])
def test_terminals_end_the_world(name: str) -> None:
    assert ends(read({name: at(2, 5)})) == [(3, True, False, False)] * 2


@pytest.mark.parametrize("name", ["timeouts", "timeout", "truncations", "truncated"])
def test_timeouts_only_end_the_watching(name: str) -> None:
    assert ends(read({name: at(2, 5)})) == [(3, False, True, False)] * 2


def test_the_row_after_a_timeout_is_the_next_episodes() -> None:
    first, second = read(terminals=at(5), timeouts=at(2)).episodes()
    assert first.observations["state"].ravel().tolist() == [0, 1, 2]
    assert second.observations["state"].ravel().tolist() == [10, 11, 12]
    assert (first.truncated, second.terminated) == (True, True)
    assert second.rewards.tolist() == [3, 4, 5]


def test_terminal_wins_over_time_limit() -> None:
    recording = read(terminals=at(2), timeouts=at(2, 5))
    assert ends(recording) == [(3, True, False, False), (3, False, True, False)]
    assert "1 rows are marked terminal and time limit: read as terminal" in told(recording)


@pytest.mark.parametrize("name", ["dones", "done"])
def test_done_alone_is_terminal_with_a_note(name: str) -> None:
    recording = read({name: at(2, 5)})
    assert ends(recording) == [(3, True, False, False)] * 2
    assert "does not say whether the world ended" in told(recording)


def test_done_with_a_time_limit_is_that_time_limit() -> None:
    """Stable-baselines marks both: `dones * (1 - timeouts)` is what ends the world."""
    recording = read(dones=at(2, 5), timeouts=at(2))
    assert ends(recording) == [(3, False, True, False), (3, True, False, False)]
    assert "1 dones are time limits and 1 are terminal" in told(recording)


def test_done_that_is_not_terminal_is_a_cut() -> None:
    assert ends(read(dones=at(2, 5), terminals=at(5))) == [(3, False, True, False), (3, True, False, False)]


@pytest.mark.parametrize("name", ["episode_end", "dones_float"])
def test_an_end_of_unknown_kind_is_never_terminal(name: str) -> None:
    recording = read({name: at(2, 5)})
    assert ends(recording) == [(3, False, False, False)] * 2
    assert "2 episode ends without the file saying why: read as cut off, not as terminal" in told(recording)


@pytest.mark.parametrize("name", ["episode_id", "episode_ids", "episode_index"])
def test_ids_are_boundaries_of_unknown_kind(name: str) -> None:
    recording = read({name: np.array([7, 7, 7, 3, 3, 3])})
    assert ends(recording) == [(3, False, False, False)] * 2
    assert recording.layout == "flat+episode_id"
    assert "2 episode ends without" in told(recording)


def test_an_id_that_ends_beside_a_terminal_column_is_a_cut() -> None:
    """The file says which ends are terminal, so the others are not; the end of the array says nothing."""
    ids = np.array([0, 0, 1, 1, 2, 2])
    assert [e[1:3] for e in ends(read(episode_id=ids, terminals=at(1)))] == [
        (True, False),
        (False, True),
        (False, False),
    ]


def test_large_ids_stay_apart() -> None:
    ids = np.array([2**62, 2**62, 2**62, 2**62 + 1, 2**62 + 1, 2**62 + 1])
    assert [e[0] for e in ends(read(episode_id=ids))] == [3, 3]


def test_ids_that_come_back_are_told_and_interleaved_ones_refused() -> None:
    recording = read(episode_id=np.array([0, 0, 1, 1, 0, 0]))
    assert [e[0] for e in ends(recording)] == [2, 2, 2]
    assert "1 episode id seen again" in told(recording)
    assert "interleaved" in complaint(episode_id=np.array([0, 1, 0, 1, 0, 1]))


def test_starts_are_boundaries() -> None:
    recording = read({"obs": STATES, "episode_returns": np.zeros(2)}, observations=None, episode_starts=at(0, 3))
    assert ends(recording) == [(3, False, False, False)] * 2
    assert recording.layout == "sb2"
    assert "episode_returns [2]" in told(recording)
    assert ends(read(episode_starts=at(3)))[0][0] == 3


def test_rows_after_the_last_end_are_an_unfinished_episode() -> None:
    recording = read(terminals=at(2), timeouts=at())
    assert ends(recording) == [(3, True, False, False), (3, False, False, False)]
    assert "The last episode (3 steps) is unfinished" in told(recording)
    known = read(terminals=at(2), timeouts=at(), next_observations=STATES + 1)
    assert ends(known) == [(3, True, False, True), (3, False, False, True)]


def test_terminals_alone_leave_time_limits_open() -> None:
    assert "Nothing in the file marks time limits" in told(read(terminals=at(2, 5)))
    assert "Nothing in the file marks" not in told(read(terminals=at(2, 5), timeouts=at()))


def test_successors_put_the_final_observation_back() -> None:
    first, second = read(timeouts=at(2, 5), next_observations=STATES + 1).episodes()
    assert first.observations["state"].ravel().tolist() == [0, 1, 2, 3]
    assert second.observations["state"].ravel().tolist() == [10, 11, 12, 13]
    assert first.final_known
    assert second.final_known


def test_successors_mark_the_ends_that_nothing_else_marks() -> None:
    recording = read(terminals=at(5), next_observations=STATES + 1)
    assert ends(recording) == [(3, False, True, True), (3, True, False, True)]
    assert "Found 1 episode end where next_observations is not the next row" in told(recording)
    assert ends(read(next_observations=STATES + 1)) == [(3, False, False, True)] * 2
    assert ends(read(dones=at(5), next_observations=STATES + 1))[0] == (3, False, True, True)


@pytest.mark.parametrize(
    "marks",
    [{"timeouts": at(5)}, {"episode_end": at(5)}, {"episode_id": np.zeros(ROWS)}, {"episode_starts": at(0)}],
)
def test_a_jump_inside_a_marked_episode_is_an_error(marks: dict[str, Array]) -> None:
    assert "next_observations of row 2 is not the observation of row 3" in complaint(
        marks, next_observations=STATES + 1
    )


def test_successors_that_disagree_nearly_everywhere_are_called_misaligned() -> None:
    told = complaint({"timeouts": at(5)}, next_observations=np.roll(STATES + 1, 1, axis=0))
    assert "Most rows disagree: the column is shifted" in told


def test_rounding_is_no_jump() -> None:
    wide = STATES.astype(np.float64) / 3
    assert [e[0] for e in ends(read(observations=wide, next_observations=(wide + 1 / 3).astype(np.float32)))] == [3, 3]


def test_a_final_observation_overwritten_by_the_reset_is_unknown() -> None:
    """Automatic resets hand out the next episode's first observation as the successor of the last step."""
    overwritten = np.where(at(2)[:, None], STATES[3], STATES + 1)
    recording = read(timeouts=at(2, 5), next_observations=overwritten)
    assert ends(recording) == [(3, False, True, False)] * 2  # the last has no next row, but the same author
    assert "At 1 of 1 ends looked at" in told(recording)
    assert "all final observations are taken as unknown" in told(recording)
    blank = np.where(at(2, 5)[:, None], 0, STATES + 1)
    assert ends(read(timeouts=at(2, 5), next_observations=blank)) == [(3, False, True, False)] * 2


def test_a_lonely_overwritten_final_observation_is_unknown() -> None:
    states = np.array([0, 10, 20, 30, 40, 50], np.float32)[:, None]
    successors = np.where(at(1)[:, None], states[2], states + 1)
    recording = read(timeouts=np.ones(ROWS), observations=states, next_observations=successors)
    assert [e[3] for e in ends(recording)] == [True, False, True, True, True, True]
    assert "such final observations are unknown" in told(recording)


def test_whole_numbers_may_repeat() -> None:
    states = np.array([0, 1, 2, 0, 1, 2])[:, None]
    successors = np.array([1, 2, 0, 1, 2, 0])[:, None]
    recording = read(timeouts=at(2, 5), observations=states, next_observations=successors)
    assert [e[3] for e in ends(recording)] == [True, True]


def test_the_file_may_say_itself_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    successors = np.where(at(2)[:, None], STATES[3], STATES + 1)
    recording = read(timeouts=at(2, 5), next_observations=successors, final_known=~at(5))
    assert [e[3] for e in ends(recording)] == [True, False]
    monkeypatch.setattr(flat, "BLOCK_BYTES", 1)  # an episode at a time
    recording = read(timeouts=at(2, 5), next_observations=successors, final_known=~at(5))
    assert [e[3] for e in ends(recording)] == [True, False]


def test_no_rewards_means_imitation() -> None:
    recording = read(rewards=None, episode_id=np.array([0, 0, 0, 1, 1, 1]), timesteps=np.arange(ROWS))
    assert recording.layout == "states-actions"
    assert recording.facts["rewards"] == "absent"
    assert "only imitation makes sense" in told(recording)
    episode = next(recording.episodes())
    assert episode.rewards.tolist() == [0, 0, 0]
    assert episode.extra["timesteps"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("observations", "actions", "rewards", "successors"),
    [
        ("obs", "acts", "rews", "next_obs"),
        ("observation", "action", "reward", "next_observation"),
        ("states", "actions", "rewards_flat", "next_states"),
    ],
)
def test_other_names(observations: str, actions: str, rewards: str, successors: str) -> None:
    plain = columns()
    renamed = {
        observations: plain["observations"],
        actions: plain["actions"],
        rewards: plain["rewards"],
        successors: STATES + 1,
        "timeouts": at(2, 5),
    }
    recording = flat_recording(renamed, "x", "x")
    assert ends(recording) == ends(read(timeouts=at(2, 5), next_observations=STATES + 1))
    assert next(recording.episodes()).rewards.tolist() == [0, 1, 2]


@pytest.mark.parametrize("separator", ["/", "."])
def test_groups_by_name(separator: str) -> None:
    pixels = np.arange(ROWS * 4, dtype=np.uint8).reshape(ROWS, 2, 2)
    parts = {
        f"observations{separator}position": STATES,
        f"observations{separator}camera": pixels,
        f"next_observations{separator}position": STATES + 1,
        f"next_observations{separator}camera": np.concatenate([pixels[1:], pixels[:1]]),
    }
    first, second = read(parts, observations=None, timeouts=at(2, 5)).episodes()
    assert first.observations["position"].ravel().tolist() == [0, 1, 2, 3]
    assert first.observations["camera"].dtype == np.uint8
    assert np.array_equal(second.observations["camera"], [*pixels[3:], pixels[0]])
    del parts[f"next_observations{separator}camera"]
    assert "next observations have other groups" in complaint(parts, observations=None, timeouts=at(2, 5))


@pytest.mark.parametrize("name", ["behaviour_logp", "log_probs", "infos/action_log_probs"])
def test_log_probabilities_have_one_name(name: str) -> None:
    episode = next(read({name: np.linspace(-1, 0, ROWS)}, timeouts=at(2, 5)).episodes())
    assert episode.extra["behaviour_log_prob"].tolist() == pytest.approx([-1, -0.8, -0.6])


def test_further_columns_are_kept_and_the_rest_is_named() -> None:
    recording = read(
        {"infos/qpos": np.ones((ROWS, 2)), "metadata/weight": np.ones(ROWS), "a b": np.ones(ROWS)},
        timeouts=at(2, 5),
        init_qpos=np.zeros((2, 3)),
        words=np.array(["a"] * ROWS),
        cube=np.zeros((ROWS, 2, 2)),
    )
    episode = next(recording.episodes())
    assert set(episode.extra) == {"qpos"}
    assert episode.extra["qpos"].shape == (3, 2)
    for name in ("init_qpos [2, 3]", "words [6]", "cube [6, 2, 2]", "'a b' [6]"):
        assert name in told(recording)
    assert "metadata" not in told(recording)


def masked(**changes: Any) -> list[Episode]:
    masks = np.ones((ROWS, 3), bool)
    masks[:, 2] = False
    plain = {"actions": np.zeros(ROWS, int), "next_observations": STATES + 1, "mask": masks}
    return list(read(**{**plain, **changes}).episodes())


def test_masks_have_a_row_per_observation() -> None:
    successors = np.zeros((ROWS, 3), bool)
    successors[2, 1] = successors[5, 2] = True
    first, second = masked(timeouts=at(2, 5), next_mask=successors)
    assert first.mask is not None
    assert first.mask.tolist() == [[True, True, False]] * 3 + [[False, True, False]]
    assert second.mask is not None
    assert second.mask[-1].tolist() == [False, False, True]
    cut, ended = masked(timeouts=at(2), terminals=at(5))
    assert not cut.final_known  # what is legal in its final observation is unknown, so that one is left out
    assert cut.mask is not None
    assert len(cut.mask) == 3
    assert ended.final_known
    assert ended.mask is not None
    assert len(ended.mask) == 4
    (short, _) = masked(timeouts=at(2, 5), next_observations=None)
    assert short.mask is not None
    assert len(short.mask) == 3


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1)])
def test_one_number_per_row_is_no_action_mask(shape: tuple[int, ...]) -> None:
    recording = read(timeouts=at(2, 5), masks=np.ones(shape))
    assert next(recording.episodes()).mask is None
    assert f"masks {list(shape)}" in told(recording)
    named = next(read(timeouts=at(2, 5), action_mask=np.ones((ROWS, 1))).episodes())
    assert named.mask is not None  # a world with one action


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "has no episode boundary: no terminal, no timeout, no episode_id"),
        ({"terminals": at(), "timeouts": at()}, "has no episode boundary"),
        ({"terminals": np.array([0, 0, 2, 0, 0, 1])}, "terminals, row 2: not a flag: got 2, expected 0 or 1"),
        ({"dones": np.array([0, 0, 0.5, 0, 0, 1])}, "dones, row 2: not a flag: got 0.5"),
        ({"timeouts": np.array([0, np.nan, 0, 0, 0, 1])}, "timeouts, row 1: not a flag: got nan"),
        ({"terminals": at(1), "episode_id": np.array([0] * 3 + [1] * 3)}, "row 1: ends an episode, but the next row"),
        ({"terminals": at(1), "episode_starts": at(0, 3)}, "row 1: ends an episode, but the next row is not marked"),
        ({"episode_id": np.array([0, 0, 0.5, 1, 1, 1])}, "episode_id, row 2: not a whole number: got 0.5"),
        ({"terminals": at(2), "terminated": at(5)}, "'terminals' and 'terminated' say different things"),
        ({"terminals": at(2)[:4]}, "array 'terminals' has the wrong shape: got (4,), expected (6,), as 'observations'"),
        (
            {"actions": np.zeros((5, 1)), "terminals": at(5)},
            "array 'actions' has the wrong shape: got (5, 1), expected",
        ),
        ({"next_observations": STATES[:5], "terminals": at(5)}, "array 'next_observations' has the wrong shape"),
        ({"rewards": np.zeros((ROWS, 2)), "terminals": at(5)}, "array 'rewards' has the wrong shape"),
        ({"observations": None}, "has no array 'observations'."),
        ({"actions": None, "actoins": np.zeros(ROWS)}, "has no array 'actions'. Did you mean 'actoins'?"),
        ({"observations": np.zeros((0, 1)), "actions": np.zeros((0, 1))}, "has no rows"),
        ({"actions": np.zeros((ROWS, 0)), "terminals": at(5)}, "actions: has rows without numbers: got (6, 0)"),
        ({"observations": np.float32(1)}, "observations: a single number where rows belong"),
        ({"actions": np.array(["a"] * ROWS)}, "actions: not numeric: got <U1"),
        (
            {"timeouts": at(2, 5), "next_observations": np.where(at(1)[:, None], np.nan, STATES + 1)},
            "next_observations, row 1, column 0: not finite",
        ),
    ],
)
def test_each_mistake_has_its_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert sentence in complaint(changes)


def test_nan_is_left_for_the_check_to_place() -> None:
    """A recording is raw: what is not finite is told with its episode, row and column by those who walk it."""
    states = STATES.copy()
    states[4] = np.nan
    after = STATES + 1
    after[3] = np.nan
    _, second = read(timeouts=at(2, 5), observations=states, next_observations=after).episodes()
    assert np.isnan(second.observations["state"][1])


def test_two_names_of_one_flag_may_agree_and_other_doubles_are_kept() -> None:
    recording = read(terminals=at(2, 5), terminated=at(2, 5), states=STATES * 2)
    episode = next(recording.episodes())
    assert set(episode.extra) == {"states"}
    assert "'states' is kept as a further column" in told(recording)


class Counted:
    """A column that counts how often it is asked, and for how much at once."""

    def __init__(self, values: Array) -> None:
        self.values, self.asked, self.largest = values, 0, 0
        self.shape, self.dtype = values.shape, values.dtype

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice, /) -> Array:
        self.asked += 1
        self.largest = max(self.largest, len(self.values[rows]))
        return np.array(self.values[rows])


@pytest.mark.parametrize("length", [1, 7, 800])
def test_rows_are_read_in_blocks(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a call per tiny episode nor the whole file at once; the cut is the same wherever blocks end."""
    rows = 1500
    states = np.random.default_rng(0).standard_normal((rows + 1, 4))
    cuts = (np.arange(rows) + 1) % length == 0
    plain = {
        "observations": states[:-1],
        "next_observations": np.where(cuts[:, None], 99.0, states[1:]),
        "actions": np.zeros((rows, 1)),
        "rewards": np.arange(rows),
        "timeouts": cuts,
        "episode_id": np.cumsum(cuts) - cuts,
    }
    whole = list(flat_recording(plain, "x", "x").episodes())
    monkeypatch.setattr(flat, "BLOCK_BYTES", 80 * 100)
    counted = {name: Counted(values) for name, values in plain.items()}
    recording = flat_recording(counted, "x", "x")
    for column in counted.values():
        column.asked = 0
    for one, other in zip(recording.episodes(), whole, strict=True):
        assert np.array_equal(one.observations["state"], other.observations["state"])
        assert np.array_equal(one.rewards, other.rewards)
    assert counted["observations"].asked <= 2 * rows / 100 + 2
    assert counted["observations"].largest <= max(length, 100) + 1
    assert sum(len(episode) for episode in recording.episodes()) == rows  # and once more


def test_jumps_are_found_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"terminals": at(), "next_observations": STATES + 1}
    expected = ends(read(plain))
    for size in (4, 8, 12, 16, 20):
        monkeypatch.setattr(flat, "BLOCK_BYTES", size)
        assert ends(read(plain)) == expected


class Endless(Counted):
    """A column that fits nowhere, if more than a row of it is wanted."""

    def __getitem__(self, rows: slice, /) -> Array:
        if len(self.values[rows]) > 1:
            raise MemoryError
        return super().__getitem__(rows)


@pytest.mark.parametrize("name", ["timeouts", "observations", "actions", "next_observations"])
def test_what_does_not_fit_into_memory_is_told(name: str) -> None:
    plain = columns(timeouts=at(2, 5), next_observations=STATES + 1)
    assert "file 'x': does not fit into memory" in complaint({**plain, name: Endless(plain[name])})

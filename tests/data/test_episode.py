"""One episode at the door: every kind of bad input is refused with its place, the rest becomes float32."""

from typing import Any

import numpy as np
import pytest

from understudy.core.errors import DataError
from understudy.core.spec import Box, Discrete
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode, check_episode

STEPS = 4
WHERE = "dataset 'x.npz', episode 41"
BOX = Box((-1.0, -1.0), (1.0, 1.0))


def episode(**changes: Any) -> Episode:
    rng = np.random.default_rng(0)
    parts: dict[str, Any] = {
        "observations": {"state": rng.standard_normal((STEPS + 1, 3)).astype(np.float32)},
        "actions": rng.uniform(-1, 1, (STEPS, 2)).astype(np.float32),
        "rewards": rng.standard_normal(STEPS).astype(np.float32),
        "terminated": False,
        "truncated": True,
    }
    return Episode(**{**parts, **changes})


def complaint(bad: Episode) -> str:
    with pytest.raises(DataError) as caught:
        check_episode(bad, WHERE, BOX)
    assert str(caught.value).startswith(WHERE)
    return str(caught.value)


def states(count: int) -> dict[str, Any]:
    return {"state": np.zeros((count, 3), np.float32)}


def test_a_dropped_final_observation_is_guessed() -> None:
    assert complaint(episode(observations=states(STEPS))) == (
        f"{WHERE}: has 4 actions and 4 observations, expected 5. "
        "If the final one was not recorded, say final_known=False."
    )


@pytest.mark.parametrize("count", [0, STEPS - 1, STEPS + 2])
def test_other_counts_are_refused(count: int) -> None:
    assert complaint(episode(observations=states(count))) == (
        f"{WHERE}: has 4 actions and {count} observations, expected 5."
    )


def test_an_unknown_final_observation_has_one_fewer() -> None:
    assert len(check_episode(episode(observations=states(STEPS), final_known=False), WHERE, BOX)) == STEPS
    assert "expected 4" in complaint(episode(observations=states(STEPS + 1), final_known=False))


@pytest.mark.parametrize("count", [STEPS - 1, STEPS + 1])
def test_rewards_match_actions(count: int) -> None:
    assert f"rewards do not match actions: got [{count}], expected [4]" in complaint(episode(rewards=np.zeros(count)))


def test_rewards_in_a_column_are_refused() -> None:
    assert "got [4, 1], expected [4]" in complaint(episode(rewards=np.zeros((STEPS, 1))))


@pytest.mark.parametrize("shape", [(STEPS,), (STEPS, 2, 1)])
def test_actions_are_rows(shape: tuple[int, ...]) -> None:
    assert "actions: wrong shape" in complaint(episode(actions=np.zeros(shape)))


def test_an_empty_episode_is_refused() -> None:
    empty = episode(observations=states(1), actions=np.zeros((0, 2)), rewards=np.zeros(0))
    assert complaint(empty) == f"{WHERE}: has no steps. Drop empty episodes."


def test_an_episode_without_observations_is_refused() -> None:
    assert "has no observations" in complaint(episode(observations={}))


@pytest.mark.parametrize("known", [True, False])
def test_one_step_is_enough(known: bool) -> None:
    short = episode(observations=states(1 + known), actions=np.zeros((1, 2)), rewards=np.zeros(1), final_known=known)
    assert len(check_episode(short, WHERE, BOX)) == 1


def test_an_end_is_terminated_or_truncated() -> None:
    assert "is marked terminated and truncated" in complaint(episode(terminated=True, truncated=True))
    check_episode(episode(terminated=False, truncated=False), WHERE, BOX)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("part", "place", "told"),
    [
        ("observations", (0, 0), "observation 'state', row 0, column 0"),
        ("observations", (STEPS, 2), "observation 'state', row 4, column 2"),
        ("actions", (2, 1), "actions, row 2, column 1"),
        ("rewards", (3,), "rewards, row 3"),
    ],
)
def test_what_is_not_finite_is_placed(value: float, part: str, place: tuple[int, ...], told: str) -> None:
    bad = episode()
    array = bad.observations["state"] if part == "observations" else getattr(bad, part)
    array[place] = value
    assert complaint(bad).startswith(f"{WHERE}, {told}: not finite: got {value}, expected a finite float32. 1 such")


def test_the_dataset_names_file_episode_row_and_column() -> None:
    bad = episode()
    bad.actions[2, 1] = np.nan
    with pytest.raises(DataError, match=r"^dataset 'x.npz', episode 1, actions, row 2, column 1: not finite"):
        Dataset.from_episodes([episode(), bad], Box((-1.0, -1.0), (1.0, 1.0)), name="x.npz")


@pytest.mark.filterwarnings("error")
def test_what_overflows_float32_is_refused() -> None:
    assert "rewards, row 1: not finite: got inf" in complaint(episode(rewards=np.array([0, 1e300, 0, 0])))


@pytest.mark.parametrize("kind", ["O", "U3", "S3", "complex64", "datetime64[s]"])
@pytest.mark.parametrize("part", ["observations", "actions", "rewards"])
def test_only_numbers_come_in(kind: str, part: str) -> None:
    shape = {"observations": (STEPS + 1, 3), "actions": (STEPS, 2), "rewards": (STEPS,)}[part]
    array = np.zeros(shape).astype(kind) if kind[0] != "d" else np.zeros(shape, kind)
    value = {"state": array} if part == "observations" else array
    assert "not numeric" in complaint(episode(**{part: value}))


def test_ragged_lists_are_refused() -> None:
    assert "not an array" in complaint(episode(rewards=[[1.0], [1.0, 2.0], [], [3.0]]))


def test_a_single_number_is_not_an_observation() -> None:
    assert "a single number where rows belong" in complaint(episode(observations={"state": np.float32(3.0)}))


@pytest.mark.parametrize("kind", ["float64", "float16", "int64", "int8", "uint8", "bool"])
def test_numbers_become_float32(kind: str) -> None:
    actions = np.array([[0, 1], [1, 0], [1, 1], [0, 0]]).astype(kind)
    checked = check_episode(episode(actions=actions, rewards=actions[:, 0]), WHERE, BOX)
    assert checked.actions.dtype == checked.rewards.dtype == np.float32
    np.testing.assert_array_equal(checked.actions, actions.astype(np.float32))


@pytest.mark.parametrize(("kind", "stored"), [("uint8", "uint8"), ("float64", "float32"), ("int64", "float32")])
def test_images_stay_bytes(kind: str, stored: str) -> None:
    image = np.arange((STEPS + 1) * 6).reshape(STEPS + 1, 2, 3).astype(kind)
    checked = check_episode(episode(observations={"image": image}), WHERE, BOX).observations["image"]
    assert checked.dtype == stored
    np.testing.assert_array_equal(checked, image)


CHOICES = Discrete(3)


def choices(**changes: Any) -> Episode:
    return episode(**{"actions": np.array([0, 2, 1, 1]), **changes})


def refused(bad: Episode, told: str) -> None:
    with pytest.raises(DataError, match=told):
        check_episode(bad, WHERE, CHOICES)


@pytest.mark.parametrize(
    "given",
    [
        np.array([0, 2, 1, 1], np.int8),
        np.array([[0], [2], [1], [1]]),
        np.array([0.0, 2.0, 1.0, 1.0]),
        np.eye(3)[[0, 2, 1, 1]],
        np.eye(3, dtype=bool)[[0, 2, 1, 1]],
    ],
)
def test_choices_may_come_as_numbers_or_one_hot(given: np.ndarray[Any, Any]) -> None:
    actions = check_episode(choices(actions=given), WHERE, CHOICES).actions
    np.testing.assert_array_equal(actions, np.array([0, 2, 1, 1]), strict=True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (np.array([0, 3, 1, 1]), "actions, row 1: no such action: got 3, expected a whole number from 0 to 2"),
        (np.array([0, -1, 1, 1]), "no such action: got -1"),
        (np.array([0, 0.5, 1, 1]), "no such action: got 0.5"),
        (np.array([0, np.nan, 1, 1]), "not finite"),
        (np.ones((4, 3)), "not one-hot"),
        (np.zeros((4, 3)), "not one-hot"),
        (np.zeros((4, 2)), "wrong shape"),
        (np.array(["a"] * 4), "not numeric"),
    ],
)
def test_other_choices_are_refused(given: np.ndarray[Any, Any], told: str) -> None:
    refused(choices(actions=given), told)


LEGAL = np.array([[1, 1, 0], [0, 0, 1], [1, 1, 1], [0, 1, 0], [1, 0, 0]])


def test_a_mask_has_a_row_per_observation() -> None:
    checked = check_episode(choices(mask=LEGAL), WHERE, CHOICES)
    np.testing.assert_array_equal(checked.mask, LEGAL.astype(bool), strict=True)
    refused(choices(mask=LEGAL[:4]), r"mask: wrong shape: got \[4, 3\], expected \[5, 3\]")
    refused(choices(mask=LEGAL * 2), "mask, row 0: not a flag: got 2")
    with pytest.raises(DataError, match="its actions are continuous"):
        check_episode(episode(mask=LEGAL), WHERE, BOX)


def test_a_mask_that_forbids_what_was_done_is_refused() -> None:
    wrong = LEGAL.copy()
    wrong[1] = [1, 1, 0]
    refused(choices(mask=wrong), r"row 1: its mask forbids the action it took \(2\)")


def test_no_legal_action_means_the_end() -> None:
    last = LEGAL.copy()
    last[4] = 0
    refused(choices(mask=last), "no action is legal, and the episode did not terminate")
    check_episode(choices(mask=last, terminated=True, truncated=False), WHERE, CHOICES)


def test_further_columns_keep_whole_numbers() -> None:
    checked = check_episode(episode(extra={"step": np.arange(4), "weight": np.ones(4)}), WHERE, BOX)
    assert {name: values.dtype for name, values in checked.extra.items()} == {"step": np.int64, "weight": np.float32}
    assert "weight: does not match actions: got 3, expected 4" in complaint(episode(extra={"weight": np.ones(3)}))
    assert "weight, row 2: not finite" in complaint(episode(extra={"weight": np.array([1, 1, np.inf, 1])}))


def test_the_source_may_keep_its_precision() -> None:
    wide = {"state": np.full((STEPS + 1, 3), 1 / 3)}
    assert check_episode(episode(observations=wide), WHERE, BOX).observations["state"].dtype == np.float32
    kept = check_episode(episode(observations=wide, rewards=np.full(STEPS, 1e300)), WHERE, BOX, "source")
    assert kept.observations["state"].dtype == np.float64
    assert kept.rewards[0] == 1e300
    assert kept.actions.dtype == np.float32

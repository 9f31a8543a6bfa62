"""Corruption: exact shares, definitions in closed form, untouched rows to the bit, the same however data is cut."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from understudy import Box, Dataset, Discrete, Episode, load_dataset
from understudy.core.errors import ConfigError, DataError
from understudy.data import dataset as dataset_module
from understudy.data import false_successors
from understudy.data.corruption import (
    COLUMN,
    ENTRY,
    Corruption,
    CorruptionRecord,
    Kind,
    corrupt,
    corruption_facts,
    corruptions_in,
)
from understudy.data.recording import Recording
from understudy.data.stores.recorder import record
from understudy.data.stores.store import open_store, write_store
from understudy.data.transforms import Transforms
from worlds import random_choices, random_dataset, random_episodes, real_data

KINDS: tuple[Kind, ...] = get_args(Kind)
IN_PLACE = [kind for kind in KINDS if kind != "dynamics_shuffle"]
BOX = Box((-1.0, -3.0), (1.0, 0.5))


def as_dataset(recording: Recording) -> Dataset:
    assert recording.space is not None
    return Dataset.from_episodes(recording.episodes(), recording.space, precision="source")


def wrong(dataset: Dataset, kind: Kind, share: float = 0.3, **more: Any) -> Dataset:
    return as_dataset(corrupt(dataset, kind, share=share, **more))


def marks(dataset: Dataset) -> np.ndarray[Any, np.dtype[np.bool_]]:
    column = dataset.extra[COLUMN].numpy()
    assert column.dtype == bool
    return column


def wide_dataset(count: int = 5, steps: int = 30) -> Dataset:
    """float64, in a box that is not symmetric."""
    rng = np.random.default_rng(4)
    episodes = [
        Episode(
            {"state": rng.standard_normal((steps + 1, 3))},
            rng.uniform([-1, -3], [1, 0.5], (steps, 2)),
            rng.standard_normal(steps) * 3 + 5,
            terminated=number % 2 == 0,
            truncated=number % 2 == 1,
        )
        for number in range(count)
    ]
    return Dataset.from_episodes(episodes, BOX, name="wide", precision="source")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("share", "rows"), [(0.1, 12), (0.3, 36), (0.0125, 2), (0.021, 3), (1.0, 120)])
def test_shares_are_exact(kind: Kind, share: float, rows: int) -> None:
    """120 rows: 0.0125 is 1.5 rows and 0.021 is 2.52."""
    dataset = random_choices() if kind == "action_replace" else random_dataset()
    recording = corrupt(dataset, kind, share=share)
    assert marks(as_dataset(recording)).sum() == rows
    (told,) = corruptions_in(recording.facts)
    assert (told.rows, told.eligible, told.original) == (rows, 120, dataset.fingerprint)


def test_at_least_one_row_is_wrong() -> None:
    assert marks(wrong(random_dataset(), "reward_noise", 1e-9)).sum() == 1


@pytest.mark.parametrize("kind", IN_PLACE)
def test_only_what_the_kind_names_changes_and_only_in_chosen_rows(kind: Kind) -> None:
    dataset = random_choices() if kind == "action_replace" else wide_dataset()
    after = wrong(dataset, kind)
    chosen, before = marks(after), dataset.columns()
    column = kind.split("_", maxsplit=1)[0]
    for name, values in after.columns().items():
        if name == column:
            assert values.dtype == before[name].dtype
            np.testing.assert_array_equal(values[~chosen], before[name][~chosen])
            changed = (values != before[name]).reshape(len(values), -1).any(1)
            np.testing.assert_array_equal(changed, chosen)
        elif name != f"extra.{COLUMN}":
            np.testing.assert_array_equal(values, before[name])


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides_and_nothing_else(kind: Kind) -> None:
    dataset = random_dataset()
    recording = corrupt(dataset, kind, share=0.3, seed=1)
    first, again = as_dataset(recording), as_dataset(recording)
    assert first.fingerprint == again.fingerprint == wrong(dataset, kind, seed=1).fingerprint
    other = wrong(dataset, kind, seed=2)
    assert (first.fingerprint == other.fingerprint) == (kind == "reward_attack")  # chance only decides among ties


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_and_stores_change_nothing(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = random_dataset()
    expected = wrong(dataset, kind).fingerprint
    monkeypatch.setattr(dataset_module, "CHUNK_ROWS", 7)
    monkeypatch.setattr(dataset_module, "CHUNK_BYTES", 100)
    monkeypatch.setattr(false_successors, "GATHERED", 3)
    assert wrong(open_store(write_store(dataset, tmp_path / "store")), kind).fingerprint == expected


@pytest.mark.parametrize("kind", IN_PLACE)
def test_cuts_between_episodes_change_nothing(kind: Kind) -> None:
    """The same rows as one episode and as six."""
    pieces = random_episodes()
    whole = Episode(
        {"state": np.concatenate([piece.observations["state"][:-1] for piece in pieces] + [np.zeros((1, 3))])},
        np.concatenate([piece.actions for piece in pieces]),
        np.concatenate([piece.rewards for piece in pieces]),
        terminated=False,
        truncated=True,
    )
    box = Box((-1.0, -1.0), (1.0, 1.0))
    one, six = (wrong(Dataset.from_episodes(episodes, box), kind) for episodes in ([whole], pieces))
    np.testing.assert_array_equal(marks(one), marks(six))
    np.testing.assert_array_equal(one.rewards, six.rewards)
    np.testing.assert_array_equal(one.actions, six.actions)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_small_share_are_among_those_of_a_larger(kind: Kind) -> None:
    small, large = (wrong(random_dataset(), kind, share) for share in (0.1, 0.5))
    assert (marks(small) <= marks(large)).all()
    if kind not in ("reward_swap", "dynamics_shuffle"):
        both = marks(small)
        np.testing.assert_array_equal(small.rewards[both], large.rewards[both])
        np.testing.assert_array_equal(small.actions[both], large.actions[both])


@pytest.mark.parametrize("strength", [None, 0.5, 2.0])
@pytest.mark.parametrize("kind", ["reward_flip", "reward_attack"])
def test_flipped_rewards_are_mirrored_at_the_mean(kind: Kind, strength: float | None) -> None:
    dataset = wide_dataset()
    after = wrong(dataset, kind, strength=strength)
    rewards, chosen = dataset.rewards.numpy(), marks(after)
    expected = rewards.mean() - (strength or 1.0) * (rewards[chosen] - rewards.mean())
    np.testing.assert_allclose(after.rewards.numpy()[chosen], expected, rtol=1e-14)


def test_an_attack_takes_the_highest_rewards() -> None:
    dataset = wide_dataset()
    after = wrong(dataset, "reward_attack", 0.2)
    rewards, chosen = dataset.rewards.numpy(), marks(after)
    assert rewards[chosen].min() > rewards[~chosen].max()
    assert after.rewards.numpy()[rewards.argmax()] == after.rewards.numpy()[chosen].min()


def test_an_attack_chooses_among_ties_at_random() -> None:
    episodes = [replace(episode, rewards=np.arange(20) % 2) for episode in random_episodes()]
    dataset = Dataset.from_episodes(episodes, Box((-1.0, -1.0), (1.0, 1.0)))
    one, other = (wrong(dataset, "reward_attack", 0.2, seed=seed) for seed in (0, 1))
    assert marks(one).sum() == 24
    assert (dataset.rewards.numpy()[marks(one)] == 1).all()
    assert (marks(one) != marks(other)).any()


def test_noise_is_in_units_of_the_deviation_of_rewards() -> None:
    dataset = wide_dataset(count=200, steps=100)
    after = wrong(dataset, "reward_noise", 1.0, strength=2.0)
    noise = (after.rewards - dataset.rewards).numpy() / dataset.rewards.numpy().std()
    assert abs(noise.mean()) < 0.06  # four standard errors
    assert noise.std() == pytest.approx(2.0, abs=0.04)
    assert abs(np.corrcoef(noise, dataset.rewards.numpy())[0, 1]) < 0.03


def test_swapped_rewards_are_the_same_numbers_elsewhere() -> None:
    dataset = wide_dataset()
    after = wrong(dataset, "reward_swap", 0.2)
    np.testing.assert_array_equal(np.sort(after.rewards), np.sort(dataset.rewards))


def test_action_noise_is_in_halves_of_the_range_and_stays_inside() -> None:
    rng = np.random.default_rng(0)
    steps = 20_000
    centre = np.tile([0.0, -1.25], (steps, 1))
    episode = Episode({"state": rng.standard_normal((steps + 1, 1))}, centre, np.zeros(steps), False, True)
    dataset = Dataset.from_episodes([episode], BOX, precision="source")
    actions = wrong(dataset, "action_noise", 1.0, strength=0.2).actions.numpy()
    unit = (actions - centre) / [1.0, 1.75]
    assert unit.std(0) == pytest.approx([0.2, 0.2], rel=0.03)
    far = wrong(dataset, "action_noise", 1.0, strength=50.0).actions.numpy()
    assert (far.min(0) == BOX.low).all()
    assert (far.max(0) == BOX.high).all()


def test_replaced_continuous_actions_fill_the_box() -> None:
    actions = wrong(wide_dataset(200, 50), "action_replace", 1.0).actions.numpy()
    assert actions.mean(0) == pytest.approx([0.0, -1.25], abs=0.06)
    assert actions.std(0) == pytest.approx([2 / 12**0.5, 3.5 / 12**0.5], rel=0.03)


def test_replaced_choices_are_the_other_ones_evenly() -> None:
    dataset = random_choices(count=60, steps=100)
    after = wrong(dataset, "action_replace", 1.0)
    shift = np.bincount((after.actions - dataset.actions).numpy() % 4, minlength=4)
    assert shift[0] == 0
    assert shift[1:] == pytest.approx([2000] * 3, abs=150)


def masked_choices() -> Dataset:
    """Rows in which one, two or three of three actions are legal."""
    rng = np.random.default_rng(1)
    episodes = []
    for _ in range(20):
        mask = rng.random((31, 3)) < 0.5
        mask[np.arange(31), rng.integers(0, 3, 31)] = True
        actions = np.array([rng.choice(np.flatnonzero(row)) for row in mask[:-1]])
        states = rng.standard_normal((31, 2)).astype(np.float32)
        episodes.append(Episode({"state": states}, actions, rng.standard_normal(30), False, True, mask=mask))
    return Dataset.from_episodes(episodes, Discrete(3))


def test_replaced_choices_are_legal_and_forced_moves_stay() -> None:
    dataset = masked_choices()
    recording = corrupt(dataset, "action_replace", share=1.0)
    after = as_dataset(recording)  # refuses actions that a mask forbids
    free = np.concatenate([episode.mask[:-1].sum(1) > 1 for episode in dataset.recording().episodes()])  # type: ignore[index]
    assert 0 < free.sum() < dataset.steps
    np.testing.assert_array_equal(marks(after), free)
    np.testing.assert_array_equal((after.actions != dataset.actions).numpy(), free)
    assert corruptions_in(recording.facts)[0].eligible == free.sum()


def transitions(dataset: Dataset) -> Iterator[tuple[Any, ...]]:
    """Row by row: observation, action, reward, successor (nothing if not known), terminated."""
    for episode in dataset.recording().episodes():
        states = episode.observations["state"]
        for step in range(len(episode)):
            after = states[step + 1] if step + 1 < len(states) else None
            ended = episode.terminated and step + 1 == len(episode)
            yield states[step], episode.actions[step], episode.rewards[step], after, ended


@pytest.mark.parametrize("pool", [10_000, 5])
def test_shuffled_dynamics_make_successors_false_and_nothing_else(pool: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(false_successors, "POOL_ROWS", pool)
    dataset = wide_dataset()
    after = wrong(dataset, "dynamics_shuffle", 0.4)
    states = {
        episode.observations["state"][step].tobytes()
        for episode in dataset.recording().episodes()
        for step in range(30)
    }
    for was, now, chosen in zip(transitions(dataset), transitions(after), marks(after), strict=True):
        for column in (0, 1, 2, 4):
            np.testing.assert_array_equal(was[column], now[column])
        assert np.array_equal(was[3], now[3]) != chosen
        if chosen:
            assert now[3].tobytes() in states
    donors = {now[3].tobytes() for now, chosen in zip(transitions(after), marks(after), strict=True) if chosen}
    assert len(donors) <= pool
    assert len(donors) > min(pool, 30) - 1


def test_a_false_successor_is_any_state_but_the_true_one() -> None:
    """Four rows: what follows the second is the state of any but the third, each as likely."""
    states = np.arange(5, dtype=np.float32)[:, None]
    episode = Episode({"state": states}, np.zeros((4, 1)), np.arange(4), terminated=True, truncated=False)
    dataset = Dataset.from_episodes([episode], Box((-1.0,), (1.0,)))
    counts = np.zeros((3, 5), int)
    for seed in range(600):
        after = wrong(dataset, "dynamics_shuffle", 1.0, seed=seed)
        for row in range(3):
            counts[row, int(after.episode(row).observations["state"][-1, 0])] += 1
    expected = [[200, 0, 200, 200, 0], [200, 200, 0, 200, 0], [200, 200, 200, 0, 0]]
    assert (counts == 0).tolist() == (np.array(expected) == 0).tolist()
    assert np.abs(counts - expected).max() < 50  # over four standard deviations


def test_pieces_are_stopped_and_only_the_last_ends_as_the_whole_did() -> None:
    dataset = wide_dataset()
    after = wrong(dataset, "dynamics_shuffle", 0.4)
    assert after.episodes == dataset.episodes + sum(
        int(marks(after)[end - 30 : end - 1].sum()) for end in dataset.index.ends
    )
    last = np.isin(after.index.ends, dataset.index.ends)
    np.testing.assert_array_equal(after.index.terminated[last], dataset.index.terminated)
    np.testing.assert_array_equal(after.index.truncated[last], dataset.index.truncated)
    assert not after.index.terminated[~last].any()
    assert after.index.truncated[~last].all()
    assert after.index.final_known.all()


def test_successors_that_nobody_bootstraps_from_are_left_alone() -> None:
    """Terminal ones and unknown ones."""
    episodes = random_episodes()
    episodes[0] = replace(episodes[0], terminated=True, truncated=False)
    states = {"state": episodes[1].observations["state"][:-1]}
    episodes[1] = replace(episodes[1], observations=states, final_known=False)
    dataset = Dataset.from_episodes(episodes, Box((-1.0, -1.0), (1.0, 1.0)))
    after = wrong(dataset, "dynamics_shuffle", 1.0)
    assert np.flatnonzero(~marks(after)).tolist() == [19, 39]
    assert after.index.final_known.tolist().count(False) == 1
    assert after.index.terminated.tolist().count(True) == 1


def test_shuffled_dynamics_carry_masks_along() -> None:
    dataset = masked_choices()
    after = wrong(dataset, "dynamics_shuffle", 0.5)
    known = {
        state.tobytes(): mask.tolist()
        for episode in dataset.recording().episodes()
        for state, mask in zip(episode.observations["state"], episode.mask, strict=True)  # type: ignore[arg-type]
    }
    for episode in after.recording().episodes():
        assert episode.mask is not None
        for state, mask in zip(episode.observations["state"], episode.mask, strict=True):
            assert known[state.tobytes()] == mask.tolist()


def test_what_was_corrupted_earlier_stays_marked() -> None:
    first = wrong(random_dataset(), "reward_noise", 0.2, seed=0)
    second = wrong(first, "action_noise", 0.2, seed=5)
    assert (marks(first) <= marks(second)).all()
    assert marks(second).sum() > marks(first).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_keeps_it_to_the_bit(kind: Kind, tmp_path: Path) -> None:
    recording = corrupt(wide_dataset(), kind, share=0.3)
    assert recording.space is not None
    path = record(recording, tmp_path / "store", recording.space, precision="source")
    assert open_store(path).fingerprint == as_dataset(recording).fingerprint


@pytest.mark.parametrize("name", ["pendulum_replay.npz", "hopper_cs285.npz", "cartpole_rllib.npz"])
def test_real_recordings_are_corrupted_as_told(name: str) -> None:
    path = real_data(name)
    envs = {"pendulum": "Pendulum-v1", "hopper": "Hopper-v4", "cartpole": "CartPole-v1"}
    env = envs[name.split("_", maxsplit=1)[0]]
    dataset = load_dataset(path, env=env, transforms=Transforms(actions="clip"), precision="source")
    equal = dataset.rewards.min() == dataset.rewards.max()
    for kind in KINDS:
        if (kind.startswith("reward") and equal) or (
            kind == "action_noise" and isinstance(dataset.spec.action, Discrete)
        ):
            with pytest.raises(DataError):
                corrupt(dataset, kind, share=0.1)
            continue
        recording = corrupt(dataset, kind, share=0.1)
        (told,) = corruptions_in(recording.facts)
        after = as_dataset(recording)
        assert marks(after).sum() == told.rows == max(1, round(0.1 * told.eligible))
        assert after.steps == dataset.steps


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"kind": "reward_nois", "share": 0.1}, "kind: wrong value: got 'reward_nois', expected 'reward_noise'"),
        ({"kind": "reward_noise", "share": 0}, "share: wrong value: got 0, expected greater than 0"),
        ({"kind": "reward_noise", "share": 1.1}, "share: wrong value: got 1.1, expected less than or equal to 1"),
        ({"kind": "reward_noise", "share": float("nan")}, "share: wrong value"),
        ({"kind": "reward_noise", "share": True}, "share: wrong value: got true"),
        ({"kind": "reward_noise"}, "share: is required"),
        ({"kind": "reward_noise", "share": 0.1, "strength": 0}, "strength: wrong value: got 0"),
        ({"kind": "reward_noise", "share": 0.1, "seed": -1}, "seed: wrong value: got -1"),
        ({"kind": "reward_swap", "share": 0.1, "strength": 2}, "reward_swap has no strength"),
        ({"kind": "reward_noise", "shar": 0.1}, "shar: no such setting. Did you mean 'share'?"),
    ],
)
def test_wrong_settings_are_told(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as told:
        Corruption.parse(settings)
    assert sentence in str(told.value)


def equal_rewards() -> Dataset:
    episodes = [replace(episode, rewards=np.ones(20, np.float32)) for episode in random_episodes()]
    return Dataset.from_episodes(episodes, Box((-1.0, -1.0), (1.0, 1.0)), name="equal")


@pytest.mark.parametrize("kind", ["reward_noise", "reward_flip", "reward_swap", "reward_attack"])
def test_equal_rewards_cannot_be_corrupted(kind: Kind) -> None:
    with pytest.raises(DataError, match=f"dataset 'equal': every reward is 1, and {kind} would change none"):
        corrupt(equal_rewards(), kind, share=0.5)


def test_what_cannot_be_done_is_told() -> None:
    with pytest.raises(DataError, match="action_noise is Gaussian, for continuous actions: got one of 4"):
        corrupt(random_choices(), "action_noise", share=0.1)
    with pytest.raises(DataError, match="reward_swap exchanges the rewards of at least two rows: got 1"):
        corrupt(random_dataset(), "reward_swap", share=0.001)
    with pytest.raises(DataError, match="action_replace: no row can be corrupted this way"):
        corrupt(random_choices(actions=1), "action_replace", share=0.5)
    ended = random_episodes(steps=1, terminated=True, truncated=False)
    with pytest.raises(DataError, match="dynamics_shuffle: no row can be corrupted this way"):
        corrupt(Dataset.from_episodes(ended, Box((-1.0, -1.0), (1.0, 1.0))), "dynamics_shuffle", share=0.5)
    strange = [replace(episode, extra={COLUMN: np.zeros((20, 2))}) for episode in random_episodes()]
    with pytest.raises(DataError, match="column 'corrupted': wrong shape"):
        corrupt(Dataset.from_episodes(strange, Box((-1.0, -1.0), (1.0, 1.0))), "reward_flip", share=0.5)
    with pytest.raises(DataError, match=r"rewards, row \d+: not finite"):
        wrong(random_dataset(), "reward_noise", strength=1e300)


@pytest.mark.parametrize("told", [None, "x", 3, {}, [None], ["x"], [{"kind": "\x1b[31m"}], [{"kind": "reward_flip"}]])
def test_a_strangers_words_on_corruption_are_passed_over(told: object) -> None:
    assert corruptions_in({ENTRY: told}) == []
    assert corruption_facts({ENTRY: told}) == {}


def test_the_record_reads_back_and_speaks() -> None:
    (entry,) = corrupt(random_dataset(), "reward_flip", share=0.1, strength=2, seed=3).facts[ENTRY]
    told = CorruptionRecord.model_validate(entry)
    assert corruption_facts({ENTRY: [entry, "x"]}) == {ENTRY: [entry]}
    assert told.sentence() == (
        "Corrupted on purpose: reward_flip, strength 2, 12 of 120 rows (share 0.1, seed 3), "
        f"from {random_dataset().fingerprint[:16]}…"
    )

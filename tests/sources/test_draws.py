"""Row numbers: the right chances, every row once where that is promised, and the same block whoever asks."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from math import factorial

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocations import most_allocated
from understudy.core.errors import ConfigError, DataError
from understudy.core.rng import stream
from understudy.data.dataset import Dataset
from understudy.data.episode import Array, Episode
from understudy.sources.sampling.draws import (
    SHUFFLED,
    SPAN,
    Draw,
    Feistel,
    Permuted,
    Uniform,
    Weighted,
    choose_draw,
    read_weights,
    rows_without_replacement,
    shuffled,
)
from worlds import random_dataset, random_episodes

DRAWS: dict[str, Draw] = {
    "uniform": Uniform(3, 1000, 64),
    "weighted": Weighted.of(3, np.arange(1000.0), 64),
    "permuted": Permuted(3, 1000, 64),
    "permuted without a list": Permuted(3, SHUFFLED + 7, 640),
}


def chi_square(counts: Array, expected: Array | float) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def bound(freedom: int, sigmas: float = 4.0) -> float:
    """χ² beyond which chance is no longer an excuse (Wilson and Hilferty's approximation)."""
    return float(freedom * (1 - 2 / (9 * freedom) + sigmas * (2 / (9 * freedom)) ** 0.5) ** 3)


def many(draw: Draw, blocks: int) -> Array:
    return torch.cat([draw.indices(number) for number in range(blocks)]).numpy()


@pytest.mark.parametrize("name", DRAWS)
def test_a_block_is_its_number_whoever_asks(name: str) -> None:
    draw = DRAWS[name]
    forward = [draw.indices(number) for number in range(40)]
    backward = [draw.indices(number) for number in reversed(range(40))][::-1]
    with ThreadPoolExecutor(4) as workers:
        scattered = list(workers.map(draw.indices, range(40)))
    for one, two, three in zip(forward, backward, scattered, strict=True):
        assert one.dtype == torch.int64
        assert torch.equal(one, two)
        assert torch.equal(one, three)
    assert all(not torch.equal(one, two) for one, two in pairwise(forward))


SEEDED: list[Callable[[int], Draw]] = [
    lambda seed: Uniform(seed, 500, 64),
    lambda seed: Weighted.of(seed, np.ones(500), 64),
    lambda seed: Permuted(seed, 500, 64),
]


@pytest.mark.parametrize("seeded", SEEDED)
def test_another_seed_is_another_order(seeded: Callable[[int], Draw]) -> None:
    assert torch.equal(seeded(1).indices(2), seeded(1).indices(2))
    assert not torch.equal(seeded(1).indices(2), seeded(2).indices(2))


def test_of_very_many_rows_none_is_likelier_than_another() -> None:
    """The remainder of 32 random bits would prefer the first third of the first, and a third of the rest."""
    for count in (3 << 26, 3 << 27, 100_000_000, 10**12):
        drawn = many(Uniform(0, count, 1 << 17), 8)
        assert 0 <= drawn.min() < drawn.max() < count
        assert chi_square(np.bincount(drawn * 3 // count, minlength=3), len(drawn) / 3) < bound(2)
        assert chi_square(np.bincount(drawn % 97, minlength=97), len(drawn) / 97) < bound(96)


def test_few_rows_are_drawn_as_they_always_were() -> None:
    """What a run drew before larger sets had a way of their own, it draws for ever."""
    assert Uniform(3, 1000, 4).indices(0).tolist() == [234, 323, 670, 682]
    assert Uniform(3, 1 << 24, 4).indices(0).tolist() == [2626538, 1731291, 4035542, 13183626]
    assert Permuted(3, 1 << 24, 4).indices(0).tolist() == [12560989, 5285913, 5811582, 11402591]
    drawn = rows_without_replacement(4, 1 << 16, stream(0, "x"))
    assert torch.equal(drawn, torch.randperm(1 << 16, generator=stream(0, "x"))[:4])


def test_some_of_any_number_of_rows_without_replacement() -> None:
    for count in (1, 5, 300, (1 << 24) + 1, 10**12):
        drawn = rows_without_replacement(300, count, stream(0, "x"))
        assert len(torch.unique(drawn)) == len(drawn) == min(300, count)
        assert 0 <= int(drawn.min()) <= int(drawn.max()) < count


def test_tables_of_many_weights_take_eight_bytes_a_row_and_what_makes_them_little_more() -> None:
    weights = np.ones(1 << 21)
    assert most_allocated(lambda: Weighted.of(0, weights, 64)) < 8 * len(weights) + 200 * SPAN


def test_weights_are_the_chances() -> None:
    weights = np.random.default_rng(0).gamma(0.5, size=200)
    counts = np.bincount(many(Weighted.of(0, weights, 4096), 25), minlength=200)
    expected = counts.sum() * weights / weights.sum()
    often = expected > 5
    assert chi_square(counts[often], expected[often]) < bound(int(often.sum()))
    assert chi_square(counts[often], expected[often]) > bound(int(often.sum()), -4)


def chances(draw: Weighted) -> Array:
    """What the tables of a draw amount to, row by row."""
    span = len(draw.keep) // len(draw.sums)
    keep, other = draw.keep.double().numpy(), draw.other.numpy()
    first = np.arange(len(keep)) // span * span
    spans = np.diff(draw.sums.numpy(), prepend=0.0) / draw.sums[-1].numpy() / span
    share = spans[first // span]
    return np.asarray(share * keep + np.bincount(first + other, share * (1 - keep), len(keep)))


SHAPES: list[Callable[[np.random.Generator, int], Array]] = [
    lambda rng, count: np.ones(count),
    lambda rng, count: rng.random(count),
    lambda rng, count: rng.random(count) ** 20,
    lambda rng, count: np.exp(4 * rng.standard_normal(count)),
    lambda rng, count: (rng.random(count) < 0.01) + (np.arange(count) == 0),
    lambda rng, count: 1.0 / np.arange(1, count + 1),
    lambda rng, count: np.arange(count - 1, -1, -1) ** 3 + (np.arange(count) == 0),
]


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000, SPAN - 1, SPAN, SPAN + 1, 3 * SPAN + 5])
def test_the_tables_hold_exactly_the_weights(shape: int, count: int) -> None:
    weights = np.asarray(SHAPES[shape](np.random.default_rng(count), count), np.float64)
    held = chances(Weighted.of(0, weights, 64))
    np.testing.assert_allclose(held[:count], weights / weights.sum(), rtol=1e-6, atol=1e-7 / count)
    assert (held[:count][weights == 0] == 0).all()
    assert (held[count:] == 0).all()


SOME_WEIGHTS = st.one_of(st.lists(st.integers(0, 4), min_size=1), st.lists(st.floats(0, 1e6), min_size=1, max_size=40))


@settings(deadline=None, max_examples=300)
@example([1, 2, 3])  # one row has exactly an even share
@given(SOME_WEIGHTS.filter(lambda weights: max(weights) > 1e-300))
def test_any_weights_make_a_table(weights: list[float]) -> None:
    values = np.array(weights, np.float64)
    held = chances(Weighted.of(0, values, 64))
    np.testing.assert_allclose(held, values / values.max() / (values / values.max()).sum(), rtol=1e-6, atol=1e-7)
    assert (held[values == 0] == 0).all()


def test_weight_zero_is_never_drawn_wherever_it_stands() -> None:
    for zeros in ([0, 1, 2], [97, 98, 99], [50], list(range(1, 100)), list(range(99)), list(range(0, 100, 2))):
        weights = np.ones(100)
        weights[zeros] = 0
        drawn = np.unique(many(Weighted.of(1, weights, 4096), 3))
        assert drawn.tolist() == np.flatnonzero(weights).tolist()


@pytest.mark.parametrize("scale", [1e-320, 1e-30, 1.0, 1e300, 1e308])
def test_only_ratios_of_weights_matter(scale: float) -> None:
    drawn = many(Weighted.of(0, scale * np.array([0.5, 1.5, 0.0]), 4096), 2)
    assert np.bincount(drawn, minlength=3)[1] / len(drawn) == pytest.approx(0.75, abs=0.02)
    assert drawn.max() == 1


COUNTS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 97, 255, 256, 257, 1023, 1024, 1025, 4099, 65_535, 65_536, 65_537]


@pytest.mark.parametrize("count", [*COUNTS, SHUFFLED - 1, SHUFFLED, SHUFFLED + 1, 99_991])
def test_a_permutation_has_every_row_once(count: int) -> None:
    everything = torch.arange(count)
    for epoch in range(3):
        network = Feistel.of(count, stream(epoch, "x"))
        assert torch.equal(network.at(everything).sort().values, everything)
        assert torch.equal(shuffled(everything, count, stream(epoch, "x")).sort().values, everything)


@settings(deadline=None)
@given(st.integers(1, 10**12), st.integers(0, 2**32))
def test_a_network_stays_inside_and_never_meets_itself(count: int, seed: int) -> None:
    places = torch.unique(torch.randint(count, (50,), generator=stream(seed, "places")))
    values = Feistel.of(count, stream(seed, "x")).at(places)
    assert 0 <= int(values.min()) <= int(values.max()) < count
    assert len(torch.unique(values)) == len(places)


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 400), st.integers(0, 2**32))
def test_every_row_exactly_once_per_epoch(count: int, size: int, seed: int) -> None:
    blocks = -(-4 * count // size)
    drawn = many(Permuted(seed, count, size), blocks)[: 4 * count].reshape(4, count)
    assert (np.sort(drawn, 1) == np.arange(count)).all()


def test_every_row_exactly_once_per_epoch_of_a_large_set() -> None:
    count = 40_009
    drawn = many(Permuted(0, count, 4096), 30)[: 3 * count].reshape(3, count)
    assert (np.sort(drawn, 1) == np.arange(count)).all()
    for one, two in ((0, 1), (1, 2), (0, 2)):
        assert (drawn[one] == drawn[two]).sum() < 10  # one in common is expected


def test_the_size_of_blocks_is_not_seen_in_the_order() -> None:
    for count in (1000, SHUFFLED + 1):
        assert (many(Permuted(5, count, 640), 10) == many(Permuted(5, count, 100), 64)).all()


def test_small_sets_have_every_order() -> None:
    orders = Counter(tuple(Permuted(0, 5, 5).indices(epoch).tolist()) for epoch in range(6000))
    assert len(orders) == factorial(5)
    assert chi_square(np.array(list(orders.values())), 6000 / factorial(5)) < bound(factorial(5) - 1)


@pytest.mark.parametrize("count", [SHUFFLED + 1, 20_164, 32_768])
def test_a_place_is_as_likely_to_hold_any_row(count: int) -> None:
    """Over many epochs: places and their rows, neighbours and their distances, each in 32 by 32 bins."""
    places = torch.arange(200) * (count // 200) + 5
    networks = [Feistel.of(count, stream(epoch, "x")) for epoch in range(500)]
    here = torch.stack([network.at(places) for network in networks]).numpy()
    there = torch.stack([network.at(places + 1) for network in networks]).numpy()
    distance = (there - here) % count
    for first, second in ((places.numpy()[None].repeat(500, 0), here), (here, distance), (here, there)):
        table = np.histogram2d(first.ravel(), second.ravel(), 32, [[0, count], [0, count]])[0]
        expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
        assert chi_square(table, expected) < bound(31 * 31)
        assert chi_square(table, expected) > bound(31 * 31, -4)


def test_rows_that_a_grid_would_keep_together_part() -> None:
    """Places in one row or one column of the network's own grid land in one row no more often than others."""
    count = 20_164
    side = 142
    networks = [Feistel.of(count, stream(epoch, "x")) for epoch in range(300)]
    for places in (torch.arange(side), torch.arange(side) * side):
        pairs = same = 0
        for network in networks:
            rows = np.bincount(network.at(places).numpy() // side, minlength=side)
            same += int((rows * (rows - 1)).sum())
            pairs += side * (side - 1)
        chance = (side - 1) / (count - 1)
        assert same / pairs == pytest.approx(chance, rel=4 / (pairs / 2 * chance) ** 0.5)


def weighing(**columns: Array) -> Dataset:
    episodes = [
        Episode(e.observations, e.actions, e.rewards, False, True, extra={name: c[k] for name, c in columns.items()})
        for k, e in enumerate(random_episodes())
    ]
    return Dataset.from_episodes(episodes, random_dataset().spec.action, name="x")


def test_weights_are_read_from_a_column_of_any_number_type() -> None:
    values = np.arange(120).reshape(6, 20)
    for dtype in (np.float32, np.uint8, np.int64):
        assert (read_weights(weighing(w=values.astype(dtype)), "w") == values.ravel()).all()
    assert (read_weights(weighing(w=values > 60), "w") == (values > 60).ravel()).all()


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("weigt", np.ones((6, 20)), r"dataset 'x', column 'weigt': no such column .* Did you mean 'weight'\?"),
        ("weight", np.ones((6, 20, 2)), r"column 'weight': weights are one number per step: got \[120, 2\]"),
        (
            "weight",
            np.where(np.arange(120) < 47, 1, -1).reshape(6, 20),
            r"row 47: cannot be a weight: got -1.0.*73 such",
        ),
        ("weight", np.zeros((6, 20)), r"column 'weight': no row that could be drawn has a weight above 0"),
    ],
)
def test_weights_that_cannot_serve_are_refused(name: str, values: Array, told: str) -> None:
    with pytest.raises(DataError, match=told):
        choose_draw(weighing(weight=values), 64, 0, weights=name)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_became_infinite_are_refused(value: float) -> None:
    """Episodes are checked when they are read; a column may be changed after that."""
    dataset = weighing(weight=np.ones((6, 20)))
    dataset.extra["weight"][30] = value
    with pytest.raises(DataError, match=r"row 30: cannot be a weight: got (nan|inf), expected a finite number"):
        choose_draw(dataset, 64, 0, weights="weight")


def test_weights_and_no_replacement_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match=r"source.replacement: rows drawn by weight may be drawn again"):
        choose_draw(weighing(w=np.ones((6, 20))), 64, 0, weights="w", replacement=False)


def test_weights_of_chosen_steps_only() -> None:
    dataset = weighing(w=np.arange(120.0).reshape(6, 20))
    starts = torch.from_numpy(dataset.index.starts)
    drawn = many(choose_draw(dataset, 4096, 0, weights="w", among=starts), 3)
    assert np.bincount(drawn, minlength=6) / len(drawn) == pytest.approx(np.arange(6) / 15, abs=0.015)
    nothing = weighing(w=np.where(np.arange(120) % 20 == 0, 0.0, 1.0).reshape(6, 20))
    with pytest.raises(DataError, match="no row that could be drawn"):
        choose_draw(nothing, 64, 0, weights="w", among=starts)

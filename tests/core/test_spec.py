"""A spec says what is emitted and accepted, and reads back from JSON."""

from typing import Any

import numpy as np
import pytest

from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import Box, Discrete, Group, MultiDiscrete, Spec, recordable

SPEC = Spec({"state": Group((3,), "float32"), "image": Group((2, 4), "uint8")}, Box((-2.0, 0.0), (2.0, 1.0)))


def test_a_box_has_a_centre_and_a_half_range() -> None:
    np.testing.assert_array_equal(SPEC.box.centre, [0.0, 0.5])
    np.testing.assert_array_equal(SPEC.box.half_range, [2.0, 0.5])
    assert SPEC.box.size == 2
    assert SPEC.observation["image"].size == 8
    assert Group((), "float32").size == 1


@pytest.mark.parametrize(
    ("low", "high"),
    [((), ()), ((0.0,), (0.0,)), ((1.0,), (0.0,)), ((-np.inf,), (1.0,)), ((0.0,), (np.nan,)), ((0.0,), (1.0, 1.0))],
)
def test_bad_boxes_are_refused(low: tuple[float, ...], high: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match="action space"):
        Box(low, high)


def test_json_round_trip() -> None:
    assert Spec.from_json("x", SPEC.to_json()) == SPEC


@pytest.mark.parametrize(
    "change",
    [
        {"observation": 3},
        {"action": {}},
        {"action": {"low": ["a"], "high": [1], "dtype": "float32"}},
        {"observation": {"state": {"shape": [3], "dtype": "no such type"}}},
        {"observation": {"state": {"shape": None, "dtype": "float32"}}},
        {"observation": {"state": {"shape": [-3], "dtype": "float32"}}},
        {"observation": {"state": {"shape": [2**32, 2**32], "dtype": "float32"}}},
        {"observation": {"state": {"shape": [10**4000], "dtype": "float32"}}},
        {"observation": {"state": {"shape": [1] * 17, "dtype": "float32"}}},
        {"observation": {"state": {"shape": [2.5], "dtype": "float32"}}},
        {"observation": {"state": {"shape": [True], "dtype": "float32"}}},
        {"observation": {"state": {"shape": [3], "dtype": "object"}}},
        {"observation": {"state": {"shape": [3], "dtype": ["float32"]}}},
        {"observation": {}},
        {"action": {"discrete": 0}},
        {"action": {"discrete": -(10**30)}},
        {"action": {"multi_discrete": [3, None]}},
        {"action": {"low": [-(10**400)], "high": [1], "dtype": "float32"}},
        {"action": {"low": [0], "high": [1], "dtype": "float128"}},
        {"masked": "yes"},
        {"segments": []},
        {"segments": {"state": {"a": [0]}}},
        {"segments": {"state": {"a": [0, 99]}}},
    ],
)
def test_a_damaged_spec_is_refused_with_its_place(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"^dataset 'x': its spec is not readable"):
        Spec.from_json("dataset 'x'", {**SPEC.to_json(), **change})


def test_what_is_no_mapping_is_refused() -> None:
    with pytest.raises(DataError, match="not readable"):
        Spec.from_json("x", None)


def test_it_describes_itself() -> None:
    assert (
        SPEC.describe()
        == "observation image [2, 4] uint8, state [3] float32; action [2] float32 from [-2, 0] to [2, 1]"
    )


FACTORS = Spec({"state": Group((3,), "float32")}, MultiDiscrete((3, 2)))


def test_choices_of_several_factors() -> None:
    assert Spec.from_json("x", FACTORS.to_json()) == FACTORS
    assert FACTORS.describe() == "observation state [3] float32; action one of 3 and one of 2"
    assert FACTORS.fits(Spec(FACTORS.observation, MultiDiscrete((3, 2))))
    assert not FACTORS.fits(Spec(FACTORS.observation, MultiDiscrete((2, 3))))
    assert not FACTORS.fits(Spec(FACTORS.observation, Discrete(3)))
    assert MultiDiscrete((3, 2)).size == 2


@pytest.mark.parametrize("counts", [(), (3, 0), (-1,)])
def test_a_factor_without_actions_is_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="a factor has no actions"):
        MultiDiscrete(counts)


def test_data_hold_no_choices_of_several_factors() -> None:
    assert recordable(SPEC.action) is SPEC.action
    with pytest.raises(ConfigError, match=r"not stored in datasets.* got one of 3 and one of 2"):
        recordable(FACTORS.action)


def test_groups_stand_in_the_order_of_their_names_however_they_came() -> None:
    """Networks join them in this order, and JSON files are written in the order of names: a policy that comes back from
    one must see the same columns."""
    one, other = ({name: Group((size,), "float32") for name, size in groups} for groups in ([("b", 2), ("a", 1)],) * 2)
    specs = [Spec(one, Discrete(2)), Spec(dict(reversed(other.items())), Discrete(2))]
    assert [list(spec.observation) for spec in specs] == [["a", "b"], ["a", "b"]]
    assert specs[0] == specs[1] == Spec.from_json("file", specs[0].to_json())

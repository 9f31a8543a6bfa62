"""Settings are closed, and every mistake is told at its place."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from understudy.core.errors import ConfigError
from understudy.core.settings import Settings


class Network(Settings):
    hidden: tuple[int, ...] = (256, 256)
    """Widths."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share."""


class Algo(Settings):
    expectile: float = Field(0.7, gt=0, lt=1)
    """τ."""
    steps: int = Field(10, ge=1)
    """Count."""
    greedy: bool = True
    """A truth."""
    label: str = ""
    """A word."""
    actor: Network = Network()
    """Inside."""
    critics: tuple[Network, ...] = ()
    """Several inside."""


class Round(Settings):
    kind: Literal["round"] = "round"
    """One."""
    radius: float = 1.0
    """Of it."""


class Square(Settings):
    kind: Literal["square"] = "square"
    """Another."""
    width: float = 1.0
    """Of it."""
    corners: tuple[Network, ...] = Field((Network(),), min_length=1)
    """Inside of it."""


class Drawing(Settings):
    shapes: dict[str, Annotated[Round | Square, Field(discriminator="kind")]] = Field(default_factory=dict)
    """By name."""
    pen: Literal["red", "blue"] | Literal["none"] = "none"
    """One of two lists of words."""


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            {"shapes": {"head": {"kind": "round", "radus": 2}}},
            "drawing.shapes.head.radus: no such setting. Did you mean 'radius'?",
        ),
        (
            {"shapes": {"round": {"kind": "square", "widht": 2}}},
            "drawing.shapes.round.widht: no such setting. Did you mean 'width'?",
        ),
        (
            {"shapes": {"head": {"kind": "square", "corners": [{"hiden": [1]}]}}},
            "drawing.shapes.head.corners.0.hiden: no such setting. Did you mean 'hidden'?",
        ),
        (
            {"shapes": {"head": {"kind": "oval"}}},
            "drawing.shapes.head.kind: no such kind: got 'oval', expected round, square.",
        ),
        ({"shapes": {"head": {"radius": 1}}}, "drawing.shapes.head.kind: is required: expected round, square."),
        (
            {"shapes": {"head": {"kind": "round", "radius": "big"}}},
            "drawing.shapes.head.radius: wrong value: got 'big', expected a number.",
        ),
        ({"pen": "green"}, "drawing.pen: wrong value: got 'green', expected 'red', 'blue', 'none'."),
    ],
)
def test_a_mistake_inside_one_of_several_kinds_is_told_where_it_was_written(data: object, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Drawing.parse(data, "drawing")
    assert str(caught.value) == told


def complaint(data: object, where: str = "algo") -> str:
    with pytest.raises(ConfigError) as caught:
        Algo.parse(data, where)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_defaults_and_values() -> None:
    assert Algo.parse({}).expectile == 0.7
    assert Algo.parse({"actor": {"hidden": [3]}}).actor.hidden == (3,)


def test_a_number_written_as_text_is_read() -> None:
    assert Algo.parse({"expectile": "3e-4"}).expectile == 3e-4  # PyYAML reads 3e-4 as text
    assert Algo.parse({"steps": "12"}).steps == 12


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"expectle": 0.5}, "algo.expectle: no such setting. Did you mean 'expectile'?"),
        ({"actor": {"hiden": [1]}}, "algo.actor.hiden: no such setting. Did you mean 'hidden'?"),
        ({"critics": [{}, {"hiden": [1]}]}, "algo.critics.1.hiden: no such setting. Did you mean 'hidden'?"),
        ({"steps": 1.5}, "algo.steps: wrong value: got 1.5, expected "),
        ({"steps": 0}, "algo.steps: wrong value: got 0, expected greater than or equal to 1."),
        ({"expectile": "high"}, "algo.expectile: wrong value: got 'high', expected a number"),
        ({"expectile": None}, "algo.expectile: wrong value: got null, expected a number."),
        ({"actor": 3}, "algo.actor: wrong value: got 3, expected "),
        ({"greedy": "perhaps"}, "algo.greedy: wrong value: got 'perhaps', expected true or false"),
    ],
)
def test_each_mistake_has_its_sentence(data: object, sentence: str) -> None:
    assert complaint(data).startswith(sentence)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({"expectile": True}, "algo.expectile"),
        ({"steps": False}, "algo.steps"),
        ({"actor": {"hidden": [True, 16]}}, "algo.actor.hidden.0"),
        ({"actor": {"dropout": False}}, "algo.actor.dropout"),
    ],
)
def test_a_truth_is_not_a_number(data: object, place: str) -> None:
    told = complaint(data)
    assert told.startswith(f"{place}: wrong value: got {'false' if 'False' in str(data) else 'true'}, expected ")


def test_a_truth_is_a_truth() -> None:
    assert Algo.parse({"greedy": False}).greedy is False


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), "inf", "nan", "1e999"])
def test_infinity_and_nan_are_refused(value: object) -> None:
    assert complaint({"expectile": value}).startswith("algo.expectile: wrong value: got ")


def test_numbers_beyond_any_machine_are_refused_in_few_words() -> None:
    for digits in (20, 400, 4000, 5000):
        for number in ("9" * digits, "-" + "9" * digits):
            for setting in ({"steps": number}, {"actor": {"hidden": [number]}}, {"expectile": number}):
                assert len(complaint(setting)) < 1500
    assert "algo.steps: is beyond what a machine counts to" in complaint({"steps": "9" * 400})
    assert len(complaint({"steps": 10**5000})) < 1500, "Python does not write it out"


def test_several_mistakes_are_told_at_once() -> None:
    told = complaint({"expectle": 1, "steps": True, "expectile": 7, "actor": {"dropout": 2}}).splitlines()
    assert {line.split(":")[0] for line in told} == {
        "algo.expectle",
        "algo.steps",
        "algo.expectile",
        "algo.actor.dropout",
    }


def test_what_is_no_mapping_is_refused() -> None:
    assert complaint([1, 2]).startswith("algo: wrong value: got [1, 2]")


def test_required_settings_are_named() -> None:
    class Needy(Settings):
        run: str

    with pytest.raises(ConfigError, match=r"^recipe\.run: is required"):
        Needy.parse({}, "recipe")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        setattr(Algo(), "steps", 3)  # noqa: B010

"""Gymnasium spaces as Minari writes them down (JSON), read without building any of them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from understudy.core.errors import DataError
from understudy.core.spec import ActionSpace, Box, Discrete
from understudy.data.episode import Array

DEPTH_LIMIT = 8
CHOICE_LIMIT = 1 << 16
"""A choice is read as a one-hot vector, which has to fit somewhere."""
SIZE_LIMIT = 1 << 28
IMAGE_SIDE = 32
"""Minari encodes uint8 boxes as JPEG from this height and width on."""
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, SyntaxError, RecursionError)


@dataclass(frozen=True)
class Leaf:
    """One array of an observation space."""

    path: tuple[str, ...]
    """The keys of the nested Dict that lead to it."""
    kind: Literal["numbers", "choice", "text"]
    shape: tuple[int, ...] = ()
    start: int = 0
    count: int = 0
    """Of a choice: its first value, and of how many."""
    image: bool = False
    """Whether Minari may have stored it as JPEG."""


@dataclass(frozen=True)
class Action:
    """How stored actions become ours."""

    space: ActionSpace | None
    """Nothing if the file gives no finite bounds."""
    discrete: bool
    start: int = 0

    def read(self, values: Array) -> Array:
        """[n, A] in environment units, or [n] whole numbers from 0."""
        if self.discrete:
            return values.astype(np.int64) - self.start if self.start else values
        return values if values.ndim == 2 else values.reshape(len(values), -1)


def read_observation_space(text: object, where: str) -> dict[str, Leaf]:
    """Every array by the name of its observation group: `state` for a single one, joined keys for nested ones."""
    where = f"{where}, observation_space"
    try:
        leaves = _leaves(_parsed(text), (), where)
    except MALFORMED as error:
        raise DataError(where, f"not a space as Minari writes it ({error!r})") from error
    named: dict[str, Leaf] = {}
    for leaf in leaves:
        name = re.sub(r"[^A-Za-z0-9_]", "_", "_".join(leaf.path)) or "state"
        if name in named:
            raise DataError(where, "two parts would have the same name", got=f"'{name}' twice")
        named[name] = leaf
    return named


def read_action_space(text: object, where: str) -> Action:
    where = f"{where}, action_space"
    try:
        return _action(_parsed(text), where)
    except MALFORMED as error:
        raise DataError(where, f"not a space as Minari writes it ({error!r})") from error


def _parsed(text: object) -> Mapping[str, Any]:
    data = json.loads(text) if isinstance(text, str) else text
    if not isinstance(data, dict):
        raise TypeError("not an object")
    return data


def _leaves(data: Mapping[str, Any], path: tuple[str, ...], where: str) -> list[Leaf]:
    kind = data["type"]
    if len(path) > DEPTH_LIMIT:
        raise DataError(where, "is nested too deep", expected=f"at most {DEPTH_LIMIT} levels")
    if kind == "Dict":
        parts = data["subspaces"].items()
        return [leaf for key, part in parts for leaf in _leaves(part, (*path, str(key)), where)]
    if kind == "Box":
        shape = _shape(data["shape"])
        return [Leaf(path, "numbers", shape, image=_is_image(data, shape))]
    if kind == "Discrete":
        count = int(data["n"])
        if not 1 <= count <= CHOICE_LIMIT:
            raise DataError(where, "a choice of too many", got=count, expected=f"at most {CHOICE_LIMIT}")
        return [Leaf(path, "choice", (count,), _bounded(data.get("start", 0)), count)]
    if kind == "MultiBinary":
        sizes = data["n"]
        return [Leaf(path, "numbers", _shape(sizes if isinstance(sizes, list) else [sizes]))]
    if kind == "MultiDiscrete":
        return [Leaf(path, "numbers", _shape(np.asarray(data["nvec"]).shape))]
    if kind == "Text":
        return [Leaf(path, "text")]
    raise DataError(
        where,
        "cannot be read",
        got=f"{kind!s:.40}" + (f" at {'/'.join(path)}" if path else ""),
        expected="Box, Discrete, MultiDiscrete, MultiBinary, Text or a Dict of them",
    )


def _action(data: Mapping[str, Any], where: str) -> Action:
    kind = data["type"]
    if kind == "Discrete":
        return Action(Discrete(_bounded(data["n"])), True, _bounded(data.get("start", 0)))
    if kind != "Box":
        raise DataError(where, "cannot be read", got=f"{kind!s:.40}", expected="Box or Discrete")
    size = int(np.prod(_shape(data["shape"])))
    dtype = np.dtype(str(data["dtype"]))
    if dtype.kind != "f":
        raise DataError(where, "cannot be read", got=f"a Box of {dtype}", expected="a Box of floats, or Discrete")
    low, high = (np.asarray(data[side], np.float64).reshape(-1) for side in ("low", "high"))
    if not low.shape == high.shape == (size,):
        raise DataError(where, "its bounds do not fit its shape", got=f"{low.shape} and {high.shape}", expected=(size,))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return Action(None, False)
    return Action(Box(tuple(low.tolist()), tuple(high.tolist()), dtype.name), False)


def _bounded(value: Any) -> int:
    """A whole number that fits into the arithmetic that follows."""
    number = int(value)
    if abs(number) >= 1 << 31:
        raise ValueError(f"a choice numbered {str(number)[:40]}")
    return number


def _shape(lengths: Any) -> tuple[int, ...]:
    shape = tuple(int(length) for length in lengths)
    if any(length < 1 for length in shape) or int(np.prod(shape, dtype=np.float64)) > SIZE_LIMIT:
        raise ValueError(f"shape {str(shape)[:80]}")
    return shape


def _is_image(data: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
    """Minari's own rule for what it encodes."""
    large = len(shape) in {2, 3} and min(shape[:2]) >= IMAGE_SIDE
    if not large or data["dtype"] != "uint8":
        return False
    return bool(np.all(np.asarray(data["low"]) == 0) and np.all(np.asarray(data["high"]) == 255))

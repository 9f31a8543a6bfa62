"""What an environment or dataset emits and accepts: observation groups and an action space."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, DataError, UnderstudyError, did_you_mean, shown

if TYPE_CHECKING:
    import gymnasium

ACTION_MASK = "action_mask"
"""The name under which an observation says which of the discrete actions are legal."""

AXES = 16
"""NumPy and Torch have limits of their own, and nothing in between was ever recorded."""
LARGEST = 1 << 40
"""Numbers of an observation, and choices of an action, that a file may speak of."""
FLOATS = ("float16", "float32", "float64")
NUMBERS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
"""Kinds that NumPy and Torch both know."""

SHOWN = 8
"""Bounds of a box that are written out where people look at it."""

Segments = Mapping[str, Mapping[str, tuple[int, int]]]
"""Names for columns of flat groups: {group: {segment: (first column, column after the last)}}."""


@dataclass(frozen=True)
class Group:
    """One named observation: its shape without the time axis, and the dtype it is stored in."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, repr=False)
class Box:
    """A bounded continuous action vector in environment units."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        low, high = (_bounds(values) for values in (self.low, self.high))
        if low.ndim != 1 or low.shape != high.shape or low.size == 0:
            raise DataError(
                "action space",
                "bounds are not vectors of one length",
                got=f"low {shown(self.low)} and high {shown(self.high)}",
                expected="one number for each dimension, as in Box([-1, -1], [1, 1])",
            )
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise DataError(
                "action space",
                "bounds must be finite and low < high in every dimension",
                got=f"low {self.low}, high {self.high}",
                do="Wrap the environment so that its actions are bounded.",
            )
        for name, values in (("low", low), ("high", high)):  # arrays are welcome, and kept as plain numbers
            object.__setattr__(self, name, tuple(map(float, values)))
        if not isinstance(self.dtype, str) or self.dtype not in FLOATS:
            raise DataError("action space", "not floats of any kind", got=self.dtype, expected=" or ".join(FLOATS))

    @property
    def size(self) -> int:
        return len(self.low)

    @property
    def centre(self) -> NDArray[np.float64]:
        return (np.asarray(self.high, np.float64) + np.asarray(self.low, np.float64)) / 2

    @property
    def half_range(self) -> NDArray[np.float64]:
        return (np.asarray(self.high, np.float64) - np.asarray(self.low, np.float64)) / 2

    def __repr__(self) -> str:
        """Few words, however many dimensions: `Box([6] from -1 to 1)`."""
        sides = [f"{values[0]:g}" if len(set(values)) == 1 else _listed(values) for values in (self.low, self.high)]
        return f"Box([{self.size}] from {sides[0]} to {sides[1]})"

    def describe(self) -> str:
        low, high = (", ".join(f"{bound:g}" for bound in bounds) for bounds in (self.low, self.high))
        return f"[{self.size}] {self.dtype} from [{low}] to [{high}]"


def _bounds(values: object) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError("action space", f"bounds are no vector ({error})") from error
    if array.dtype.kind not in "fiu":
        raise DataError("action space", "bounds are not numbers", got=values, expected="one for each dimension")
    return array


def _listed(values: tuple[float, ...]) -> str:
    inside = ", ".join(f"{value:g}" for value in values[:SHOWN])
    return f"[{inside}{', …' if len(values) > SHOWN else ''}]"


@dataclass(frozen=True)
class Discrete:
    """One of `count` actions, 0 to count − 1."""

    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", _number_of_choices(self.count))

    def describe(self) -> str:
        return f"one of {self.count}"


@dataclass(frozen=True)
class MultiDiscrete:
    """One of each of several factors: `counts` (3, 2) is one of 3 and one of 2, every one from 0."""

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.counts, (tuple, list, np.ndarray)) or np.ndim(self.counts) != 1:
            raise DataError("action space", "not a list of counts", got=self.counts, expected="one for each factor")
        if not len(self.counts) or not all(isinstance(one, (int, np.integer)) and one >= 1 for one in self.counts):
            raise DataError(
                "action space", "a factor has no actions", got=self.counts, expected="a count of at least 1 for each"
            )
        object.__setattr__(self, "counts", tuple(map(_number_of_choices, self.counts)))

    @property
    def size(self) -> int:
        return len(self.counts)

    def describe(self) -> str:
        return " and ".join(f"one of {count}" for count in self.counts)


ActionSpace = Box | Discrete | MultiDiscrete
GivenSpace = Union[ActionSpace, "gymnasium.Space[Any]"]
"""What a caller may give: ours, or Gymnasium's."""


def _number_of_choices(count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)):
        raise DataError("action space", "not a number of actions", got=repr(count), expected="a whole number")
    if count < 1:
        raise DataError("action space", "has no actions", got=count, expected="at least 1")
    return int(count)


def as_action_space(space: object, where: str = "action space") -> ActionSpace:
    """One of ours; or Gymnasium's, where it is one that policies know."""
    if isinstance(space, (Box, Discrete, MultiDiscrete)):
        return space
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete) and space.start == 0:
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1 and not space.start.any():
        return MultiDiscrete(tuple(map(int, space.nvec)))
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and np.dtype(space.dtype).kind == "f":
        return Box(tuple(map(float, space.low)), tuple(map(float, space.high)), np.dtype(space.dtype).name)
    raise ConfigError(
        where,
        "actions not supported",
        got=space,
        expected="Box(A,) of floats, Discrete from 0, or MultiDiscrete(A,) from 0",
    )


def as_actions(values: NDArray[Any], space: ActionSpace) -> NDArray[Any]:
    """What a policy chose, as the environment wants it: inside the box and of its dtype, or whole numbers."""
    if not isinstance(space, Box):
        return values.astype(np.int64)
    low, high = _sides(space)
    inside: NDArray[Any] = np.minimum(np.maximum(values, low), high)
    return inside.astype(space.dtype, copy=False)


@cache
def _sides(space: Box) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.asarray(space.low), np.asarray(space.high)


@dataclass(frozen=True, repr=False)
class Spec:
    """The contract between data, environment and networks."""

    observation: Mapping[str, Group]
    """By name, and in the order of names: networks join groups in this order, and files do not keep another."""
    action: ActionSpace
    masked: bool = False
    """Every observation comes with its legal actions, under the name `action_mask`."""
    segments: Segments = field(default_factory=dict)
    """What its columns are called, where somebody said so: `with_segments` checks it."""

    def __post_init__(self) -> None:
        if not isinstance(self.observation, Mapping) or not all(
            isinstance(name, str) and isinstance(group, Group) for name, group in self.observation.items()
        ):
            raise DataError("spec", "observations are not named groups", got=self.observation, expected="{name: Group}")
        object.__setattr__(self, "observation", dict(sorted(self.observation.items())))
        object.__setattr__(self, "action", as_action_space(self.action, "spec"))

    def __repr__(self) -> str:
        groups = ", ".join(f"{name} {list(group.shape)} {group.dtype}" for name, group in self.observation.items())
        return f"Spec({groups} → {self.action!r}{', masked' if self.masked else ''})"

    @property
    def box(self) -> Box:
        """The action space of a learner that only knows continuous actions."""
        if not isinstance(self.action, Box):
            raise ConfigError(
                "action space", "this needs continuous actions", got=self.action.describe(), expected="a box"
            )
        return self.action

    def fits(self, other: "Spec") -> bool:
        """The same groups and the same actions; only the width of floating numbers may differ."""
        mine, theirs = (
            {name: (group.shape, group.dtype == "uint8") for name, group in spec.observation.items()}
            for spec in (self, other)
        )
        if self.masked != other.masked:
            return False
        if isinstance(self.action, Box) and isinstance(other.action, Box):
            return mine == theirs and (self.action.low, self.action.high) == (other.action.low, other.action.high)
        return mine == theirs and self.action == other.action

    def with_segments(self, segments: Segments, where: str = "env.segments") -> "Spec":
        """The same, with names for columns: each is a range inside a flat group that exists."""
        for group, named in segments.items():
            if group not in self.observation:
                raise ConfigError(f"{where}.{group}", "no such group", do=did_you_mean(group, self.observation))
            shape = self.observation[group].shape
            if len(shape) != 1:
                raise ConfigError(
                    f"{where}.{group}", "only a flat group has segments", got=list(shape), expected="[columns]"
                )
            for name, (start, stop) in named.items():
                if not 0 <= start < stop <= shape[0]:
                    raise ConfigError(
                        f"{where}.{group}.{name}",
                        "not a range of columns",
                        got=f"{start} to {stop}",
                        expected=f"0 ≤ first < after the last ≤ {shape[0]}",
                    )
        return replace(self, segments={group: dict(named) for group, named in segments.items()})

    def with_more_segments(self, segments: Segments) -> "Spec":
        """The same, with these names beside those that are there."""
        groups = {**self.segments, **segments}
        return self.with_segments({g: {**self.segments.get(g, {}), **segments.get(g, {})} for g in groups})

    def to_json(self) -> dict[str, Any]:
        masked = {"masked": True} if self.masked else {}
        segments = {group: {name: list(ends) for name, ends in named.items()} for group, named in self.segments.items()}
        return {
            "observation": {
                name: {"shape": list(group.shape), "dtype": group.dtype} for name, group in self.observation.items()
            },
            "action": space_json(self.action),
            **masked,
            **({"segments": segments} if segments else {}),
        }

    @classmethod
    def from_json(cls, where: str, data: object) -> "Spec":
        """Rebuild a spec from a file; anything unexpected is refused with the file's name."""
        try:
            assert isinstance(data, dict)
            observation = {str(name): _group_from(group) for name, group in data["observation"].items()}
            masked = data.get("masked", False)
            if not observation or not isinstance(masked, bool):
                raise ValueError("it says nothing of observations, or of masks what is neither true nor false")
            return cls(observation, space_from(data["action"]), masked).with_segments(
                _segments_from(data.get("segments", {}))
            )
        except (AssertionError, KeyError, TypeError, ValueError, AttributeError, UnderstudyError) as error:
            raise DataError(where, "its spec is not readable", got=repr(error)) from error

    def describe(self) -> str:
        groups = ", ".join(f"{name} {list(group.shape)} {group.dtype}" for name, group in self.observation.items())
        masked = " of those a mask allows" if self.masked else ""
        return f"observation {groups}; action {self.action.describe()}{masked}"


def recordable(space: ActionSpace) -> Box | Discrete:
    """What datasets hold, and those who learn from them know; choices of several factors are refused."""
    if isinstance(space, MultiDiscrete):
        raise ConfigError(
            "action space",
            "choices of several factors are not stored in datasets, nor learned from them",
            got=space.describe(),
            expected="a box, or one of n",
            do="Learn on policy, in the environment.",
        )
    return space


def space_json(space: ActionSpace) -> dict[str, Any]:
    if isinstance(space, Discrete):
        return {"discrete": space.count}
    if isinstance(space, MultiDiscrete):
        return {"multi_discrete": list(space.counts)}
    return {"low": list(space.low), "high": list(space.high), "dtype": space.dtype}


def space_from(data: Mapping[str, Any]) -> ActionSpace:
    """What `space_json` wrote; anything else is an error, usually of Python's own."""
    if "discrete" in data:
        return Discrete(_count(data["discrete"]))
    if "multi_discrete" in data:
        return MultiDiscrete(tuple(_count(count) for count in data["multi_discrete"]))
    low, high = (tuple(_bound(bound) for bound in data[side]) for side in ("low", "high"))
    return Box(low, high, _dtype(data["dtype"]))


def _group_from(data: Mapping[str, Any]) -> Group:
    group = Group(tuple(_count(length) for length in data["shape"]), _dtype(data["dtype"]))
    if len(group.shape) > AXES or group.size > LARGEST:
        raise ValueError(f"no observation has the shape {list(group.shape[: AXES + 1])}")
    return group


def _segments_from(data: Mapping[str, Mapping[str, Any]]) -> Segments:
    return {
        str(group): {str(name): (_count(start), _count(stop)) for name, (start, stop) in named.items()}
        for group, named in data.items()
    }


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError(f"{shown(value)} is no count")
    return value


def _bound(value: object) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{shown(value)} is no bound of an action")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise ValueError("a bound of an action beyond every floating number") from None


def _dtype(name: object) -> str:
    if not isinstance(name, str) or name not in NUMBERS:
        raise ValueError(f"{shown(name)} is no kind of numbers")
    return name

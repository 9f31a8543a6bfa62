"""What an environment or dataset emits and accepts: observation groups and an action box."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError


@dataclass(frozen=True)
class Group:
    """One named observation: its shape without the time axis, and the dtype it is stored in."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Box:
    """A bounded continuous action vector in environment units."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        low, high = np.asarray(self.low), np.asarray(self.high)
        if low.ndim != 1 or low.shape != high.shape or low.size == 0:
            raise DataError(
                "action space", "not a vector", got=f"low {low.shape} and high {high.shape}", expected="(A,)"
            )
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise DataError(
                "action space",
                "bounds must be finite and low < high in every dimension",
                got=f"low {self.low}, high {self.high}",
                do="Wrap the environment so that its actions are bounded.",
            )

    @property
    def size(self) -> int:
        return len(self.low)

    @property
    def centre(self) -> NDArray[np.float64]:
        return (np.asarray(self.high, np.float64) + np.asarray(self.low, np.float64)) / 2

    @property
    def half_range(self) -> NDArray[np.float64]:
        return (np.asarray(self.high, np.float64) - np.asarray(self.low, np.float64)) / 2


@dataclass(frozen=True)
class Spec:
    """The contract between data, environment and networks."""

    observation: Mapping[str, Group]
    action: Box

    def to_json(self) -> dict[str, Any]:
        return {
            "observation": {
                name: {"shape": list(group.shape), "dtype": group.dtype} for name, group in self.observation.items()
            },
            "action": {"low": list(self.action.low), "high": list(self.action.high), "dtype": self.action.dtype},
        }

    @classmethod
    def from_json(cls, where: str, data: object) -> "Spec":
        """Rebuild a spec from a file; anything unexpected is refused with the file's name."""
        try:
            assert isinstance(data, dict)
            observation = {
                str(name): Group(tuple(int(n) for n in group["shape"]), np.dtype(str(group["dtype"])).name)
                for name, group in data["observation"].items()
            }
            action = data["action"]
            low = tuple(float(x) for x in action["low"])
            high = tuple(float(x) for x in action["high"])
            return cls(observation, Box(low, high, np.dtype(str(action["dtype"])).name))
        except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(where, "its spec is not readable", got=repr(error)) from error

    def describe(self) -> str:
        groups = ", ".join(f"{name} {list(group.shape)} {group.dtype}" for name, group in self.observation.items())
        low, high = (", ".join(f"{bound:g}" for bound in bounds) for bounds in (self.action.low, self.action.high))
        return f"observation {groups}; action [{self.action.size}] {self.action.dtype} from [{low}] to [{high}]"

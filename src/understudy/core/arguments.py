"""What a caller from Python hands over: of the right kind and made plain, or one sentence says what it is not."""

import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from understudy.core.errors import ConfigError

Kind = TypeVar("Kind")


def kind_of(value: object) -> str:
    """What a sentence calls a thing: the class of an object, or the class that stands where an object belongs."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def as_path(value: object, where: str) -> Path:
    """A place on disk, by text or by Path."""
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        got = repr(value) if isinstance(value, str) else kind_of(value)
        raise ConfigError(where, "not a path", got=got, expected="a text or a Path")
    return Path(value)


def as_count(value: object, where: str, least: int = 1) -> int:
    """A whole number, NumPy's among them; True is none."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, SupportsIndex):
        raise ConfigError(where, "not a whole number", got=repr(value), expected=f"at least {least}")
    try:
        count = operator.index(value)
    except TypeError:  # an array of numbers
        raise ConfigError(where, "not a whole number", got=value, expected=f"at least {least}") from None
    if count < least:
        raise ConfigError(where, "too small", got=count, expected=f"at least {least}")
    return count


def as_truth(value: object, where: str) -> bool:
    """True or False, NumPy's among them."""
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(where, "neither True nor False", got=repr(value))
    return bool(value)


def as_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(where, "not a text", got=repr(value))
    return value


def as_number(value: object, where: str) -> float:
    """A real number, NumPy's among them."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ConfigError(where, "not a number", got=repr(value))
    return float(value)


def as_mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(where, "not a dict", got=kind_of(value))
    return value


def as_kind(value: object, kind: type[Kind], where: str) -> Kind:
    """An object of one class."""
    if not isinstance(value, kind):
        raise ConfigError(where, f"not a {kind.__name__}", got=kind_of(value))
    return value

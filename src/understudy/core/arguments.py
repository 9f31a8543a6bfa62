"""What a caller from Python hands over: of the right kind and made plain, or one sentence says what it is not."""

import operator
import os
from pathlib import Path
from typing import SupportsIndex, TypeVar

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
    count = operator.index(value)
    if count < least:
        raise ConfigError(where, "too small", got=count, expected=f"at least {least}")
    return count


def as_kind(value: object, kind: type[Kind], where: str) -> Kind:
    """An object of one class."""
    if not isinstance(value, kind):
        raise ConfigError(where, f"not a {kind.__name__}", got=kind_of(value))
    return value

"""What a sealed file says of itself, typed: every fact is there and of its kind, or one sentence says which is not.

A seal tells that nobody changed a file by accident; whoever changes it on purpose can seal it again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from understudy.core.errors import CheckpointError, UnderstudyError
from understudy.core.files import read_sealed
from understudy.core.settings import LARGEST_NUMBER, explain

Whole = Annotated[int, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
SIZE_LIMIT = 4 << 20
"""Bytes of a file that describes others."""


class Facts(BaseModel):
    """Some facts of a file. Those that are not named here are passed over: a later version may say more."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())

    @classmethod
    def parse(cls, content: object, where: str) -> Self:
        """The facts in plain data."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = str(explain(error, cls, "")).splitlines()[0]
            raise CheckpointError(where, f"damaged or incomplete ({first})") from None


class SealedFacts(Facts):
    """All that a sealed file of one kind says."""

    FORMAT: ClassVar[int]

    @classmethod
    def read(cls, path: Path, where: str, limit: int = SIZE_LIMIT) -> Self:
        """A file that `seal` wrote, of so many bytes at most."""
        try:
            content = read_sealed(path, limit)
        except UnderstudyError as error:
            raise CheckpointError(where, f"damaged or incomplete ({error})") from error
        if content.get("format") != cls.FORMAT:
            raise CheckpointError(
                where, "written in another format", got=repr(content.get("format")), expected=cls.FORMAT
            )
        return cls.parse(content, f"{where}, {path.name}")


def count_values(content: object) -> int:
    """How many values there are in plain data, however deep."""
    waiting, count = [content], 0
    while waiting:
        value = waiting.pop()
        count += 1
        if isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return count

"""The base of every settings class: frozen, closed, and told in one voice when wrong."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from understudy.core.errors import ConfigError, did_you_mean, shown

LARGEST_NUMBER = 2**63 - 1
"""Whole numbers beyond it are none for torch and NumPy."""
Count = Annotated[int, Field(ge=1, le=1 << 20)]
"""How many of something a network is made of: units, channels, members, quantiles."""
Widths = Annotated[tuple[Count, ...], Field(max_length=1000)]
"""Of one layer after the other. So many take milliseconds to build; nobody's network has more."""


def _truth_or_auto(value: object) -> bool | str:
    if value == "auto":
        return "auto"
    try:
        return TypeAdapter(bool).validate_python(value)
    except ValidationError:
        raise PydanticCustomError("truth_or_auto", "Input should be true, false or auto") from None


Decision = Annotated[bool | Literal["auto"], BeforeValidator(_truth_or_auto)]
"""Yes, no, or what suits the machine and the run."""


class Settings(BaseModel):
    """Frozen, no unknown keys, every field documented by the string under it."""

    FORMER: ClassVar[Mapping[str, str]] = {}
    """What fields were called once, for those who still call them so."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        validate_default=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,
        protected_namespaces=(),
    )

    @model_validator(mode="before")
    @classmethod
    def _no_truth_as_number(cls, data: Any) -> Any:
        """`true` where a number belongs is a slip, although Python would count it as 1."""
        if not isinstance(data, dict):
            return data
        numeric = {name for name, field in cls.model_fields.items() if not _may_be_truth(field.annotation)}
        whole = {name for name, field in cls.model_fields.items() if field.annotation is int}
        data = {name: whole_number(value) if name in whole else value for name, value in data.items()}
        return {name: _mark_truth(value) if name in numeric else value for name, value in data.items()}

    @model_validator(mode="after")
    def _whole_numbers_of_a_machine(self) -> Self:
        """A number of a thousand digits is refused here, not by whoever is the first to compute with it."""
        for name in type(self).model_fields:
            if _beyond(self.__dict__[name]):
                raise ValueError(f"{name} is beyond what a machine counts to: at most {LARGEST_NUMBER:,}")
        return self

    @classmethod
    def parse(cls, data: object, where: str = "") -> Self:
        """Validate, or raise one ConfigError that tells every mistake."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise explain(error, cls, where) from None


class _Truth:
    """Stands for a bool where none belongs, so that pydantic refuses it in its place, among other mistakes."""

    def __init__(self, value: bool) -> None:
        self._value = value

    def __repr__(self) -> str:
        return repr(self._value)


def whole_number(value: Any) -> Any:
    """`1e5` is a whole number, too, as people write them."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,18}(\.\d{0,18})?[eE]\+?\d{1,2}", value):
        number = Decimal(value)
        return int(number) if number == number.to_integral_value() else value
    return value


def _mark_truth(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_mark_truth(item) for item in value]
    return _Truth(value) if isinstance(value, bool) else value


def _beyond(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_beyond, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_beyond, value))
    return isinstance(value, int) and not -LARGEST_NUMBER <= value <= LARGEST_NUMBER


def _may_be_truth(annotation: Any) -> bool:
    """A bool may stand in this field, or in something inside it that looks for itself."""
    return (
        annotation in (bool, Any) or _model_in(annotation) is not None or any(map(_may_be_truth, get_args(annotation)))
    )


def explain(error: ValidationError, model: type[BaseModel], where: str) -> ConfigError:
    """All mistakes of one validation in the error voice, a line each."""
    lines = list(dict.fromkeys(_sentences(error, model, where)))
    return _ToldError("\n".join(lines))


class _ToldError(ConfigError):
    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


def _sentences(error: ValidationError, model: type[BaseModel], where: str) -> Iterator[str]:
    details = error.errors()
    wrong = {detail["loc"][:-1] for detail in details}
    for detail in details:
        if detail["type"] == "too_short" and detail["loc"] in wrong:  # without what was wrong in it
            continue
        path = [str(part) for part in detail["loc"]]
        yield _sentence(detail, path, model, where)


def _sentence(detail: ErrorDetails, path: list[str], model: type[BaseModel], where: str) -> str:
    place = ".".join(part for part in [where, *path] if part) or "config"
    kind = detail["type"]
    if kind == "extra_forbidden":
        owner = _owner(model, path[:-1])
        known = owner.model_fields if owner is not None else {}
        whose = f" of {known['name'].default}" if "name" in known and not known["name"].is_required() else ""
        former = owner.FORMER.get(path[-1]) if owner is not None and issubclass(owner, Settings) else None
        do = f"Did you mean '{former}'?" if former else did_you_mean(path[-1], known)
        return str(ConfigError(place, f"no such setting{whose}", do=do))
    if kind == "missing":
        return str(ConfigError(place, "is required"))
    if kind == "union_tag_invalid":
        return str(ConfigError(place, detail["msg"]))
    message = detail["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return str(ConfigError(place, message))
    wish = message.removeprefix("Input should be ").removeprefix("a valid ")
    given = detail["input"]
    told = given if isinstance(given, str) and re.fullmatch(r"[-+.\d]\S*", given) else _written(given)
    return str(ConfigError(place, "wrong value", got=told, expected=wish))


def _written(given: object) -> str:
    try:
        return repr(given)
    except ValueError:  # a number somewhere inside, of more digits than Python writes out
        return shown(given)


def _owner(model: type[BaseModel], path: list[str]) -> type[BaseModel] | None:
    """The settings class at a path, as far as it can be followed by field names."""
    owner: type[BaseModel] | None = model
    for part in path:
        if owner is None:
            return None
        field: FieldInfo | None = owner.model_fields.get(part)
        if field is not None:
            owner = _model_in(field.annotation)
        elif not part.isdigit():
            return None
    return owner


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        found = _model_in(part)
        if found is not None:
            return found
    return None


def _looked_at(text: object) -> object:
    if not isinstance(text, str):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _numbers_are_numbers(options: object) -> object:
    return {name: _looked_at(text) for name, text in options.items()} if isinstance(options, dict) else options


Options = Annotated[dict[str, StrictBool | StrictInt | StrictFloat | StrictStr], BeforeValidator(_numbers_are_numbers)]
"""Settings of somebody else: no field's type says what text means here, so it means what it looks like."""

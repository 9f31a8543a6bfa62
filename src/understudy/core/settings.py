"""The base of every settings class: frozen, closed, and told in one voice when wrong."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, cast, get_args, get_origin

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
from pydantic_core import ErrorDetails, PydanticCustomError

from understudy.core.errors import ConfigError, did_you_mean, shown
from understudy.core.other_names import Learning, called_here

TAGS = ("kind", "name", "policy")
"""Fields whose word says which of several settings classes is meant."""
if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)  # which has no public name

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


class _Telling(ModelMetaclass):
    """Settings that are made in Python are refused in the same voice as those of a file."""

    def __call__(self, *given: Any, **settings: Any) -> Any:
        try:
            return super().__call__(*given, **settings)
        except ValidationError as error:
            raise explain(error, cast("type[BaseModel]", self), "") from None


class Settings(BaseModel, metaclass=_Telling):
    """Frozen, no unknown keys, every field documented by the string under it."""

    FORMER: ClassVar[Mapping[str, str]] = {}
    """What fields were called once, for those who still call them so."""
    ONE_VALUE: ClassVar[tuple[str, ...]] = ()
    """Fields that one value in the place of the whole group is for."""

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
        data = {name: _beside_default(cls, name, value) for name, value in data.items()}
        return {name: _mark_truth(value) if name in numeric else value for name, value in data.items()}

    @model_validator(mode="after")
    def _whole_numbers_of_a_machine(self) -> Self:
        """A number of a thousand digits is refused here, not by whoever is the first to compute with it."""
        for name in type(self).model_fields:
            if _beyond(self.__dict__[name]):
                raise ValueError(f"{name} is beyond what a machine counts to: at most {LARGEST_NUMBER:,}")
        return self

    @classmethod
    def completed(cls, given: Mapping[str, Any], default: Self) -> Mapping[str, Any]:
        """A group of which only some was said, where all of it has a default; unless a class knows better, what it says
        itself is its own."""
        return given

    @classmethod
    def parse(cls, data: object, where: str = "") -> Self:
        """Validate, or raise one ConfigError that tells every mistake."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise explain(error, cls, where) from None


def _beside_default(model: type[BaseModel], name: str, value: Any) -> Any:
    field = model.model_fields.get(name)
    default = None if field is None else field.default
    return default.completed(value, default) if isinstance(default, Settings) and isinstance(value, dict) else value


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
    return ConfigError.saying("\n".join(lines))


def _sentences(error: ValidationError, model: type[BaseModel], where: str) -> Iterator[str]:
    details = error.errors()
    choices: dict[str, list[str]] = {}
    for detail in details:
        loc = detail["loc"]
        if detail["type"] == "too_short" and any(one["loc"][: len(loc)] == loc != one["loc"] for one in details):
            continue  # without what was wrong in it
        path, owner, here = _place(model, [str(part) for part in loc])
        if path and path[-1].startswith("literal["):  # one of several lists of words
            path = path[:-1]
            choices.setdefault(".".join(path), []).append(str(detail["ctx"]["expected"]))
            detail["ctx"]["expected"] = ", ".join(choices[".".join(path)]).replace(" or ", ", ")
            detail["msg"] = detail["ctx"]["expected"]
            if len(choices[".".join(path)]) < sum(_is_choice(one, loc) for one in details):
                continue
        if (
            owner is not None
            and issubclass(owner, Settings)
            and path
            and path[-1] in owner.ONE_VALUE
            and detail["type"] != "missing"
        ):
            same = [one for one in details if (one["loc"][:-1], one["type"]) == (loc[:-1], detail["type"])]
            path = path[:-1] if len(same) == len(owner.ONE_VALUE) else path
        theirs = called_here(path[-1], _keys(model, where), _learning(model)) if path else ""
        yield _sentence(detail, path, owner, where, theirs, here)


def _is_choice(detail: ErrorDetails, loc: tuple[int | str, ...]) -> bool:
    """Another list of words for the same place."""
    return detail["loc"][:-1] == loc[:-1] and str(detail["loc"][-1]).startswith("literal[")


def _learning(model: type[BaseModel]) -> Learning:
    """How somebody with these settings learns, by what only they have."""
    if not model.model_fields.keys().isdisjoint(("gae_lambda", "rollout_length")):
        return "rollouts"
    if "entropy_target" in model.model_fields and "penalty_weight" not in model.model_fields:
        return "replay"  # SAC and its kin
    return "replay" if "buffer_size" in model.model_fields else "data"


def _keys(model: type[BaseModel], where: str) -> Callable[[str], bool]:
    """Whether there is a key, as far as the settings at `where` can tell: those of other groups are believed."""
    group = where.rpartition(".")[2]

    def exists(key: str) -> bool:
        first, _, rest = key.partition(".")
        return has_setting(model, rest) if first == group else bool(group)

    return exists


def has_setting(model: type[BaseModel], key: str) -> bool:
    """Whether a dotted key is one of these settings, or of a group in them."""
    inside: Any = model
    for part in key.split("."):
        inside = _below(inside, part)
    return inside is not None


def _sentence(
    detail: ErrorDetails, path: list[str], owner: type[BaseModel] | None, where: str, theirs: str, here: Any
) -> str:
    """`owner` is the settings class that the last part of the path is, or should be, a field of; `theirs` is told where
    it has no such field; `here` is the type of what may stand in the place."""
    place = ".".join(part for part in [where, *path] if part) or "config"
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = owner.model_fields if owner is not None else {}
        whose = f" of {known['name'].default}" if "name" in known and not known["name"].is_required() else ""
        former = owner.FORMER.get(path[-1]) if owner is not None and issubclass(owner, Settings) else None
        do = f"Did you mean '{former}'?" if former else theirs or did_you_mean(path[-1], known)
        return str(ConfigError(place, f"no such setting{whose}", do=do))
    if kind == "missing":
        return str(ConfigError(place, "is required"))
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        word = str(context["discriminator"]).strip("'")
        kinds = str(context.get("expected_tags", "")).replace("'", "")
        if kind == "union_tag_not_found":
            return str(ConfigError(f"{place}.{word}", "is required", expected=kinds or _kinds(here) or None))
        return str(ConfigError(f"{place}.{word}", f"no such {word}", got=f"'{context['tag']}'", expected=kinds))
    message = detail["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return _own_words(message, place, _model_in(here))
    wish = message.removeprefix("Input should be ").removeprefix("a valid ")
    wish = WISHES[kind].format_map(context) if kind in WISHES else wish
    given = detail["input"]
    told = given if isinstance(given, str) and re.fullmatch(r"[-+.\d]\S*", given) else _written(given)
    return str(ConfigError(place, "wrong value", got=told, expected=wish, do=_meant(detail, _model_in(here))))


WISHES = {
    **dict.fromkeys(("model_type", "model_attributes_type"), "a group of settings"),
    "dict_type": "a mapping {{name: …}}",
    **dict.fromkeys(("tuple_type", "list_type"), "a list […]"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "text",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
}
"""What pydantic asks for in words of its own, in ours."""


def _own_words(message: str, place: str, group: type[BaseModel] | None) -> str:
    """What a validator of ours says: of the setting that it begins with, if it is one of the group's."""
    begins = re.match(r"([a-z_]+)((?:\.[a-z_]+)*)([:=]| (?=(?:is|are|has|needs) ))", message)
    if group is None or begins is None or begins[1] not in group.model_fields:
        return str(ConfigError(place, message))
    where = ".".join(part for part in ("" if place == "config" else place, begins[1] + begins[2]) if part)
    return str(ConfigError(where, message if begins[3] == "=" else message[begins.end() :].lstrip()))


def _meant(detail: ErrorDetails, group: type[BaseModel] | None) -> str:
    """A word in the place of a group: which of its settings it is for."""
    given = detail["input"]
    if detail["type"] not in ("model_type", "model_attributes_type") or not isinstance(given, str) or group is None:
        return ""
    word = next((name for name in (*TAGS, "path") if name in group.model_fields), "")
    return f"Did you mean {{{word}: {shown(given)}}}?" if word else ""


def _kinds(here: Any) -> str:
    """The words that one of several kinds of settings goes by."""
    return ", ".join(word for model in _models_in(here) for word in _words(model)[1:])


def _written(given: object) -> str:
    if given is None or isinstance(given, (bool, _Truth)):
        return {"None": "null"}.get(repr(given), repr(given).lower())  # as a config writes it
    try:
        return repr(given)
    except ValueError:  # a number somewhere inside, of more digits than Python writes out
        return shown(given)


def _place(model: type[BaseModel], loc: list[str]) -> tuple[list[str], type[BaseModel] | None, Any]:
    """A mistake's path as one writes it, the settings class at its end, and the type of what may stand there.

    Where one of several kinds of settings may stand, pydantic puts the chosen kind into the path; nobody else does.
    """
    path: list[str] = []
    owner: type[BaseModel] | None = model
    inside: Any = model
    for number, part in enumerate(loc):
        chosen = _chosen(inside, part)
        if chosen is not None:
            owner = inside = chosen
            continue
        path.append(part)
        inside = _below(inside, part)
        if number < len(loc) - 1:
            owner = _model_in(inside)
    return path, owner, inside


def _chosen(annotation: Any, part: str) -> type[BaseModel] | None:
    """The settings class that `part` chooses among several: by the word it goes by, or by its own name."""
    found = _models_in(annotation)
    if len(found) < 2:
        return None
    return next((one for one in found if part in _words(one)), None)


def _words(model: type[BaseModel]) -> list[str]:
    kinds = [get_args(field.annotation) for name, field in model.model_fields.items() if name in TAGS]
    return [model.__name__, *(str(word) for words in kinds for word in words)]


def _below(annotation: Any, part: str) -> Any:
    """What stands under one part of a path: a field's type, or that of a member of a tuple or a dictionary."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(part)
        return None if field is None else field.annotation
    for origin in _containers_in(annotation):
        return get_args(origin)[-2 if get_args(origin)[-1] is ... else -1]
    model = _model_in(annotation)
    return None if model is None else _below(model, part)


def alternatives(annotation: Any) -> list[Any]:
    """What may stand in a place, one by one: settings classes, mappings, numbers."""
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return [found for part in get_args(annotation) for found in alternatives(part)]
    return [annotation]


def entry_type(annotation: Any) -> Any:
    """What an entry of a mapping is, if that may not be null; None of what is no such mapping."""
    if get_origin(annotation) is not dict:
        return None
    _, entry = get_args(annotation)
    return None if NoneType in alternatives(entry) or entry is Any else entry


def _containers_in(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (dict, tuple, list):
        return [annotation]
    return [found for part in get_args(annotation) for found in _containers_in(part)]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """The settings classes that may stand in this very place."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (dict, tuple, list):
        return []
    return [found for part in get_args(annotation) for found in _models_in(part)]


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

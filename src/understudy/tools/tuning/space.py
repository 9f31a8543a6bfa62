"""What a search may change: `key: {low, high, log, step}` or `key: {choices: […]}` of dotted settings, from YAML or a
dict, and checked against the config before anything begins.

A value that is tried is the text that a command line would carry (`algo.beta=3.0`): the one parser of settings decides
what it means, and its own bounds are those of the search.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

from pydantic import Field, model_validator

from understudy.core.arguments import as_mapping, kind_of
from understudy.core.errors import ConfigError, did_you_mean, told_with
from understudy.core.settings import Settings
from understudy.run.config import RunConfig, load_config
from understudy.run.overrides import plain_data
from understudy.run.packaged import SPACES, read_packaged, space_names
from understudy.run.yaml_text import parse_yaml, read_yaml

JUDGES = ("best", "best_is", "method", "out", "seed", "task", "tensorboard", "wandb", "log_every", "save_every")
"""Settings that decide how a run is judged or kept, and not how it learns."""
BUDGETS = ("updates", "env_steps", "patience")
LABEL_PATTERN = "eval_"
RANGE_WORDS = frozenset(("low", "high", "choices"))


@final
class Range(Settings):
    """Numbers from `low` to `high`, both among them; whole ones where the setting is."""

    low: float
    """The least."""
    high: float
    """The greatest."""
    log: bool = False
    """Spread evenly over orders of magnitude: for learning rates and weights."""
    step: float | None = Field(None, gt=0)
    """Only `low`, `low + step`, …"""

    @model_validator(mode="after")
    def _a_range(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high: got low {self.low:g}, high {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"low must be above 0 where log is true: got {self.low:g}")
        if self.step is not None and self.log:
            raise ValueError("step and log exclude each other")
        if self.step is not None and self.step > self.high - self.low:
            raise ValueError(f"step is wider than the range: got {self.step:g}, expected at most high - low")
        return self

    def ends(self) -> tuple[float, ...]:
        return (self.low, self.high)


@final
class Choices(Settings):
    """One of several values: words, numbers, lists, or whole groups of settings."""

    choices: tuple[Any, ...] = Field(min_length=2)
    """What is chosen from; a group is given whole: {kind: linear, start: 1.0, end: 0.0}."""

    @model_validator(mode="after")
    def _all_different(self) -> Self:
        texts = [as_word(choice) for choice in self.choices]
        repeated = sorted({text for text in texts if texts.count(text) > 1})
        if repeated:
            raise ValueError(f"choices given twice: {', '.join(repeated)}")
        return self


@final
@dataclass(frozen=True)
class Dimension:
    """One setting that is searched, as it was found to be: whole numbers, any numbers, or words."""

    key: str
    given: Range | Choices
    whole: bool = False

    def distribution(self, optuna: Any) -> Any:
        """As Optuna has it."""
        if isinstance(self.given, Choices):
            return optuna.distributions.CategoricalDistribution(self.words())
        low, high, step = self.given.low, self.given.high, self.given.step
        if self.whole:
            return optuna.distributions.IntDistribution(int(low), int(high), self.given.log, int(step or 1))
        return optuna.distributions.FloatDistribution(low, high, self.given.log, step)

    def words(self) -> list[str]:
        """Of choices all, of a range its ends."""
        if isinstance(self.given, Choices):
            return [as_word(choice) for choice in self.given.choices]
        return [as_word(int(end) if self.whole else end) for end in self.given.ends()]

    def position(self, config: RunConfig) -> Any:
        """Where a config stands in this dimension, as Optuna has it; None if outside."""
        value = value_at(config, self.key)
        if isinstance(self.given, Choices):
            return next((word for word in self.words() if _means(config, self.key, word, value)), None)
        if isinstance(value, Mapping) and (value.get("kind") == "constant" or value.get("start") == value.get("end")):
            value = value.get("start")  # a schedule that never moves
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not self._holds(float(value)):
            return None
        return int(value) if self.whole else float(value)

    def _holds(self, value: float) -> bool:
        assert isinstance(self.given, Range)
        steps = 0.0 if self.given.step is None else (value - self.given.low) / self.given.step
        return self.given.low <= value <= self.given.high and math.isclose(steps, round(steps), abs_tol=1e-9)

    def to_json(self) -> dict[str, Any]:
        told = self.given.model_dump(mode="json", exclude_none=True)
        return {key: value for key, value in told.items() if value is not False}


Space = Mapping[str, Dimension]


def as_word(value: object) -> str:
    """A value as a command line carries it, which reads back as the same."""
    value = plain_data(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {as_word(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_word, value)) + "]"
    if isinstance(value, str):
        return value if value and _reads_as(value) else json.dumps(value)
    return json.dumps(value)


def _reads_as(text: str) -> bool:
    """Alone, and within a list."""
    try:
        return bool(parse_yaml(f"[{text}]", "choices") == [text])
    except ConfigError:
        return False


def word_of(value: object) -> str:
    """What a sampler drew, as a command line carries it."""
    return value if isinstance(value, str) else as_word(value)


def read_space(space: object, algorithm: str) -> tuple[dict[str, Any], str]:
    """A space's plain data and how errors call it: a mapping, a YAML file, the name of one of the library's, or, if
    nothing is named, that of the algorithm."""
    if isinstance(space, Mapping):
        return dict(plain_data(as_mapping(space, "space"))), "space"
    if space is not None and not isinstance(space, (str, Path)):
        raise ConfigError("space", "not one", got=kind_of(space), expected="a .yaml file, a name, or a dict")
    if space and str(space).endswith((".yaml", ".yml")):
        return read_yaml(Path(str(space))), str(space)
    name, known = str(space or algorithm), space_names()
    if name not in known:
        what = "no space of this name" if space else "there is no space for this algorithm"
        do = f"{did_you_mean(name, known)} A file ends in .yaml." if space else "Name one: a .yaml file."
        raise ConfigError(f"space '{name}'", what, do=do)
    content = parse_yaml(read_packaged(f"{SPACES}/{name}"), name)
    assert isinstance(content, dict)  # the library's own
    return content, f"spaces/{name}"


def check_space(content: Mapping[str, Any], where: str, config: Mapping[str, Any], words: Sequence[str]) -> Space:
    """The dimensions of a space, each tried at its ends or with every choice: what the config would refuse is refused
    now, with the reason that it gives."""
    named = list(_flat(content))
    content = dict(named)
    if not content:
        raise ConfigError(where, "names no setting", expected="key: {low: …, high: …} or key: {choices: […]}")
    for key in content:
        if [name for name, _ in named].count(key) > 1:
            raise ConfigError(f"{where}: {key}", "is given twice", do="Take one of them out.")
    _check_keys(content, where, [word.partition("=")[0] for word in words])
    return {key: _dimension(key, given, where, config, words) for key, given in content.items()}


def _flat(content: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    """Groups of settings may be written as groups: `algo: {beta: {low: 1, high: 3}}`."""
    for key, given in content.items():
        name = f"{group}.{key}" if group else key
        inner = given.values() if isinstance(given, Mapping) else ()
        if inner and not RANGE_WORDS & given.keys() and all(isinstance(one, (Mapping, list)) for one in inner):
            yield from _flat(given, name)
        else:
            yield name, given


def _check_keys(content: Mapping[str, Any], where: str, fixed: Sequence[str]) -> None:
    for key in content:
        if not isinstance(key, str):
            raise ConfigError(where, "not a setting", got=repr(key), expected="algo.learning_rate or the like")
        if key in BUDGETS:
            do = f"Give it on the line ({key}=…), and every trial has it."
            raise ConfigError(f"{where}: {key}", "is how long a trial learns, and not searched", do=do)
        if key in JUDGES or key.startswith(LABEL_PATTERN):
            raise ConfigError(f"{where}: {key}", "says how a run is judged or kept, not how it learns")
        if other := next((one for one in fixed if _overlap(one, key)), ""):
            do = f"Leave {other}=… out, or take {key} from the space."
            raise ConfigError(f"{where}: {key}", f"is searched, and {other} is fixed on the line", do=do)
        if other := next((one for one in content if one != key and _overlap(one, key)), ""):
            raise ConfigError(f"{where}: {key}", f"overlaps with {other}, which is searched, too")


def _overlap(one: str, other: str) -> bool:
    """One is the other, or a group that the other lies in."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _dimension(key: str, given: Any, where: str, config: Mapping[str, Any], words: Sequence[str]) -> Dimension:
    place = f"{where}: {key}"
    if isinstance(given, list):
        given = {"choices": given}
    if not isinstance(given, Mapping) or not RANGE_WORDS & given.keys():
        raise ConfigError(place, "not a range", got=as_word(given), expected="{low: …, high: …} or {choices: […]}")
    if "choices" in given and {"low", "high"} & given.keys():
        raise ConfigError(place, "is a range or choices, not both")
    kind = Choices if "choices" in given else Range
    for name in given.keys() - kind.model_fields.keys():
        raise ConfigError(
            f"{place}.{name}", "nothing a range or choices have", do=did_you_mean(name, kind.model_fields)
        )
    _check_length(given, place)
    dimension = Dimension(key, kind.parse(given, place))
    tried = {word: _try(place, f"{key}={word}", config, words) for word in dimension.words()}
    if isinstance(dimension.given, Choices):
        _check_different(dimension, place, tried)
        return dimension
    return _whole_if_its_setting_is(dimension, place, tried)


def _check_length(given: Mapping[str, Any], place: str) -> None:
    choices = given.get("choices", ("", ""))
    if isinstance(choices, list) and len(choices) < 2:
        do = "Fix a single value on the line instead."
        raise ConfigError(f"{place}.choices", "nothing to choose from", got=as_word(choices), do=do)


def _check_different(dimension: Dimension, place: str, tried: Mapping[str, RunConfig]) -> None:
    """1 and 1.0 are two words and one number."""
    seen: dict[str, str] = {}
    for word, config in tried.items():
        value = json.dumps(value_at(config, dimension.key), sort_keys=True)
        if other := seen.get(value, ""):
            raise ConfigError(f"{place}.choices", f"{other} and {word} mean the same", do="Take one of them out.")
        seen[value] = word


def _try(place: str, word: str, config: Mapping[str, Any], words: Sequence[str]) -> RunConfig:
    with told_with(place.removesuffix(f": {word.partition('=')[0]}")):
        return load_config(config, [*words, word])


def _whole_if_its_setting_is(dimension: Dimension, place: str, tried: Mapping[str, RunConfig]) -> Dimension:
    """Of a setting that holds whole numbers only those are tried."""
    (low_word, low), (_, high) = tried.items()
    values = [value_at(one, dimension.key) for one in (low, high)]
    if any(isinstance(value, (bool, str)) or value is None for value in values):
        raise ConfigError(place, "is no number, so it has no range", got=low_word, expected="{choices: […]}")
    if not all(isinstance(value, int) for value in values):
        return dimension
    assert isinstance(dimension.given, Range)
    if dimension.given.step is not None and dimension.given.step != int(dimension.given.step):
        raise ConfigError(f"{place}.step", "the setting is a whole number", got=dimension.given.step)
    return Dimension(dimension.key, dimension.given, whole=True)


def value_at(config: RunConfig, key: str) -> Any:
    """What a config says under a dotted key, as plain data; None if it has none such."""
    found: Any = config.model_dump(mode="json")
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _means(config: RunConfig, key: str, word: str, value: Any) -> bool:
    """Whether a config would be the same if the word stood there."""
    try:
        return bool(value_at(load_config(config, [f"{key}={word}"]), key) == value)
    except ConfigError:
        return False

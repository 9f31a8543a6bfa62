"""What a search is: a config, a space, how trials are judged. It lies in the folder as plan.json, and the same command
goes on; another one is told in what it differs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, final

from understudy.core.errors import ConfigError, RunError, UnderstudyError
from understudy.core.facts import SealedFacts, Whole
from understudy.core.files import seal, write_bytes
from understudy.core.protocols import MAIN
from understudy.run.build import settled_data
from understudy.run.config import ConfigLike, DataSettings, RunConfig, load_config, read_config
from understudy.run.identity import differing_settings
from understudy.run.overrides import override_words
from understudy.tools.tuning.criteria import Criterion, criterion_of, is_offline
from understudy.tools.tuning.space import Space, as_word, check_space, read_space

PLAN = "plan.json"
GIVEN = "given"
"""What the config itself is called among its trials."""
INPUTS = ("data", "datasets", "env", "motions", "policies")
"""Groups of settings that say what is learned from."""
FINGERPRINT = ".fingerprint"
LARGEST_SEED, MOST_SEEDS = 2**63 - 1, 1000


class PlanFacts(SealedFacts):
    """What plan.json holds."""

    FORMAT: ClassVar = 1
    config: dict[str, Any]
    words: list[str]
    space: dict[str, Any]
    space_name: str
    home: str
    metric: str
    last: Whole
    seeds: Whole


@final
@dataclass(frozen=True)
class Plan:
    """A search before it begins. Everything in it decides which trial is tried next, and what it is worth."""

    config: Mapping[str, Any]
    """As it was given, plain."""
    words: tuple[str, ...]
    """Settings that every trial has, key=value."""
    space: Mapping[str, Any]
    """As it was given, plain."""
    space_name: str
    """How errors call it."""
    home: str
    """Where runs of the config lie."""
    metric: str = ""
    last: int = 1
    seeds: int = 1
    """Runs of each trial."""

    @classmethod
    def make(
        cls,
        config: ConfigLike,
        space: object,
        settings: Mapping[str, Any] | Sequence[str],
        *,
        metric: str = "",
        last: int = 1,
        seeds: int = 1,
    ) -> "Plan":
        """The plan of a search, with everything in it checked."""
        given, _ = read_config(config)
        words = tuple(override_words(settings) if isinstance(settings, Mapping) else settings)
        if metric and not is_offline(metric):
            words = (*(word for word in words if word.partition("=")[0] != "best"), f"best={metric}")
        base = load_config(config, words)
        content, name = read_space(space, base.algorithm)
        return cls(given, words, content, name, str(Path(base.out).parent), metric, last, seeds).checked()

    def checked(self) -> "Plan":
        """Itself, if all of it goes together."""
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise ConfigError("seeds", "wrong number", got=self.seeds, expected=f"from 1 to {MOST_SEEDS:,}")
        if self.last < 1:
            raise ConfigError("last", "too small", got=self.last)
        self.criterion.check(self.base)
        if self.dimensions and self.base.seed + 2 * MOST_SEEDS > LARGEST_SEED:
            raise ConfigError("seed", "leaves no room for further seeds", got=self.base.seed)
        return self

    @cached_property
    def base(self) -> RunConfig:
        """The config as it is, with what was said on the line."""
        return load_config(self.config, self.words)

    @cached_property
    def dimensions(self) -> Space:
        return check_space(self.space, self.space_name, self.config, self.words)

    @cached_property
    def criterion(self) -> Criterion:
        return criterion_of(self.metric, self.base, self.last)

    def search_seeds(self) -> list[int]:
        return [self.base.seed + number for number in range(self.seeds)]

    def fresh_seeds(self, count: int) -> list[int]:
        """Seeds that no trial of the search saw."""
        return [self.base.seed + self.seeds + number for number in range(count)]

    def run_config(self, words: Sequence[str], seed: int, place: Path, method: str) -> RunConfig:
        """Of one run with some settings changed; an error if they do not go together."""
        own = [f"seed={seed}", f"method={method}", f"out={place}"]
        return load_config(self.config, [*self.words, *words, *own])

    def sealed(self, built: RunConfig) -> "Plan":
        """With the fingerprints of the files its runs read, as the config had them when it was built: whoever goes on
        does so with the same content. What is searched has none, and a recipe says by itself what it makes."""
        if any(key.partition(".")[0] in INPUTS for key in self.dimensions):
            return self
        made = {f"{group}{FINGERPRINT}" for group, data in _datasets(self.base) if data.recipe is not None}
        found = differing_settings(self.base, built).items()
        known = {key: json.loads(asked) for key, (_, asked) in found if key.endswith(FINGERPRINT) and key not in made}
        words = [f"{key}={word}" for key, word in known.items() if key.partition(".")[0] in INPUTS]
        return replace(self, words=(*self.words, *words))

    @property
    def is_sealed(self) -> bool:
        return any(word.partition("=")[0].endswith(FINGERPRINT) for word in self.words)

    def write(self, folder: Path) -> None:
        facts = PlanFacts.model_validate({name: self.__dict__[name] for name in PlanFacts.model_fields}, strict=False)
        write_bytes(folder / PLAN, seal({"format": PlanFacts.FORMAT, **facts.model_dump(mode="json")}))

    @classmethod
    def read(cls, folder: Path) -> "Plan":
        facts = PlanFacts.read(folder / PLAN, f"tuning '{folder}'")
        try:
            return cls(**{**facts.__dict__, "words": tuple(facts.words)}).checked()
        except UnderstudyError as error:
            told = str(error).partition("\n")[0]
            raise RunError(f"tuning '{folder}'", f"{PLAN} is no plan of this version ({told})") from error

    def check_same(self, folder: Path) -> None:
        """An error that names every difference to the search that lies there."""
        if not (folder / PLAN).exists():
            return
        if told := "; ".join(_differences(Plan.read(folder), self)):
            raise RunError(
                f"tuning '{folder}'",
                f"another search lies there: {told}",
                do="Give the same words to go on with it, or choose another --out.",
            )


def _differences(there: Plan, here: Plan) -> Iterator[str]:
    for name in ("metric", "last", "seeds"):
        kept, asked = there.__dict__[name], here.__dict__[name]
        if kept != asked:
            yield f"{name} is {kept or 'not given'} there and {asked or 'not given'} here"
    one, other = settled_data(there.base), settled_data(here.base)
    for key, (kept, asked) in {**differing_settings(one, other), **_other_places(one, other)}.items():
        found = key.endswith(FINGERPRINT) and asked == '""'  # by the search, and nobody types it
        told = key == "best" and there.metric != here.metric
        if not (found or told):
            yield f"{key} is {kept} there and {asked} here"
    ranges = [{key: as_word(one.to_json()) for key, one in plan.dimensions.items()} for plan in (there, here)]
    for key in sorted(ranges[0].keys() | ranges[1].keys()):
        kept, asked = (one.get(key, "not searched") for one in ranges)
        if kept != asked:
            yield f"{key} is searched in {kept} there and {asked} here".replace("searched in not", "not")


def _other_places(one: RunConfig, other: RunConfig) -> dict[str, tuple[str, str]]:
    """Paths that are not the same: a run's bytes do not depend on them, but a search reads those it was begun with."""
    ours, theirs = dict(_places(one)), dict(_places(other))
    return {key: (ours[key], theirs[key]) for key in ours if theirs.get(key, ours[key]) != ours[key]}


def _places(config: RunConfig, group: str = "") -> Iterator[tuple[str, str]]:
    """The key of all that a config reads, and where it is."""
    yield f"{group}init_from", config.init_from
    for name, data in _datasets(config):
        yield f"{group}{name}.path", data.path
    for role, policy in config.policies.items():
        yield f"{group}policies.{role}.path", policy.path
    if config.motions is not None:
        yield f"{group}motions.path", config.motions.path
    for number, stage in enumerate(config.stages):
        yield from _places(stage, f"{group}stages.{number}.")


def _datasets(config: RunConfig) -> Iterator[tuple[str, DataSettings]]:
    """By the group of settings that each has."""
    for role, data in config.data_by_role.items():
        yield "data" if role == MAIN else f"datasets.{role}", data

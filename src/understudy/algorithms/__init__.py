"""One file per algorithm; a file here, or an entry point `understudy.algorithms` of another package, is found.

Such a module offers `Config` (its settings, with a `name`), and `build(config, blueprint)`. Its settings may say which
actions it knows (`ACTIONS`; boxes, unless they do) and what it learns from (`LEARNS_FROM`; a dataset, unless they do).
"""

import importlib
import importlib.metadata
import pkgutil
from functools import cache
from typing import Literal, Protocol, cast

from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.protocols import Algorithm, Blueprint, OnPolicy
from understudy.core.settings import Settings
from understudy.core.spec import ActionSpace, Box

ENTRY_POINTS = "understudy.algorithms"
Origin = Literal["offline", "rollout"]
"""What an algorithm learns from: a fixed dataset, or what its own policy just did."""


class AlgorithmModule(Protocol):
    __doc__: str | None
    Config: type[Settings]

    def build(self, config: Settings, blueprint: Blueprint) -> Algorithm | OnPolicy: ...


@cache
def algorithm_names() -> dict[str, str]:
    """Name to the module that holds it; our own names cannot be taken over by other packages."""
    others = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    ours = {info.name: f"{__name__}.{info.name}" for info in pkgutil.iter_modules(__path__)}
    return others | ours


def find_algorithm(name: str) -> AlgorithmModule:
    """The module of an algorithm, or an error with the closest name."""
    known = algorithm_names()
    if name not in known:
        raise ConfigError("algo.name", f"no algorithm '{name}'", do=did_you_mean(name, known))
    try:
        return cast(AlgorithmModule, importlib.import_module(known[name]))
    except ImportError as error:
        raise ConfigError(
            "algo.name", f"'{name}' is registered as '{known[name]}', which cannot be imported ({error})"
        ) from error


def learns_from(settings: Settings | type[Settings]) -> Origin:
    return cast(Origin, getattr(settings, "LEARNS_FROM", "offline"))


def known_actions(settings: Settings | type[Settings]) -> tuple[type[ActionSpace], ...]:
    return cast(tuple[type[ActionSpace], ...], getattr(settings, "ACTIONS", (Box,)))

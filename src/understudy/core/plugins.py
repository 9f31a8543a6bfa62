"""Modules that are found by name: a file in one of our rooms, or an entry point of another package."""

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import final

from understudy.core.errors import ConfigError, did_you_mean


@final
@dataclass(frozen=True)
class Plugins:
    """One room's. Our own names cannot be taken over by other packages."""

    group: str
    """Of entry points."""
    package: str
    path: tuple[str, ...]
    """Where our own lie; packages among them are parts of modules, and no modules of their own."""
    where: str
    """The setting that names one."""
    noun: str

    def names(self) -> dict[str, str]:
        """Name to the module that holds it."""
        return dict(module_names(self))

    def find(self, name: str, offers: Iterable[str]) -> ModuleType:
        """The module of this name, or an error with the closest one; it must offer what it is asked for."""
        known = module_names(self)
        if name not in known:
            raise ConfigError(self.where, f"no {self.noun} '{name}'", do=did_you_mean(name, known))
        try:
            module = importlib.import_module(known[name])
        except ImportError as error:
            raise ConfigError(
                self.where, f"'{name}' is registered as '{known[name]}', which cannot be imported ({error})"
            ) from error
        if missing := [offered for offered in offers if offered not in vars(module)]:
            raise ConfigError(self.where, f"'{known[name]}' is no {self.noun}", got=f"no {', '.join(missing)}")
        return module


@cache
def module_names(plugins: Plugins) -> dict[str, str]:
    """Found once for the whole process."""
    others = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=plugins.group)}
    ours = {
        info.name: f"{plugins.package}.{info.name}" for info in pkgutil.iter_modules(plugins.path) if not info.ispkg
    }
    return others | ours

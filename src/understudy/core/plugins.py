"""Modules that are found by name: a file in one of our rooms, or an entry point of another package.

What is wrong with one of another package is its author's to mend, and is told so, with file and line.
"""

import importlib
import importlib.metadata
import inspect
import pkgutil
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FunctionType, ModuleType
from typing import NoReturn, final

from understudy.core.errors import ConfigError, PluginError, UnderstudyError, did_you_mean
from understudy.core.settings import Settings

OURS = "understudy"
MEND = "This is for the author of that package to mend; --debug shows the way there."


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
    tag: str = ""
    """The setting of its `Config` that holds its name."""
    calls: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Its functions, and what they are called with."""

    def names(self) -> dict[str, str]:
        """Name to the module that holds it."""
        return dict(module_names(self))

    def find(self, name: str, offers: Iterable[str]) -> ModuleType:
        """The module of this name, or an error with the closest one; it must offer what it is asked for."""
        known = module_names(self)
        if name not in known:
            raise ConfigError(self.where, f"no {self.noun} '{name}'", do=did_you_mean(name, known))
        try:
            with authored(known[name]):
                module = importlib.import_module(known[name])
        except ImportError as error:
            raise ConfigError(
                self.where, f"'{name}' is registered as '{known[name]}', which cannot be imported ({error})"
            ) from error
        if missing := [offered for offered in offers if offered not in vars(module)]:
            raise ConfigError(self.where, f"'{known[name]}' is no {self.noun}", got=f"no {', '.join(missing)}")
        if of_others(known[name]):
            self._check(module)
        return module

    def _check(self, module: ModuleType) -> None:
        """Of another package's: its settings are settings, and its functions take what they are given."""
        offered = vars(module)
        if self.tag:
            config = offered["Config"]
            if not (isinstance(config, type) and issubclass(config, Settings)):
                blame(
                    module.__name__, "Config is no class of settings", "class Config(understudy.core.settings.Settings)"
                )
            if self.tag not in config.model_fields:
                blame(module.__name__, f"Config has no field `{self.tag}`", f'{self.tag}: Literal["…"] = "…"')
        for name, words in self.calls:
            function, wish = offered[name], f"{name}({', '.join(words)})"
            if not callable(function):
                blame(module.__name__, f"`{name}` is no function", wish)
            try:
                inspect.signature(function).bind(*words)
            except TypeError as error:
                blame(module.__name__, f"`{name}` cannot be called as it is ({error})", wish, function)


def of_others(module: str) -> bool:
    """Whether a module is of another package."""
    return module.partition(".")[0] != OURS


def blame(module: str, what: str, expected: str, at: object = None) -> NoReturn:
    """Tell the author of a module what is wrong with it, and where if `at` is one of its functions."""
    if isinstance(at, FunctionType):
        raise PluginError(
            f"{at.__code__.co_filename}, line {at.__code__.co_firstlineno}", what, expected=expected, do=MEND
        )
    raise PluginError(f"'{module}'", what, expected=expected, do=MEND)


@contextmanager
def authored(*modules: str) -> Iterator[None]:
    """What fails inside modules of other packages is told as theirs, at the innermost line that they wrote."""
    packages = {module.partition(".")[0] for module in modules if of_others(module)}
    try:
        yield
    except (UnderstudyError, ImportError, MemoryError):
        raise
    except Exception as error:
        if not packages:
            raise
        frames = list(traceback.walk_tb(error.__traceback__))
        theirs = [
            f"{frame.f_code.co_filename}, line {line}"
            for frame, line in frames
            if str(frame.f_globals.get("__name__")).partition(".")[0] in packages
        ]
        if isinstance(error, SyntaxError):
            theirs.append(f"{error.filename}, line {error.lineno}")
        where = theirs[-1] if theirs else " or ".join(f"'{module}'" for module in modules if of_others(module))
        told = str(error).strip().partition("\n")[0].rstrip(".")
        raise PluginError(where, f"{type(error).__name__}: {told}", do=MEND) from error


@cache
def module_names(plugins: Plugins) -> dict[str, str]:
    """Found once for the whole process."""
    others = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=plugins.group)}
    ours = {
        info.name: f"{plugins.package}.{info.name}" for info in pkgutil.iter_modules(plugins.path) if not info.ispkg
    }
    return others | ours

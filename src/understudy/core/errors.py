"""Errors in one voice: `<where>: <what is wrong>: got <x>, expected <y>. <what to do>.`"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

LONGEST = 2000
"""Characters of a part of a sentence: what a stranger's file says of itself may have millions."""
LONGEST_VALUE = 300
MANY = 32
"""So many names are listed; of more, those that stand for others (`iql` for `iql/pendulum`) come first."""
NEAR, NEAR_SHORT, SHORT = 0.75, 0.65, 4
"""How alike a name must be to be suggested, 1 for the same, and one of so few letters: a slip of the hand is, another
word for it is not."""


class UnderstudyError(Exception):
    """The only error class that bad input, bad files or bad settings may raise."""

    exit_code: int = 1
    """What the command line exits with."""
    nothing_learned: bool = False
    """Raised while data were gathered, before anything was learned from them: what was learned until then is whole."""

    def __init__(
        self,
        where: str,
        what: str,
        *,
        got: object = None,
        expected: object = None,
        do: str = "",
    ) -> None:
        known = {"got": got, "expected": expected}
        told = ", ".join(f"{word} {shown(value)}" for word, value in known.items() if value is not None)
        sentence = f"{_cut(where, LONGEST)}: {_cut(what, LONGEST)}" + (f": {told}" if told else "")
        if not sentence.endswith((".", "?", "!")):
            sentence += "."
        super().__init__(f"{sentence} {do}".rstrip())

    @classmethod
    def saying(cls, sentences: str) -> Self:
        """One whose sentences are whole."""
        return cls.__new__(cls, sentences)


class ConfigError(UnderstudyError):
    """A setting that does not exist, has the wrong type or lies out of range."""

    exit_code = 2


class DataError(UnderstudyError):
    """A dataset, recipe or observation that cannot be trusted."""


class InventoryError(UnderstudyError, TypeError):
    """Something that moves in a run and could not be kept in a checkpoint."""


class PluginError(UnderstudyError):
    """A mistake in a module of another package: its author's to mend."""


class CheckpointError(UnderstudyError):
    """A checkpoint or policy file that is missing, damaged or of another shape."""


class RunError(UnderstudyError):
    """A run directory in the wrong state: busy, finished, or not a run at all."""


class DivergenceError(UnderstudyError):
    """A loss or parameter became NaN or infinite; the last finite state was kept."""


class MissingPackageError(UnderstudyError):
    """An optional package is needed here and is not installed."""


@contextmanager
def told_with(setting: str, *, instead_of: str = "") -> Iterator[None]:
    """What is wrong with a file, a run or a dataset that a setting names is told with the setting; `instead_of` what
    others call it who do not know it."""
    try:
        yield
    except UnderstudyError as error:
        group = setting.rpartition(".")[0]
        if str(error).startswith((setting, f"{group}.") if group else setting):  # which says it better
            raise
        told = str(error).removeprefix(f"{instead_of}: ") if instead_of else str(error)
        raise type(error).saying(f"{setting}: {told}") from error


def shown(value: object) -> str:
    """A value as a sentence can hold it."""
    try:
        return _cut(str(value), LONGEST_VALUE)
    except ValueError:
        return "a number of thousands of digits"  # which Python does not write out


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length // 2]}… ({len(text):,} characters)"


def near(name: str, known: Iterable[str]) -> str:
    """The known name that is closest, if one is close, in whatever case; otherwise nothing."""
    from difflib import get_close_matches

    names, cutoff = sorted(known), NEAR if len(name) > SHORT else NEAR_SHORT
    if close := get_close_matches(name, names, n=1, cutoff=cutoff):
        return close[0]
    lower = {one.lower(): one for one in names}
    return next((lower[one] for one in get_close_matches(name.lower(), lower, n=1, cutoff=cutoff)), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the closest known name, or lists what there is."""
    names = sorted(known)
    if close := near(name, names):
        return f"Did you mean '{close}'?"
    if len(names) > MANY:
        told = [one for one in names if "/" not in one][:MANY] or names[:MANY]
        return f"Known: {', '.join(told)} and {len(names) - len(told)} more."
    return f"Known: {', '.join(names)}." if names else "There is none."

"""Errors in one voice: `<where>: <what is wrong>: got <x>, expected <y>. <what to do>.`"""

from collections.abc import Iterable


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
        facts = [f"got {got}" if got is not None else "", f"expected {expected}" if expected is not None else ""]
        told = ", ".join(fact for fact in facts if fact)
        sentence = f"{where}: {what}" + (f": {told}" if told else "")
        if not sentence.endswith((".", "?", "!")):
            sentence += "."
        super().__init__(f"{sentence} {do}".rstrip())


class ConfigError(UnderstudyError):
    """A setting that does not exist, has the wrong type or lies out of range."""

    exit_code = 2


class DataError(UnderstudyError):
    """A dataset, recipe or observation that cannot be trusted."""


class CheckpointError(UnderstudyError):
    """A checkpoint or policy file that is missing, damaged or of another shape."""


class RunError(UnderstudyError):
    """A run directory in the wrong state: busy, finished, or not a run at all."""


class DivergenceError(UnderstudyError):
    """A loss or parameter became NaN or infinite; the last finite state was kept."""


class MissingPackageError(UnderstudyError):
    """An optional package is needed here and is not installed."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the closest known name, or lists what there is."""
    from difflib import get_close_matches

    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"Known: {', '.join(names)}." if names else "There is none."

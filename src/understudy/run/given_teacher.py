"""Teachers that a caller hands over: a function of observations, or a run whose policy it is. A path is words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.core.arguments import kind_of
from understudy.core.errors import ConfigError
from understudy.run.config import RunConfig
from understudy.run.run import Run
from understudy.sources import Act

EXPECTED = "a function of observations [N, …] that gives actions [N, …], a Run, or the path of one"


def own_teacher(teacher: object) -> Act | None:
    """The function that labels, where one was handed over; a policy of a run is not one, it has a path."""
    if teacher is None or isinstance(teacher, (str, Path, Run)):
        return None
    if not callable(teacher):
        raise ConfigError("teacher", "cannot be asked", got=kind_of(teacher), expected=EXPECTED)
    return teacher


def teacher_words(teacher: object) -> dict[str, Any]:
    """What a config says of a teacher that was handed over."""
    if teacher is None:
        return {}
    if own_teacher(teacher) is not None:
        return {"source.teacher": "callable"}
    return {"policies.teacher.path": str(teacher.path if isinstance(teacher, Run) else teacher)}


def teacher_of(config: RunConfig, teacher: object) -> Act | None:
    """The function that labels in a run that goes on; one that asks no function takes none."""
    own, source = own_teacher(teacher), config.source.model_dump()
    if teacher is not None and not _asks(source):
        raise ConfigError("teacher", "this run asks no function", got=kind_of(teacher), do="Leave it out.")
    return own


def _asks(source: Mapping[str, Any]) -> bool:
    return "teacher" in source and source["teacher"] == "callable"

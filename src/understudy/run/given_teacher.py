"""Teachers that a caller hands over: a function of observations, or a run whose policy it is. A path is words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.core.arguments import kind_of
from understudy.core.errors import ConfigError
from understudy.run.config import ConfigLike, RunConfig, read_config
from understudy.run.overrides import override_words, with_overrides
from understudy.run.parts import asked_roles, source_kind
from understudy.run.run import Run
from understudy.run.stages import stage_data
from understudy.sources import Act, find_source

EXPECTED = "a function of observations [N, …] that gives actions [N, …], a Run, or the path of one"
TEACHER, FUNCTION = "teacher", "callable"
"""The role of a policy, which is the name of a source's setting, too; and what that says where a function labels."""


def own_teacher(teacher: object) -> Act | None:
    """The function that labels, where one was handed over; a policy of a run is not one, it has a path."""
    if teacher is None or isinstance(teacher, (str, Path, Run)):
        return None
    if not callable(teacher):
        raise ConfigError("teacher", "cannot be asked", got=kind_of(teacher), expected=EXPECTED)
    return teacher


def with_teacher(settings: Mapping[str, Any], teacher: object, config: ConfigLike) -> dict[str, Any]:
    """Settings that also say who teaches, where somebody was handed over: of the run, or, where that asks nobody, of
    the stages that do."""
    if teacher is None:
        return dict(settings)
    function = own_teacher(teacher) is not None
    key = "source.teacher" if function else "policies.teacher.path"
    value = FUNCTION if function else str(teacher.path if isinstance(teacher, Run) else teacher)
    data = with_overrides(read_config(config)[0], override_words(settings))
    if _could_ask(data, function=function):
        return {key: value, **settings}
    stages = stage_data(data, RunConfig)
    asking = [number for number, stage in enumerate(stages) if _could_ask(stage, function=function)]
    meant = [number for number in asking if _asks_function(stages[number].get("source"))] or asking
    if meant:
        told = [
            with_overrides(one, [f"{key}={value}"]) if number in meant else one
            for number, one in enumerate(data["stages"])
        ]
        return {**settings, "stages": told}
    if function and source_kind(data):  # otherwise something else is wrong, of which others will tell
        raise ConfigError(
            "teacher",
            "nobody in this run asks a function",
            got=kind_of(teacher),
            expected="source.kind=interactive, of the run or of a stage",
            do="Objectives ask a policy: hand over a Run, or the path of one.",
        )
    return {key: value, **settings}


def teacher_of(config: RunConfig, teacher: object) -> Act | None:
    """The function that labels in a run that goes on; one that asks no function takes none."""
    own = own_teacher(teacher)
    if teacher is not None and not any(_asks_function(one.source.model_dump()) for one in (config, *config.stages)):
        raise ConfigError("teacher", "this run asks no function", got=kind_of(teacher), do="Leave it out.")
    return own


def _could_ask(data: Mapping[str, Any], *, function: bool) -> bool:
    """Whether the source of a run or stage has a word for a function, or somebody in it asks a policy of this role."""
    if not function:
        return TEACHER in asked_roles(data).policies
    kind = source_kind(data)
    return bool(kind) and TEACHER in find_source(kind).Config.model_fields


def _asks_function(source: object) -> bool:
    return isinstance(source, Mapping) and source.get(TEACHER) == FUNCTION

"""Do the columns of a dataset fit an environment: observation groups, their shapes, the kind of actions?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from understudy.core.spec import ActionSpace, Box, Discrete, Group
from understudy.envs.facts import former_columns
from understudy.tools.dataset.column_tally import ColumnSurvey
from understudy.tools.dataset.findings import Finding, locate
from understudy.tools.dataset.reference_env import World
from understudy.tools.dataset.survey import Survey

Dropped = dict[str, tuple[int, ...]]
RIGHT_ENVIRONMENT = "Is it the right environment, and the right version of it?"


@final
@dataclass(frozen=True)
class Fit:
    findings: list[Finding]
    observations: bool
    """They fit, once these columns are dropped:"""
    dropped: Dropped
    """Group to columns, counted from the front."""
    actions: bool


def fit(survey: Survey, declared: ActionSpace | None, world: World) -> Fit:
    """`declared` is the action space the file itself names."""
    groups, expected = survey.observations, world.spec.observation
    if not groups:
        return Fit([], False, {}, False)
    found: list[Finding] = []
    dropped: Dropped = {}
    if set(groups) != set(expected):
        found.append(_groups_differ(survey, world))
    for name in sorted(set(groups) & set(expected)):
        found += _group(survey, world, name, groups[name], expected[name], dropped)
    if dropped:
        found.append(_superfluous(survey, world, dropped))
    fits = not any(finding.kind.startswith("observation") for finding in found)
    wrong = list(_action_kind(survey, world))
    found += [*wrong, *(_declared(survey, declared, world) if not wrong else [])]
    return Fit(found, fits, dropped, survey.actions is not None and not wrong)


def _groups_differ(survey: Survey, world: World) -> Finding:
    message = (
        f"{locate(survey)}: other observation groups than {world.env_id}: got {sorted(survey.observations)}, "
        f"expected {sorted(world.spec.observation)}."
    )
    return Finding("error", "observation-groups", message, RIGHT_ENVIRONMENT)


def _group(
    survey: Survey,
    world: World,
    name: str,
    column: ColumnSurvey,
    expected: Group,
    dropped: Dropped,
) -> Iterator[Finding]:
    where = f"{locate(survey)}, observation '{name}'"
    if column.shape != expected.shape:
        surplus = _surplus(survey, world, name, column, expected)
        if surplus:
            dropped[name] = surplus
        elif _is_numbered(column, expected):
            count = expected.shape[0]
            message = (
                f"{where}: numbers of states: got {column.dtypes[0]} up to {int(column.maximum[0])}, expected one of "
                f"{count} as 0 and 1 (uint8, [{count}]), as {world.env_id} is shown to a policy."
            )
            yield Finding(
                "error", "observation-shape", message, f"Write np.eye({count}, dtype=np.uint8)[observations]."
            )
        else:
            message = (
                f"{where}: not the shape of {world.env_id}: got {list(column.shape)}, expected {list(expected.shape)}."
            )
            yield Finding("error", "observation-shape", message, RIGHT_ENVIRONMENT)
    elif (column.dtypes == ("uint8",)) != (expected.dtype == "uint8"):
        message = f"{where}: got {'/'.join(column.dtypes)}, expected {expected.dtype} as {world.env_id} shows it."
        yield Finding("error", "observation-dtype", message, "Store it in the environment's dtype.")
    elif name in survey.time_columns:
        message = (
            f"{where}: column {survey.time_columns[name]} counts the steps of an episode, as {world.env_id} may do."
        )
        yield Finding("note", "time-feature", message)


def _is_numbered(column: ColumnSurvey, expected: Group) -> bool:
    """Which of some states it is, as Gymnasium's discrete observations say it."""
    whole = all(dtype.startswith(("int", "uint")) for dtype in column.dtypes)
    one_hot = expected.dtype == "uint8" and len(expected.shape) == 1
    known = whole and one_hot and column.shape in ((), (1,))
    return known and bool(column.minimum[0] >= 0 and column.maximum[0] < expected.shape[0])


def _surplus(survey: Survey, world: World, name: str, column: ColumnSurvey, expected: Group) -> tuple[int, ...]:
    """The columns without which the group fits: a time feature, what only former versions showed, or both."""
    if len(column.shape) != 1 or len(expected.shape) != 1:
        return ()
    width, time = column.shape[0], survey.time_columns.get(name)
    ways = [former_columns(world.env_id, width)]
    if time is not None:
        before = former_columns(world.env_id, width - 1) if time == width - 1 else ()
        ways += [(time,), (*before, time)]
    return next((way for way in ways if way and width - len(way) == expected.shape[0]), ())


def _superfluous(survey: Survey, world: World, dropped: Dropped) -> Finding:
    told = []
    for name, columns in dropped.items():
        width, timed = survey.observations[name].shape[0], survey.time_columns.get(name)
        parts = ["the last one" if timed == width - 1 else f"column {timed}"] if timed in columns else []
        parts = [f"{parts[0]} looks like an appended time feature"] if parts else []
        if former := [column for column in columns if column != timed]:
            parts.append(f"{len(former)} belong to earlier versions only")
        told.append(f"got {width} columns, expected {width - len(columns)} ({', '.join(parts)})")
    message = f"{locate(survey)}: more columns than {world.env_id} shows: {'; '.join(told)}."
    kind = "time-feature" if set(dropped) & set(survey.time_columns) else "former-columns"
    return Finding("error", kind, message, settings={"drop_columns": _from_the_end(survey, dropped)})


def _from_the_end(survey: Survey, dropped: Dropped) -> dict[str, list[int]]:
    """`{state: [-1]}`: the last column is named so, for that is how it was appended."""
    last = {name: survey.observations[name].shape[0] - 1 for name in dropped}
    return {name: [-1 if c == last[name] else c for c in columns] for name, columns in dropped.items()}


def _action_kind(survey: Survey, world: World) -> Iterator[Finding]:
    action = survey.columns["action"]
    whole = all(dtype.startswith(("int", "uint", "bool")) for dtype in action.dtypes)
    if isinstance(world.spec.action, Box) and whole and action.shape in ((), (1,)):
        message = (
            f"{locate(survey)}: actions are choices: got {action.dtypes[0]}, expected continuous ones as of "
            f"{world.env_id}, {world.spec.action.describe()}."
        )
        yield Finding("error", "action-kind", message, RIGHT_ENVIRONMENT)


def _declared(survey: Survey, declared: ActionSpace | None, world: World) -> Iterator[Finding]:
    """What the file says of its actions against what the environment takes."""
    ours = world.spec.action
    if declared is None or survey.actions is None:
        return
    if isinstance(declared, Box) and isinstance(ours, Box):
        if (declared.low, declared.high) != (ours.low, ours.high) and declared.size == ours.size:
            low, high = min(declared.low), max(declared.high)
            message = (
                f"{locate(survey)}: declares another action space than {world.env_id}: got {declared.describe()}, "
                f"expected {ours.describe()}."
            )
            settings = {"actions_from": [low, high]}
            yield Finding("warning", "declared-space", message, ", if recorded in it", settings)
    elif isinstance(declared, Discrete) and isinstance(ours, Discrete) and declared.count != ours.count:
        message = (
            f"{locate(survey)}: declares {declared.count} actions: got {declared.describe()}, expected "
            f"{ours.describe()} as of {world.env_id}."
        )
        yield Finding("warning", "declared-space", message, RIGHT_ENVIRONMENT)

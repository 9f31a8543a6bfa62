"""A task in a run config: `task: hopper-medium-v2` brings a preset's changes for it, its environment and its reference.

Order: preset < its changes for the task < overrides; what is then still missing comes from the suite. All of it is
plain data in, plain data out, so that the config a run keeps needs no suite any more.
"""

from collections.abc import Mapping
from typing import Any

from understudy.core.errors import ConfigError, told_with
from understudy.run.suites import Suite, Task, find_task

ORIGINS = ("path", "recipe")
"""Settings of `data`, one of which says where data comes from."""


def with_task_changes(data: Mapping[str, Any], task: object, suite: str | Suite) -> dict[str, Any]:
    """A config's data with its `tasks` for this task merged in, by exact id, and without the rest of them."""
    changes = data.get("tasks", {})
    if not isinstance(changes, dict) or not all(isinstance(change, dict) for change in changes.values()):
        raise ConfigError("tasks", "wrong value", expected="task: {algo: {…}, data: {…}, …}")
    for name in changes:
        if not isinstance(suite, Suite) or all(task.id != name for task in suite.tasks):
            with told_with(f"tasks.{name}", instead_of="task"):
                find_task(str(name), "" if isinstance(suite, Suite) else suite)
    plain = {key: value for key, value in data.items() if key != "tasks"}
    return laid_over(plain, changes.get(task, {})) if isinstance(task, str) else plain


def filled_from_task(data: Mapping[str, Any], suite: Suite, task: Task) -> dict[str, Any]:
    """A config's data with environment, reference, evaluation and recipe of a task, where it had none."""
    env, origin = _group(data, "env"), _group(data, "data")
    filled = {**data, "env": {"id": task.env, **env}} if task.env else dict(data)
    if task.env and filled["env"]["id"] == task.env and "reference" not in env and not suite.difference(task):
        filled["env"]["reference"] = task.reference
    if suite.eval_episodes is not None:
        filled.setdefault("eval_episodes", suite.eval_episodes)
    if task.recipe is not None and not has_origin(origin):
        filled["data"] = {**origin, "recipe": task.recipe.model_dump(mode="json")}
    return filled


def check_same_world(given: Mapping[str, Any], wished: Mapping[str, Any], task: Task) -> None:
    """A config that brings its own environment is not made a hopper by calling it one."""
    own, asked = _group(given, "env").get("id"), _group(wished, "env").get("id")
    if own is not None and own == asked != task.env:
        raise ConfigError(
            "task",
            f"'{task.id}' is evaluated in {task.env}, and the config has an environment of its own",
            got=own,
            do=f"Take a preset (understudy list suites), or say env.id={task.env}.",
        )


def check_complete(
    data: Mapping[str, Any], label: str, task: Task | None, *, needs_data: bool, needs_env: bool
) -> None:
    """A preset lacks what a task and the command must give: say so, in one sentence."""
    env, origin = _group(data, "env"), _group(data, "data") if needs_data else {}
    if needs_env and "id" not in env:
        raise ConfigError(f"config '{label}'", "names no environment", do="Give one: env.id=HalfCheetah-v5.")
    if needs_data and not has_origin(origin):
        hint = "Without a simulator that is all; with one, also env.id=… or task=… (see: understudy list tasks)."
        if task is not None or "id" in env:
            hint = f"For task '{task.id}' that is {task.data_hint()}." if task is not None and task.data_hint() else ""
        raise ConfigError(f"config '{label}'", "names no data", do=f"Give it: data.path=…. {hint}".rstrip())


def has_origin(data: Mapping[str, Any]) -> bool:
    return any(data.get(origin) for origin in ORIGINS)


def _group(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    group = {} if data.get(key) is None else data[key]
    if not isinstance(group, dict):
        raise ConfigError(key, "wrong value", got=repr(group), expected="a group of settings")
    return group


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` laid over `below`, group by group."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = laid_over(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged

"""list, check: what there is, and whether a config is right."""

from enum import StrEnum
from typing import Annotated

import typer

from understudy.cli.learn import ActionHigh, ActionLow, Columns, ConfigName, Overrides, with_data_options
from understudy.cli.streams import OUT, edge
from understudy.core.errors import ConfigError
from understudy.core.wording import folded

NO_EDGE = 10_000
"""A pipe has one line for each name, however long."""


class Kind(StrEnum):
    algorithms = "algorithms"
    objectives = "objectives"
    configs = "configs"
    envs = "envs"
    datasets = "datasets"
    skills = "skills"
    spaces = "spaces"
    suites = "suites"
    tasks = "tasks"


def register(app: typer.Typer) -> None:
    app.command("list")(list_names)
    app.command("check")(check_settings)


def list_names(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    suite: Annotated[str, typer.Argument(help="Of tasks: one suite only, by name or by path to a .yaml file.")] = "",
) -> None:
    """List algorithms, objectives, configs, skill sets, search spaces, environments, dataset references, suites, or
    their tasks."""
    if suite and kind is not Kind.tasks:
        raise ConfigError(f"list {kind}", "takes no more words", got=f"'{suite}'")
    for line in _tasks(suite) if kind is Kind.tasks else _names(kind):
        print(folded(line, edge(OUT, NO_EDGE), hang=4))


def check_settings(
    config: ConfigName,
    overrides: Overrides = None,
    columns: Columns = "",
    action_low: ActionLow = "",
    action_high: ActionHigh = "",
) -> None:
    """Check a config without running it, and print it with every default written out."""
    from understudy.run.build import check_config
    from understudy.run.config import load_config
    from understudy.run.suites import published_score

    resolved = load_config(config, with_data_options(overrides, columns, action_low, action_high))
    check_config(resolved)
    if known := published_score(config, resolved.task):
        print(f"# Published for {resolved.task}: a score of {known}.")
    for line in _cautions(resolved.task) if resolved.env is not None and resolved.env.reference is None else []:
        print(line)
    print(resolved.to_yaml(), end="")


def _names(kind: Kind) -> list[str]:
    if kind is Kind.algorithms:
        from understudy.algorithms import algorithm_names, find_algorithm

        return [f"{name:<12}  {_first_line(find_algorithm(name).__doc__)}" for name in sorted(algorithm_names())]
    if kind is Kind.objectives:
        from understudy.objectives import PLUGINS, find_objective

        return [f"{name:<14}  {_first_line(find_objective(name).__doc__)}" for name in sorted(PLUGINS.names())]
    if kind is Kind.configs:
        from understudy.run.packaged import config_names, config_summary

        return [f"{name}  {config_summary(name)}" for name in config_names()]
    if kind is Kind.skills:
        from understudy.run.packaged import config_summary, skill_set_names

        return [f"skills/{name}  {config_summary(f'skills/{name}')}" for name in skill_set_names()]
    if kind is Kind.spaces:
        from understudy.run.packaged import SPACES, config_summary, space_names

        return [f"{name:<12}  {config_summary(f'{SPACES}/{name}')}" for name in space_names()]
    if kind is Kind.suites:
        return _suites()
    if kind is Kind.envs:
        from understudy.envs.gym import env_names

        return env_names()
    from understudy.data.scores import reference_scores

    return [f"{name:<30} low {low:>9.2f} high {high:>9.2f}" for name, (low, high) in sorted(reference_scores().items())]


def _suites() -> list[str]:
    from understudy.run.suites import suites

    lines = []
    for suite in suites():
        lines.append(f"{suite.name:<18} {len(suite.tasks):>2} tasks  {suite.about}")
        lines += [f"  understudy bench {suite.name} compares: {', '.join(suite.methods)}"] if suite.methods else []
        for configs in suite.presets.values():
            lines += [f"  {config:<24} {source}" for config, source in configs.items()]
    return lines


def _tasks(name: str) -> list[str]:
    from understudy.run.suites import load_suite, suites

    chosen = [load_suite(name)] if name else list(suites())
    lines = [f"{'task':<32} {'environment':<30} {'cap':>4}  {'scored':<6}  data"]
    for suite in chosen:
        for task in suite.tasks:
            scored = "yes" if task.reference is not None and not suite.difference(task) else "no"
            data = task.data_hint() or task.data or ("a recipe" if task.recipe is not None else "")
            lines.append(f"{task.id:<32} {task.env:<30} {task.episode_cap or '':>4}  {scored:<6}  {data}".rstrip())
    return lines


def _cautions(name: str) -> list[str]:
    """Comments above a config of a task whose environment of today is not quite the benchmark's."""
    from understudy.run.suites import suites

    told = [suite.difference(task) for suite in suites() for task in suite.tasks if task.id == name]
    return [f"# No score is reported for {name}: {difference}" for difference in told if difference]


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]

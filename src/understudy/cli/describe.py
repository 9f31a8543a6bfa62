"""list, explain, check: what there is, what it means, whether a config is right."""

import inspect
from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from understudy.cli.learn import ConfigName, Overrides


class Kind(StrEnum):
    algorithms = "algorithms"
    configs = "configs"
    envs = "envs"
    datasets = "datasets"


def register(app: typer.Typer) -> None:
    app.command("list")(list_names)
    app.command()(explain)
    app.command()(check)


def list_names(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List algorithms, configs, environments or known dataset references."""
    for line in _names(kind):
        print(line)


def explain(
    algorithm: Annotated[str, typer.Argument(help="An algorithm, such as iql.")],
) -> None:
    """An algorithm's equations and every setting with its default and meaning."""
    from understudy.algorithms import find_algorithm

    module = find_algorithm(algorithm)
    print(inspect.cleandoc(module.__doc__ or "").strip())
    print("\nSettings (change one with algo.<name>=<value>):")
    for line in _settings(module.Config, "algo"):
        print(line)


def check(config: ConfigName, overrides: Overrides = None) -> None:
    """Check a config without running it, and print it with every default written out."""
    from understudy.run.build import check_config
    from understudy.run.config import load_config

    resolved = load_config(config, overrides or [])
    check_config(resolved)
    print(resolved.to_yaml(), end="")


def _names(kind: Kind) -> list[str]:
    if kind is Kind.algorithms:
        from understudy.algorithms import algorithm_names, find_algorithm

        return [f"{name:<8} {_first_line(find_algorithm(name).__doc__)}" for name in sorted(algorithm_names())]
    if kind is Kind.configs:
        from understudy.run.config import config_names

        return config_names()
    if kind is Kind.envs:
        from understudy.envs.gym import env_names

        return env_names()
    from understudy.data.scores import reference_scores

    return [
        f"{name:<36} low {low:>12.4f}  high {high:>12.4f}" for name, (low, high) in sorted(reference_scores().items())
    ]


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _settings(model: type[BaseModel], prefix: str) -> list[str]:
    lines = []
    for name, field in model.model_fields.items():
        default: Any = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            lines += _settings(type(default), f"{prefix}.{name}")
        elif name != "name":
            lines.append(f"  {f'{prefix}.{name}':<30} {_show(default):<12} {field.description or ''}")
    return lines


def _show(default: Any) -> str:
    return str(list(default)) if isinstance(default, tuple) else str(default)

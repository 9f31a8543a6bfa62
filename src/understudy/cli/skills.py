"""understudy skills …: several policies, and who chooses among them, as one policy."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.learn import Overrides, Quiet
from understudy.core.errors import ConfigError


def register(app: typer.Typer) -> None:
    app.command()(skills)


def skills(
    config: Annotated[
        str, typer.Argument(metavar="SKILLS", help="A skill set in YAML, by name or path; with --gate also a folder.")
    ],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The policy folder to write.")] = None,
    gate: Annotated[
        Path | None, typer.Option("--gate", help="The run of a gate that was trained over this set: it chooses.")
    ] = None,
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", "-c", help="Of the gate's run: last, best, or a number of updates.")
    ] = "last",
    quiet: Quiet = False,
) -> None:
    """Make one policy of several: skills that were trained, and who chooses among them.

    understudy skills skills/field --out policies/field

    What was made is a policy like any other: evaluate, collect, export, or train a gate over it (env.skills.path=…).
    """
    from understudy.run.policy_folder import world_of
    from understudy.run.skill_sets import gated_set, load_skill_set, load_skill_set_config, save_skill_set, skill_set

    if Path(config).is_dir():
        if overrides:
            raise ConfigError(overrides[0], "is for a skill set in YAML, and this one was made already")
        made, world, target = load_skill_set(config), world_of(Path(config)), out
    else:
        settings = load_skill_set_config(config, overrides or [])
        made, world = skill_set(settings), settings.env
        target = out or (Path(settings.out) if settings.out else None)
    if target is None:
        raise ConfigError("--out", "is required", expected="the policy folder to write")
    if gate is not None:
        made = gated_set(made, gate, checkpoint)
    save_skill_set(made, target, world)
    if not quiet:
        print(f"{made!r}\nwritten to {target}")

"""understudy collect …: roll out policies into datasets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from understudy.cli.learn import Overrides, Quiet, Sampled
from understudy.core.errors import ConfigError
from understudy.core.stopping import stoppable
from understudy.core.wording import counted

if TYPE_CHECKING:
    from understudy.data.ladders import Ladder

USUAL = "collect"
"""The sub-command that is meant where none is named."""
ABOUT = "Roll out policies in an environment and keep what happens as a dataset."


class Collect(TyperGroup):
    """Words that name no other sub-command are those of the usual one."""

    @property
    def usual(self) -> Any:
        return self.commands[USUAL]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if args and args[0] in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        return self.usual.make_context(info_name, args, parent, **extra)


def register(app: typer.Typer) -> None:
    commands = typer.Typer(cls=Collect, help=ABOUT, rich_markup_mode=None, pretty_exceptions_enable=False)
    commands.command(USUAL)(collect)
    commands.command("ladder")(ladder)
    app.add_typer(commands, name="collect")


def collect(
    config: Annotated[
        str,
        typer.Argument(metavar="ENV", help="An environment; without --policy a config, whose data.recipe is played."),
    ],
    overrides: Overrides = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="Who plays: random, scripted, a run (runs/x, runs/x@best, runs/x@20000), a policy folder or an "
            "exported .onnx file; a share behind a colon (random:0.2). Say it again for a mixture.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A new folder (native store), .npz or .hdf5 (D4RL) file.")
    ] = Path("dataset"),
    episodes: Annotated[int | None, typer.Option("--episodes", "-n", help="Episodes to keep, 100 by default.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps to keep, in the place of episodes.")] = None,
    successes: Annotated[int | None, typer.Option("--successes", help="Successful episodes to keep.")] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Of several of these: enough with the `first`, or with `all`.")
    ] = None,
    max_time: Annotated[float | None, typer.Option("--max-time", help="Seconds after which it is enough.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Everything random grows from it.")] = None,
    num_envs: Annotated[
        int | None, typer.Option("--num-envs", help="Environments that step together, 8 by default.")
    ] = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes that share them: the same bytes.")] = None,
    stochastic: Sampled = False,
    noise: Annotated[
        float | None, typer.Option("--noise", help="Gaussian noise on actions, in halves of their range.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="Chance of a uniform action at each step.")] = None,
    skill: Annotated[float | None, typer.Option("--skill", help="Of the scripted controller, from 0 to 1.")] = None,
    only: Annotated[str | None, typer.Option("--only", help="Keep `successful` episodes, or `failed` ones.")] = None,
    success_is: Annotated[
        str | None, typer.Option("--success-is", help="Success: what is `told`, or that one `terminated`, `truncated`.")
    ] = None,
    min_return: Annotated[
        float | None, typer.Option("--min-return", help="Keep episodes of at least this return.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="An observation group to keep; say it again for several.")
    ] = None,
    compress: Annotated[
        list[str] | None, typer.Option("--compress", help="A group of numbers from 0 to 1 to store in bytes.")
    ] = None,
    append: Annotated[bool, typer.Option("--append", help="Play on behind a folder's episodes.")] = False,
    minari: Annotated[str | None, typer.Option("--minari", help="Write a Minari dataset of this id in --out.")] = None,
    simulator: Annotated[
        str | None, typer.Option("--simulator", help="Who makes the environment: gymnasium or envpool.")
    ] = None,
    step_timeout: Annotated[
        float | None, typer.Option("--step-timeout", help="Seconds an environment may take to answer.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Roll out policies in an environment and keep what happens as a dataset. Stopped or killed, the same command goes
    on and gives the same bytes.

    understudy collect Pendulum-v1 -p scripted:4 -p random:1 --steps 20000

    Datasets of graded quality from one run's history: understudy collect ladder --help
    """
    named: dict[str, Any] = {"episodes": episodes, "steps": steps, "seed": seed, "num_envs": num_envs}
    named |= {"workers": workers, "noise": noise, "epsilon": epsilon, "skill": skill, "only": only}
    named |= {"min_return": min_return, "minari_id": minari, "step_timeout": step_timeout}
    named |= {"successes": successes, "max_time": max_time, "compress": compress or None}
    named |= {"until": until, "success_is": success_is, "groups": group or None, "append": append or None}
    named |= {"greedy": False if stochastic else None}
    given = {name: value for name, value in named.items() if value is not None}
    with stoppable(f"dataset '{out}'", "Finished episodes are kept: the same command goes on after them."):
        if policy:
            dataset = _rolled_out(config, overrides or [], policy, out, simulator, given, quiet)
        else:
            dataset = _of_recipe(config, overrides or [], out, [*given, *(["simulator"] if simulator else [])], quiet)
    if not quiet:
        size = f"{counted(dataset.episodes, 'episode')}, {counted(dataset.steps, 'step')}"
        print(f"{size}, mean return {dataset.returns().mean():.1f}")
        print(f"written to {out / (minari or '')}, fingerprint {dataset.fingerprint}")


def ladder(
    run: Annotated[
        str,
        typer.Argument(help="A run directory; or a task (pendulum, hopper, halfcheetah): sac/TASK is trained first."),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Of a task: settings of its training to change, as key=value.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the levels; ladders/<environment> if not given.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help="Steps of random, medium and expert each.")] = 1_000_000,
    replay_steps: Annotated[
        int | None, typer.Option("--replay-steps", help="About so many of the replay buffer, taken evenly; else all.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of what is played; everything random grows from it.")] = 0,
    num_envs: Annotated[int, typer.Option("--num-envs", help="Environments that step together.")] = 8,
    reference: Annotated[str, typer.Option("--reference", help="Scores on this id's scale: hopper-medium-v2.")] = "",
    packed: Annotated[
        Path | None, typer.Option("--packed", help="Also write all of it to this new folder, as small files.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Make datasets of graded quality from one run's history, as D4RL does: random, medium-replay, medium,
    medium-expert, expert. Stopped or killed, the same command goes on.

    understudy collect ladder hopper
    """
    from understudy.run.progress import Reporter
    from understudy.tools.ladder import PICTURE, check_free, collect_ladder, pack_ladder, trained_run

    reporter = Reporter(quiet=quiet)
    with stoppable(f"ladder of '{run}'", "What is finished is kept: the same command goes on."):
        if Path(run).is_dir() and overrides:
            raise ConfigError(overrides[0], "is for a run that is trained first, and this one is there already")
        if packed is not None:
            check_free(packed)
        path = Path(run) if Path(run).is_dir() else trained_run(run, overrides or [], reporter)
        made = collect_ladder(
            path,
            out,
            steps=steps,
            replay_steps=replay_steps,
            seed=seed,
            num_envs=num_envs,
            reference=reference,
            reporter=reporter,
        )
        if packed is not None:
            pack_ladder(made, packed)
    if not quiet:
        print(_table(made))
        print(f"written to {made.path}  picture: {made.path / PICTURE}" + (f"  packed: {packed}" if packed else ""))


def _table(made: "Ladder") -> str:
    """A line per level, from the worst to the best."""
    lines = [f"{'level':<14} {'steps':>10} {'episodes':>9} {'mean return':>12} {'std':>8} {'score':>6}"]
    for name, level in made.levels.items():
        score = made.score(level)
        told = "" if score is None else f"{score:.1f}"
        size = f"{level.steps:>10,} {level.episodes:>9,}"
        lines.append(f"{name:<14} {size} {level.return_mean:>12.1f} {level.return_std:>8.1f} {told:>6}".rstrip())
    return "\n".join(lines)


def _rolled_out(
    env: str,
    overrides: list[str],
    policy: list[str],
    out: Path,
    simulator: str | None,
    given: dict[str, Any],
    quiet: bool,
) -> Any:
    from understudy.run.progress import Reporter
    from understudy.tools.collect import collect as roll_out

    if overrides:
        raise ConfigError(overrides[0], "is for a config, and --policy was given", do="Say it as an option.")
    world: object = env if simulator is None else {"id": env, "simulator": simulator}
    return roll_out(world, policy, out, reporter=Reporter(quiet=quiet), **given)


def _of_recipe(config: str, overrides: list[str], out: Path, options: list[str], quiet: bool) -> Any:
    from understudy.run.config import load_config
    from understudy.run.loading import record_recipe
    from understudy.run.packaged import config_names
    from understudy.run.progress import Reporter

    if any(override.startswith("out=") for override in overrides):
        raise ConfigError("out", "is a run's directory", do="A dataset's folder is given as --out FOLDER.")
    if not config.endswith((".yaml", ".yml")) and config not in config_names():
        import gymnasium

        if config in gymnasium.registry:
            raise ConfigError(f"environment '{config}'", "nobody plays", do="Say who: --policy random, or a run.")
    if options:
        option = {"greedy": "stochastic", "minari_id": "minari", "groups": "group"}.get(options[0], options[0]).replace(
            "_", "-"
        )
        raise ConfigError(
            f"--{option}", "is for --policy", do="What a config's recipe plays is said there: data.recipe.episodes=…"
        )
    recipe = load_config(config, overrides).logged.recipe
    if recipe is None:
        raise ConfigError("data.recipe", "this config has no recipe to play", do="Or say who plays: --policy random.")
    return record_recipe(recipe, out, Reporter(quiet=quiet))

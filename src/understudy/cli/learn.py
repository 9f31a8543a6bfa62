"""train, resume, evaluate, predict, export: what makes a run, and what is done with one."""

import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from understudy.core.errors import ConfigError
from understudy.core.stopping import stoppable
from understudy.core.wording import counted

LONGEST_NUMBER = 18
"""Digits of a number of updates."""
ConfigName = Annotated[str, typer.Argument(help="A config by name (iql/pendulum) or a path to a .yaml file.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="Settings to change, as key=value.")]
RunPath = Annotated[Path, typer.Argument(help="A run directory.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
CheckpointChoice = Annotated[str, typer.Option("--checkpoint", "-c", help="last, best, or a number of updates.")]
Columns = Annotated[
    str,
    typer.Option("--columns", help="What a table's columns are: obs=t,h,action=a,reward=r …"),
]
ActionLow = Annotated[str, typer.Option("--action-low", help="Without an environment: least action, 0 or 0,0.")]
ActionHigh = Annotated[str, typer.Option("--action-high", help="Without an environment: greatest action.")]
Sampled = Annotated[bool, typer.Option("--stochastic", help="Sample actions instead of taking the mean.")]


def register(app: typer.Typer) -> None:
    for command in (train, resume, evaluate, predict, export):
        app.command()(command)


def train(
    config: ConfigName,
    overrides: Overrides = None,
    quiet: Quiet = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that lies there.")] = False,
    columns: Columns = "",
    action_low: ActionLow = "",
    action_high: ActionHigh = "",
) -> None:
    """Train a policy. Examples: understudy train iql/pendulum algo.expectile=0.8 seed=3, or from logs alone:
    understudy train iql data.path=logs --columns obs=t,h,action=a,reward=r"""
    from understudy.core.ranks import process_share
    from understudy.run.config import load_config
    from understudy.run.progress import Reporter
    from understudy.run.session import in_free_place, names_place
    from understudy.run.session import train as start

    if process_share().rank:
        _follow()
    reporter = Reporter(quiet=quiet)
    words = with_data_options(overrides, columns, action_low, action_high)
    resolved = load_config(config, words)
    if not overwrite and not names_place(config, [word.partition("=")[0] for word in words]):
        resolved = in_free_place(resolved, reporter.say)
    out = Path(resolved.out)
    with stoppable(f"run '{out}'", lambda: _way_on(out)):
        run = start(resolved, reporter=reporter, overwrite=overwrite)
    _summarise(run.path, run.result, quiet)


def with_data_options(overrides: list[str] | None, columns: str, action_low: str, action_high: str) -> list[str]:
    """What was said of data as options, as settings."""
    options = {"data.columns": columns, "data.action_low": action_low, "data.action_high": action_high}
    return [*(overrides or []), *(f"{key}={value}" for key, value in options.items() if value)]


def resume(
    run: RunPath,
    overrides: Overrides = None,
    quiet: Quiet = False,
    accept_versions: Annotated[
        bool, typer.Option("--accept-versions", help="Go on although versions or code changed (bits may differ).")
    ] = False,
) -> None:
    """Go on with an unfinished run, to the bit. updates=N or env_steps=N extends a finished one."""
    from understudy.core.ranks import process_share
    from understudy.run.progress import Reporter
    from understudy.run.session import resume as go_on

    if process_share().rank:
        _follow()
    (updates, env_steps), reporter = _budget(overrides or []), Reporter(quiet=quiet)
    with stoppable(f"run '{run}'", lambda: _way_on(run)):
        done = go_on(run, updates=updates, env_steps=env_steps, reporter=reporter, accept_versions=accept_versions)
    _summarise(done.path, done.result, quiet)


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(help="A run directory, a policy folder, an exported .onnx file or the folder of an export."),
    ],
    episodes: Annotated[int | None, typer.Option("--episodes", "-n", help="Episodes to play.")] = None,
    checkpoint: CheckpointChoice = "last",
    stochastic: Sampled = False,
    env: Annotated[str | None, typer.Option("--env", help="Play in this environment instead of the run's.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only, no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Play episodes with a run's policy, always from the same start states; or with one that was saved or exported, in
    the environment that its card names. Example: understudy evaluate policy.onnx --env ID"""
    import json

    from understudy.run.exported_policy import evaluate_exported
    from understudy.run.onnx_policy import is_exported
    from understudy.run.policy_folder import evaluate_folder, is_policy_folder
    from understudy.run.progress import Reporter
    from understudy.run.run import Run

    reporter = Reporter(quiet=quiet)
    with stoppable(f"run '{run}'", "It was only read."):
        if is_policy_folder(run) or is_exported(run):
            if checkpoint != "last":
                raise ConfigError("--checkpoint", "there is one policy here, and no run", got=f"'{run}'")
            play = evaluate_folder if is_policy_folder(run) else evaluate_exported
            result = play(run, episodes, greedy=not stochastic, env=env or "")
        else:
            result = Run(run).evaluate(
                episodes, checkpoint=checkpoint, greedy=not stochastic, reporter=reporter, env=env
            )
    if as_json:
        about = {"approximation": result.approximation} if result.approximation else {}
        print(json.dumps({**result.to_json(), **about}))
        return
    low, high = result.interval
    for number, (value, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        print(f"episode {number:>3}  return {value:>10.2f}  length {length:>5}")
    score = "" if result.score is None else f"  score {result.score:.2f}"
    print(f"mean return {result.mean:.2f}  (95 % interval {low:.2f} to {high:.2f}){score}")
    for line in result.notes():
        print(line)


def predict(
    run: RunPath,
    obs: Annotated[
        Path,
        typer.Option(
            "--obs",
            help="A .npy file: one observation, or one per row; an .npz: groups, and action_mask; a CSV or Parquet "
            "file, whose columns are found by name.",
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", help="Write the actions to this .npy or .csv file.")] = None,
    columns: Annotated[
        str, typer.Option("--columns", help="What a table's columns are, if not as in training: obs=t,h")
    ] = "",
    checkpoint: CheckpointChoice = "last",
    stochastic: Sampled = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of sampled actions.")] = 0,
) -> None:
    """Actions of a run's policy for observations in a file, in environment units. Rows are no sequence: a policy with
    memory begins anew in each."""
    import io

    import numpy as np

    from understudy.core.files import write_bytes
    from understudy.data.formats.column_map import action_names
    from understudy.data.formats.readers import read_observations
    from understudy.run.run import Run

    done = Run(run)
    words = columns or (done.config.data.columns if done.config.data is not None else "")
    actions = done.predict(read_observations(obs, words), checkpoint=checkpoint, greedy=not stochastic, seed=seed)
    if out is None:
        print(np.array2string(actions, threshold=10_000, precision=6, separator=", "))
        return
    buffer = io.BytesIO()
    if out.suffix == ".csv":
        table = np.atleast_2d(actions.T).T  # [B, A]; choices are one column
        header = ",".join(action_names(words, table.shape[1]))
        np.savetxt(buffer, table, fmt="%.9g", delimiter=",", header=header, comments="")
    else:
        np.save(buffer, actions, allow_pickle=False)
    write_bytes(out, buffer.getvalue())
    print(f"{len(np.atleast_2d(actions))} actions written to {out}")


def export(
    run: RunPath,
    format: Annotated[str, typer.Option("--format", "-f", help="onnx or torchscript.")] = "onnx",
    checkpoint: CheckpointChoice = "last",
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write to; RUN/export if not given.")] = None,
    deployment: Annotated[
        Path | None,
        typer.Option("--deployment", help="YAML with facts of the machine, as the config's group has them."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a run's policy, normaliser and memory inside, as ONNX or TorchScript with a card, checked against it."""
    from understudy.run.progress import Reporter
    from understudy.run.yaml_text import read_yaml
    from understudy.tools.export import export_policy

    with stoppable(f"export of '{run}'", "The same command writes it anew."):
        said = None if deployment is None else read_yaml(deployment)
        exported = export_policy(run, format, checkpoint, out, deployment=said, reporter=Reporter(quiet=quiet))
    if not quiet:
        ins, outs = (", ".join(_port(port) for port in exported.card[side]) for side in ("inputs", "outputs"))
        worst, rows = exported.parity.difference, exported.parity.rows
        print(f"{ins} → {outs}; largest difference from the live policy {worst:.1e} over {rows} rows")
        print(f"written to {exported.path}  card: {exported.path.with_name('card.md')}")


def _follow() -> NoReturn:
    """One of several processes of a run, and not the first, which says and writes everything."""
    from understudy.run.following import follow

    with stoppable("torchrun", "What was saved before is whole."):
        ended = follow()
    raise typer.Exit(ended.code)


def _way_on(run: Path) -> str:
    """What to do after a run that was stopped without being saved."""
    from understudy.run.rundir import RunDir

    if not RunDir(run).config_file.exists():
        return "Nothing was begun: the same command starts it."
    return f"What was saved before is whole. Go on with: understudy resume {run}"


def _budget(overrides: list[str]) -> tuple[int | None, int | None]:
    """The updates or the environment steps that a run is to reach, if that is said; the last word counts."""
    from understudy.core.settings import whole_number

    updates, env_steps = None, None
    for override in overrides:
        key, _, value = override.partition("=")
        if key not in ("updates", "env_steps"):
            do = "Only updates=N or env_steps=N can; start a new run for the rest."
            raise ConfigError(key, "cannot change on resume", do=do)
        whole = str(whole_number(value))
        if not whole.isdecimal() or len(whole) > LONGEST_NUMBER:
            raise ConfigError(key, "wrong value", got=repr(value), expected="a whole number")
        updates, env_steps = (int(whole), None) if key == "updates" else (None, int(whole))
    return updates, env_steps


def _summarise(path: Path, result: dict[str, Any], quiet: bool) -> None:
    for sentence in result.get("lost", []):  # even if quiet: nobody may have been told
        print(f"lost: {sentence}", file=sys.stderr)
    if not quiet:
        print(f"finished: {_outcome(path, result)}")
        curves = [path / "plots" / name for name in ("eval_returns.png", "held_out.png", "losses.png")]
        print(f"run: {path}  curve: {next((curve for curve in curves if curve.exists()), 'none')}")


def _outcome(path: Path, result: dict[str, Any]) -> str:
    if "eval/return_mean" in result:
        from understudy.run.plots import data_level
        from understudy.run.rundir import RunDir

        before = "".join(f"{level:.2f} (data) → " for level in data_level(RunDir(path)).values())
        words = [
            f"mean return {before}{result['eval/return_mean']:.2f} over {counted(len(result['returns']), 'episode')}"
        ]
        about = " (an approximation)" if "eval/approximate" in result else ""
        words += [f"score {result['eval/score']:.1f}{about}"] if "eval/score" in result else []
        words += [f"success rate {result['eval/success_rate']:.0%}"] if "eval/success_rate" in result else []
        return ", ".join(words)
    if "eval/action_error" in result:
        early = f", ended early at update {result['updates']:,}" if "stopped_early" in result else ""
        return f"action error {result['eval/action_error']:.4g} on held-out episodes{early}"
    return "not evaluated, so there is no best policy, only the last"


def _port(port: dict[str, object]) -> str:
    shape = port["shape"]
    assert isinstance(shape, list)
    return f"{port['name']} [{', '.join(map(str, shape))}]"

"""A run as a trial of an Optuna study: every evaluation is reported, and a trial that falls behind is pruned."""

from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from understudy.core.errors import ConfigError, MissingPackageError
from understudy.run.config import RunConfig
from understudy.run.environments import MakeEnvs
from understudy.run.evaluate import Evaluation
from understudy.run.loop import StoppedRunError
from understudy.run.progress import SILENT, Reporter
from understudy.run.session import Run, resolve_config, train


class Trial(Protocol):
    """What a run needs of `optuna.Trial`, and what `optuna.trial.FixedTrial` has, too."""

    @property
    def number(self) -> int: ...

    def report(self, value: float, step: int) -> None: ...

    def should_prune(self) -> bool: ...

    def set_user_attr(self, key: str, value: Any) -> None: ...


def train_trial(
    config: str | Path | RunConfig,
    trial: Trial,
    *,
    reporter: Reporter = SILENT,
    make_envs: MakeEnvs | None = None,
    **settings: Any,
) -> Run:
    """Train as `train` does, with `eval/return_mean` reported to an Optuna trial at the updates of every evaluation.

    A pruned trial is saved and raises `optuna.TrialPruned`; `understudy resume` can take it up again. The run lies in
    `<out>-trial-<number>` unless `out` is among the settings; the trial keeps the place as its attribute `run`.
    """
    optuna = _import_optuna()
    _check_upward(optuna, trial)
    resolved = resolve_config(config, settings)
    out = resolved.out if "out" in settings else f"{resolved.out}-trial-{trial.number}"
    trial.set_user_attr("run", out)

    def watch(updates: int, evaluation: Evaluation) -> bool:
        trial.report(evaluation.mean, updates)
        return trial.should_prune()

    try:
        return train(resolved.model_copy(update={"out": out}), reporter=reporter, make_envs=make_envs, watch=watch)
    except StoppedRunError as error:
        raise optuna.TrialPruned(str(error)) from error


def _check_upward(optuna: Any, trial: Trial) -> None:
    """Optuna minimises unless told otherwise, and would then prune the best."""
    if not isinstance(trial, optuna.Trial):
        return
    directions = [direction.name.lower() for direction in trial.study.directions]
    if directions != ["maximize"]:
        raise ConfigError(
            "study",
            "reports are returns, of which more is better",
            got=" and ".join(directions),
            expected="maximize",
            do='Make it with optuna.create_study(direction="maximize").',
        )


def _import_optuna() -> Any:
    try:
        return import_module("optuna")
    except ImportError as error:
        raise MissingPackageError(
            "train_trial", f"needs optuna ({error})", do="Run: pip install 'understudy-rl[tune]'"
        ) from error

"""A run as a trial of an Optuna study: every evaluation is reported, and a trial that falls behind is pruned."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, final

from understudy.core.errors import ConfigError, MissingPackageError
from understudy.run.config import ConfigLike, RunConfig
from understudy.run.environments import MakeEnvs
from understudy.run.evaluation import Evaluation
from understudy.run.given_env import own_worlds
from understudy.run.history import measured
from understudy.run.progress import Reporter
from understudy.run.run import Run
from understudy.run.session import resolve_given, train
from understudy.run.sinks import Logger


class Trial(Protocol):
    """What a run needs of `optuna.Trial`, and what `optuna.trial.FixedTrial` has, too."""

    @property
    def number(self) -> int: ...

    def report(self, value: float, step: int) -> None: ...

    def should_prune(self) -> bool: ...

    def set_user_attr(self, key: str, value: Any) -> None: ...


@final
class Watch:
    """A callback that reports the number a run is judged by to a trial, and ends the run of one that is pruned."""

    def __init__(self, trial: Trial, config: RunConfig) -> None:
        self.pruned = False
        self._trial, self._config = trial, config

    def __call__(self, updates: int, evaluation: Evaluation) -> bool:
        return self.hear(updates, evaluation.to_json())

    def hear(self, updates: int, record: Mapping[str, Any]) -> bool:
        """The same of an evaluation as a log tells it."""
        self._trial.report(measured(record, self._config), updates)
        self.pruned = self._trial.should_prune()
        return self.pruned


def train_trial(
    config: ConfigLike,
    trial: Trial,
    *,
    data: object = None,
    env: object = None,
    callbacks: Iterable[object] = (),
    loggers: Sequence[Logger] = (),
    progress: bool = True,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    make_envs: MakeEnvs | None = None,
    **settings: Any,
) -> Run:
    """Train as `train` does, with its `best` number (`eval/return_mean`, or the held-out `eval/action_error` where
    there is no environment) reported to an Optuna trial at the updates of every evaluation.

    A pruned trial is saved and raises `optuna.TrialPruned`; `understudy resume` can take it up again. The run lies in
    `<out>-trial-<number>` unless `out` is among the settings; the trial keeps the place as its attribute `run`.
    """
    optuna = import_optuna("train_trial")
    resolved = resolve_given(config, data, env, own_worlds(env, make_envs), settings)
    _check_direction(optuna, trial, resolved)
    out = resolved.out if "out" in settings else f"{resolved.out}-trial-{trial.number}"
    trial.set_user_attr("run", out)

    watch = Watch(trial, resolved)
    placed = resolved.model_copy(update={"out": out})
    run = train(
        placed,
        data=data,
        env=env,
        callbacks=[watch, *callbacks],
        loggers=loggers,
        progress=progress,
        overwrite=overwrite,
        reporter=reporter,
        make_envs=make_envs,
    )
    if watch.pruned:
        raise optuna.TrialPruned(f"pruned at update {run.result['updates']:,}; go on with: understudy resume {out}")
    return run


def _check_direction(optuna: Any, trial: Trial, config: RunConfig) -> None:
    """Optuna minimises unless told otherwise, and would then prune the best."""
    if not isinstance(trial, optuna.Trial):
        return
    directions = [direction.name.lower() for direction in trial.study.directions]
    wished = "minimize" if config.best_lowest else "maximize"
    if directions != [wished]:
        raise ConfigError(
            "study",
            f"reports are {config.best_metric}, of which {'less' if config.best_lowest else 'more'} is better",
            got=" and ".join(directions),
            expected=wished,
            do=f'Make it with optuna.create_study(direction="{wished}").',
        )


def import_optuna(where: str) -> Any:
    try:
        return import_module("optuna")
    except ImportError as error:
        raise MissingPackageError(
            where, f"needs optuna ({error})", do="Run: pip install 'understudy-rl[tune]'"
        ) from error

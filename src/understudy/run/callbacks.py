"""Callbacks: code of one's own that a run calls at its logs, evaluations, checkpoints and at its end.

They hear of the run itself, not of its stages, whose updates are counted from the start again. What they hear changes
nothing: a run with callbacks is equal to one without, byte for byte.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

from understudy.core.errors import ConfigError, did_you_mean
from understudy.run.evaluation import Evaluation

Values = Mapping[str, float]
Watcher = Callable[[int, Evaluation], object]
"""A plain function as a callback: it is asked after every evaluation, and True ends the run."""


class Callback:
    """What a run calls. Write the methods you need; an object that has only some of them serves as well, and so does a
    function of (updates, evaluation), which is called as `on_evaluation`."""

    def on_log(self, updates: int, metrics: Values) -> None:
        """A line of metrics.jsonl was written."""

    def on_evaluation(self, updates: int, evaluation: Evaluation) -> bool | None:
        """The policy was evaluated; True ends the run, saved, to be resumed or used as it is."""

    def on_checkpoint(self, updates: int, path: Path) -> None:
        """A checkpoint lies whole at `path`."""

    def on_end(self, result: Mapping[str, Any]) -> None:
        """All updates are done, or a callback ended the run: `result` is what `Run.result` says."""


@runtime_checkable
class LogHook(Protocol):
    def on_log(self, updates: int, metrics: Values) -> None: ...


@runtime_checkable
class EvaluationHook(Protocol):
    def on_evaluation(self, updates: int, evaluation: Evaluation) -> object: ...


@runtime_checkable
class CheckpointHook(Protocol):
    def on_checkpoint(self, updates: int, path: Path) -> None: ...


@runtime_checkable
class EndHook(Protocol):
    def on_end(self, result: Mapping[str, Any]) -> None: ...


HOOKS = ("on_log", "on_evaluation", "on_checkpoint", "on_end")
KINDS = (LogHook, EvaluationHook, CheckpointHook, EndHook)


@final
class Callbacks:
    """All callbacks of a run, in their order."""

    def __init__(self, given: Iterable[object] = ()) -> None:
        if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
            raise ConfigError("callbacks", "not a list", got=type(given).__name__, expected="[callback, …]")
        self._given = [_checked(callback) for callback in given]

    def log(self, updates: int, metrics: Values) -> None:
        for callback in self._given:
            if isinstance(callback, LogHook):
                callback.on_log(updates, metrics)

    def evaluation(self, updates: int, evaluation: Evaluation) -> bool:
        """Every one is told; whether any of them ends the run."""
        answers = []
        for callback in self._given:
            if isinstance(callback, EvaluationHook):
                answers.append(callback.on_evaluation(updates, evaluation))
            elif not isinstance(callback, KINDS):
                assert callable(callback)
                answers.append(callback(updates, evaluation))
        return any(answer is not None and bool(answer) for answer in answers)

    def checkpoint(self, updates: int, path: Path) -> None:
        for callback in self._given:
            if isinstance(callback, CheckpointHook):
                callback.on_checkpoint(updates, path)

    def end(self, result: Mapping[str, Any]) -> None:
        for callback in self._given:
            if isinstance(callback, EndHook):
                callback.on_end(result)


def _checked(callback: object) -> object:
    """Something that can be called at one of a run's events, and no misspelt method that never would be."""
    name = callback.__name__ if isinstance(callback, type) else type(callback).__name__
    if isinstance(callback, type):
        raise ConfigError("callbacks", "a class where an object belongs", got=name, do=f"Make one: {name}().")
    for hook in dir(callback):
        if hook.startswith("on_") and hook not in HOOKS:
            raise ConfigError(f"callback {name}", f"no run calls '{hook}'", do=did_you_mean(hook, HOOKS))
    if not isinstance(callback, KINDS) and not callable(callback):
        raise ConfigError(
            "callbacks", "not a callback", got=name, expected=f"a function of (updates, evaluation), or {HOOKS[0]} …"
        )
    if isinstance(callback, LogHook):
        _check_call(callback.on_log, f"callback {name}.on_log", "updates", "metrics")
    if isinstance(callback, EvaluationHook):
        _check_call(callback.on_evaluation, f"callback {name}.on_evaluation", "updates", "evaluation")
    if isinstance(callback, CheckpointHook):
        _check_call(callback.on_checkpoint, f"callback {name}.on_checkpoint", "updates", "path")
    if isinstance(callback, EndHook):
        _check_call(callback.on_end, f"callback {name}.on_end", "result")
    if callable(callback) and not isinstance(callback, KINDS):
        _check_call(callback, "callbacks", "updates", "evaluation")
    return callback


def _check_call(call: Callable[..., object], where: str, *given: str) -> None:
    """It takes what it will be given; what does not say what it takes is believed."""
    try:
        taken = inspect.signature(call)
    except (TypeError, ValueError):
        return
    try:
        taken.bind(*given)
    except TypeError as error:
        raise ConfigError(
            where, f"does not take what it is called with ({error})", got=taken, expected=f"({', '.join(given)})"
        ) from None

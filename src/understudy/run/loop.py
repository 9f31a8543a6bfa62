"""The one training loop.

    data = source.next(algorithm.policy)
    update = algorithm.update(data)
    source.feedback(update.feedback)

(`Learner.update`) and around these lines: logs, checkpoints, evaluations, each at its own interval, in this order:
what an evaluation takes hours for, or fails in, is safe. A checkpoint is then told what the evaluation found.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, final

from understudy.core.errors import RunError, UnderstudyError
from understudy.core.files import write_json
from understudy.core.protocols import Metrics
from understudy.core.state import capture, nonfinite, place_large_state
from understudy.core.stopping import StoppedError, stop_signals
from understudy.run.callbacks import Callbacks
from understudy.run.checkpoint import (
    CARD_FACT,
    LAYOUTS_FACT,
    NETWORKS_FACT,
    SEGMENTS,
    amend_checkpoint,
    save_checkpoint,
)
from understudy.run.config import RunConfig
from understudy.run.crew import ALONE, Crew
from understudy.run.environments import MakeEnvs
from understudy.run.evaluate import Evaluator
from understudy.run.evaluation import Evaluation, headline
from understudy.run.guard import Guard, bad_metrics
from understudy.run.handed_networks import network_layouts, network_paths
from understudy.run.history import (
    FACT,
    Best,
    History,
    best_evaluation,
    best_facts,
    check_best,
    is_better,
    measured,
)
from understudy.run.identity import identity
from understudy.run.learner import Learner
from understudy.run.logs import EVALUATION, HELD_OUT
from understudy.run.plots import SparinglyDrawn, draw_run
from understudy.run.policy_file import describe_policy, save_policy
from understudy.run.progress import Reporter
from understudy.run.rundir import RunDir
from understudy.run.sinks import Logger, OwnLogger, Sinks
from understudy.run.video import film_evaluation
from understudy.run.wandb_sink import open_wandb

NOTE_SECONDS = 0.25
CALLBACK, INTERRUPTED = "callback", "interrupted"
"""Why a run was stopped, as its result says it."""
NOBODY = Callbacks()


class InterruptedRunError(UnderstudyError):
    """Ctrl-C or SIGTERM: the run was saved and can go on."""

    def __init__(self, run: Path, updates: int, signal_number: int) -> None:
        super().__init__(
            f"run '{run}'", f"stopped and saved at update {updates:,}", do=f"Go on with: understudy resume {run}"
        )
        self.exit_code = 128 + signal_number
        self.run = run
        self._told = (updates, signal_number)

    def unbegun(self) -> StoppedError:
        """The same of a run of which nothing was kept."""
        return StoppedError(f"run '{self.run}'", self._told[1], "Nothing was begun: the same command starts it.")

    def of(self, run: Path) -> "InterruptedRunError":
        """The same, told of the run whose stage was interrupted."""
        return InterruptedRunError(run, *self._told)


def stop_reason(error: BaseException) -> str:
    """What a run's result says of the error that ended it."""
    if isinstance(error, (InterruptedRunError, KeyboardInterrupt)):
        return INTERRUPTED
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


@final
class Loop:
    """A run in progress. `updates` is the only counter."""

    def __init__(
        self,
        config: RunConfig,
        run: RunDir,
        learner: Learner,
        updates: int,
        reporter: Reporter,
        make_envs: MakeEnvs | None = None,
        callbacks: Callbacks = NOBODY,
        loggers: Iterable[Logger] = (),
        history: History | None = None,
        crew: Crew = ALONE,
    ) -> None:
        self.config = config
        self.run = run
        self.learner = learner
        self.updates = updates
        self.reporter = reporter
        self.evaluator = Evaluator(config, make_envs, learner.motions)
        self.callbacks = callbacks
        self.crew = crew
        before = history or History()
        evaluated = HELD_OUT if config.env is None else EVALUATION
        told = config.model_dump(mode="json")
        self.sinks = Sinks(
            run, updates, tensorboard=config.tensorboard, marks=before.logs, evaluated=evaluated, settings=told
        )
        if config.wandb:
            self.sinks.add(open_wandb(config, run, reporter.say))
        for logger in loggers:
            self.sinks.add(OwnLogger.begin(logger, run.path, told, reporter.say))
        place_large_state(learner, run.checkpoints / SEGMENTS)
        self.guard = Guard.over(learner, updates)
        self.saved = updates
        self.judged = config.env is not None or learner.judged
        self.best = before.best or best_evaluation(run, config)
        self.evaluated = max((line["updates"] for line in run.evaluations()), default=0)
        self.lost = self._tell_lost(before.lost)
        self.stop: list[int] = []
        self.ended = False
        """By a callback."""
        self.stale = before.stale
        self.warned = False
        self.untold = False
        self.unmeasured = False
        self.drawing = SparinglyDrawn()
        self.losses: list[str] = []
        self.score = ""

    def _tell_lost(self, before: tuple[str, ...]) -> tuple[str, ...]:
        """Say what of the run was lost, and remember it to its end."""
        coming = self.updates if self._evaluation_comes_again() else self.updates + 1
        found = (*self.sinks.lost, check_best(self.run, self.best, self.updates, coming, self.config))
        for sentence in filter(None, found):
            self.reporter.say(f"lost: {sentence}")
        return tuple(dict.fromkeys((*before, *filter(None, found))))

    def train(self) -> None:
        """Go on to the configured number of updates; then there is a result."""
        try:
            self._go()
        except BaseException as error:
            self.run.note_stop(stop_reason(error), self.saved)
            raise
        finally:
            try:
                self.sinks.close()
            finally:
                self.evaluator.close()
        if self.ended and self.updates < self.config.updates:
            self.run.note_stop(CALLBACK, self.updates)
            self.reporter.say(f"ended by a callback and saved at update {self.updates:,}; `resume` goes on")
        else:
            self._finish()
        self.callbacks.end(self.run.result)

    def _go(self) -> None:
        config = self.config
        metrics: Metrics = {}
        task = self.reporter.task(
            "training", config.updates, "updates", self.updates, env_steps=self.learner.env_steps()
        )
        with stop_signals() as stop, task as advance, ExitStack() as led:
            self.stop = stop
            shown = time.monotonic()
            if self._evaluation_comes_again():
                self._report(self._evaluate(metrics), metrics)
            led.enter_context(self.crew.led(config, self.learner, self._heed))
            while self.updates < config.updates and not self.ended and not self._gave_up():
                metrics = self._update(metrics)
                self.updates += 1
                self._mark(metrics)
                if stop:
                    self._save(metrics)
                    raise InterruptedRunError(self.run.path, self.updates, stop[0])
                if self.sinks.failure is not None:
                    self._save(metrics)
                    raise self._broken(self.sinks.failure) from self.sinks.failure
                if (now := time.monotonic()) - shown > NOTE_SECONDS or self.updates == config.updates:
                    advance(self.updates, self.score, *self.losses, env_steps=self.learner.env_steps())
                    shown = now

    def _broken(self, failure: OSError) -> RunError:
        return RunError(
            f"run '{self.run.path}'",
            f"'{failure.filename}' cannot be written any more ({failure.strerror})",
            do=f"Saved at update {self.updates:,}: make room or mend the folder, then resume.",
        )

    def _update(self, before: Metrics) -> Metrics:
        """One update. A world may refuse what a policy does that has diverged since the last log: that is told then.

        Where the world fails for other reasons, what was learned until `before` is saved.
        """
        try:
            with self.crew.update(self.stop):
                return self.learner.update(lambda: self._stop_if_asked(before))
        except StoppedError as stopped:  # while it was compiled: nothing moved, and nothing is to be saved
            raise InterruptedRunError(self.run.path, self.saved, stopped.number) from None
        except UnderstudyError as error:
            if nonfinite(capture(self.learner.algorithm)):
                self._rewind([])
            if error.nothing_learned:
                self._save(before)
            raise

    def _stop_if_asked(self, metrics: Metrics) -> None:
        """While there is nothing to learn from yet."""
        if self.stop:
            self._save(metrics)
            raise InterruptedRunError(self.run.path, self.updates, self.stop[0])

    def _mark(self, metrics: Metrics) -> None:
        """What is due after this update."""
        config, updates = self.config, self.updates
        final_update = updates == config.updates
        if updates % config.log_every == 0 or final_update:
            self._verify(metrics)
            values = self._log(self.crew.agreed(metrics, self.learner))
            self.crew.pause()
            with self._saved_first(metrics):
                self.callbacks.log(updates, values)
        if updates % config.save_every == 0 or final_update:
            self._save(metrics)
        if self._evaluation_is_due():
            self._verify(metrics)
            self._report(self._evaluate(metrics), metrics)
            if self._gave_up():
                self._save(metrics)

    def _evaluation_is_due(self) -> bool:
        updates, config = self.updates, self.config
        if config.eval_every == 0 or updates == 0 or not self.judged:
            return False
        return updates % config.eval_every == 0 or updates == config.updates

    def _gave_up(self) -> bool:
        """As many evaluations as it has patience for were no better than one before."""
        return 0 < self.config.patience <= self.stale

    def _evaluation_comes_again(self) -> bool:
        """The last process was stopped in it."""
        return self._evaluation_is_due() and self.evaluated < self.updates

    def _heed(self) -> None:
        """Between two steps of an evaluation: stop it, if we shall. It is played again when the run goes on."""
        if self.stop:
            raise InterruptedRunError(self.run.path, self.updates, self.stop[0])

    def _verify(self, metrics: Metrics) -> None:
        if self.guard.updates < self.updates and not self.guard.check(self.updates, metrics):
            self._rewind(bad_metrics(metrics))

    def _rewind(self, bad: list[str]) -> NoReturn:
        """Keep the last state that was right, and say when and where it went wrong."""
        again = self.learner.update if self.learner.exact and self.crew is ALONE else None
        self.updates, error = self.guard.rewind(again, self.updates, bad)
        self.sinks.sync()
        self._write_checkpoint()
        raise error

    def _log(self, metrics: Metrics) -> dict[str, float]:
        told = {**metrics, **self.learner.metrics()}
        values = {name: float(value) for name, value in told.items()}
        self.sinks.log(self.updates, values, self.learner.stopwatch.lap())
        self._warn(values)
        losses = {name.removeprefix("loss/"): value for name, value in values.items() if name.startswith("loss/")}
        self.losses = [f"{name} {value:.3g}" for name, value in losses.items()]
        return values

    def _warn(self, values: dict[str, float]) -> None:
        """Once, when the numbers first tell that something goes wrong."""
        if not self.warned and (concern := self.learner.warning(values)):
            self.warned = True
            self.reporter.say(f"update {self.updates:,}: {concern}")

    def _evaluate(self, metrics: Metrics) -> Evaluation:
        self.crew.pause()
        try:
            evaluation = replace(self._play(), metrics=self.learner.eval_metrics())
        except UnderstudyError:  # stopped, or the environment failed
            self._save(metrics)
            raise
        record = evaluation.to_json()
        self.sinks.log_evaluation(self.updates, record, evaluation.seconds)
        self.score = headline(record)
        value = measured(record, self.config)
        if is_better(value, self.best, self.config):
            digest = self._save_policy("best", record)
            self.best = Best(updates=self.updates, value=value, sha256=digest)
            self.stale = 0
        else:
            self.stale += 1
        if self.saved == self.updates:
            self.sinks.sync()
            if not amend_checkpoint(self.run.checkpoints, self.updates, self._facts()):
                self._write_checkpoint()
        self._warn_of_untold(evaluation)
        self._show(best=self.best is not None and self.best.updates == self.updates)
        return evaluation

    def _warn_of_untold(self, evaluation: Evaluation) -> None:
        """Once, of numbers that were asked for and are not there."""
        if evaluation.untold and not self.untold:
            self.untold = True
            names = ", ".join(map(repr, evaluation.untold))
            self.reporter.say(f"eval_info: {self.config.world.id} told no number called {names} in its info")
        if (missing := self.config.task_metrics.keys() - evaluation.measured.keys()) and not self.unmeasured:
            self.unmeasured = True
            why = "an info that is never told, or a robot that stands still"
            self.reporter.say(f"eval_metrics: no episode gave a number for {', '.join(sorted(missing))} ({why})")

    def _show(self, *, best: bool) -> None:
        """Draw and film what there is so far; nothing of it may end a run, and drawing takes little of its time."""
        if self.drawing.due:
            with self.drawing:
                draw_run(self.run)
        if self.config.eval_video:
            try:
                film_evaluation(self.config, self.run, self.learner, best=best, between=self._heed)
            except InterruptedRunError:  # the run ends by itself, where it always does
                return
            except (UnderstudyError, OSError) as error:
                self.reporter.say(f"update {self.updates:,} is not filmed: {error}")

    def _play(self) -> Evaluation:
        """Episodes in the environment; none where there is none."""
        if self.config.env is None:
            return Evaluation((), ())
        policy, episodes, shared = self.learner.policy, self.config.eval_episodes, self.learner.shared_env()
        return self.evaluator.evaluate(policy, episodes, shared=shared, between=self._heed)

    def _report(self, evaluation: Evaluation, metrics: Metrics) -> None:
        """Ask the callbacks; a run that they end is saved first."""
        with self._saved_first(metrics):
            self.ended = self.callbacks.evaluation(self.updates, evaluation)
        if self.ended:
            self._save(metrics)

    @contextmanager
    def _saved_first(self, metrics: Metrics) -> Iterator[None]:
        """An error of a callback is its owner's: once the run is saved it is passed on, with a word of where it was."""
        try:
            yield
        except BaseException as error:
            self._save(metrics)
            error.add_note(
                f"(Raised in a callback of run '{self.run.path}', which is saved at update {self.updates:,}.)"
            )
            raise

    def _save(self, metrics: Metrics) -> None:
        self.crew.pause()
        self._verify(metrics)
        if self.saved < self.updates:
            self.sinks.sync()
            path = self._write_checkpoint()
            with self._saved_first(metrics):
                self.callbacks.checkpoint(self.updates, path)

    def _write_checkpoint(self) -> Path:
        state, keep = capture(self.learner), self.config.keep_checkpoints
        path = save_checkpoint(self.run.checkpoints, self.updates, state, self._facts(), keep=keep)
        self.saved = self.updates
        return path

    def _facts(self) -> dict[str, Any]:
        """What a checkpoint says of the run so far."""
        return {
            **identity(self.config),
            "dataset": self.config.fingerprint,
            FACT: History(logs=self.sinks.marks(), best=self.best, stale=self.stale, lost=self.lost).model_dump(
                mode="json"
            ),
            NETWORKS_FACT: network_paths(self.learner.algorithm),
            LAYOUTS_FACT: network_layouts(self.learner.algorithm),
            CARD_FACT: describe_policy(self.learner.policy),
        }

    def _save_policy(self, name: str, record: dict[str, Any]) -> str:
        facts = {
            "algorithm": self.config.algo.model_dump(mode="json"),
            "updates": self.updates,
            **({} if self.config.env is None else {"env": self.config.env.id}),
            "transforms": self.learner.transforms(),
        }
        if "eval/return_mean" in record:
            facts["return_mean"] = record["eval/return_mean"]
        return save_policy(self.learner.policy, self.run.policies / name, facts)

    def _finish(self) -> None:
        self._save_policy("final", {})
        draw_run(self.run)
        last = self.run.evaluations()[-1] if self.best is not None else {}
        config, early = self.config, self.updates < self.config.updates
        if early:
            self.reporter.say(f"ended early at update {self.updates:,}: {config.best_metric} did not get better")
        result = {
            "updates": self.updates,
            "fingerprint": self.config.fingerprint,
            **best_facts(self.best, self.config),
            **({"stopped_early": f"{config.best_metric} was not better in {self.stale} evaluations"} if early else {}),
            **{name: value for name, value in last.items() if name != "updates"},
            **({"lost": list(self.lost)} if self.lost else {}),
        }
        write_json(self.run.result_file, result)

"""The one training loop.

    data = source.next(algorithm.policy)
    metrics = algorithm.update(data)

and around these two lines: logs, evaluations, checkpoints, each at its own interval, in this order.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, final

from understudy.core.errors import UnderstudyError
from understudy.core.files import json_bytes, sha256_bytes, write_json
from understudy.core.protocols import Metrics, Policy
from understudy.core.state import capture, nonfinite
from understudy.core.stopping import SIGNALS, StoppedError, listen
from understudy.envs.patience import PATIENCE
from understudy.envs.vector import VectorWorld
from understudy.nn.deployed import Deployed
from understudy.run.checkpoint import CARD_FACT, save_checkpoint
from understudy.run.config import RolloutSettings, RunConfig
from understudy.run.evaluate import Evaluation, evaluate_in_world, evaluate_policy
from understudy.run.guard import Guard, bad_metrics
from understudy.run.learner import Learner
from understudy.run.meta import versions
from understudy.run.plots import draw_run
from understudy.run.policy_file import save_policy
from understudy.run.progress import Reporter
from understudy.run.rundir import RunDir
from understudy.run.sinks import Sinks
from understudy.run.wandb_sink import open_wandb
from understudy.run.worlds import WorldMaker, make_world

NOTE_SECONDS = 0.25


class InterruptedRunError(UnderstudyError):
    """Ctrl-C or SIGTERM: the run was saved and can go on."""

    def __init__(self, run: Path, updates: int, signal_number: int) -> None:
        super().__init__(
            f"run '{run}'", f"stopped and saved at update {updates:,}", do=f"Go on with: understudy resume {run}"
        )
        self.exit_code = 128 + signal_number
        self._told = (updates, signal_number)

    def of(self, run: Path) -> "InterruptedRunError":
        """The same, told of the run whose stage was interrupted."""
        return InterruptedRunError(run, *self._told)


class StoppedRunError(UnderstudyError):
    """The watcher had seen enough: the run was saved and can go on."""

    def __init__(self, run: Path, updates: int) -> None:
        super().__init__(
            f"run '{run}'",
            f"ended by its watcher and saved at update {updates:,}",
            do=f"Go on with: understudy resume {run}",
        )


Watcher = Callable[[int, Evaluation], bool]
"""Called with the updates so far and what they are worth, after every evaluation; True ends the run."""


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
        world: WorldMaker | None = None,
        watch: Watcher | None = None,
    ) -> None:
        self.config = config
        self.run = run
        self.learner = learner
        self.updates = updates
        self.reporter = reporter
        self.world = world
        self.watch = watch
        self.sinks = Sinks(run, updates, tensorboard=config.tensorboard)
        if config.wandb:
            self.sinks.add(open_wandb(config, run, reporter.say))
        self.guard = Guard.over(learner, updates)
        self.saved = updates
        evaluations = run.evaluations()
        self.best = max((line["eval/return_mean"] for line in evaluations), default=float("-inf"))
        self.warned = False
        self.losses = ""
        self.score = ""

    def train(self) -> dict[str, Any]:
        """Go on to the configured number of updates; the result that result.json holds."""
        try:
            self._go()
        finally:
            self.sinks.close()
        return self._finish()

    def _go(self) -> None:
        config = self.config
        with stop_signals() as stop, self.reporter.task("training", config.steps, "updates", self.updates) as advance:
            shown = time.monotonic()
            while self.updates < config.steps:
                metrics = self._update()
                self.updates += 1
                self._mark(metrics)
                if stop:
                    self._save(metrics)
                    raise InterruptedRunError(self.run.path, self.updates, stop[0])
                if (now := time.monotonic()) - shown > NOTE_SECONDS or self.updates == config.steps:
                    advance(self.updates, f"{self.losses} {self.score}".strip())
                    shown = now

    def _update(self) -> Metrics:
        """One update. A world may refuse what a policy does that has diverged since the last log: that is told then."""
        try:
            return self.learner.update()
        except StoppedError as stopped:  # while it was compiled: nothing moved, and nothing is to be saved
            raise InterruptedRunError(self.run.path, self.saved, stopped.number) from None
        except UnderstudyError:
            if nonfinite(capture(self.learner.algorithm)):
                self._rewind([])
            raise

    def _mark(self, metrics: Metrics) -> None:
        """What is due after this update."""
        config, updates = self.config, self.updates
        final_update = updates == config.steps
        if updates % config.log_every == 0 or final_update:
            self._verify(metrics)
            self._log(metrics)
        if updates % config.eval_every == 0 or final_update:
            self._verify(metrics)
            self._report(self._evaluate(), metrics)
        if updates % config.save_every == 0 or final_update:
            self._save(metrics)

    def _verify(self, metrics: Metrics) -> None:
        if self.guard.updates < self.updates and not self.guard.check(self.updates, metrics):
            self._rewind(bad_metrics(metrics))

    def _rewind(self, bad: list[str]) -> NoReturn:
        """Keep the last state that was right, and say when and where it went wrong."""
        again = self.learner.update if self.learner.exact else None
        self.updates, error = self.guard.rewind(again, self.updates, bad)
        self.sinks.sync()
        self._write_checkpoint()
        raise error

    def _log(self, metrics: Metrics) -> None:
        told = {**metrics, **self.learner.look()}
        values = {name: float(value) for name, value in told.items()}
        self.sinks.log(self.updates, values)
        self._warn(values)
        losses = {name.removeprefix("loss/"): value for name, value in values.items() if name.startswith("loss/")}
        self.losses = " ".join(f"{name} {value:.3g}" for name, value in losses.items())

    def _warn(self, values: dict[str, float]) -> None:
        """Once, when the numbers first tell that something goes wrong."""
        if not self.warned and (concern := self.learner.concern(values)):
            self.warned = True
            self.reporter.say(f"update {self.updates:,}: {concern}")

    def _evaluate(self) -> Evaluation:
        policy, episodes, shared = self.learner.policy, self.config.eval_episodes, self.learner.lend()
        evaluation = evaluate(self.config, policy, episodes, world=self.world, shared=shared)
        record = {**evaluation.to_json(), **self.learner.assess()}
        self.sinks.log_evaluation(self.updates, record)
        self.score = f"return {evaluation.mean:.1f}"
        if evaluation.mean > self.best:
            self.best = evaluation.mean
            self._save_policy("best", evaluation)
        return evaluation

    def _report(self, evaluation: Evaluation, metrics: Metrics) -> None:
        """Ask the watcher; a run that it ends, by its answer or by an error of its own, is saved first."""
        if self.watch is None:
            return
        ended = True
        try:
            ended = self.watch(self.updates, evaluation)
        finally:
            if ended:
                self._save(metrics)
        if ended:
            raise StoppedRunError(self.run.path, self.updates)

    def _save(self, metrics: Metrics) -> None:
        self._verify(metrics)
        if self.saved < self.updates:
            self.sinks.sync()
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        policy = self.learner.policy
        facts = {
            "versions": versions(),
            "config_sha256": config_digest(self.config),
            "dataset": self.config.fingerprint,
            CARD_FACT: {"spec": policy.spec.to_json(), "settings": policy.settings.model_dump(mode="json")},
        }
        save_checkpoint(
            self.run.checkpoints, self.updates, capture(self.learner), facts, keep=self.config.keep_checkpoints
        )
        self.saved = self.updates

    def _save_policy(self, name: str, evaluation: Evaluation | None) -> None:
        facts = {
            "algorithm": self.config.algo.model_dump(mode="json"),
            "updates": self.updates,
            "env": self.config.env.id,
            "transforms": self.learner.transforms(),
        }
        if evaluation is not None:
            facts["return_mean"] = evaluation.mean
        save_policy(self.learner.policy, self.run.policies / name, facts)

    def _finish(self) -> dict[str, Any]:
        self._save_policy("final", None)
        draw_run(self.run)
        last = self.run.evaluations()[-1]
        result = {
            "updates": self.updates,
            "fingerprint": self.config.fingerprint,
            "best_return_mean": self.best,
            **{name: value for name, value in last.items() if name != "updates"},
        }
        write_json(self.run.result_file, result)
        return result


def evaluate(
    config: RunConfig,
    policy: Policy,
    episodes: int,
    *,
    greedy: bool = True,
    on_step: Callable[[int, int], None] | None = None,
    world: WorldMaker | None = None,
    shared: VectorWorld | None = None,
) -> Evaluation:
    """A run's evaluation: its environment, its seed, its reference score. `shared`: a world that is there already."""
    reference = config.env.reference
    if shared is not None:
        return evaluate_in_world(policy, shared, episodes, config.seed, greedy=greedy, reference=reference)
    if config.env.simulator != "gymnasium":
        with closing(make_world(config.env, episodes, world, patience=_patience(config))) as separate:
            return evaluate_in_world(
                policy, separate, episodes, config.seed, greedy=greedy, reference=reference, on_step=on_step
            )
    return evaluate_policy(
        policy,
        config.env.id,
        episodes,
        config.seed,
        greedy=greedy,
        spec=policy.spec if isinstance(policy, Deployed) else None,
        reference=reference,
        on_step=on_step,
        patience=_patience(config),
    )


def _patience(config: RunConfig) -> float:
    return config.source.patience if isinstance(config.source, RolloutSettings) else PATIENCE


def config_digest(config: RunConfig) -> str:
    """Identity of everything that decides a run's bytes; where it lies and how far it goes do not."""
    elsewhere: dict[str, Any] = {
        "out": True,
        "steps": True,
        "tensorboard": True,
        "wandb": True,
        "keep_checkpoints": True,
        "init_from": True,
        "stages": True,
        "data": {"path"},
        "source": {"patience", "workers"},
    }
    content = config.model_dump(mode="json", exclude=elsewhere)
    if config.stages:
        content["stages"] = [[config_digest(stage), stage.steps] for stage in config.stages]
    return sha256_bytes(json_bytes(content))


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collects Ctrl-C and SIGTERM while inside; the loop looks at the list between updates.

    Who asks twice wants it now: that one is heard by whoever listened before.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            listen(before)
            signal.raise_signal(number)
        received.append(number)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    listen(dict.fromkeys(SIGNALS, note))
    try:
        yield received
    finally:
        listen(before)

"""The processes of a run that do as its first one says: see run.crew."""

import json
import time
import warnings
from dataclasses import dataclass, field
from typing import final

from understudy.core.errors import RunError, UnderstudyError
from understudy.core.protocols import Metrics
from understudy.core.ranks import LostProcessError, process_share
from understudy.core.state import restore
from understudy.core.stopping import stop_signals
from understudy.run.build import build_learner
from understudy.run.config import parse_config
from understudy.run.crew import (
    BEGIN,
    CLOSE,
    END,
    GRACE_SECONDS,
    PAUSE,
    REPORT,
    UPDATE,
    Line,
    bytes_state,
    line_of_process,
)
from understudy.run.environments import MakeEnvs
from understudy.run.learner import Learner
from understudy.run.run import Run


@final
@dataclass(frozen=True)
class Ending:
    """How the command ended in the first process."""

    code: int
    run: str
    """The run's directory, where it was finished."""

    def of_python(self, env: object, make_envs: MakeEnvs | None) -> Run:
        """The run that the first process has; its error was told there."""
        if self.code:
            raise RunError("torchrun", "the first process of this run has ended with an error", do="It says which.")
        return Run(self.run, env=env, make_envs=make_envs)


def follows() -> bool:
    """This process is one of several, and not the first."""
    return process_share().rank > 0


def follow(make_envs: MakeEnvs | None = None) -> Ending:
    """Do as the first process says, until it ends."""
    line = line_of_process()  # until all have met, there is nothing to put in order
    with stop_signals() as stop:
        return _Follower(line, stop, make_envs).go()


@final
@dataclass
class _Follower:
    line: Line
    stop: list[int]
    make_envs: MakeEnvs | None
    learners: list[Learner] = field(default_factory=list)
    """The one that there is to follow with, if there is one."""
    metrics: Metrics = field(default_factory=dict)
    told: float = 0.0
    """When it was found to have been told to stop."""

    def go(self) -> Ending:
        order = PAUSE
        while order != END:
            if order == PAUSE:
                self.line.heard(f"go/{self.line.said}", self._look)
                self.line.said += 1
            elif order == BEGIN:
                self._begin()
            elif order == CLOSE:
                self.learners.pop().close()
            elif order == UPDATE:
                self.metrics = self.learners[-1].update()
            elif order == REPORT:
                self.line.agreed(self.metrics, self.learners[-1])
            order, _ = self.line.order(0, self.stop)
        end = json.loads(self.line.broadcast(b""))
        self.line.tell(f"bye/{self.line.ended}/{self.line.share.rank}", "")
        self.line.ended += 1
        return Ending(int(end["code"]), str(end["run"]))

    def _begin(self) -> None:
        """The first process's learner, or a word of why there cannot be one here."""
        said = json.loads(self.line.broadcast(b""))
        tensors = self.line.broadcast(b"")
        key = f"ready/{self.line.begun}/{self.line.share.rank}"
        try:
            with warnings.catch_warnings():  # the first process says them
                warnings.simplefilter("ignore")
                config = parse_config(said["config"])
                learner = build_learner(config, make_envs=self.make_envs, share=self.line.share)
            restore(learner, bytes_state(tensors, said["state"]), "the state of the first process")
        except UnderstudyError as error:
            self.line.tell(key, str(error))
            raise
        self.learners.append(learner)
        self.line.begun += 1
        self.line.tell(key, "")

    def _look(self) -> None:
        """Whoever was told to stop waits for the first process to say so, but not for ever."""
        if not self.stop:
            return
        self.told = self.told or time.monotonic()
        if time.monotonic() - self.told > GRACE_SECONDS:
            raise LostProcessError(
                "torchrun",
                "told to stop, and the first process of this run says nothing",
                do="What was saved is whole: the same torchrun with `resume RUN` goes on.",
            )

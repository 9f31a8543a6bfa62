"""Pendulums that misbehave in real runs, as long as a file beside the run's config or directory says so."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from numpy.typing import NDArray

FATAL_STEP = 17
"""Of one environment. Rollouts have 7 steps, so that it comes in the third; evaluations have 10 in all."""


def armed(name: str) -> Path:
    """For `train x/run.yaml` and `resume x/run` the file `x/run.armed`: while it is there, things go wrong."""
    return Path(name).with_suffix(".armed")


class Faulty(gymnasium.Wrapper[Any, Any, Any, Any]):
    """It can say where it stands, and so be put back: what is remembered here decides nothing when all is well."""

    def __init__(self, fault: str) -> None:
        super().__init__(PendulumEnv())
        self.fault, self.steps = fault, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if len(sys.argv) > 2 and armed(sys.argv[2]).exists() and not self.spared():
            self.misbehave()
        return self.env.step(action)

    def spared(self) -> bool:
        """The file may say that only processes misbehave that play for another one: those ignore what stops it."""
        return armed(sys.argv[2]).read_text() == "others" and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN

    def misbehave(self) -> None:
        if self.fault == "slow" and self.steps > 1:  # one is tried before a run begins
            armed(sys.argv[2]).write_text("playing")
            time.sleep(0.3)
        if self.steps < FATAL_STEP:
            return
        if self.fault == "exit":
            sys.exit(7)
        if self.fault == "interrupt":
            raise KeyboardInterrupt
        if self.fault == "leave":
            os._exit(7)
        if self.fault == "crash":
            ctypes.string_at(0)
        if self.fault == "alarm":
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            time.sleep(5)

    def tell(self) -> dict[str, NDArray[Any]]:
        return {}

    def recall(self, told: Mapping[str, NDArray[Any]]) -> None:
        pass


def make_faulty(fault: str, **options: Any) -> Faulty:
    return Faulty(fault)

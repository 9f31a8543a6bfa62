"""An environment that does not answer ends in an error that names it, and nothing else is disturbed."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from understudy.core.errors import ConfigError, RunError
from understudy.envs.vector.contract import Resumable
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.envs.vector.step_timeout import StepTimeout, TimedVectorEnv
from vector_cases import PENDULUM, action_table, play

SECONDS = 0.5
LONG = 60.0
"""Much longer than any test may last."""


class Sleeper(gymnasium.Env[Any, Any]):
    """Sleeps in the step or the reset of a given number, counted from 1; 0 is never."""

    def __init__(self, step: int = 0, reset: int = 0) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.steps, self.resets, self.last = step, reset, 0
        self.begun = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.begun += 1
        if self.begun == self.resets:
            time.sleep(LONG)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.last += 1
        if self.last == self.steps:
            time.sleep(LONG)
        return np.zeros(1, np.float32), 0.0, self.last % 3 == 0, False, {}


def sleepers(sleepy: int, **when: int) -> list[Callable[[], Sleeper]]:
    return [lambda number=number: Sleeper(**when) if number == sleepy else Sleeper() for number in range(3)]  # type: ignore[misc]


def local(sleepy: int, **when: int) -> TimedVectorEnv:
    made = iter(sleepers(sleepy, **when))
    return TimedVectorEnv(LocalVectorEnv("Sleeper", 3, make=lambda name: next(made)()), "Sleeper", SECONDS)


def processes(sleepy: int, **when: int) -> TimedVectorEnv:
    vector = AsyncVectorEnv(sleepers(sleepy, **when), autoreset_mode=AutoresetMode.SAME_STEP)
    return TimedVectorEnv(GymnasiumVectorEnv(vector, "Sleeper"), "Sleeper", SECONDS)


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Whatever a test does, the handler it found is there afterwards."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # other tests leave learners, and so handlers, to the collector
    before = signal.getsignal(signal.SIGALRM)
    yield
    found = signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, before)
    assert found == before


@pytest.mark.filterwarnings("ignore:.*Calling `close` while waiting.*")
@pytest.mark.parametrize("make", [local, processes])
@pytest.mark.parametrize("sleepy", [0, 2])
def test_a_step_without_an_answer_is_an_error(make: Callable[..., TimedVectorEnv], sleepy: int) -> None:
    world = make(sleepy, step=7)
    world.reset(0)
    for _ in range(6):
        world.step(torch.zeros(3, dtype=torch.int64))
    began = time.monotonic()
    told = rf"^environment 'Sleeper': has not answered for 0.5 seconds \(environment {sleepy}\)\."
    with pytest.raises(RunError, match=told):
        world.step(torch.zeros(3, dtype=torch.int64))
    assert SECONDS <= time.monotonic() - began < LONG / 4
    world.close()
    assert time.monotonic() - began < LONG / 2, "closing waited for what does not answer"


@pytest.mark.filterwarnings("ignore:.*Calling `close` while waiting.*")
@pytest.mark.parametrize("make", [local, processes])
def test_a_reset_without_an_answer_is_an_error(make: Callable[..., TimedVectorEnv]) -> None:
    first = make(1, reset=1)
    with pytest.raises(RunError, match=r"0.5 seconds \(environment 1\)"):
        first.reset(0)
    first.close()
    between = make(1, reset=2)
    between.reset(0)
    between.step(torch.zeros(3, dtype=torch.int64))
    between.step(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(RunError, match=r"0.5 seconds \(environment 1\)"):
        between.step(torch.zeros(3, dtype=torch.int64))
    between.close()


def test_a_world_that_answers_is_the_same_world() -> None:
    plain = LocalVectorEnv(PENDULUM, 2)
    patient = TimedVectorEnv(LocalVectorEnv(PENDULUM, 2), PENDULUM, LONG)
    table = action_table(plain.spec.action, 2, 20)
    assert patient.spec == plain.spec
    assert isinstance(patient, Resumable)
    pairs = zip(play(plain, table, 3)[0], play(patient, table, 3)[0], strict=True)
    assert all(one.same(other) for mine, theirs in pairs for one, other in zip(mine, theirs, strict=True))
    assert patient.save()["left"].tolist() == plain.save()["left"].tolist()
    patient.load(plain.save())
    patient.close()


def test_slow_calls_one_after_another_are_not_added_up() -> None:
    step_timeout = StepTimeout(0.3, "here")
    for _ in range(4):
        step_timeout.call(time.sleep, 0.15)
    step_timeout.close()


def test_others_keep_their_alarms() -> None:
    """A timer that somebody else set, before or during the calls, still reaches the handler it was meant for."""
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    step_timeout = StepTimeout(LONG, "here")
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    step_timeout.call(time.sleep, 0.2)
    assert heard == [signal.SIGALRM]
    step_timeout.close()
    signal.raise_signal(signal.SIGALRM)
    assert len(heard) == 2
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("first", ["outer", "inner"])
def test_two_of_them_each_end_their_own(first: str) -> None:
    """Whichever put its handler in place first."""
    both = {"outer": StepTimeout(0.2, "outer"), "inner": StepTimeout(LONG, "inner")}
    order = [both.pop(first), *both.values()]
    for step_timeout in order:
        step_timeout.call(time.sleep, 0)
    outer, inner = sorted(order, key=lambda step_timeout: step_timeout.seconds)
    with pytest.raises(RunError, match="outer"):
        outer.call(inner.call, time.sleep, LONG)
    for step_timeout in reversed(order):
        step_timeout.close()


def test_one_that_was_forgotten_is_in_nobodys_way() -> None:
    """Never closed, and gone: what was there before still hears, and another one still ends its calls."""
    first, forgotten = StepTimeout(0.2, "first"), StepTimeout(LONG, "forgotten")
    first.call(time.sleep, 0)
    forgotten.call(time.sleep, 0)
    before, forgotten = weakref.ref(forgotten), first
    gc.collect()
    assert before() is None
    with pytest.raises(RunError, match="first"):
        first.call(time.sleep, LONG)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_a_swallowed_error_comes_again() -> None:
    def stubborn() -> None:
        for attempt in itertools.count():
            try:
                time.sleep(LONG)
            except RunError:
                if attempt == 2:
                    raise

    step_timeout = StepTimeout(0.1, "here")
    with pytest.raises(RunError):
        step_timeout.call(stubborn)
    step_timeout.close()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """What runs in the background of a shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_leaves_nothing_behind() -> None:
    step_timeout = StepTimeout(0.3, "here")

    def stopped() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(LONG)

    with pytest.raises(KeyboardInterrupt):
        step_timeout.call(stopped)
    time.sleep(0.6)
    assert step_timeout.call(lambda: 5) == 5
    step_timeout.close()


def test_other_threads_wait_as_long_as_it_takes() -> None:
    step_timeout, answers = StepTimeout(0.1, "here"), []

    def work() -> None:
        step_timeout.call(time.sleep, 0.4)
        answers.append(7)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert answers == [7]


def test_a_process_that_was_stopped_does_not_blame_the_environment() -> None:
    """Stopped for much longer than the patience in the middle of a call that then goes on."""
    script = """
import time
from understudy.envs.vector.step_timeout import StepTimeout
def work():
    print("begun", flush=True)
    time.sleep(0.3)
    time.sleep(0.1)
StepTimeout(1.0, "here").call(work)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.0)
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=LONG)
    assert (process.returncode, errors) == (0, "")


NATIVE = """
import ctypes, os, threading
from understudy.envs.vector.step_timeout import StepTimeout
library, mutex = ctypes.CDLL(None), (ctypes.c_uint8 * 64)()
library.pthread_mutex_lock(mutex)
threading.Timer(2.0, os._exit, [9]).start()
StepTimeout(0.3, "environment 'C'", lambda: " (environment 4)").call(library.pthread_mutex_lock, mutex)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a mutex of zeros is one that is free on Linux")
def test_native_code_that_does_not_return_is_told_once() -> None:
    """A mutex that is locked already: no signal ends that wait."""
    done = subprocess.run([sys.executable, "-c", NATIVE], capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 9
    assert done.stderr.count("environment 'C': has not answered for 0.3 seconds (environment 4).") == 1
    assert done.stderr.count("cannot be interrupted") == 1


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_no_time_to_wait_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="patience"):
        StepTimeout(seconds, "here")


def test_it_costs_little() -> None:
    step_timeout, answer = StepTimeout(LONG, "here"), (lambda: None)
    costs = []
    for _ in range(7):
        began = time.perf_counter()
        for _ in range(2000):
            step_timeout.call(answer)
        costs.append((time.perf_counter() - began) / 2000)
    step_timeout.close()
    assert min(costs) < 3e-6

"""Environments that do not answer: after some seconds the run is told which one, and does not wait for ever.

A thread of its own looks now and then whether the same call still lasts, so a call that is answered costs almost
nothing. If one has been seen too often, the thread sends SIGALRM to the main thread, whose handler raises there: that
ends Python code and system calls that wait. It cannot end native code that never returns; then, if that code lets other
threads run, the same thread says so on stderr, once. Looks are counted and no clock is read, so that a process that was
stopped for a while does not take the pause for a silence.

There is one SIGALRM for the whole process. An environment that puts a handler of its own in place of ours hears its
alarms, and is still watched from the next call on; an alarm that nobody waits for would end the process without a word,
and is an error that names the environment instead.
"""

import math
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, ParamSpec, Protocol, TypeVar, final, runtime_checkable

from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import CheckpointError, ConfigError, RunError, UnderstudyError
from understudy.core.rng import simulator_seed
from understudy.core.spec import Spec
from understudy.envs.failures import raise_failure
from understudy.envs.vector.contract import Restartable, Resumable, SeedsEpisodes, Step, VectorEnv, resumes_exactly

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
STEP_TIMEOUT = 60.0
"""Seconds to wait, unless somebody says otherwise."""
LOOKS, GRACE = 10, 3
"""How often the thread looks in the time that a call may last, and how often beyond that before it tells."""
CLOSING = 15.0
"""Seconds more that a world may take to be closed: it ends its processes by itself if they do not."""
NONE = 0
"""The number of no call."""


@runtime_checkable
class Waiting(Protocol):
    """A world that knows which of its environments has not answered."""

    def waiting(self) -> list[int]: ...


@final
class StepTimeout:
    """`call` lets a function last `seconds` at most; `who` then says whose answer is missing.

    Only in the main thread: elsewhere it waits as long as it takes. The handler of SIGALRM is put in place by the first
    call, and again if somebody displaced it, and given back by `close`; signals that others send meanwhile reach
    theirs.
    """

    def __init__(self, seconds: float, where: str, who: Callable[[], str] = str) -> None:
        if not 0 < seconds < math.inf:
            raise ConfigError("patience", "not a time to wait", got=seconds, expected="some seconds")
        self.seconds, self._where, self._who = seconds, where, who
        self._calls = self._looks = 0
        self._lasting = self._seen = self._sought = self._told = NONE
        """The call that lasts, the one last seen, the one that shall end, and the one that was told of."""
        self._main = threading.main_thread().ident
        self._watcher: threading.Thread | None = None
        self._displaced = False
        """Somebody's handler has taken the place of ours."""

    def call(self, function: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs) -> Answer:
        if threading.get_ident() != self._main:
            return function(*given, **named)
        if self._watcher is None:
            self._watch()
        elif self._displaced:
            self._listen()
        self._calls = self._lasting = self._calls + 1
        try:
            return function(*given, **named)
        finally:
            self._lasting = NONE

    def _watch(self) -> None:
        self._listen()
        pause = self.seconds / LOOKS
        self._watcher = threading.Thread(target=_look_again, args=(weakref.ref(self), pause), daemon=True)
        self._watcher.start()

    def _listen(self) -> None:
        self._displaced = False
        if sys.platform != "win32":
            signal.signal(signal.SIGALRM, Handler(weakref.ref(self), signal.getsignal(signal.SIGALRM)))

    def _is_heard(self) -> bool:
        """Whether SIGALRM reaches a handler of ours."""
        return sys.platform != "win32" and any(
            handler.mine() is self for handler in _chain(signal.getsignal(signal.SIGALRM))
        )

    def look(self) -> bool:
        """The thread's part: have the main thread give up; if it does not, tell. False if nobody needs it any more."""
        if self._watcher is not threading.current_thread():
            return False
        lasting = self._lasting
        self._looks = self._looks + 1 if lasting == self._seen else 0
        self._seen = lasting
        self._displaced = not self._is_heard()
        if lasting == NONE or self._looks < LOOKS:
            return True
        if self._sought != lasting:
            self._sought = lasting
            self._signal()
        elif self._looks >= LOOKS + GRACE and self._told != lasting:
            self._told = lasting
            sys.stderr.write(f"{self.error()} It cannot be interrupted: stop the run, and start it again.\n")
        return True

    def _signal(self) -> None:
        """Unless somebody's handler has taken the place of ours, who may not expect it."""
        if sys.platform != "win32" and self._main and self._is_heard():
            signal.pthread_kill(self._main, signal.SIGALRM)

    def interrupt(self) -> bool:
        """The handler's part: raise if the call still lasts. False if the signal was somebody else's."""
        if self._sought == NONE:
            return False
        sought, self._sought = self._sought, NONE
        if self._lasting == sought:
            raise self.error()
        return True

    def error(self) -> RunError:
        told = f"has not answered for {self.seconds:g} seconds{self._who()}"
        return RunError(self._where, told, do="If it is only slow, raise source.step_timeout.")

    def alarm_error(self) -> RunError:
        return RunError(
            self._where,
            "an alarm rang that nobody waits for (SIGALRM)",
            do="Environments that use signal.alarm or setitimer must handle SIGALRM and switch their alarms off again.",
        )

    def close(self) -> None:
        """Give the handler back, unless somebody else has replaced it."""
        if threading.get_ident() != self._main or self._watcher is None:
            return
        if sys.platform != "win32":
            found: Any = signal.getsignal(signal.SIGALRM)
            if isinstance(found, Handler) and found.mine() is self:
                signal.signal(signal.SIGALRM, found.former)
        self._watcher = None
        self._sought = NONE


@final
class Handler:
    """Of SIGALRM: ours if we sent the signal, otherwise the one that was there before, which may be ours, too."""

    def __init__(self, mine: "weakref.ref[StepTimeout]", former: Any) -> None:
        self.mine, self.former = mine, former

    def __call__(self, number: int, frame: FrameType | None) -> None:
        step_timeout = self.mine()
        if step_timeout is not None and step_timeout.interrupt():
            return
        if callable(self.former):
            self.former(number, frame)
        elif self.former == signal.SIG_DFL and step_timeout is not None:
            raise step_timeout.alarm_error()
        elif self.former == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def _chain(handler: Any) -> Iterator[Handler]:
    """The handlers of ours that a signal reaches."""
    while isinstance(handler, Handler):
        yield handler
        handler = handler.former


def _look_again(mine: "weakref.ref[StepTimeout]", pause: float) -> None:
    """Until nobody needs it any more."""
    while (step_timeout := mine()) is not None and step_timeout.look():
        del step_timeout
        time.sleep(pause)


@final
class TimedVectorEnv:
    """A vector world whose environments must answer in `seconds`; the rest is the world's own.

    `simulator`: it is somebody else's, and is given seeds that any simulator takes.
    """

    def __init__(self, world: VectorEnv, name: str, seconds: float, *, simulator: bool = False) -> None:
        self._world, self._where, self._simulator = world, f"environment '{name}'", simulator
        self._patience = StepTimeout(seconds, self._where, self._silent)

    def _silent(self) -> str:
        """Which environments, where the world knows."""
        numbers = self._world.waiting() if isinstance(self._world, Waiting) else []
        if not numbers:
            return ""
        return f" (environment{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))})"

    @property
    def count(self) -> int:
        return self._world.count

    @property
    def spec(self) -> Spec:
        return self._world.spec

    @property
    def restartable(self) -> bool:
        """Whether it can be reset more than once."""
        return not isinstance(self._world, Restartable) or self._world.restartable

    def reset(self, seed: int) -> Obs:
        return self._call("could not be reset", self._world.reset, simulator_seed(seed) if self._simulator else seed)

    def step(self, action: Tensor) -> Step:
        return self._call("failed in a step", self._world.step, action)

    @property
    def seeds_episodes(self) -> bool:
        """Whether every episode can begin from a seed of its own."""
        return isinstance(self._world, SeedsEpisodes)

    def seed_episodes(self, seeds: Sequence[int]) -> None:
        assert isinstance(self._world, SeedsEpisodes)
        self._world.seed_episodes(seeds)

    @property
    def exact(self) -> bool:
        """Whether what it saves is all of it."""
        return resumes_exactly(self._world)

    def save(self) -> dict[str, Tensor]:
        if not isinstance(self._world, Resumable):
            return {}
        return self._call("failed when it told where it stands", self._world.save)

    def load(self, saved: Mapping[str, Tensor]) -> Obs:
        if not isinstance(self._world, Resumable):
            raise CheckpointError(self._where, "cannot be put where it stood")
        return self._call("could not be put where it stood", self._world.load, saved)

    def _call(self, told: str, what: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs) -> Answer:
        try:
            return self._patience.call(what, *given, **named)
        except BaseException as error:
            raise_failure(self._where, told, error)

    def close(self) -> None:
        """What fails here has done its work: it is said, and nobody is stopped by it."""
        self._patience.close()
        self._patience = StepTimeout(self._patience.seconds + CLOSING, self._where)
        try:
            self._call("could not be closed", self._world.close)
        except UnderstudyError as error:
            warnings.warn(str(error), stacklevel=2)
        finally:
            self._patience.close()

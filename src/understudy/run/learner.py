"""What moves during a run: an algorithm and its source, joined in three lines. Its inventory is a checkpoint's."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, final

from understudy.core.motion import Motions
from understudy.core.protocols import MAIN, Alarming, Algorithm, Measuring, Metrics, Source, Update
from understudy.core.ranks import ALL, Share, shared
from understudy.core.state import Static
from understudy.data.experience import LoggedExperience
from understudy.envs.vector.contract import VectorEnv
from understudy.nn.deployed import Deployed
from understudy.run.strangers import Strangers, working


class Probe(Protocol):
    """Looks at an algorithm from outside, and moves nothing."""

    def metrics(self, algorithm: Algorithm[Any]) -> Metrics:
        """For a line of a log."""

    def eval_metrics(self, algorithm: Algorithm[Any]) -> dict[str, float]:
        """For a line of an evaluation."""

    def warning(self, values: Mapping[str, float]) -> str:
        """What is wrong with these numbers of a log, and what to do; empty where nothing is."""


def _nothing_between() -> None:
    """Nobody wants to be asked."""


@final
class Stopwatch:
    """How long data were gathered and learned from since it was last asked."""

    def __init__(self) -> None:
        self.gathered = self.learned = 0.0
        self.updates = 0

    def lap(self) -> dict[str, float]:
        """Seconds of an update; from here on it counts anew."""
        count = max(self.updates, 1)
        told = {"collection_seconds": self.gathered / count, "learning_seconds": self.learned / count}
        self.gathered = self.learned = 0.0
        self.updates = 0
        return told


@final
@dataclass
class Learner:
    algorithm: Algorithm[Any]
    source: Source[Any]
    learn: Static[Callable[[Any], Update]]
    """The algorithm's update, compiled if the run asks for it."""
    probes: Static[tuple[Probe, ...]] = ()
    data: Static[Mapping[str, LoggedExperience]] = field(default_factory=dict)
    """The run's datasets by role."""
    shared: Static[tuple[VectorEnv, ...]] = ()
    """The environments of the source, where evaluations must be played in them, too."""
    strangers: tuple[Strangers, ...] = ()
    """Other packages that take part; none where everything is ours."""
    motions: Static[tuple[Motions, ...]] = ()
    """Reference motions: one set of clips, or none."""
    share: Static[Share] = ALL
    """Which part of a batch is this process's."""
    stopwatch: Static[Stopwatch] = field(default_factory=Stopwatch)

    @property
    def policy(self) -> Deployed:
        """The policy as a deployable network."""
        policy = self.algorithm.policy
        assert isinstance(policy, Deployed)
        return policy

    @property
    def exact(self) -> bool:
        """The same updates from the same state give the same bits."""
        return self.source.exact

    def update(self, between: Callable[[], None] = _nothing_between) -> Metrics:
        """The whole of training; `between` is called while the source has nothing to learn from yet."""
        started = time.perf_counter()
        while (data := self._next()) is None:
            between()
        gathered = time.perf_counter()
        with working(self.strangers):
            with shared(self.share):
                update = self.learn(data)
            for stranger in self.strangers:
                stranger.check_update(update)
            self.source.feedback(update.feedback)
        self.stopwatch.gathered += gathered - started
        self.stopwatch.learned += time.perf_counter() - gathered
        self.stopwatch.updates += 1
        return update.metrics

    def _next(self) -> Any:
        with working(self.strangers):
            return self.source.next(self.algorithm.policy)

    def env_steps(self) -> int:
        """Steps that environments have made for it; 0 where none do."""
        return self.source.counters().get("env_steps", 0)

    def metrics(self) -> dict[str, Any]:
        """What else is worth a line in a log, measured when it is written."""
        seen = [probe.metrics(self.algorithm) for probe in self.probes]
        own = self.algorithm.measure() if isinstance(self.algorithm, Measuring) else {}
        told = (self.source.counters(), *seen, own, self.source.metrics())
        return {name: value for part in told for name, value in part.items()}

    def eval_metrics(self) -> dict[str, float]:
        """Further numbers of an evaluation."""
        seen = [probe.eval_metrics(self.algorithm) for probe in self.probes]
        return {name: value for told in (self.source.counters(), *seen) for name, value in told.items()}

    def warning(self, values: Mapping[str, float]) -> str:
        """What is wrong with these numbers of a log, and what to do; empty where nothing is."""
        told = [probe.warning(values) for probe in self.probes]
        if isinstance(self.algorithm, Alarming):
            told.append(self.algorithm.warning(values))
        return " ".join(filter(None, told))

    @property
    def judged(self) -> bool:
        """Some episodes of its data are held out, and say what an environment would."""
        return any(data.held_out for data in self.data.values())

    def shared_env(self) -> VectorEnv | None:
        """The environments that an evaluation is about to play in, if it must be the source's own."""
        for envs in self.shared:
            self.source.envs_moved()
            return envs
        return None

    def transforms(self) -> dict[str, Any]:
        """What was done to data on the way, so that users of the policy can do the same."""
        return self.data[MAIN].transforms_told() if MAIN in self.data else {}

    def close(self) -> None:
        """Let go of simulators."""
        self.source.close()

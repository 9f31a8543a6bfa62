"""What moves during a run, seen by the one loop: it learns, says what it knows, and hands over its policy."""

from typing import Any, Protocol

from understudy.core.protocols import Algorithm, Metrics, OnPolicy
from understudy.envs.vector.contract import VectorEnv
from understudy.nn.deployed import Deployed


class Learner(Protocol):
    """A dataclass whose inventory is what a checkpoint holds: an algorithm and its source."""

    @property
    def algorithm(self) -> Algorithm | OnPolicy: ...

    @property
    def policy(self) -> Deployed:
        """The policy as a deployable network."""

    @property
    def exact(self) -> bool:
        """The same updates from the same state give the same bits."""

    def update(self) -> Metrics:
        """The whole of training: data arrive, the algorithm learns."""

    def metrics(self) -> Metrics:
        """What else is worth a line in a log, measured when it is written."""

    def warning(self, values: dict[str, float]) -> str:
        """What is wrong with these numbers of a log, and what to do; empty where nothing is."""

    def shared_env(self) -> VectorEnv | None:
        """The world that evaluations must share with rollouts, if they must; it is put back before the next rollout."""

    def eval_metrics(self) -> dict[str, float]:
        """Further numbers of an evaluation."""

    def origin(self) -> dict[str, Any]:
        """What meta.json says of where experience comes from."""

    def transforms(self) -> dict[str, Any]:
        """What was done to data on the way, so that users of the policy can do the same."""

    def close(self) -> None:
        """Let go of simulators."""

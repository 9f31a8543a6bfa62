"""PPO with an estimator in the windy world: the wind and the mass are known to the simulator only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from understudy.algorithms import ppo
from understudy.core.protocols import BuildContext, Metrics, Policy
from understudy.core.spec import Spec
from understudy.envs.vector.local import LocalVectorEnv
from understudy.nn.actor import Actor
from understudy.nn.estimator import Estimator
from understudy.objectives.estimator import EstimatorObjective
from understudy.sources.rollout import RolloutSource

WORLD, COUNT, STEPS = "UnderstudyWindyPoint-v0", 4, 12
SEGMENTS = {
    "state": {"position": (0, 2), "velocity": (2, 4)},
    "privileged": {"velocity": (2, 4), "wind": (4, 6), "mass": (6, 7), "both": (4, 7)},
}
GRU = {"kind": "gru", "units": 5}
LSTM = {"kind": "lstm", "units": 4, "layers": 2}
SEES = ["privileged.wind", "state.position", "privileged.mass"]
SHAPES: dict[str, dict[str, Any]] = {
    "only watched": {"sees": ["state"], "estimate": {"targets": ["privileged.both"]}},
    "replacing": {"sees": SEES, "estimate": {"targets": ["privileged.mass", "privileged.wind"], "sees": ["state"]}},
    "part of an input": {"sees": ["state", "privileged.both"], "estimate": {"targets": ["privileged.wind"]}},
    "encoded": {
        "sees": SEES,
        "estimate": {
            "targets": ["privileged.wind"],
            "sees": ["state"],
            "encoders": {"state": {"kind": "mlp", "hidden": [], "size": 4}},
        },
    },
    "own memory": {"sees": SEES, "estimate": {"targets": ["privileged.mass", "privileged.wind"], "memory": GRU}},
    "both remember": {
        "sees": SEES,
        "memory": GRU,
        "estimate": {"targets": ["privileged.wind", "privileged.mass"], "sees": ["state"], "memory": LSTM},
    },
    "only the actor remembers": {"sees": SEES, "memory": LSTM, "estimate": {"targets": ["privileged.wind"]}},
    "on the actor's memory": {
        "sees": ["state"],
        "memory": GRU,
        "estimate": {"targets": ["privileged.wind"], "share_memory": True},
    },
    "next step": {"sees": ["state"], "estimate": {"targets": ["state.velocity", "privileged.mass"], "step": "next"}},
}
REPLACING = ["replacing", "part of an input", "encoded", "own memory", "both remember", "only the actor remembers"]


@dataclass
class Learning:
    """An algorithm and its rollouts, of which a state can be taken."""

    algorithm: ppo.PPO
    source: RolloutSource

    @property
    def policy(self) -> Actor:
        return self.algorithm.policy

    @property
    def estimator(self) -> Estimator:
        assert self.policy.estimator is not None
        return self.policy.estimator

    @property
    def objective(self) -> EstimatorObjective:
        found = self.algorithm.objectives.members["estimator"]
        assert isinstance(found, EstimatorObjective)
        return found

    def update(self, times: int = 1) -> Metrics:
        metrics: Metrics = {}
        for _ in range(times):
            metrics = self.algorithm.update(self.source.next(self.policy)).metrics
        return metrics


def learning(
    shape: str,
    objective: dict[str, Any] | None = None,
    *,
    seed: int = 0,
    actor: dict[str, Any] | None = None,
    beside: dict[str, Any] | None = None,
    policies: Callable[[Spec], Mapping[str, Policy]] = lambda spec: {},
    **changes: Any,
) -> Learning:
    """Without an objective: the same actor, without an estimate. `beside` are other objectives."""
    world = LocalVectorEnv(WORLD, COUNT, stagger_episodes=True)
    spec = world.spec.with_segments(SEGMENTS)
    told = {"hidden": [8], **SHAPES[shape], **(actor or {})}
    estimate = {"hidden": [8], **told.pop("estimate")}
    settings = {"critic": {"hidden": [8]}, "epochs": 2, "minibatches": 2, "schedule": "constant", **changes}
    if objective is not None:
        told |= {"estimate": estimate}
        settings |= {"objectives": {"estimator": objective, **(beside or {})}}
    config = ppo.Config.parse({"name": "ppo", "actor": told, **settings}, "algo")
    context = BuildContext(spec, 10, 0, torch.device("cpu"), COUNT, policies=policies(spec), rollout_length=STEPS)
    algorithm = ppo.build(config, context)
    source = RolloutSource.build(world, algorithm.policy, STEPS, seed, recorders=algorithm.recorders())
    return Learning(algorithm, source)

"""A run that learns from rollouts: its policy plays in environments that step together, and learns from what it did."""

from dataclasses import dataclass, field
from typing import Any, cast, final

import torch
from torch import Tensor

from understudy.core.errors import ConfigError
from understudy.core.protocols import Blueprint, Metrics, OnPolicy
from understudy.core.state import Static, capture
from understudy.envs.vector import VectorWorld
from understudy.nn.exploring_policy import ExploringPolicy
from understudy.run.allocator import keep_freed_memory
from understudy.run.checkpoint import Checkpoint
from understudy.run.config import RolloutSettings, RunConfig
from understudy.run.outline import build_algorithm
from understudy.run.worlds import WorldMaker, check_actions, make_world
from understudy.sources.rollout import RolloutSource


@final
@dataclass
class OnPolicyLearner:
    """What moves while rollouts are learned from; its inventory is what a checkpoint holds."""

    algorithm: OnPolicy
    source: RolloutSource
    config: Static[RunConfig]
    terms: Static[dict[str, Tensor]] = field(default_factory=dict)
    """What the environments told of their rewards in the last rollout, by name [T, N]."""

    @property
    def policy(self) -> ExploringPolicy:
        policy = self.algorithm.policy
        assert isinstance(policy, ExploringPolicy)
        return policy

    @property
    def exact(self) -> bool:
        """Simulators that cannot say where they stand begin new episodes after a resume."""
        return bool(self.source.standing)

    def update(self) -> Metrics:
        """The whole of training, in two lines."""
        data = self.source.next(self.algorithm.policy)
        self.terms = dict(data.extra)
        return self.algorithm.update(data)

    def look(self) -> Metrics:
        """Episodes that ended since this was last asked, and the mean of every reward term over the last rollout."""
        returns, lengths = self.source.finished()
        told = {"env_steps": torch.tensor(self.source.env_steps), "rollout/episodes": torch.tensor(len(returns))}
        if len(returns):
            told |= {"rollout/return_mean": returns.mean(), "rollout/length_mean": lengths.double().mean()}
        means = {f"terms/{name}": values.nanmean() for name, values in self.terms.items()}
        return told | {name: mean for name, mean in means.items() if bool(mean.isfinite())}

    def concern(self, values: dict[str, float]) -> str:
        return ""

    def lend(self) -> VectorWorld | None:
        if not self.config.env.shared:
            return None
        self.source.displace()
        return self.source.world

    def assess(self) -> dict[str, float]:
        return {"env_steps": self.source.env_steps}

    def origin(self) -> dict[str, Any]:
        source = self.source
        return {"rollouts": {"env": self.config.env.id, "envs": source.world.count, "steps": source.steps}}

    def transforms(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self.source.world.close()


def build_on_policy(
    config: RunConfig,
    device: torch.device,
    given: WorldMaker | None = None,
    checkpoint: Checkpoint | None = None,
) -> OnPolicyLearner:
    """World, algorithm and source of a run. `checkpoint`: what it goes on from, if it does."""
    settings = config.source
    assert isinstance(settings, RolloutSettings)
    keep_freed_memory()
    torch.set_num_threads(config.threads)
    world = make_world(
        config.env,
        settings.envs,
        given,
        spread=settings.spread,
        workers=settings.workers,
        patience=settings.patience,
    )
    try:
        return _learner(config, settings, world, device, checkpoint)
    except BaseException:
        world.close()
        raise


def _learner(
    config: RunConfig,
    settings: RolloutSettings,
    world: VectorWorld,
    device: torch.device,
    checkpoint: Checkpoint | None,
) -> OnPolicyLearner:
    check_actions(world.spec, config)
    if config.env.shared and config.eval_episodes > world.count:
        raise ConfigError(
            "eval_episodes",
            "more than the environments that are shared",
            got=config.eval_episodes,
            expected=world.count,
        )
    spec = world.spec.with_segments(config.env.segments)
    blueprint = Blueprint(spec, {}, config.steps, config.seed, device, environments=world.count)
    algorithm = cast(OnPolicy, build_algorithm(config, blueprint, checkpoint))
    source = RolloutSource.build(world, algorithm.policy, settings.steps, config.seed, device)
    learner = OnPolicyLearner(algorithm, source, config)
    capture(learner)  # an incomplete inventory must fail now, not at the first checkpoint
    return learner

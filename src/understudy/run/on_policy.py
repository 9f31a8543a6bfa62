"""A run that learns from rollouts: its policy plays in environments that step together, and learns from what it did."""

from dataclasses import dataclass, field
from typing import Any, cast, final

import torch
from torch import Tensor

from understudy.core.errors import ConfigError
from understudy.core.protocols import Blueprint, Metrics, OnPolicy
from understudy.core.state import Static, capture
from understudy.envs.vector.contract import VectorEnv
from understudy.nn.exploring_policy import ExploringPolicy
from understudy.run.allocator import keep_freed_memory
from understudy.run.checkpoint import Checkpoint
from understudy.run.config import RolloutSettings, RunConfig
from understudy.run.environments import MakeEnvs, check_actions, make_vector_env
from understudy.run.outline import build_algorithm
from understudy.sources.rollout import Recording, RolloutSource


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
        self.terms = dict(data.reward_terms)
        return self.algorithm.update(data)

    def metrics(self) -> Metrics:
        """Episodes that ended since this was last asked, and the mean of every reward term over the last rollout."""
        returns, lengths = self.source.finished()
        told = {"env_steps": torch.tensor(self.source.env_steps), "rollout/episodes": torch.tensor(len(returns))}
        if len(returns):
            told |= {"rollout/return_mean": returns.mean(), "rollout/length_mean": lengths.double().mean()}
        means = {f"terms/{name}": values.nanmean() for name, values in self.terms.items()}
        return told | {name: mean for name, mean in means.items() if bool(mean.isfinite())}

    def warning(self, values: dict[str, float]) -> str:
        return ""

    def shared_env(self) -> VectorEnv | None:
        if not self.config.env.shared:
            return None
        self.source.displace()
        return self.source.envs

    def eval_metrics(self) -> dict[str, float]:
        return {"env_steps": self.source.env_steps}

    def origin(self) -> dict[str, Any]:
        source = self.source
        return {
            "rollouts": {
                "env": self.config.env.id,
                "num_envs": source.envs.count,
                "rollout_length": source.rollout_length,
            }
        }

    def transforms(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self.source.envs.close()


def build_on_policy(
    config: RunConfig,
    device: torch.device,
    make_envs: MakeEnvs | None = None,
    checkpoint: Checkpoint | None = None,
) -> OnPolicyLearner:
    """World, algorithm and source of a run. `checkpoint`: what it goes on from, if it does."""
    settings = config.source
    assert isinstance(settings, RolloutSettings)
    keep_freed_memory()
    torch.set_num_threads(config.threads)
    envs = make_vector_env(
        config.env,
        settings.num_envs,
        make_envs,
        stagger_episodes=settings.stagger_episodes,
        workers=settings.workers,
        step_timeout=settings.step_timeout,
    )
    try:
        return _learner(config, settings, envs, device, checkpoint)
    except BaseException:
        envs.close()
        raise


def _learner(
    config: RunConfig,
    settings: RolloutSettings,
    envs: VectorEnv,
    device: torch.device,
    checkpoint: Checkpoint | None,
) -> OnPolicyLearner:
    check_actions(envs.spec, config)
    if config.env.shared and config.eval_episodes > envs.count:
        raise ConfigError(
            "eval_episodes",
            "more than the environments that are shared",
            got=config.eval_episodes,
            expected=envs.count,
        )
    spec = envs.spec.with_segments(config.env.segments)
    blueprint = Blueprint(spec, {}, config.updates, config.seed, device, environments=envs.count)
    algorithm = cast(OnPolicy, build_algorithm(config, blueprint, checkpoint))
    recorders = algorithm.recorders() if isinstance(algorithm, Recording) else {}
    source = RolloutSource.build(envs, algorithm.policy, settings.rollout_length, config.seed, device, recorders)
    learner = OnPolicyLearner(algorithm, source, config)
    capture(learner)  # an incomplete inventory must fail now, not at the first checkpoint
    return learner

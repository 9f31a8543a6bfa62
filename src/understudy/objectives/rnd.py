"""Random network distillation (RND; Burda et al. 2018): where a network cannot predict another one yet, nobody was.

    e(s′) = ‖f̂(x) − f(x)‖²/K,  x = clip((s′ − μ)/σ, ±5)             → losses.prediction.prediction_error
    r     ← r + w·e/√Var(R),  R = e + γ·R within an episode          → losses.returns.running_returns
    L(f̂)  = mean ‖f̂(x) − f(x)‖²/K over a share of the steps that count

f is drawn once, and nothing inside it ever moves; f̂ learns what f says wherever the policy has been, so e falls there
and stays high where it has not. s′ is what truly followed a step, also where an episode ended; what began after that is
not its successor, and is paid for only once somebody steps away from it. Steps that do not count are worth 0 and teach
nothing.

Rewards are those of before f̂ learns from the rollout. μ and σ are of all successors seen until the rollout before; the
first rollout has nobody before it and is taken in first. w is a schedule of updates; 0 is PPO to the bit.

Differs from the paper in: one value function for both rewards. Its second, for intrinsic returns that no episode ends,
would be a second critic of PPO, its own advantages and their weight; rsl_rl does without, and so do we. What ends an
episode therefore ends what novelty is still to come, as it ends the rest. A rollout has one divisor √Var(R), cut to ±10
as `algo.normalize_reward` cuts. Differs from rsl_rl in: successors, not the states that were acted in; squares
(`error: norm` is rsl_rl's), and normalisers that are on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn

from understudy.core.batch import Obs, Rollout, following_rows
from understudy.core.errors import ConfigError
from understudy.core.protocols import BuildContext, Metrics, Roles
from understudy.core.rng import stream
from understudy.core.schedule import ScheduledWeight
from understudy.core.settings import Count, Settings, Widths
from understudy.core.state import Static
from understudy.losses.prediction import ErrorKind, prediction_error
from understudy.nn.activations import Activation
from understudy.nn.encoders import ConvEncoderSettings, EncoderSettings
from understudy.nn.mlp import MLP, NetworkSettings
from understudy.nn.normalization import OnPolicyNormalizerSettings
from understudy.nn.perception import Perception, RoleSettings, share_perception
from understudy.objectives import Weights
from understudy.parts.optim import Adam, OptimizerSettings
from understudy.parts.ppo.reward_normalizer import RewardNormalizer

WHERE = "algo.objectives.rnd"


class RNDNormalizerSettings(OnPolicyNormalizerSettings):
    """(s − μ)/√(σ² + ε), with μ and σ² of all successors that were seen."""

    clip: float | None = Field(5.0, gt=0)
    """What is normalised is cut to ±clip; null is no limit."""


class EmbeddingSettings(NetworkSettings):
    """The shape of a network that gives an embedding."""

    hidden: Widths = (64,)
    """Units of each hidden layer; none is a linear map."""
    activation: Activation = "relu"
    """Between layers: `relu`, `tanh`, `elu`, `gelu`, `silu`, `leaky_relu` or `selu`."""
    dropout: float = Field(0.0, ge=0, le=0)
    """None: an embedding that depends on chance would always be new."""


class PredictorSettings(EmbeddingSettings):
    """The shape of the network that learns."""

    hidden: Widths = (64, 64)
    """Units of each hidden layer; none is a linear map. One more than the target's lets it get there."""


class Config(Settings):
    """Random network distillation."""

    weight: ScheduledWeight = ScheduledWeight(kind="constant", start=0.5, end=0.5)
    """w: what the intrinsic reward, in units of its own deviation, counts beside the environment's. A number is
    constant."""
    sees: tuple[str, ...] = ()
    """Groups, or `group.segment`, in which something may be new; nothing said is every group. Noise is always new:
    leave out what nobody can predict."""
    normalize: bool = True
    """Vectors are normalised by statistics of their own, of all successors; images never are."""
    normalizer: RNDNormalizerSettings = RNDNormalizerSettings()
    """How."""
    encoders: dict[str, EncoderSettings] = Field(default_factory=dict)
    """An encoder for an input, by the input's name; the target's is random for good, the predictor's learns."""
    outputs: Count = 16
    """K: numbers in an embedding."""
    target: EmbeddingSettings = EmbeddingSettings()
    """f, which never learns."""
    predictor: PredictorSettings = PredictorSettings()
    """f̂, which does."""
    error: ErrorKind = "squared"
    """What is worth something: the mean of squared errors over the embedding (`squared`), or their `norm`."""
    normalize_reward: Literal["returns", "rewards", "none"] = "returns"
    """The error is divided by the running deviation of its discounted returns, as the paper, or of itself (`rewards`),
    and cut to ±10; or by nothing."""
    gamma: float = Field(0.99, ge=0, lt=1)
    """γ of these returns."""
    learning_rate: float = Field(1e-3, gt=0)
    """Adam's step size for the predictor."""
    optimizer: OptimizerSettings = OptimizerSettings()
    """Its kind, weight decay, gradient clipping and schedule."""
    epochs: int = Field(1, ge=1)
    """Passes over the share of a rollout that teaches, each over another share."""
    minibatches: int = Field(4, ge=1)
    """Steps in each."""
    proportion: float = Field(0.25, gt=0, le=1)
    """Share of a rollout's steps that teaches in each pass: with many environments all of them would make everything
    old at once."""


class Embedding(nn.Module):
    """Observation groups {name: [..., …]} → [..., K]."""

    def __init__(self, perception: Perception, outputs: int, settings: NetworkSettings, rng: torch.Generator) -> None:
        super().__init__()
        self.perception = perception
        self.trunk = MLP(perception.size, outputs, settings, rng)

    def forward(self, obs: Obs) -> Tensor:
        embedded: Tensor = self.trunk(self.perception.look(obs))
        return embedded


@final
@dataclass
class RND:
    config: Static[Config]
    target: Embedding
    predictor: Embedding
    """Inputs without an encoder have one normaliser for both."""
    optimizer: Adam
    rows: torch.Generator
    """Draws which steps teach."""
    reward_normalizer: tuple[RewardNormalizer, ...]
    """One, or none."""
    updates: int = 0

    @property
    def weights(self) -> Weights:
        return Weights(rewards={"intrinsic": self.config.weight.at(self.updates)})

    @torch.no_grad()
    def rewards(self, rollout: Rollout) -> dict[str, Tensor]:
        """Once for every rollout: the statistics of returns take it in."""
        following = self._successors(rollout.next_obs)
        if self.updates == 0:
            self._observe(following, rollout.valid)
        error = self.errors(following).masked_fill(~rollout.valid, 0.0)
        gamma = self.config.gamma if self.config.normalize_reward == "returns" else 0.0
        for normalizer in self.reward_normalizer:
            error = normalizer.normalize(replace(rollout, reward=error), gamma)
        return {"intrinsic": error}

    def errors(self, obs: Obs) -> Tensor:
        """e [...] of observations {name: [..., …]}, with the predictor's gradient."""
        with torch.no_grad():
            wanted = self.target(obs)
        return prediction_error(self.predictor(obs), wanted, self.config.error)

    def learn(self, rollout: Rollout) -> Metrics:
        """Some passes over a share of the steps that count; then the normaliser takes all of them in."""
        config, losses = self.config, []
        counts = rollout.valid.flatten().nonzero()[:, 0]
        share = max(1, round(config.proportion * len(counts)))
        for _epoch in range(config.epochs):
            chosen = counts[torch.randperm(len(counts), generator=self.rows)[:share].to(counts.device)]
            following = {name: following_rows(rollout.next_obs, name, chosen) for name in self._groups()}
            with torch.no_grad():
                wanted = self.target(following)
            for part in torch.arange(share, device=counts.device).tensor_split(min(config.minibatches, share)):
                obs = {name: values[part] for name, values in following.items()}
                loss = prediction_error(self.predictor(obs), wanted[part]).mean()
                self.optimizer.minimise(loss, config.learning_rate)
                losses.append(loss.detach())
        if self.updates > 0:
            self._observe(self._successors(rollout.next_obs), rollout.valid)
        metrics = {"loss": torch.stack(losses).mean(), "weight": torch.tensor(config.weight.at(self.updates))}
        self.updates += 1
        return metrics

    def _observe(self, following: Obs, valid: Tensor) -> None:
        self.predictor.perception.observe(following, valid)
        if self.target.perception is not self.predictor.perception:
            self.target.perception.observe(following, valid)

    def _groups(self) -> list[str]:
        return sorted({entry.group for entry in self.predictor.perception.inputs})

    def _successors(self, next_obs: Mapping[str, Tensor]) -> Obs:
        return {name: next_obs[name] for name in self._groups()}


def needs(config: Config) -> Roles:
    return Roles()


def build(config: Config, context: BuildContext) -> RND:
    _check_still(config)
    known: list[Perception] = []
    target = _embedding(config, config.target, context, "target", known)
    predictor = _embedding(config, config.predictor, context, "predictor", known)
    target.requires_grad_(False).train(False)  # what an encoder of one's own would do while it learns, it never does
    trained = [parameter for parameter in predictor.parameters() if parameter.requires_grad]
    steps = context.updates * config.epochs * config.minibatches
    optimizer = Adam.over(trained, config.optimizer, steps)
    divisor = (RewardNormalizer.build(context.num_envs, context.device),) if config.normalize_reward != "none" else ()
    return RND(config, target, predictor, optimizer, stream(context.seed, "rnd/rows"), divisor)


def _check_still(config: Config) -> None:
    """Nothing inside an embedding follows what is seen."""
    for name, encoder in config.encoders.items():
        if isinstance(encoder, ConvEncoderSettings) and encoder.has_batch_norm:
            raise ConfigError(
                f"{WHERE}.encoders.{name}.norm",
                "batch norm follows what is seen, and where the target moves everything is new again",
                got="batch",
                expected="group, layer or none",
            )


def _embedding(
    config: Config, shape: EmbeddingSettings, context: BuildContext, name: str, known: list[Perception]
) -> Embedding:
    rng = stream(context.seed, f"init/rnd/{name}")
    role = RoleSettings(
        sees=config.sees, normalize=config.normalize, normalizer=config.normalizer, encoders=config.encoders
    )
    perception = share_perception(known, context.spec, role, rng, WHERE)
    return Embedding(perception, config.outputs, shape, rng).to(context.device)

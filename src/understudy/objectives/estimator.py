"""A head inside the policy learns to estimate what the policy cannot measure: base velocity, friction, its next state.

    L = w·mean ‖ŝ − s‖,  mse, l1 or huber, both in units of s's deviation     → losses.estimation.estimation_error

What is estimated, from what, and what the estimate replaces among the actor's inputs is said in `algo.actor.estimate`
(nn.estimator); this trains it, and says how likely a row is shown the estimate while the policy learns. What a row was
shown stands in the rollout: PPO's ratios do not see the estimator move, and the first is 1. R² and RMSE, of all and of
each component, are those of a rollout that nothing was learned from yet.

Differs from st_rl's EstimatorPPO in: targets are found by name in whatever group has them, their sizes are their own;
the mask of rows that are shown the estimate is drawn once and stored; a policy that acts for itself is always shown it;
the weight counts. Features count by their mean, not their sum (`reduction`), and in units of their deviation
(`algo.actor.estimate.normalize_targets`); with an optimiser of its own it does not share the policy's gradient norm or
step size.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, final

import torch
from pydantic import Field
from torch import Tensor

from understudy.core.batch import Rollout
from understudy.core.errors import ConfigError, RunError
from understudy.core.protocols import LEARNER, BuildContext, Metrics, Roles
from understudy.core.rng import stream
from understudy.core.schedule import ScheduledShare, ScheduledWeight
from understudy.core.settings import Settings
from understudy.core.state import Static
from understudy.losses.estimation import ErrorKind, estimation_error, mean_squared_errors, r_squared
from understudy.nn.actor import Actor
from understudy.nn.estimator import ESTIMATED, Estimator, Probability
from understudy.objectives import Evaluation, Weights
from understudy.parts.optim import Adam
from understudy.parts.ppo.batch import RESETS, PPOBatch

ERROR, TARGET = "error", "target"


class Config(Settings):
    """How the policy's estimator learns."""

    loss: ErrorKind = "mse"
    """Of a feature: `mse`, `l1` or `huber`."""
    huber_delta: float = Field(1.0, gt=0)
    """δ: where `huber` turns from squares to lengths, in the units that are learned in."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over the features of a row: their `mean`, or their `sum`, as st_rl has it. Over rows it is the mean."""
    weight: ScheduledWeight = ScheduledWeight(start=1.0, end=1.0)
    """w: a number, or a group {start, end, over} in updates; at 0 the estimator rests, and is only watched."""
    replace_probability: ScheduledShare = ScheduledShare(start=1.0, end=1.0)
    """That a row is shown the estimate, not the true value, while the policy learns: a number, or a group {start, end,
    over} in updates. A policy that acts for itself is always shown the estimate."""
    optimizer: Literal["own", "policy"] = "own"
    """`own`: an Adam of its own, after the policy's steps. `policy`: in the policy's steps, with its step size and
    gradient norm; then a head on the actor's memory trains that memory, too."""
    learning_rate: float = Field(1e-3, gt=0)
    """Adam's step size, with an optimiser of its own."""
    epochs: int = Field(1, ge=1)
    """Passes over a rollout, with an optimiser of its own."""
    minibatches: int = Field(4, ge=1)
    """Gradient steps of a pass, with an optimiser of its own; with a memory of its own at most one per environment."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Norm that its gradient is cut to, with an optimiser of its own."""


@final
@dataclass
class EstimatorObjective:
    config: Static[Config]
    policy: Static[Actor]
    estimator: Static[Estimator]
    """A part of the policy."""
    probability: Tensor
    """Of `replace_probability`, now []; the estimator draws by it."""
    optimizers: tuple[Adam, ...]
    """One, or none where the policy's serves."""
    shuffle: torch.Generator
    updates: int = 0
    scores: Static[Metrics] = field(default_factory=dict)
    """Of the rollout that is being learned from."""

    @property
    def weight(self) -> float:
        return self.config.weight.at(self.updates)

    @property
    def weights(self) -> Weights:
        return Weights(losses={ERROR: self.weight}) if self.estimator.learns_with_policy else Weights()

    def prepare(self, rollout: Rollout) -> dict[str, Tensor]:
        """Scores of a rollout before anything is learned from it, and its targets [T, N, size] for the loss."""
        if self.estimator.replaced and ESTIMATED not in rollout.extra:
            raise RunError("objective estimator", "a rollout does not say which of its rows were shown estimates")
        target, valid = self._targets(rollout), rollout.valid
        self.scores = self._scored(self.estimator(self._looked(rollout))[valid], target[valid])
        if self.estimator.replaced:
            self.scores["replaced"] = rollout.extra[ESTIMATED][valid].float().mean()
        return {TARGET: target} if self.estimator.learns_with_policy else {}

    def loss(self, batch: PPOBatch, evaluation: Evaluation) -> dict[str, Tensor]:
        """With the policy's loss, where its optimiser serves; nothing otherwise."""
        if not self.estimator.learns_with_policy:
            return {}
        seen = evaluation.latent
        if self.estimator.perception is not None:
            carry = batch.policy_carry[self.policy.perception.carried :]
            seen = self.estimator.look(batch.policy_obs, carry, batch.extra.get(RESETS))
        return {ERROR: self._errors(seen, batch.extra[f"estimator/{TARGET}"])}

    def learn(self, rollout: Rollout) -> Metrics:
        """Some passes over the rollout with an optimiser of its own; then another update is counted."""
        weight, losses = self.weight, []
        for adam in self.optimizers if weight else ():
            for seen, target in self._minibatches(rollout):
                losses.append(self._errors(seen, target).mean())
                adam.minimise(weight * losses[-1], self.config.learning_rate, max_norm=self.config.max_grad_norm)
        self.updates += 1
        self.probability.fill_(self.config.replace_probability.at(self.updates))
        return {**self.scores, **({"loss": torch.stack(losses).mean()} if losses else {})}

    def _errors(self, seen: Tensor, target: Tensor) -> Tensor:
        """Of rows [...], in the units that are learned in, with gradient."""
        config, estimator = self.config, self.estimator
        normal = estimator.normalizer(target)
        return estimation_error(
            estimator.head(seen), normal, config.loss, delta=config.huber_delta, reduction=config.reduction
        )

    def _targets(self, rollout: Rollout) -> Tensor:
        """What is to be estimated at each step [T, N, size]."""
        return self.estimator.true(rollout.obs if self.estimator.settings.step == "this" else rollout.next_obs)

    def _looked(self, rollout: Rollout) -> Tensor:
        """What the head reads at each step [T, N, …]."""
        own, resets = self.policy.perception.carried, rollout.resets
        if self.estimator.perception is None:
            return self.policy.perception.sequence(rollout.obs, rollout.carry, resets)
        return self.estimator.look(rollout.obs, rollout.carry[own:], resets)

    def _minibatches(self, rollout: Rollout) -> Iterator[tuple[Tensor, Tensor]]:
        """What the head reads [b, …], with gradient where its perception learns, and targets [b, size]: of rows that
        count, or of whole sequences of some environments where it remembers."""
        perception, valid, target = self.estimator.perception, rollout.valid, self._targets(rollout)
        config, own = self.config, self.policy.perception.carried
        if perception is None or perception.fixed:  # nothing about what it reads moves while it learns
            with torch.no_grad():
                seen, wanted = self._looked(rollout)[valid], target[valid]
            for rows in self._shuffled(len(wanted), config):
                yield seen[rows], wanted[rows]
            return
        obs = {entry.group: rollout.obs[entry.group] for entry in perception.inputs}
        if perception.memory is None:
            kept, wanted = {name: values[valid] for name, values in obs.items()}, target[valid]
            for rows in self._shuffled(len(wanted), config):
                yield perception.look({name: values[rows] for name, values in kept.items()}), wanted[rows]
            return
        for envs in self._shuffled(valid.shape[1], config):
            counts = valid[:, envs]
            if bool(counts.any()):
                chosen = {name: values[:, envs] for name, values in obs.items()}
                carry = tuple(part[envs] for part in rollout.carry[own:])
                yield perception.sequence(chosen, carry, rollout.resets[:, envs])[counts], target[:, envs][counts]

    def _shuffled(self, count: int, config: Config) -> Iterator[Tensor]:
        """Numbers below `count` in minibatches, none left out, anew in each epoch."""
        for _epoch in range(config.epochs):
            order = torch.randperm(count, generator=self.shuffle).to(self.estimator.head.flat.device)
            yield from order.tensor_split(min(config.minibatches, count))

    def _scored(self, estimate: Tensor, target: Tensor) -> Metrics:
        """R² and RMSE over rows [B, size]: of each component, and of all. Where there is nothing to explain R² is 0,
        and does not count among all."""
        explained, squares = r_squared(estimate, target), mean_squared_errors(estimate, target)
        told = {"r2": explained.nanmean().nan_to_num(0.0), "rmse": squares.mean().sqrt()}
        for name, place in self.estimator.places.items():
            columns = zip(explained[place].nan_to_num(0.0).unbind(), squares[place].sqrt().unbind(), strict=True)
            for number, (r2, rmse) in enumerate(columns):
                told |= {f"r2.{name}.{number}": r2, f"rmse.{name}.{number}": rmse}
        return told


def needs(config: Config) -> Roles:
    return Roles()


def build(config: Config, context: BuildContext) -> EstimatorObjective:
    policy = context.policies[LEARNER]
    if not isinstance(policy, Actor) or policy.estimator is None:
        raise ConfigError(
            "algo.objectives.estimator", "the actor estimates nothing", do="Say algo.actor.estimate={targets: […]}."
        )
    estimator, own = policy.estimator, config.optimizer == "own"
    probability = torch.tensor(config.replace_probability.at(0), dtype=torch.float64)
    estimator.probability = Probability(probability)
    learns = not config.weight.constant_at(0.0)
    estimator.learns_with_policy, estimator.learns_alone = learns and not own, learns and own
    optimizers = (Adam.over(estimator.parameters()),) if own else ()
    return EstimatorObjective(
        config, policy, estimator, probability, optimizers, stream(context.seed, "estimator/shuffle")
    )

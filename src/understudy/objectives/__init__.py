"""What can be added to PPO, one file each: `algo.objectives: {name: {…}}`.

A file here, or an entry point `understudy.objectives` of another package, is found.

Such a module offers `Config` (its settings), `needs(config)` (the datasets and frozen policies it reads, by role) and
`build(config, context)`, which gives a dataclass: what moves in it (networks, optimisers, counters) is in every
checkpoint. `context.policies[LEARNER]` is the policy that learns, for whoever trains a part of it or compares it. It
offers any of these, and what it does not offer costs nothing:

    record(obs, carry) → facts, carry       at each step, by the source; kept in the rollout as extra[name/fact]
    prepare(rollout) → facts                before anything is learned from it; shown to losses as extra[name/fact]
    rewards(rollout) → {term: [T, N]}       before advantages: task·r + Σ w·term
    augment(batch) → batch                  on a minibatch, after advantages, before both losses; rows that were not
                                            played are told by extra[PLAYED]
    loss(batch, evaluation) → {term: [B]}   with the policy's loss: L(π) + Σ w·mean term
    learn(rollout) → metrics                after the policy's steps
    check(policy, ppo)                      once, before the first step: refuses a policy or settings of PPO
    warning(numbers) → sentence             at each log: what is wrong with them, and what to do; mostly nothing

`weights` holds w of every term, which its settings declare: a term without weight or a weight without term is an error.
They may change from update to update: then it is a property, of updates that the objective counts itself (in `learn`).
While only the critic learns (`algo.critic_warmup`) nobody is asked for losses; rewards and lessons go on.
Objectives come in the order of their names, whatever the order they are written in. None imports another.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol, cast, final, runtime_checkable

import torch
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor

from understudy.core.batch import Rollout
from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.plugins import Plugins
from understudy.core.protocols import LEARNER, Alarming, BuildContext, Metrics, Recorder, Roles
from understudy.core.settings import Settings
from understudy.nn.actor import Actor
from understudy.nn.distributions import Distribution
from understudy.parts.ppo.batch import PPOBatch, Tally
from understudy.parts.ppo.settings import PPOSettings


@dataclass(frozen=True)
class Weights:
    """Of every term that an objective adds, by name."""

    rewards: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[str, float] = field(default_factory=dict)
    task: float = 1.0
    """What the environment's own reward counts beside them."""


@dataclass(frozen=True)
class Evaluation:
    """What the policy thinks now of a minibatch, with gradient; [B], or [T, n] where there is memory."""

    log_prob: Tensor
    """Of the actions."""
    entropy: Tensor
    features: Tensor
    """All that its distribution depends on [..., F]."""
    distribution: Distribution
    """What to do with features: `mode`, `log_prob`, `kl`."""
    latent: Tensor
    """What its perception (normalisers, encoders, memory) gave the trunk [..., size]."""
    policy: Actor
    """Who thinks so: `encoder_latents(batch.policy_obs)` has what each encoder said."""


@runtime_checkable
class Objective(Protocol):
    """Whatever it offers, it says what its terms weigh."""

    @property
    def weights(self) -> Weights: ...


@runtime_checkable
class PrepareHook(Protocol):
    def prepare(self, rollout: Rollout) -> Mapping[str, Tensor]: ...


@runtime_checkable
class RewardHook(Protocol):
    def rewards(self, rollout: Rollout) -> Mapping[str, Tensor]: ...


@runtime_checkable
class AugmentHook(Protocol):
    def augment(self, batch: PPOBatch) -> PPOBatch: ...


@runtime_checkable
class LossHook(Protocol):
    def loss(self, batch: PPOBatch, evaluation: Evaluation) -> Mapping[str, Tensor]: ...


@runtime_checkable
class LearnHook(Protocol):
    def learn(self, rollout: Rollout) -> Metrics: ...


@runtime_checkable
class PolicyCheck(Protocol):
    def check(self, policy: Actor, ppo: PPOSettings) -> None: ...


HOOKS: dict[str, type] = {
    "record": Recorder,
    "prepare": PrepareHook,
    "rewards": RewardHook,
    "augment": AugmentHook,
    "loss": LossHook,
    "learn": LearnHook,
}


class ObjectiveModule(Protocol):
    __doc__: str | None
    Config: type[Settings]

    def needs(self, config: Settings) -> Roles: ...

    def build(self, config: Settings, context: BuildContext) -> Objective: ...


PLUGINS = Plugins(
    "understudy.objectives",
    __name__,
    tuple(__path__),
    "algo.objectives",
    "objective",
    calls=(("needs", ("config",)), ("build", ("config", "context"))),
)


def find_objective(name: str) -> ObjectiveModule:
    """The module of an objective, or an error with the closest name."""
    return cast(ObjectiveModule, PLUGINS.find(name, ("Config", "needs", "build")))


def objective_roles(objectives: Mapping[str, Settings]) -> Roles:
    """What objectives read and ask, all together."""
    asked = [find_objective(name).needs(config) for name, config in sorted(objectives.items())]
    data, policies = (sorted({role for one in asked for role in vars(one)[kind]}) for kind in ("data", "policies"))
    return Roles(tuple(data), tuple(policies), motions=any(one.motions for one in asked))


def objective_modules(objectives: Mapping[str, Settings]) -> tuple[str, ...]:
    """Names of the modules that objectives come from."""
    return tuple(PLUGINS.names()[name] for name in sorted(objectives))


def parse_objectives(given: object) -> object:
    """Plain data by name as the settings of each objective; of what is no such data others will tell."""
    if not isinstance(given, Mapping):
        return given
    return {
        str(name): settings if isinstance(settings, Settings) else _parsed(str(name), settings)
        for name, settings in given.items()
    }


def _parsed(name: str, given: object) -> Settings:
    where = f"algo.objectives.{name}"
    if name not in PLUGINS.names():
        raise ConfigError(where, "no such objective", do=did_you_mean(name, PLUGINS.names()))
    config = find_objective(name).Config
    if given is None:  # which takes an objective away where there was one
        raise ConfigError(where, "wrong value", got="null", expected="its settings", do="For its defaults write {}.")
    return config.parse(given, where)


ObjectiveSettings = Annotated[dict[str, SerializeAsAny[Settings]], BeforeValidator(parse_objectives)]
"""A field of settings: objectives by name, each with its own."""


@final
@dataclass
class Objectives:
    """Those of a run, in the order of their names."""

    members: dict[str, Objective]

    @classmethod
    def build(
        cls, settings: Mapping[str, Settings], context: BuildContext, policy: Actor, ppo: PPOSettings
    ) -> "Objectives":
        """Beside a policy that learns by PPO. One that offers nothing, weighs what it does not offer, or does not suit
        the policy is refused."""
        context = replace(context, policies={**context.policies, LEARNER: policy})
        members = {name: find_objective(name).build(settings[name], context) for name in sorted(settings)}
        for name, objective in members.items():
            _check_offers(f"algo.objectives.{name}", objective)
            if isinstance(objective, PolicyCheck):
                objective.check(policy, ppo)
        if policy.estimator is not None and "estimator" not in members:
            raise ConfigError(
                "algo.actor.estimate",
                "nobody trains it",
                do="Add algo.objectives.estimator; with {weight: 0} it stays what it is.",
            )
        return cls(members)

    def __bool__(self) -> bool:
        return bool(self.members)

    def recorders(self) -> dict[str, Recorder]:
        """Who says something of every step while the policy plays."""
        return {name: objective for name, objective in self.members.items() if isinstance(objective, Recorder)}

    @torch.no_grad()
    def prepare(self, rollout: Rollout) -> dict[str, Tensor]:
        """What anybody finds out about a rollout before it is learned from, as `name/fact` [T, N, …]."""
        found = {name: one.prepare(rollout) for name, one in self.members.items() if isinstance(one, PrepareHook)}
        return {f"{name}/{fact}": values for name, facts in found.items() for fact, values in facts.items()}

    @torch.no_grad()
    def add_rewards(self, rollout: Rollout, reward: Tensor) -> tuple[Tensor, Metrics]:
        """task·r + Σ w·term [T, N], and the mean of every term."""
        metrics: Metrics = {}
        task = math.prod(objective.weights.task for objective in self.members.values())
        reward = reward if task == 1.0 else task * reward
        for name, objective in self.members.items():
            if isinstance(objective, RewardHook):
                weights = objective.weights.rewards
                terms = _checked(name, "rewards", objective.rewards(rollout), weights, reward)
                for term, weight in sorted(weights.items()):
                    metrics[f"reward/{name}.{term}"] = terms[term][rollout.valid].mean()
                    reward = reward + weight * terms[term] if weight else reward
        return reward, metrics

    def augment(self, batch: PPOBatch) -> PPOBatch:
        """By one objective after the other."""
        for objective in self.members.values():
            if isinstance(objective, AugmentHook):
                batch = objective.augment(batch)
        return batch

    def add_losses(self, batch: PPOBatch, evaluation: Evaluation, loss: Tensor, tally: Tally) -> Tensor:
        """L + Σ w·mean term [], over the rows that count and were played: facts of them are none of rows made up."""
        for name, objective in self.members.items():
            if isinstance(objective, LossHook):
                weights = objective.weights.losses
                terms = _checked(name, "loss", objective.loss(batch, evaluation), weights, evaluation.log_prob)
                for term, weight in sorted(weights.items()):
                    mean = batch.played(terms[term]).mean()
                    tally.note(f"loss/{name}.{term}", mean)
                    loss = loss + weight * mean if weight else loss
        return loss

    def learn(self, rollout: Rollout) -> Metrics:
        """What each learns by itself from a rollout."""
        metrics: Metrics = {}
        for name, objective in self.members.items():
            if isinstance(objective, LearnHook):
                learned = objective.learn(rollout)
                metrics |= {f"{name}/{metric}": number.detach() for metric, number in learned.items()}
        return metrics

    def warning(self, values: Mapping[str, float]) -> str:
        """What anybody finds wrong with these numbers of a log."""
        told = (one.warning(values) for one in self.members.values() if isinstance(one, Alarming))
        return " ".join(filter(None, told))


def _check_offers(where: str, objective: object) -> None:
    if not isinstance(objective, Objective):
        raise ConfigError(where, "says no weights", expected="an attribute `weights`, of objectives.Weights")
    if not any(isinstance(objective, hook) for hook in HOOKS.values()):
        raise ConfigError(where, "offers nothing", expected=f"any of {', '.join(HOOKS)}")
    for hook, weights in (("rewards", objective.weights.rewards), ("loss", objective.weights.losses)):
        if weights and not isinstance(objective, HOOKS[hook]):
            raise ConfigError(where, f"weights of {sorted(weights)} are unused: it offers no `{hook}`")


def _checked(
    name: str, hook: str, terms: Mapping[str, Tensor], weights: Mapping[str, float], like: Tensor
) -> Mapping[str, Tensor]:
    """Every term has a weight, every weight a term, and nothing is broadcast."""
    where = f"algo.objectives.{name}"
    if terms.keys() != weights.keys():
        raise ConfigError(where, f"terms of `{hook}` are not its weights", got=sorted(terms), expected=sorted(weights))
    for term, values in terms.items():
        if values.shape != like.shape:
            raise ConfigError(
                where, f"'{term}' of `{hook}` has another shape", got=list(values.shape), expected=list(like.shape)
            )
    return terms

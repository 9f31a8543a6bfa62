"""Fitted Q evaluation (FQE), Le, Voloshin and Yue 2019, arXiv:1903.08738, as a running regression.

What is a policy worth that never acted? It is frozen (`policies.target`); critics learn from data of others what
follows if it acts from the next step on. K of them learn side by side, each from a target of its own. Every update:

    B_j = E_{a'~π(·|s')} Q̄_j(s',a')                             → parts.frozen_choices.expected_q
    y_j = r + γ·B_j, or r where the episode terminated           → losses.value.bootstrap_target
    L_Q = Σ_j mean (Q_j(s,a) − y_j)²                             → losses.value.own_squared_error
    Q̄   ← Q̄ + τ·(Q − Q̄), every so many updates                   → parts.target.Target.follow

The expectation is exact over discrete actions, masks included. Of continuous ones it is the value of the policy's
greedy action, as it is deployed, or with `stochastic` the mean over draws. What comes out, measured at every log:

    V̂_j = mean over the starts s₀ of episodes of E_{a~π(·|s₀)} Q_j(s₀,a)

in units of the rewards that are learned from, discounted. Nothing is conservative about it: where π leaves the data,
critics are asked about actions that nobody tried. `understudy ope` trains many at once, and says where that is so.

Differs from the paper in: one gradient step on a minibatch instead of a whole regression between two targets; Polyak
targets by default, hard ones by `target_every` with `polyak: 1`; rows whose successor is unknown (`td_valid` false) are
left out of L_Q.
"""

import copy
from dataclasses import dataclass
from typing import Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn

from understudy.core.batch import SAMPLE_WEIGHT, Obs, Transitions
from understudy.core.errors import ConfigError
from understudy.core.protocols import MAIN, BuildContext, Demand, Experience, Metrics, Needs, Policy, Update
from understudy.core.rng import stream
from understudy.core.settings import Count, Settings
from understudy.core.spec import Box, Discrete, Spec
from understudy.core.state import Static
from understudy.losses.value import bootstrap_target, mean_over, own_squared_error
from understudy.losses.weights import weigh
from understudy.nn.critic import Critic, CriticSettings
from understudy.nn.dropout import eval_mode
from understudy.nn.perception import Seen
from understudy.parts.frozen_choices import check_candidate, expected_q, frozen_choices
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.optim import Adam, OptimizerSettings
from understudy.parts.target import Target

TARGET = "target"
"""The role of the policy that is judged."""
STARTS = 4096
"""Episodes of which starts are measured at a log; of more, some, evenly spread."""


class Config(Settings):
    """Fitted Q evaluation of a frozen policy."""

    name: Literal["fqe"] = "fqe"
    """The algorithm."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount per environment step; 1 needs episodes that terminate."""
    critics: Count = 1
    """How many learn side by side, from starts of their own: how far they are apart is a first measure of doubt."""
    stochastic: bool = False
    """Judge the policy as it draws, and not its greedy actions."""
    samples: Count = 10
    """Draws for each row of a stochastic policy of continuous actions."""
    critic_learning_rate: float = Field(3e-4, gt=0)
    """Adam's step size for Q, at the start of its schedule."""
    critic_optimizer: OptimizerSettings = OptimizerSettings()
    """Its kind, weight decay, gradient clipping and schedule."""
    polyak: float = Field(0.02, gt=0, le=1)
    """Share of the way that target networks move whenever they move. After u updates e^(−u·τ·(1−γ)) of what lies far
    ahead is still missing: of 20,000 with γ = 0.99 2 %, and with a τ of 0.005 a third."""
    target_every: int = Field(1, ge=1)
    """Updates from one move of the target networks to the next; many of them with `polyak: 1` make hard targets."""
    critic: CriticSettings = CriticSettings()
    """The critics."""


@final
@dataclass(frozen=True)
class Starts:
    """Where episodes begin, [E] each."""

    obs: Obs
    mask: Tensor | None

    @classmethod
    def of(cls, data: Experience) -> "Starts":
        with torch.device("cpu"):  # also where networks are only outlined
            first = data.starts()
            some = first[torch.linspace(0, len(first) - 1, min(STARTS, len(first)), dtype=torch.float64).long()]
            rows = data.rows(some, Demand(("mask",) if data.spec.masked else ()))
        return cls(rows.obs, rows.extra.get("mask"))


@final
@dataclass
class FQE:
    config: Static[Config]
    policy: Policy
    """The candidate: it is part of every checkpoint, and never moves."""
    critic: Critic
    target: Target[Critic]
    critic_optimizer: Adam
    draws: torch.Generator
    updates: Tensor
    """How many there have been; on it hard targets depend."""
    spec: Static[Spec]
    seed: Static[int]
    starts: Static[tuple[Starts, ...]]
    """Of the data it is built on, if there are any."""

    @property
    def demand(self) -> Demand:
        masks = ("next_mask",) if self.spec.masked else ()
        return Demand(("td_valid", *masks), gamma=self.config.gamma)

    def networks(self) -> dict[str, nn.Module]:
        networks: dict[str, nn.Module] = {"critic": self.critic, "target_critic": self.target.network}
        return {"policy": self.policy, **networks} if isinstance(self.policy, nn.Module) else networks

    def update(self, data: Transitions) -> Update:
        """One gradient step of Q, and a move of the target critics."""
        return self.learn(data, self.choices(data.next_obs, data.extra.get("next_mask"), self.draws))

    def learn(self, data: Transitions, chosen: Tensor) -> Update:
        """The same, knowing what the policy would do next: [m, B, A] or [B, N], or each critic's own policy [K, …]."""
        config, row_weight = self.config, data.extra.get(SAMPLE_WEIGHT)
        seen, seen_next = Seen(data.obs), Seen(data.next_obs)
        with torch.no_grad():
            bootstrap = expected_q(self.target.network, seen_next.by(self.target.network), chosen)
        reward, terminated = (column.expand_as(bootstrap) for column in (data.reward, data.terminated))
        target = bootstrap_target(reward, config.gamma, terminated, bootstrap)
        q = self.critic(seen.by(self.critic), data.action)
        losses = weigh(own_squared_error(q, target), row_weight)
        loss = mean_over(losses, data.extra["td_valid"]).sum()
        self.critic_optimizer.minimise(loss, config.critic_learning_rate)
        self.updates.add_(1)
        self.target.follow(self.critic, self._target_rate())
        return Update({"loss/critic": loss.detach(), "value/q": q.detach().mean(), "value/target": target.mean()})

    def choices(self, obs: Obs, mask: Tensor | None, rng: torch.Generator) -> Tensor:
        """What the policy would do: actions [m, B, A] in policy space, or probabilities [B, N]."""
        samples = self.config.samples if self.config.stochastic else 0
        return frozen_choices(self.policy, self.spec, obs, mask, samples, rng)

    @torch.no_grad()
    def value(self, obs: Obs, chosen: Tensor) -> Tensor:
        """E_{a~π} Q_j(s,a) [K, B]."""
        with eval_mode(self.critic):
            return expected_q(self.critic, Seen(obs).by(self.critic), chosen)

    def measure(self) -> Metrics:
        """V̂: the mean over critics, and how far they are apart."""
        metrics: Metrics = {}
        for starts in self.starts:
            rng = stream(self.seed, "fqe/starts")  # always the same, so that logs move nothing
            estimates = self.value(starts.obs, self.choices(starts.obs, starts.mask, rng)).mean(1)
            metrics = {"estimate/mean": estimates.mean(), "estimate/std": estimates.std(correction=0)}
        return metrics

    def _target_rate(self) -> float | Tensor:
        if self.config.target_every == 1:
            return self.config.polyak
        return torch.where(self.updates % self.config.target_every == 0, self.config.polyak, 0.0)


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Box, Discrete), sources=("offline",), policies=(TARGET,), compiles=False)


def build(config: Config, context: BuildContext) -> FQE:
    policy, where = context.policies[TARGET], f"policies.{TARGET}"
    if not isinstance(policy, nn.Module):
        raise ConfigError(
            where,
            "an exported policy cannot be kept in checkpoints",
            do="Name the run it is of, or compare it with others by: understudy ope.",
        )
    check_candidate(policy, context.spec, where, stochastic=config.stochastic)
    frozen = copy.deepcopy(policy).requires_grad_(False).train(False).to(context.device)
    return assemble(config, context, frozen)


def assemble(config: Config, context: BuildContext, policy: Policy) -> FQE:
    """The same of a policy that was looked at already."""
    data = context.data.get(MAIN)
    critic = NetworkBuilder.of(context).critic(config.critic, members=config.critics)
    return FQE(
        config,
        policy,
        critic,
        Target.of(critic),
        adam_for(critic, config.critic_optimizer, context),
        stream(context.seed, "fqe/draws"),
        torch.zeros((), dtype=torch.int64, device=context.device),
        context.spec,
        context.seed,
        () if data is None else (Starts.of(data),),
    )

"""Importance-aware co-teaching (IACT): two learners, each choosing the rows that the other's policy learns from.

A method of this library: no paper defines it. Branches X ∈ {a, b} are whole learners, TD3's or SAC's, of different
initialisation and noise; w are importance weights of rows, if the source has any. Every update, with parameters before
it wherever rows are judged:

    y_X  = r + γ·min_j Q̄_Xj(s',ã'), or r where the episode terminated    → losses.value.bootstrap_target
    S_X  = the k rows that the other branch scores highest, k = ⌊R(t)·B⌋  → parts.co_teaching.choose
    L_Q  = Σ_j mean w̃·(Q_Xj(s,a) − y_X)², over all rows                   → losses.value.squared_error

and every `policy_delay`-th also, in this order:

    λ_Q  = α / mean|Q_X(s,ã)|, a constant                                 → losses.policy.value_scale
    L_π  = mean over S_X of w̃·( λ(t)·d_X − λ_Q·Q_X(s,ã) )                 → losses.policy.penalised_climb
    Q̄, π̄ ← Q̄, π̄ + τ_polyak·(Q − Q̄, π − π̄)                                → parts.target.Target.follow

w̃ is w scaled to average 1 over the rows used (`losses.selection.row_factors`), d_X the distance from the data
(`parts.cloning`), which may count by ω, how sure the policy is of a row (`losses.selection.confidence_weights`). With
R ≡ 1, λ ≡ 1 and no weights a branch is TD3+BC, to the bit. The mean of both policies acts.

Of discrete actions (`parts.branches.SoftmaxBranch`), legal ones where there are masks:

    B    = Σ_a π_X(a|s')·min_j Q̄_Xj(s',a) in the place of min_j Q̄_Xj(s',ã') → losses.action_values.expected_value
    L_Q += α_c·mean w̃·( log Σ_b exp Q_Xj(s,b) − Q_Xj(s,a) ), over all rows  → losses.conservative.exact_gap
    Q_X  = Σ_a π_X(a|s)·min_j Q_Xj(s,a),  d_X = −log π_X(a|s)               → losses.action_values.expected_value

With R ≡ 1, λ ≡ 0, an unscaled value and no weights a branch is discrete CQL with a softmax policy, to the bit.

Differs from the sketch it grew from (docs/iact.md) in: ratios are ratios, selection leaves the critics
alone, few rows are left out, critics are twins, values are scaled, both branches act.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self, final

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from understudy.core.batch import IMPORTANCE, SAMPLE_WEIGHT, Transitions
from understudy.core.protocols import PRIORITY, BuildContext, Demand, Metrics, Needs, Update
from understudy.core.ranks import whole
from understudy.core.rng import derived_seed
from understudy.core.spec import ActionSpace, Box, Discrete
from understudy.core.state import Static
from understudy.losses.policy import penalised_climb, value_scale
from understudy.losses.selection import row_factors
from understudy.losses.value import mean_over, squared_error
from understudy.losses.weights import weigh
from understudy.nn.committee import Combination, Committee, CommitteeCriticSettings, CommitteeSettings
from understudy.nn.perception import Seen
from understudy.parts.branch_settings import BranchSettings, build_branch
from understudy.parts.branches import Branch
from understudy.parts.cloning import ClonedPolicy, believed, cloning_distance
from understudy.parts.co_teaching import (
    Lesson,
    TeachingSettings,
    choose_rows,
    comparison,
    mean_error,
    prepare,
    rare_rewards,
)
from understudy.parts.networks import NetworkBuilder, adam_for


class Config(BranchSettings):
    """Importance-aware co-teaching."""

    name: Literal["iact"] = "iact"
    """The algorithm."""
    act: Combination = "mean"
    """Who acts: the `mean` of both, `a`, `b`, or whichever action both branches' critics rate higher (`max_q`)."""
    teaching: TeachingSettings = TeachingSettings()
    """Which rows the policies learn from."""
    alpha: float = Field(2.5, ge=0)
    """Weight of the (normalised) value against cloning: 0 is behaviour cloning, large is the base alone."""
    q_norm: bool = True
    """Scale the value by 1/mean|Q|, so that alpha does not depend on rewards' units."""

    @model_validator(mode="after")
    def _critics_can_agree(self) -> Self:
        if self.teaching.score == "certainty" and self.critics == 1:
            raise ValueError("teaching.score=certainty is how far critics agree, and there is one: use critics=2")
        return self


@final
@dataclass
class IACT:
    config: Static[Config]
    policy: Committee
    branches: dict[str, Branch]
    behaviour: tuple[ClonedPolicy, ...]
    """β̂, where cloning is measured against it."""
    updates: Tensor
    """How many there have been: the clock of schedules and turns."""

    @property
    def demand(self) -> Demand:
        columns = ("td_valid", "discount", *(("mask", "next_mask") if self.policy.spec.masked else ()))
        return Demand(columns, self.config.n_step, self.config.gamma, weighed=True, priorities=True)

    def concerns(self, rewards: Tensor) -> list[str]:
        """Rare rewards do not go with every setting."""
        return rare_rewards(self.config.teaching, rewards)

    @property
    def largest_shift(self) -> float:
        """Entropy in the backup of `sac_bc` is unbounded, and so is what a penalty does to critics."""
        soft = self.config.base == "sac_bc" and self.config.entropy_weight > 0
        return math.inf if soft or self.config.conservative_weight > 0 else 0.0

    def networks(self) -> dict[str, nn.Module]:
        learners = {**self.branches, **dict(zip(("behaviour",), self.behaviour, strict=False))}
        inner = {f"{name}.{role}": part for name, owner in learners.items() for role, part in owner.networks().items()}
        return {"policy": self.policy, **inner}

    def multipliers(self) -> dict[str, Tensor]:
        adaptive = self.branches.items() if self.config.cloning.adaptive is not None else ()
        return {f"{name}.cloning": branch.tether.log_weight for name, branch in adaptive}

    def update(self, data: Transitions) -> Update:
        """One gradient step of all critics; at every `policy_delay`-th, of the policies and the targets too."""
        return self.turn()(data)

    def turn(self) -> Callable[[Transitions], Update]:
        """Count, and say whose turn it is."""
        self.updates.add_(1)
        due = int(self.updates) % self.config.policy_delay == 0
        return self.update_all if due else self.update_critics

    def update_critics(self, data: Transitions) -> Update:
        """One gradient step of all critics."""
        config, mask = self.config, data.extra.get("mask")
        seen, lessons = prepare(self.branches, data, actors=False)
        choosing = config.teaching.select_critic
        chosen = choose_rows(config.teaching, lessons, data, seen, self.updates - 1) if choosing else {}
        told, _ = believed(self.behaviour, seen, data.action, config.actor_learning_rate, mask)
        metrics = self._update_critics(data, lessons, chosen) | told
        return Update(metrics, {PRIORITY: mean_error(lessons, data.extra["td_valid"])})

    def update_all(self, data: Transitions) -> Update:
        """One gradient step of all critics and of both policies, and of all targets."""
        config, mask = self.config, data.extra.get("mask")
        seen, lessons = prepare(self.branches, data, actors=True)
        chosen = choose_rows(config.teaching, lessons, data, seen, self.updates - 1)
        metrics = self._update_critics(data, lessons, chosen if config.teaching.select_critic else {})
        told, behaviour = believed(self.behaviour, seen, data.action, config.actor_learning_rate, mask)
        metrics |= told
        for name, branch in self.branches.items():
            metrics |= self._update_actor(name, data, seen, lessons[name], chosen.get(name), behaviour)
            branch.follow(config.polyak)
        metrics |= comparison(lessons, chosen, data.extra.get(IMPORTANCE))
        return Update(metrics, {PRIORITY: mean_error(lessons, data.extra["td_valid"])})

    def _update_critics(self, data: Transitions, lessons: dict[str, Lesson], chosen: dict[str, Tensor]) -> Metrics:
        weight, valid, row_weight = data.extra.get(IMPORTANCE), data.extra["td_valid"], data.extra.get(SAMPLE_WEIGHT)
        metrics: Metrics = {}
        for name, lesson in lessons.items():
            rows = chosen.get(name)
            error = weigh(squared_error(lesson.q, lesson.target), row_weight)
            loss = mean_over(weigh(error, row_factors(rows, weight, valid)), valid).sum()
            if lesson.gap is not None:
                gap = weigh(weigh(lesson.gap, row_weight), row_factors(rows, weight)).mean(-1).sum()
                loss = loss + self.config.conservative_weight * gap
                metrics[f"loss/penalty_{name}"] = gap.detach() / len(lesson.gap)
            lesson.branch.critic_optimizer.minimise(loss, self.config.critic_learning_rate)
            metrics |= {
                f"loss/critic_{name}": loss.detach(),
                f"value/q_{name}": lesson.q.detach()[0].mean(),
                f"value/target_{name}": lesson.target.mean(),
            }
        return metrics

    def _update_actor(
        self, name: str, data: Transitions, seen: Seen, lesson: Lesson, rows: Tensor | None, behaviour: Tensor | None
    ) -> Metrics:
        config, branch, proposal = self.config, lesson.branch, lesson.proposal
        assert proposal is not None
        q = branch.value_of(seen, proposal)
        scale = config.alpha * value_scale(q) if config.q_norm else torch.full_like(q.detach()[0], config.alpha)
        acted = branch.policy, proposal.features, proposal.greedy
        distance = cloning_distance(config.cloning, *acted, data.action, behaviour)
        weight = branch.tether.weight(self.updates - 1)
        factors = row_factors(rows, data.extra.get(IMPORTANCE))
        trust = lesson.trust(config.cloning, seen, data.action, factors)
        climb = penalised_climb(branch.with_entropy(q, proposal), scale, weigh(distance, trust), weight)
        loss = weigh(climb, factors).mean()
        branch.policy_optimizer.minimise(loss, config.actor_learning_rate)
        mean_distance = weigh(distance, factors).detach().mean()
        branch.tether.follow(mean_distance)
        told = {} if trust is None else {f"weight/confidence_largest_{name}": whole(trust).amax()}
        return told | {
            f"loss/actor_{name}": loss.detach(),
            f"policy/bc_distance_{name}": mean_distance,
            f"weight/q_{name}": scale,
            f"weight/cloning_{name}": torch.as_tensor(weight, dtype=q.dtype, device=q.device),
        }


def needs(config: Config) -> Needs:
    spaces: dict[str, tuple[type[ActionSpace], ...]] = {"auto": (Box, Discrete), "discrete_cql": (Discrete,)}
    return Needs(Transitions, actions=spaces.get(config.base, (Box,)), sources=("offline", "replay"), slices=True)


def build(config: Config, context: BuildContext) -> IACT:
    builder = NetworkBuilder.of(context)
    branches = {
        "a": build_branch(config, context, builder),
        "b": build_branch(config, context, builder.seeded(derived_seed(context.seed, "branch b"))),
    }
    behaviour: tuple[ClonedPolicy, ...] = ()
    if config.cloning.kind == "kl":
        clone = builder.seeded(derived_seed(context.seed, "behaviour")).actor(config.policy_shape)
        behaviour = (ClonedPolicy(clone, adam_for(clone, config.actor_optimizer, context)),)
    config.teaching.warn_of_known_mistakes()
    return IACT(config, _committee(config, branches), branches, behaviour, torch.zeros((), dtype=torch.int64))


def _committee(config: Config, branches: dict[str, Branch]) -> Committee:
    """Both policies, and the critics where they decide."""
    a, b = branches.values()
    critics = [a.critic, b.critic] if config.act == "max_q" else []
    shape = CommitteeCriticSettings(**dict(a.critic.settings), members=config.critics) if critics else None
    settings = CommitteeSettings(**dict(a.policy.settings), combine=config.act, critics=shape)
    return Committee(a.policy, b.policy, settings, critics)

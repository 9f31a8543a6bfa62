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
(`parts.cloning`). With R ≡ 1, λ ≡ 1 and no weights a branch is TD3+BC, to the bit. The mean of both policies acts.

Differs from the sketch it grew from (docs/iact.md) in: ratios are ratios, selection leaves the critics
alone, few rows are left out, critics are twins, values are scaled, both branches act. Continuous actions only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self, final

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.protocols import PRIORITY, BuildContext, Demand, Metrics, Needs, Update
from understudy.core.rng import derived_seed
from understudy.core.spec import Box
from understudy.core.state import Static
from understudy.losses.policy import penalised_climb, value_scale
from understudy.losses.selection import row_factors
from understudy.losses.value import bootstrap_target, mean_over, squared_error
from understudy.losses.weights import weigh
from understudy.nn.actor import ActorSettings
from understudy.nn.committee import Combination, Committee, CommitteeCriticSettings, CommitteeSettings
from understudy.nn.perception import Seen
from understudy.parts.branches import Branch, BranchShape, deterministic_branch, soft_branch
from understudy.parts.cloning import ClonedPolicy, CloningSettings, CloningWeight, believed, cloning_distance
from understudy.parts.co_teaching import Lesson, TeachingSettings, choose, comparison, mean_error, rare_rewards
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.td3 import TD3CriticSettings, TD3Settings, build_td3


class Config(TD3Settings):
    """Importance-aware co-teaching."""

    name: Literal["iact"] = "iact"
    """The algorithm."""
    base: Literal["td3bc", "sac_bc"] = "td3bc"
    """What both branches are: TD3 with a deterministic policy, or SAC with a squashed Gaussian one."""
    act: Combination = "mean"
    """Who acts: the `mean` of both, `a`, `b`, or whichever action both branches' critics rate higher (`max_q`)."""
    teaching: TeachingSettings = TeachingSettings()
    """Which rows the policies learn from."""
    cloning: CloningSettings = CloningSettings()
    """How they are held near the data."""
    alpha: float = Field(2.5, ge=0)
    """Weight of the (normalised) value against cloning: 0 is behaviour cloning, large is the base alone."""
    q_norm: bool = True
    """Scale the value by 1/mean|Q|, so that alpha does not depend on rewards' units."""
    entropy_weight: float = Field(0.0, ge=0)
    """η of `sac_bc`: the price of entropy, in units of reward."""
    actor: BranchShape = BranchShape()
    """The policy networks."""
    critic: TD3CriticSettings = TD3CriticSettings()
    """All critics."""

    @model_validator(mode="after")
    def _fits_the_base(self) -> Self:
        if self.base == "td3bc" and self.cloning.kind == "kl":
            raise ValueError("cloning.kind=kl needs a policy with a density: use base=sac_bc")
        if self.base == "td3bc" and self.entropy_weight > 0:
            raise ValueError("entropy_weight needs a policy with a density: use base=sac_bc")
        if self.base == "td3bc" and self.actor.sigma != BranchShape().sigma:
            raise ValueError("actor.sigma needs a policy with a density: use base=sac_bc")
        adaptive = self.cloning.adaptive
        if self.base == "td3bc" and adaptive is not None and adaptive.target <= 0:
            raise ValueError(f"cloning.adaptive.target={adaptive.target} can never be reached: distances are above 0")
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
        return Demand(("td_valid", "discount"), self.config.n_step, self.config.gamma, weighed=True, priorities=True)

    def concerns(self, rewards: Tensor) -> list[str]:
        """Rare rewards do not go with every setting."""
        return rare_rewards(self.config.teaching, rewards)

    @property
    def largest_shift(self) -> float:
        """Entropy in the backup of `sac_bc` is unbounded."""
        return math.inf if self.config.entropy_weight > 0 else 0.0

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
        seen, lessons = self._prepared(data, actors=False)
        chosen = self._chosen(data, seen, lessons) if self.config.teaching.select_critic else {}
        told, _ = believed(self.behaviour, seen, data.action, self.config.actor_learning_rate)
        metrics = self._update_critics(data, lessons, chosen) | told
        return Update(metrics, {PRIORITY: mean_error(lessons, data.extra["td_valid"])})

    def update_all(self, data: Transitions) -> Update:
        """One gradient step of all critics and of both policies, and of all targets."""
        seen, lessons = self._prepared(data, actors=True)
        chosen = self._chosen(data, seen, lessons)
        metrics = self._update_critics(data, lessons, chosen if self.config.teaching.select_critic else {})
        told, behaviour = believed(self.behaviour, seen, data.action, self.config.actor_learning_rate)
        metrics |= told
        for name, branch in self.branches.items():
            metrics |= self._update_actor(name, data, seen, lessons[name], chosen.get(name), behaviour)
            branch.follow(self.config.polyak)
        metrics |= comparison(lessons, chosen, data.extra.get("importance"))
        return Update(metrics, {PRIORITY: mean_error(lessons, data.extra["td_valid"])})

    def _prepared(self, data: Transitions, *, actors: bool) -> tuple[Seen, dict[str, Lesson]]:
        """What is seen, and what each branch makes of the batch before anything moves."""
        seen, seen_next = Seen(data.obs), Seen(data.next_obs)
        lessons = {}
        for name, branch in self.branches.items():
            value = branch.next_value(seen_next)
            target = bootstrap_target(data.reward, data.extra["discount"], data.terminated, value)
            proposal = branch.propose(seen) if actors else None
            lessons[name] = Lesson(branch, branch.critic(seen.by(branch.critic), data.action), target, proposal)
        return seen, lessons

    def _chosen(self, data: Transitions, seen: Seen, lessons: dict[str, Lesson]) -> dict[str, Tensor]:
        """The rows [B] each branch learns from; empty where it is all of them."""
        teaching, weight, valid = self.config.teaching, data.extra.get("importance"), data.extra["td_valid"]
        if not teaching.chooses:
            return {}
        with torch.no_grad():
            scores = {
                name: lesson.score(teaching.score, seen, data.action, weight, valid) for name, lesson in lessons.items()
            }
            asked = lessons.items() if teaching.disagreement < 1.0 else ()
            actions = {name: lesson.acting(seen).greedy for name, lesson in asked}
            return choose(teaching, scores, actions, self.updates - 1)

    def _update_critics(self, data: Transitions, lessons: dict[str, Lesson], chosen: dict[str, Tensor]) -> Metrics:
        weight, valid = data.extra.get("importance"), data.extra["td_valid"]
        metrics: Metrics = {}
        for name, lesson in lessons.items():
            factors = row_factors(chosen.get(name), weight, valid)
            error = weigh(squared_error(lesson.q, lesson.target), data.extra.get(SAMPLE_WEIGHT))
            loss = mean_over(weigh(error, factors), valid).sum()
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
        climb = penalised_climb(branch.with_entropy(q, proposal), scale, distance, weight)
        factors = row_factors(rows, data.extra.get("importance"))
        loss = weigh(climb, factors).mean()
        branch.policy_optimizer.minimise(loss, config.actor_learning_rate)
        mean_distance = weigh(distance, factors).detach().mean()
        branch.tether.follow(mean_distance)
        return {
            f"loss/actor_{name}": loss.detach(),
            f"policy/bc_distance_{name}": mean_distance,
            f"weight/q_{name}": scale,
            f"weight/cloning_{name}": torch.as_tensor(weight, dtype=q.dtype, device=q.device),
        }


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Box,), sources=("offline", "replay"), slices=True)


def build(config: Config, context: BuildContext) -> IACT:
    shape = config.actor.actor("deterministic" if config.base == "td3bc" else "tanh_gaussian")
    builder = NetworkBuilder.of(context)
    branches = {
        "a": _branch(config, shape, context, builder),
        "b": _branch(config, shape, context, builder.seeded(derived_seed(context.seed, "branch b"))),
    }
    behaviour: tuple[ClonedPolicy, ...] = ()
    if config.cloning.kind == "kl":
        clone = builder.seeded(derived_seed(context.seed, "behaviour")).actor(shape)
        behaviour = (ClonedPolicy(clone, adam_for(clone, config.actor_optimizer, context)),)
    config.teaching.warn_of_known_mistakes()
    return IACT(config, _committee(config, branches), branches, behaviour, torch.zeros((), dtype=torch.int64))


def _branch(config: Config, shape: ActorSettings, context: BuildContext, builder: NetworkBuilder) -> Branch:
    networks = build_td3(config, shape, config.critic, context, builder)
    tether = CloningWeight.of(config.cloning, context.device)
    if config.base == "sac_bc":
        return soft_branch(networks, tether, builder.seed, config.entropy_weight)
    return deterministic_branch(networks, tether, builder.seed)


def _committee(config: Config, branches: dict[str, Branch]) -> Committee:
    """Both policies, and the critics where they decide."""
    a, b = branches.values()
    critics = [a.critic, b.critic] if config.act == "max_q" else []
    shape = CommitteeCriticSettings(**dict(a.critic.settings), members=config.critics) if critics else None
    settings = CommitteeSettings(**dict(a.policy.settings), combine=config.act, critics=shape)
    return Committee(a.policy, b.policy, settings, critics)

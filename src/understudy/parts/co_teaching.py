"""Co-teaching, Han et al. 2018, arXiv:1804.06872: two learners, each of which chooses the rows the other learns from.

Each ranks a batch by its own score, from parameters before the update, and hands its best R·B rows on:

    log_product    z(log w) + z(log π(a|s)), z standardised over the batch; without weights it ranks as nll does
    nll            log π(a|s); of a deterministic policy −‖π(s) − a‖²
    td             −Σ_j |Q_j(s,a) − y|, the mean of others where the successor is unknown
    adv            min_j Q_j(s,a) − min_j Q_j(s,π(s))
    certainty      −(max_j Q_j(s,a) − min_j Q_j(s,a)): rows on whose worth a learner's critics agree
    agreement      z(log w) − z(u), u = |min_j Q_aj(s,a) − min_j Q_bj(s,a)|: rows on whose worth both learners agree.
                   Both rank alike, so that there is nothing to exchange
    random         no opinion
    product_seed   w·min(π(a|s), 1),  sum_seed  w + min(π(a|s), 1),  absq_seed  w·|Q₁(s,a)|: others' forms

`disagreement` below 1 is co-teaching+ (Yu et al. 2019, arXiv:1901.04215): only rows on which the two act most
differently are chosen from. Of discrete actions π(s) is the likeliest, and differences are those of probabilities.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from pydantic import Field, field_validator
from torch import Tensor

from understudy.core.batch import IMPORTANCE, Transitions
from understudy.core.protocols import Metrics
from understudy.core.ranks import across, own, whole
from understudy.core.schedule import Schedule, ScheduleKind
from understudy.core.settings import Settings
from understudy.losses.policy import squared_distance, summed_squared_distance
from understudy.losses.selection import (
    best_among,
    best_rows,
    confidence_weights,
    keep_count,
    overlap,
    standard_score,
    value_disagreement,
)
from understudy.losses.value import absolute_error, bootstrap_target, mean_over
from understudy.losses.weights import effective_sample_size, weigh
from understudy.nn.perception import Seen
from understudy.parts.branches import Branch, Proposal, propose_without_noise, values_without_dropout
from understudy.parts.cloning import CloningSettings

ScoreName = Literal[
    "log_product",
    "nll",
    "td",
    "adv",
    "certainty",
    "agreement",
    "random",
    "product_seed",
    "sum_seed",
    "absq_seed",
]
COMMON = 0.5
"""Rewards of which so many are nearly the same number are rare events, not measurements."""
SMALLEST_WEIGHT = 1e-6
"""A weight of 0 has no logarithm."""


class KeepSchedule(Schedule):
    """R: the share of a batch that is kept."""

    kind: ScheduleKind = "linear"
    """`constant` (start throughout), `linear`, `cosine`, `exponential`, or `exp5` (ends 0.7 % short of its end)."""
    start: float = Field(1.0, gt=0, le=1)
    """The share kept at first."""
    end: float = Field(0.8, gt=0, le=1)
    """The share kept at last: 1 minus the share of the data that is thought to be wrong."""
    after: int = Field(10_000, ge=0)
    """Updates before rows are left out: by then scores mean something."""
    over: int = Field(50_000, ge=1)
    """Updates from start to end."""


class TeachingSettings(Settings):
    """How rows are chosen."""

    score: ScoreName = "log_product"
    """What rows are ranked by: `log_product`, `nll`, `td`, `adv`, `certainty`, `agreement`, `random`; those ending in
    `_seed` are others', and warn."""
    keep: KeepSchedule = KeepSchedule()
    """The share of rows that is kept. `keep: 1` or 0.8 is constant."""
    exchange: bool = True
    """Each chooses for the other; false: for itself, which is self-paced learning."""
    disagreement: float = Field(1.0, gt=0, le=1)
    """Choose only from this share of rows: those on which the two act most differently. 1: from all."""
    select_critic: bool = False
    """Critics learn from the chosen rows, too. It takes rare rewards for errors: only where rewards are dense."""
    smallest: int = Field(1, ge=1)
    """Rows that are kept at least."""

    @field_validator("keep", mode="before")
    @classmethod
    def _a_number_is_constant(cls, keep: object) -> object:
        is_number = isinstance(keep, (int, float, str)) and not isinstance(keep, bool)
        return {"kind": "constant", "start": keep} if is_number else keep

    @property
    def chooses(self) -> bool:
        """Some rows may be left out."""
        return not (self.keep.constant_at(1.0) and self.disagreement == 1.0)

    def warn_of_known_mistakes(self) -> Self:
        """Others' scores are kept to reproduce them, and known to be wrong."""
        if self.score.endswith("_seed"):
            told = f"algo.teaching.score={self.score} reproduces others' results and is known to be wrong"
            warnings.warn(told, stacklevel=3)
        return self


@dataclass(frozen=True)
class Lesson:
    """What one branch makes of a batch before it learns from it."""

    branch: Branch
    q: Tensor
    """Q_j(s,a) [K, B], with gradient."""
    target: Tensor
    """y [B]."""
    proposal: Proposal | None
    """How it would act, with gradient, where its policy learns."""
    gap: Tensor | None = None
    """Δ_j [K, B] of a conservative branch, with gradient."""
    mask: Tensor | None = None
    """What is legal [B, N], where the data says so."""

    def acting(self, seen: Seen) -> Proposal:
        """How it would act, without gradient: rows are not judged by units that happen to be dropped."""
        known = self.proposal
        if known is None or self.branch.policy.trunk.drops:
            return propose_without_noise(self.branch.policy, seen, self.mask)
        return replace(known, features=known.features.detach(), greedy=known.greedy.detach())

    def log_prob(self, seen: Seen, action: Tensor) -> Tensor:
        """log π(a|s) [B] without gradient: how sure its policy is of what was done."""
        log_prob: Tensor = self.branch.policy.distribution.log_prob(self.acting(seen).features, action)
        return log_prob

    def trust(self, cloning: CloningSettings, seen: Seen, action: Tensor, factors: Tensor | None) -> Tensor | None:
        """ω [B], by how sure its policy is of each row; None where all rows are cloned alike."""
        if cloning.confidence == 0:
            return None
        return confidence_weights(self.log_prob(seen, action), cloning.confidence, cloning.confidence_bound, factors)

    def score(self, name: ScoreName, seen: Seen, action: Tensor, weight: Tensor | None, valid: Tensor) -> Tensor:
        """What it thinks of each row [B]; `weight` [B] are importance weights, `valid` [B] says where y is known."""
        if name == "random":
            return self.branch.coin.uniform(len(valid), rows=0).to(self.target)
        if name == "td":
            return -td_size(self.q.detach(), self.target, valid)
        if name == "adv":
            return self.q.detach().amin(0) - values_without_dropout(
                self.branch.critic, seen, self.acting(seen).greedy
            ).amin(0)
        if name == "certainty":
            return self.q.detach().amin(0) - self.q.detach().amax(0)
        if name == "absq_seed":
            return weigh(self.q.detach()[0].abs(), weight)
        log_prob = self.log_prob(seen, action)
        if name == "nll":
            return log_prob
        if name == "log_product":
            return log_product(log_prob, weight)
        density = log_prob.exp().clamp(max=1.0)
        if name == "product_seed":
            return weigh(density, weight)
        return density + (1.0 if weight is None else weight)


def prepare(branches: dict[str, Branch], data: Transitions, *, actors: bool) -> tuple[Seen, dict[str, Lesson]]:
    """What is seen, and what each branch makes of the batch before anything moves."""
    seen, seen_next = Seen(data.obs), Seen(data.next_obs)
    mask, next_mask = data.extra.get("mask"), data.extra.get("next_mask")
    lessons = {}
    for name, branch in branches.items():
        value = branch.next_value(seen_next, next_mask)
        target = bootstrap_target(data.reward, data.extra["discount"], data.terminated, value)
        proposal = branch.propose(seen, mask) if actors else None
        judged = branch.judge(seen, data.action, mask)
        lessons[name] = Lesson(branch, judged.q, target, proposal, judged.gap, mask)
    return seen, lessons


def td_size(q: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Σ_j |Q_j − y| [B]; their mean where the target is unknown."""
    size = (q - target).abs().sum(0)
    return torch.where(valid, size, across(mean_over(size, valid)))


def mean_error(lessons: dict[str, Lesson], valid: Tensor) -> Tensor:
    """How wrong all critics of all learners were about each row [B], on average; 0 where the target is unknown."""
    return torch.stack([absolute_error(lesson.q, lesson.target, valid) for lesson in lessons.values()]).mean(0)


def log_product(log_prob: Tensor, weight: Tensor | None) -> Tensor:
    """z(log w) + z(log π) [B]; or of whatever else stands in the place of log π."""
    by_action = standard_score(whole(log_prob))
    if weight is not None:
        by_action = by_action + standard_score(whole(weight).clamp(min=SMALLEST_WEIGHT).log())
    return own(by_action)


@torch.no_grad()
def choose_rows(
    settings: TeachingSettings, lessons: dict[str, Lesson], data: Transitions, seen: Seen, updates: Tensor
) -> dict[str, Tensor]:
    """The rows [B] each branch learns from; empty where it is all of them."""
    if not settings.chooses:
        return {}
    weight, valid = data.extra.get(IMPORTANCE), data.extra["td_valid"]
    if settings.score == "agreement":
        values = (lesson.q.detach() for lesson in lessons.values())
        scores = dict.fromkeys(lessons, log_product(-value_disagreement(*values), weight))
    else:
        scores = {
            name: lesson.score(settings.score, seen, data.action, weight, valid) for name, lesson in lessons.items()
        }
    asked = lessons.items() if settings.disagreement < 1.0 else ()
    return choose(settings, scores, {name: lesson.acting(seen).stance for name, lesson in asked}, updates)


def choose(
    settings: TeachingSettings, scores: dict[str, Tensor], actions: dict[str, Tensor], updates: Tensor
) -> dict[str, Tensor]:
    """The rows [B] that each of two learners is to learn from, by the scores [B] of both.

    `actions` [B, A], the greedy ones of both or the probabilities of choices, are asked for where disagreement matters.
    """
    first, second = scores
    scores, actions = ({name: whole(rows) for name, rows in each.items()} for each in (scores, actions))
    rows = len(scores[first])
    rate = settings.keep.value(updates)
    if settings.disagreement == 1.0:
        count = keep_count(rate, rows, settings.smallest)
        best = {name: best_rows(score, count) for name, score in scores.items()}
    else:
        disputed = keep_count(settings.disagreement, rows, settings.smallest)
        eligible = best_rows(summed_squared_distance(actions[first], actions[second]), disputed)
        count = keep_count(rate, disputed, settings.smallest)
        best = {name: best_among(score, eligible, count) for name, score in scores.items()}
    best = {name: own(chosen) for name, chosen in best.items()}
    return {first: best[second], second: best[first]} if settings.exchange else best


def comparison(lessons: dict[str, Lesson], chosen: dict[str, Tensor], weight: Tensor | None) -> Metrics:
    """How differently the two act, what was kept of the batch, and how evenly its rows weigh."""
    proposals = [lesson.proposal for lesson in lessons.values() if lesson.proposal is not None]
    first, second = (proposal.stance.detach() for proposal in proposals)
    metrics = {"policy/disagreement": across(squared_distance(first, second).mean()).sqrt()}
    if chosen:
        left, right = map(whole, chosen.values())
        kept = left.sum()
        metrics["selection/rows"] = kept.float()
        metrics["selection/rate"] = kept / len(left)
        metrics["selection/overlap"] = overlap(left, right)
    if weight is not None:
        weight = whole(weight)
        metrics["importance/batch_effective_share"] = effective_sample_size(weight) / len(weight)
        metrics["importance/batch_std"] = weight.std(correction=0)
        metrics |= {"importance/batch_smallest": weight.amin(), "importance/batch_largest": weight.amax()}
    return metrics


def rare_rewards(settings: TeachingSettings, rewards: Tensor) -> list[str]:
    """A warning, if critics are to learn from the rows they explain best and rewards are rare events."""
    if not (settings.select_critic and settings.chooses):
        return []
    near = 0.01 * (rewards.max() - rewards.min())
    common = float(((rewards - rewards.median()).abs() <= near).float().mean())
    if common < COMMON:
        return []
    fate = "will look like errors and be left out" if settings.score == "td" else "may be left out"
    return [
        f"algo.teaching.select_critic=true: {common:.0%} of all rewards are nearly the same number. Rows with others "
        f"{fate}, and values drift toward that number. Use select_critic=false where rewards are rare."
    ]

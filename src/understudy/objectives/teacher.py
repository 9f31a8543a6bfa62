"""Objective `teacher`: a policy learns from frozen ones that may see more, while it plays itself (TPPO; DAgger, where
PPO is off). At every step of a rollout a teacher says what it would do, from its own observation groups, with its own
normaliser and memory; with β it acts itself in some episodes.

    L(π) ← policy_coef·L_PPO + w·mean d(π(s), a) + v·mean Σ d(z, z_teacher),  a = what the teacher would do
    d    = mean (μ − a)² (`mse`), Σ (μ − a)² (`mse_sum`)            → losses.policy.squared_distance
           ‖μ − a‖₂ (`l2`, `real`)                                  → losses.distillation.euclidean_distance
           ‖μ − a‖₁ (`l1`)                                          → losses.distillation.absolute_distance
           Huber's (`huber`)                                        → losses.distillation.huber_distance
           cross entropy on a scale from 0 to 1 (`tanh`)            → losses.distillation.tanh_distance
           the same times ‖μ − a‖₁/A (`scaled_tanh`)                → losses.distillation.scaled_tanh_distance
           −log π(a|s) (`nll`, `max_log_prob`), KL(teacher ‖ π) in closed form (`kl`), KL(π ‖ teacher) (`reverse_kl`),
           kl + H(teacher) (`cross_entropy`)                        → distribution.log_prob, distribution.kl

μ is the student's mode, z are latents of encoders. w, v, β and policy_coef follow schedules of updates.

Who drives an environment is drawn where an episode begins; the action that was sent is stored, and its log-probability
is the student's: the first ratio of PPO is 1 in every row (sources.playing.turns). Weight 0 and β = 0 is PPO to the
bit; policy_coef 0 is DAgger with a buffer of one rollout, or of `buffer_dilation`.
"""

from dataclasses import dataclass
from typing import Literal, Self, final

import torch
from pydantic import Field, model_validator
from torch import Tensor

from understudy.core.batch import Obs, Rollout
from understudy.core.errors import ConfigError
from understudy.core.protocols import LEARNER, BuildContext, Carry, Driving, Metrics, Roles
from understudy.core.rng import stream
from understudy.core.schedule import ScheduledShare, ScheduledWeight
from understudy.core.settings import Settings
from understudy.core.state import Static
from understudy.losses.distillation import DISTANCES, huber_distance
from understudy.nn.actor import Actor
from understudy.objectives import Evaluation, Weights
from understudy.parts.distillation.past_labels import PastLabels
from understudy.parts.distillation.success import kept_rows
from understudy.parts.distillation.teachers import FEATURES, LABEL, LATENT, Teachers, Wanted
from understudy.parts.ppo.batch import RESETS, PPOBatch
from understudy.parts.ppo.settings import PPOSettings

Distance = Literal["mse", "mse_sum", "l1", "l2", "real", "huber", "tanh", "scaled_tanh"]
Likelihood = Literal["nll", "max_log_prob"]
Divergence = Literal["kl", "reverse_kl", "cross_entropy"]
LIKELIHOODS, DIVERGENCES = ("nll", "max_log_prob"), ("kl", "reverse_kl", "cross_entropy")
PREFIX, KEPT, WHERE = "teacher/", "kept", "algo.objectives.teacher"


class Config(Settings):
    """A teacher beside PPO."""

    teachers: tuple[str, ...] = Field(("teacher",), min_length=1)
    """Roles of frozen policies, each named in `policies` of the run: a run, a policy folder or an ONNX file."""
    dispatch: str = ""
    """Of several teachers: the group or `group.segment` of one whole number that says whose turn it is, from 0, in the
    order of `teachers`."""
    loss: Distance | Likelihood | Divergence = "mse"
    """`mse`, `l1`, `l2`, `huber` between modes; `nll` of the teacher's action; `kl` of densities of one family, teacher
    first; `reverse_kl`, `cross_entropy`; st_rl's `real`, `mse_sum`, `tanh`, `scaled_tanh`, `max_log_prob`. Choices know
    `nll`, `kl`, `reverse_kl` and `cross_entropy`."""
    huber_delta: float = Field(1.0, gt=0)
    """Where `huber` turns from a square to a line, in policy space."""
    weight: ScheduledWeight = ScheduledWeight(start=1.0, end=1.0)
    """w, of the distillation loss: a number, or a group {start, end, over, kind} in updates. PPO's own weight is
    algo.policy_coef."""
    labels: Literal["mean", "sample"] = "mean"
    """What the teacher would do at best, or what it draws."""
    latents: dict[str, str] = Field(default_factory=dict)
    """Student's encoder → teacher's encoder, by the names of their inputs: what the one says shall be what the other
    says."""
    latent_loss: Distance = "mse"
    """Distance of latents."""
    latent_weight: ScheduledWeight = ScheduledWeight(start=1.0, end=1.0)
    """Of that loss: a number or a schedule."""
    beta: ScheduledShare = ScheduledShare(start=0.0, end=0.0)
    """β: how likely an episode that begins is acted by the teacher, in each environment: a number or a schedule."""
    driven_policy_weight: float = Field(1.0, ge=0)
    """What rows that a teacher acted count in PPO's loss; 0: PPO learns only from what the student did."""
    hidden_state_resample_prob: float = Field(0.0, ge=0, le=1)
    """How likely the student's memory of an environment begins a rollout at random, within what its cells can reach."""
    buffer_dilation: int = Field(1, ge=1, le=1000)
    """Rollouts whose labels are learned from, this one included; more than 1 only where algo.policy_coef is 0."""
    success: str = ""
    """Rows of episodes that ended without it are left out of the distillation loss: `truncated` (who reaches the time
    limit succeeds), `terminated`, or the name of a number that the environment tells, above 0 at the last step."""

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if len(set(self.teachers)) < len(self.teachers):
            raise ValueError(f"teachers: one is named twice: got {list(self.teachers)}")
        if self.huber_delta != 1.0 and "huber" not in (self.loss, self.latent_loss):
            raise ValueError(f"huber_delta={self.huber_delta:g} is of loss=huber, and the loss is {self.loss}")
        return self


@final
@dataclass
class Teacher:
    config: Static[Config]
    teachers: Static[Teachers]
    student: Static[Actor]
    draws: torch.Generator
    """Of labels that are drawn."""
    past: tuple[PastLabels, ...]
    """Labels of earlier rollouts, or nothing."""
    updates: int = 0
    counted: Static[tuple[int, int]] = (0, 0)
    """Rows that count in the rollout that is being learned from, and those of earlier ones that are learned from."""

    @property
    def weights(self) -> Weights:
        latent = {"latent": self.config.latent_weight.at(self.updates)} if self.config.latents else {}
        return Weights(losses={"distillation": self.config.weight.at(self.updates), **latent})

    def check(self, policy: Actor, ppo: PPOSettings) -> None:
        """Rollouts of older policies have neither ratios nor advantages."""
        if self.past and not ppo.policy_coef.constant_at(0.0):
            raise ConfigError(
                f"{WHERE}.buffer_dilation",
                "old rollouts are of older policies, and PPO learns only from what the policy itself just did",
                got=f"algo.policy_coef from {ppo.policy_coef.start:g} to {ppo.policy_coef.end:g}",
                expected="algo.policy_coef=0",
                do="Say so, or leave the older rollouts out.",
            )
        if self.past and policy.estimator is not None and policy.estimator.replaced:
            told = "old rollouts do not keep the estimates that the student was shown"
            raise ConfigError(
                f"{WHERE}.buffer_dilation", told, do="Leave out one of buffer_dilation and algo.actor.estimate."
            )

    @property
    def streams(self) -> tuple[torch.Generator, ...]:
        return (self.draws,)

    def initial(self, count: int) -> Carry:
        return self.teachers.initial(count)

    def record(self, obs: Obs, carry: Carry) -> tuple[dict[str, Tensor], Carry]:
        """What the teachers say of a step."""
        return self.teachers.say(obs, carry, self.draws)

    def driving(self) -> Driving:
        config = self.config
        return Driving(config.beta.at(self.updates), config.driven_policy_weight, config.hidden_state_resample_prob)

    def drive(self, facts: Obs) -> Tensor:
        """The label, in environment units."""
        return self.student.to_env_action(facts[LABEL])

    def prepare(self, rollout: Rollout) -> dict[str, Tensor]:
        """Which rows are learned from, where not all are [T, N]; how many older ones are is noted."""
        self.counted = int(rollout.valid.sum()), sum(past.counted for past in self.past)
        return {KEPT: kept_rows(rollout, self.config.success)} if self.config.success else {}

    def loss(self, batch: PPOBatch, evaluation: Evaluation) -> dict[str, Tensor]:
        facts = {name.removeprefix(PREFIX): column for name, column in batch.extra.items() if name.startswith(PREFIX)}
        terms = self._terms(evaluation.policy, evaluation.features, batch.policy_obs, facts)
        learned = batch.played(facts[KEPT] if KEPT in facts else torch.ones_like(batch.advantage)).float()
        if KEPT in facts:
            share = learned.mean().clamp(min=1e-8)
            terms = {name: term * facts[KEPT] / share for name, term in terms.items()}
        for past in self.past:
            terms = self._with_past(terms, learned, past, batch, evaluation.policy) if past.filled else terms
        return terms

    def _terms(self, student: Actor, features: Tensor, obs: Obs, facts: Obs) -> dict[str, Tensor]:
        """Losses of rows [B] or [T, n], by name."""
        terms = {"distillation": self._distance(student, features, facts)}
        if self.config.latents:
            latents = student.encoder_latents(obs)
            parts = [
                self._between(self.config.latent_loss, latents[name], facts[LATENT + name])
                for name in self.config.latents
            ]
            terms["latent"] = torch.stack(parts).sum(0)
        return terms

    def _distance(self, student: Actor, features: Tensor, facts: Obs) -> Tensor:
        kind, density, label = self.config.loss, student.distribution, facts[LABEL]
        if kind in LIKELIHOODS:
            return -density.log_prob(features, label)
        if kind in DIVERGENCES:
            old, new = (features, facts[FEATURES]) if kind == "reverse_kl" else (facts[FEATURES], features)
            apart = density.kl(old, new)
            return apart + density.entropy(facts[FEATURES]) if kind == "cross_entropy" else apart
        return self._between(kind, density.mode(features), label)

    def _between(self, kind: str, mine: Tensor, theirs: Tensor) -> Tensor:
        if kind == "huber":
            return huber_distance(mine, theirs, self.config.huber_delta)
        return DISTANCES[kind](mine, theirs)

    def _with_past(
        self, terms: dict[str, Tensor], learned: Tensor, past: PastLabels, batch: PPOBatch, student: Actor
    ) -> dict[str, Tensor]:
        """The same terms, such that their mean is that over the rows that are `learned` from now, of those that were
        played [...], and over this minibatch's share of all older ones, for which some that are drawn stand."""
        rows = past.some(batch.action.shape[1 if batch.sequential else 0], sequential=batch.sequential)
        seen = student.perceive(rows.obs, rows.carry, rows.resets if RESETS in batch.extra else None)
        old = self._terms(student, student.features(seen, student.mask(rows.obs)), rows.obs, rows.facts)
        drawn, (counted, older) = rows.valid.sum(), self.counted
        others = torch.where(drawn > 0, learned.numel() * older / counted, 0.0)
        each, total = others / drawn.clamp(min=1), (learned.sum() + others).clamp(min=1e-8)
        share = learned.sum() / total
        return {name: share * term + each * (old[name] * rows.valid).sum() / total for name, term in terms.items()}

    def learn(self, rollout: Rollout) -> Metrics:
        """Nothing; an update is counted, and its labels are kept where older ones are learned from."""
        facts = {name.removeprefix(PREFIX): column for name, column in rollout.extra.items()}
        for past in self.past:
            kept = kept_rows(rollout, self.config.success) if self.config.success else rollout.valid
            past.add(rollout, facts, rollout.valid & kept)
        told = {
            "beta": self.config.beta.at(self.updates),
            "weight": self.config.weight.at(self.updates),
        }
        self.updates += 1
        driven = facts["driven"][rollout.valid].float().mean() if "driven" in facts else rollout.reward.new_zeros(())
        return {**{name: torch.tensor(number) for name, number in told.items()}, "driven": driven}


def needs(config: Config) -> Roles:
    return Roles(policies=config.teachers)


def build(config: Config, context: BuildContext) -> Teacher:
    student = context.policies[LEARNER]
    assert isinstance(student, Actor)
    absent = [role for role in config.teachers if role not in context.policies]
    if absent:
        do = f"Say where it is: policies.{absent[0]}.path=RUN."
        raise ConfigError(f"{WHERE}.teachers", "there is no such policy", got=absent, do=do)
    if student.discrete and config.loss not in (*LIKELIHOODS, *DIVERGENCES):
        expected = ", ".join((*LIKELIHOODS, *DIVERGENCES))
        raise ConfigError(f"{WHERE}.loss", "choices have no distance", got=config.loss, expected=expected)
    if config.hidden_state_resample_prob and not student.initial(1):
        raise ConfigError(f"{WHERE}.hidden_state_resample_prob", "the student has no memory: see algo.actor.memory")
    wanted = Wanted(config.loss in DIVERGENCES, config.latents, config.labels == "sample")
    named = {role: context.policies[role] for role in config.teachers}
    teachers = Teachers(named, config.dispatch, wanted, student, WHERE).to(context.device)
    seed, past = context.seed, tuple[PastLabels, ...]()
    if config.buffer_dilation > 1:
        shapes = _example_facts(student, config)
        sizes = (config.buffer_dilation - 1, context.rollout_length, context.num_envs)
        past = (PastLabels.empty(*sizes, student, shapes, stream(seed, "teacher/past")),)
    return Teacher(config, teachers, student, stream(seed, "teacher/labels"), past)


def _example_facts(student: Actor, config: Config) -> Obs:
    """What is recorded of one environment [1, …], in numbers of no meaning."""
    density = student.distribution
    features = density.features(torch.zeros(1, density.outputs))
    facts = {LABEL: density.mode(features)}
    if config.loss in DIVERGENCES:
        facts[FEATURES] = features
    sizes = {name: student.settings.encoders[name].size for name in config.latents}
    return facts | {LATENT + name: torch.zeros(1, size) for name, size in sizes.items()}

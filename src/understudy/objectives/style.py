"""Style (adversarial motion priors, AMP; Peng et al. 2021): move so that nobody can tell it from reference motions.

    x      = n frames of named features, (s_{t−n+2}, …, s_t, s′_t)  → parts.style.windows.FrameHistory.windows
    L(D)   = ½·mean ℓ_e(D(x_e))                                     → losses.adversarial.expert_loss
           + ½·mean ℓ_π(D(x_π))                                     → losses.adversarial.policy_loss
           + λ·mean ‖∇D‖² + κ·‖w_last‖²                             → losses.adversarial.gradient_penalty
    r      ← w_task·r + w·r_s(D(x_π))                               → losses.adversarial.style_reward

D is a discriminator between windows of motions, drawn one by one, and windows of the policy, half of them from this
rollout and half from the ones before (a replay). It is no part of the policy: it has its own optimiser and its own
gradient norm. One normaliser serves both kinds of windows; it stands still while a rollout is judged and learned from.
Windows never span two episodes, and the last frame of an episode is the one that was really reached. A step without a
whole window behind it (the first n − 2 of an episode) is worth 0 and teaches nothing. Rewards are those of before D
learns from the rollout. Weight 0, and a task weight of 1, is PPO to the bit. With the objective `teacher` it is st_rl's
ATPPO.

What is normal (docs/style.md): D of both near 0, accuracies near ½ to ¾, and a style reward near 0.75 (`quad`), 0.693
(`log`) or 1 (`wgan`). `style/distance` is how far windows of the policy are from the nearest of some motions, in units
of the normaliser, which nobody can deceive; `style/distance_motions` is the same among motions.

Differs from the paper in: losses, penalties and rewards to choose from; the task's weight is 1 unless it is said.
Differs from AMP_for_hardware and st_rl in: D outside the policy; from st_rl also in one normaliser, in a replay, and in
what is learned from an episode's end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, final

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from understudy.core.batch import POLICY_WEIGHT, Obs, Rollout
from understudy.core.errors import ConfigError
from understudy.core.motion import Motions, MotionWindows
from understudy.core.protocols import BuildContext, Metrics, Roles
from understudy.core.rng import stream
from understudy.core.schedule import ScheduledWeight
from understudy.core.settings import Count, Settings
from understudy.core.state import Static
from understudy.losses.adversarial import (
    EQUILIBRIUM,
    AdversarialLoss,
    StyleReward,
    accuracies,
    expert_loss,
    gradient_penalty,
    least_reward,
    policy_loss,
    style_reward,
)
from understudy.nn.discriminator import Discriminator, DiscriminatorSettings
from understudy.nn.normalization import OnPolicyNormalizerSettings
from understudy.nn.segments import Input, find_inputs
from understudy.objectives import Weights
from understudy.parts.optim import Adam, OptimizerSettings
from understudy.parts.style.diagnostics import Stakes, feature_gaps, style_warning, window_distances
from understudy.parts.style.replay import WindowReplay
from understudy.parts.style.windows import FrameHistory, PlayedWindows

WHERE, TERM = "algo.objectives.style", "style"
REWARD_OF: dict[AdversarialLoss, StyleReward] = {"lsgan": "quad", "bce": "log", "wgan": "wgan"}
COMPARED, MOTIONS_COMPARED = 256, 1280
"""Windows of the policy whose nearest motion is looked for, and of motions."""
ACCURACIES = ("accuracy_expert", "accuracy_policy")
EASY, HARD = 0.9, 0.6
"""Accuracies between which an adaptive discriminator is kept."""


class DiscriminatorOptimizerSettings(OptimizerSettings):
    """How the discriminator is optimised, beside its learning rate."""

    kind: Literal["adam", "adamw"] = "adamw"
    """`adam`, or `adamw` with decoupled weight decay."""
    weight_decay: float = Field(1e-3, ge=0)
    """Of `adamw`: the share of every parameter that a step of learning rate 1 would take away."""
    max_grad_norm: float | None = Field(1.0, gt=0)
    """A gradient of a larger norm is scaled down to it; null is no limit."""


class Config(Settings):
    """Adversarial motion priors."""

    features: dict[str, str] = Field(min_length=1)
    """What the discriminator sees: groups or `group.segment` of the environment, and the channel of the motions that is
    compared with each: {state.joint_angles: joint_positions}. A list means channels of the same names."""
    frames: int = Field(2, ge=2)
    """n: frames of a window."""
    weight: ScheduledWeight = ScheduledWeight(kind="constant", start=1.0, end=1.0)
    """w: what the style reward counts. A number is constant."""
    task_weight: ScheduledWeight = ScheduledWeight(kind="constant", start=1.0, end=1.0)
    """What the environment's own reward counts; 0: style alone."""
    loss: AdversarialLoss = "lsgan"
    """`lsgan` (squares), `bce` (cross entropy) or `wgan` (bounded by tanh)."""
    reward: Literal["auto"] | StyleReward = "auto"
    """`quad` (0 to 1), `log` (0 to 9.2) or `wgan` (1/e to e); `auto`: the loss's own, in this order."""
    wgan_scale: float = Field(1.0, gt=0)
    """η of wgan: a small one makes its slope small beside the penalty's."""
    per_second: bool = False
    """The style reward is multiplied by the control step (motions.step), as simulators do that add up over time."""
    gradient_penalty: float = Field(5.0, ge=0)
    """λ: what the squared slope of D counts, in normalised frames."""
    penalty_on: Literal["expert", "policy", "both"] = "expert"
    """Where the slope is taken."""
    logit_decay: float = Field(0.01, ge=0)
    """κ: what the squares of the last layer's weights count."""
    network: DiscriminatorSettings = DiscriminatorSettings()
    """The discriminator's shape."""
    normalizer: OnPolicyNormalizerSettings = OnPolicyNormalizerSettings()
    """Of frames, one for motions and policy."""
    learning_rate: float = Field(3e-4, gt=0)
    """Step size of the discriminator's optimiser."""
    optimizer: DiscriminatorOptimizerSettings = DiscriminatorOptimizerSettings()
    """Its kind, weight decay, gradient clipping and schedule."""
    steps: Count = 8
    """Gradient steps of the discriminator for every rollout."""
    batch_size: Count = 512
    """Windows of motions, and as many of the policy, in each."""
    replay: int = Field(100_000, ge=0)
    """Windows of earlier rollouts that are remembered; 0: only this rollout teaches."""
    replay_share: float = Field(0.5, ge=0, le=1)
    """Share of the policy's windows in a step that is drawn from them."""
    replay_keep: float = Field(1.0, gt=0, le=1)
    """Share of a rollout's windows that is remembered, by chance: less of each reaches further back."""
    adapt: bool = False
    """Take fewer steps while the discriminator tells more than 90 % of windows, and more, up to `steps`, while it tells
    less than 60 %."""

    @field_validator("features", mode="before")
    @classmethod
    def _same_names(cls, given: object) -> object:
        if not isinstance(given, (list, tuple)):
            return given
        if len(set(map(str, given))) < len(given):
            raise ValueError("a name twice")
        return {str(name): str(name) for name in given}

    @model_validator(mode="after")
    def _something_counts(self) -> Self:
        if self.weight.constant_at(0.0) and self.task_weight.constant_at(0.0):
            raise ValueError("neither weight nor task_weight counts anything: nobody is paid")
        return self

    @property
    def reward_kind(self) -> StyleReward:
        return REWARD_OF[self.loss] if self.reward == "auto" else self.reward


@final
@dataclass
class Style:
    config: Static[Config]
    inputs: Static[tuple[Input, ...]]
    motions: Static[MotionWindows]
    unit: Static[float]
    """Seconds of a step where rewards are per second, else 1."""
    discriminator: Discriminator
    optimizer: Adam
    history: FrameHistory
    replay: WindowReplay
    rng: torch.Generator
    """Draws motions."""
    pace: float = 1.0
    """Share of `steps` that is taken, where it adapts."""
    taken_in: bool = False
    """The normaliser knows the rollout that is learned from next: the first one, which nobody came before."""
    updates: int = 0

    @property
    def weights(self) -> Weights:
        config = self.config
        return Weights({TERM: config.weight.at(self.updates)}, task=config.task_weight.at(self.updates))

    @torch.no_grad()
    def rewards(self, rollout: Rollout) -> dict[str, Tensor]:
        """r_s [T, N] of the discriminator as it stands; 0 where there is no window."""
        played = self._played(rollout)
        if not bool(self.discriminator.normalizer.count):
            self.taken_in = self._observe(played)
        return {TERM: self.worth(played.frames).masked_fill(~played.whole, 0.0)}

    def worth(self, windows: Tensor) -> Tensor:
        """r_s [...] of windows [..., n, F]."""
        config = self.config
        return self.unit * style_reward(self.discriminator(windows), config.reward_kind, config.wgan_scale)

    def learn(self, rollout: Rollout) -> Metrics:
        """Some steps of the discriminator; then the rollout is remembered, and the normaliser takes it in."""
        played = self._played(rollout)
        fresh, metrics = played.frames[self._own(rollout, played)], self._weighed()
        metrics["whole"] = played.whole[rollout.valid].float().mean()
        if len(fresh):
            paid = self._paid(fresh)
            steps = [self._step(fresh) for _ in range(max(1, round(self.pace * self.config.steps)))]
            judged = {name: torch.stack([step[name] for step in steps]).mean() for name in steps[0]}
            metrics |= {**judged, **paid, **self._compared(fresh)}
            self._adapt(judged)
            self.replay.remember(fresh)
        if not self.taken_in:
            self._observe(played)
        self.taken_in = False
        self.history.advance(rollout, self._frames(rollout.obs))
        self.updates += 1
        return metrics

    def warning(self, values: Mapping[str, float]) -> str:
        """Nothing will be learned from a discriminator that knows everything."""
        config, kind = self.config, self.config.reward_kind
        lost = least_reward(config.loss, kind, config.wgan_scale)
        stakes = Stakes(self.unit * EQUILIBRIUM[kind], self.unit * lost)
        return style_warning(values, stakes, tuple(config.features), self.updates, WHERE)

    def _step(self, fresh: Tensor) -> Metrics:
        """One gradient step, on as many windows of motions as of the policy; what was thought of them."""
        config, net = self.config, self.discriminator
        expert = net.prepared(self.motions.draw(config.batch_size, self.rng).to(fresh.device))
        policy = net.prepared(self.replay.draw(fresh, config.batch_size))
        where = config.penalty_on if config.gradient_penalty else "nowhere"
        on_expert, expert_slope = net.judge(expert, sloped=where in ("expert", "both"))
        on_policy, policy_slope = net.judge(policy, sloped=where in ("policy", "both"))
        loss = 0.5 * expert_loss(on_expert, config.loss, config.wgan_scale).mean()
        loss = loss + 0.5 * policy_loss(on_policy, config.loss, config.wgan_scale).mean()
        total, penalty = loss, torch.zeros((), device=fresh.device)
        if where != "nowhere":
            penalty = gradient_penalty(torch.cat([expert_slope, policy_slope])).mean()
            total = total + config.gradient_penalty * penalty
        if config.logit_decay:
            total = total + config.logit_decay * net.output_weight.square().sum()
        self.optimizer.minimise(total, config.learning_rate)
        told = {"loss": loss, "penalty": penalty, "d_expert": on_expert.mean(), "d_policy": on_policy.mean()}
        told |= dict(zip(ACCURACIES, accuracies(on_expert, on_policy, config.loss), strict=True))
        return {name: number.detach() for name, number in told.items()}

    def _weighed(self) -> Metrics:
        """What rewards count now, where that changes."""
        changing = {"weight": self.config.weight, "task_weight": self.config.task_weight}
        moving = {name: one for name, one in changing.items() if not one.constant_at(one.start)}
        return {name: torch.tensor(one.at(self.updates)) for name, one in moving.items()}

    def _adapt(self, judged: Metrics) -> None:
        if self.config.adapt:
            accuracy = float(sum(judged[name] for name in ACCURACIES) / 2)
            factor = 1 / 1.5 if accuracy > EASY else 1.5 if accuracy < HARD else 1.0
            self.pace = min(1.0, max(self.pace * factor, 0.5 / self.config.steps))

    @torch.no_grad()
    def _paid(self, fresh: Tensor) -> Metrics:
        """What this rollout was paid, and at which pace the discriminator learns from it."""
        paid, pace = self.worth(fresh), {"pace": torch.tensor(self.pace)} if self.config.adapt else {}
        return {"reward": paid.mean(), "reward_std": paid.std(correction=0), **pace}

    @torch.no_grad()
    def _compared(self, fresh: Tensor) -> Metrics:
        """How far apart policy and motions are. Looking draws nothing from anybody."""
        rng = torch.Generator().manual_seed(self.updates)
        motions = self.motions.draw(MOTIONS_COMPARED, rng).to(fresh.device)
        policy = fresh[torch.randint(len(fresh), (COMPARED,), generator=rng).to(fresh.device)]
        sizes = {entry.name: entry.size for entry in self.inputs}
        normal = self.discriminator.normalizer
        return window_distances(policy, motions, normal) | feature_gaps(policy, motions, normal, sizes)

    def _observe(self, played: PlayedWindows) -> bool:
        """The normaliser takes in frames of the policy, and as many of motions; whether there were any."""
        frames = played.frames[..., -1, :][played.whole]
        if len(frames):
            motions = self.motions.draw(len(frames), self.rng)[:, -1].to(frames.device)
            self.discriminator.normalizer.update(torch.cat([frames, motions]))
        return len(frames) > 0

    @staticmethod
    def _own(rollout: Rollout, played: PlayedWindows) -> Tensor:
        """[T, N]: whole windows whose last step counts as the policy's own."""
        weight = rollout.extra.get(POLICY_WEIGHT)
        return played.whole if weight is None else played.whole & (weight > 0)

    def _played(self, rollout: Rollout) -> PlayedWindows:
        return self.history.windows(rollout, self._frames(rollout.obs), self._frames(rollout.next_obs))

    def _frames(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Features side by side [T, N, F]."""
        groups: Obs = {group: obs[group] for group in dict.fromkeys(entry.group for entry in self.inputs)}
        return torch.cat([entry.of(groups).float() for entry in self.inputs], dim=-1)


def needs(config: Config) -> Roles:
    return Roles(motions=True)


def build(config: Config, context: BuildContext) -> Style:
    (motions,), device = context.motions, context.device
    inputs = find_inputs(sorted(config.features), context.spec, f"{WHERE}.features")  # the order written is no setting
    _check_channels(config, inputs, motions)
    with torch.device("cpu"):  # also where networks are only outlined
        windows = motions.windows([config.features[entry.name] for entry in inputs], config.frames)
    if config.per_second and not motions.step > 0:
        raise ConfigError(
            f"{WHERE}.per_second", "nobody says how long a step of these motions is", do="Say motions.step."
        )
    rng = stream(context.seed, "init/style")
    net = Discriminator(config.frames, windows.size, config.network, config.normalizer, rng).to(device)
    trained = [net.trunk.flat, *net.trunk.norms.parameters()]
    keeps = {"share": config.replay_share, "keep": config.replay_keep}
    return Style(
        config,
        inputs,
        windows,
        motions.step if config.per_second else 1.0,
        net,
        Adam.over(trained, config.optimizer, context.updates * config.steps),
        FrameHistory.empty(config.frames, context.num_envs, windows.size, device),
        WindowReplay.empty(
            config.replay, config.frames, windows.size, **keeps, rng=stream(context.seed, "style/policy")
        ),
        stream(context.seed, "style/motions"),
    )


def _check_channels(config: Config, inputs: tuple[Input, ...], motions: Motions) -> None:
    """Every feature is a vector, and its channel has a number for each of its columns."""
    for entry in inputs:
        where, channel = f"{WHERE}.features.{entry.name}", config.features[entry.name]
        if entry.image or len(entry.shape) != 1:
            raise ConfigError(where, "is no vector", got=list(entry.shape), expected="a group or segment of numbers")
        components = motions.channels.get(channel)
        if components is not None and len(components) != entry.size:
            told = ", ".join(components[:8]) + (" …" if len(components) > 8 else "")
            raise ConfigError(
                where,
                f"the motions' '{channel}' has another number of components",
                got=f"{len(components)} ({told})",
                expected=f"{entry.size}, as the environment",
                do="Say which joints there are, in the robot's order: motions.joints=[…].",
            )

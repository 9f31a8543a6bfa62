"""Symmetry (Yu et al. 2018; Mittal et al. 2024): what holds on the left holds on the right.

    (s, a) → (M_s s, M_a a), with the advantage, value, target and old density of (s, a)           `augment`
    L     = ‖μ(M_s s) − M_a μ(s)‖²/A, or of the probabilities of choices       → losses.symmetry.mirror_loss

M_s and M_a are mirrors (see parts.mirror), of raw observations, which then go through the same normalisers.

A rollout seen in the mirror is a rollout of the mirrored policy, which did M_a a in M_s s with the density π_old(a|s):
M_a permutes and changes signs, so densities stay. That is the old log-probability of a mirrored row, as in rsl_rl, and
its ratio π(M_a a|M_s s)/π_old(a|s) is the importance weight of who really did it. What the policy itself would have
given to M_a a is another number, and a ratio with it would be 1 at first and wrong: nobody drew M_a a from it. The two
are the same where the policy is symmetric, and there every ratio begins at 1; those of rows that were played always do.
KL, ratios in logs, and losses of other objectives are of rows that were played.

With memory nobody knows what the mirrored past left behind: a mirrored sequence begins empty and counts from the first
episode that begins in it. The mirror loss has gradient both ways, as the paper's; its mean is over what is known.

Differs from rsl_rl in: one mirror, not several images; its mirror loss leaves M_a μ(s) without gradient, which halves
it; memory.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.core.batch import Obs, Rollout
from understudy.core.protocols import BuildContext, Carry, Metrics, Roles
from understudy.core.schedule import ScheduledWeight
from understudy.core.state import Static
from understudy.losses.symmetry import mirror_loss
from understudy.objectives import Evaluation, Weights
from understudy.parts.mirror import Mirror, MirrorSettings, make_mirror
from understudy.parts.ppo.batch import PLAYED, RESETS, VALID, PPOBatch

WHERE = "algo.objectives.symmetry"


class Config(MirrorSettings):
    """Symmetry."""

    augment: bool = True
    """Every minibatch is learned from twice: as it was, and mirrored. Policy and critic both see it."""
    weight: ScheduledWeight = ScheduledWeight(kind="constant", start=0.0, end=0.0)
    """Of the mirror loss, which is told at any weight. A number is constant."""


@final
@dataclass
class Symmetry:
    config: Static[Config]
    mirror: Static[Mirror]
    updates: int = 0

    @property
    def weights(self) -> Weights:
        return Weights(losses={"mirror": self.config.weight.at(self.updates)})

    def augment(self, batch: PPOBatch) -> PPOBatch:
        """Rows [B] and behind them their images [2B], or sequences [T, n] and theirs [T, 2n]."""
        if not self.config.augment:
            return batch
        axis = 1 if batch.sequential else 0

        def twice(column: Tensor) -> Tensor:
            return torch.cat([column, column], axis)

        def imaged(obs: Obs) -> Obs:
            image = self.mirror.observations(obs)
            return {name: torch.cat([values, image[name]], axis) for name, values in obs.items()}

        policy_obs = imaged(batch.policy_obs)
        others = {name: values for name, values in batch.value_obs.items() if batch.policy_obs.get(name) is not values}
        value_obs = {**policy_obs, **imaged(others)}  # a policy may be shown estimates where its critic sees the truth
        all_rows = torch.ones_like(batch.advantage, dtype=torch.bool)
        played = batch.extra.get(PLAYED, all_rows)
        extra = {name: twice(column) for name, column in batch.extra.items()}
        extra[PLAYED] = torch.cat([played, torch.zeros_like(played)], axis)
        if batch.sequential:
            valid = batch.extra.get(VALID, all_rows)
            remembered = _remembered(batch.extra[RESETS], *batch.policy_carry, *batch.value_carry)
            extra[VALID] = torch.cat([valid, valid & remembered], axis)
        return PPOBatch(
            policy_obs,
            {name: value_obs[name] for name in batch.value_obs},
            torch.cat([batch.action, self.mirror.action(batch.action)], axis),
            twice(batch.log_prob),
            twice(batch.advantage),
            twice(batch.value),
            twice(batch.target),
            extra,
            _begun_anew(batch.policy_carry),
            _begun_anew(batch.value_carry),
        )

    def loss(self, batch: PPOBatch, evaluation: Evaluation) -> dict[str, Tensor]:
        """Between rows and their images, where both were evaluated; otherwise the policy looks at the images."""
        with nullcontext() if self.weights.losses["mirror"] else torch.no_grad():
            return {"mirror": self._between(batch, evaluation)}

    def _between(self, batch: PPOBatch, evaluation: Evaluation) -> Tensor:
        said, axis = self._told(evaluation.features, evaluation), 1 if batch.sequential else 0
        if self.config.augment:
            ours, image = said.chunk(2, axis)
            apart = mirror_loss(image, self.mirror.actions(ours))
            if batch.sequential:
                valid, remembered = batch.extra[VALID].chunk(2, axis)
                apart = _spread(apart, remembered, valid)
            return torch.cat([apart, apart], axis)
        policy, obs = evaluation.policy, self.mirror.observations(batch.policy_obs)
        empty = tuple(torch.zeros_like(part) for part in batch.policy_carry)
        seen = policy.perception.sequence(obs, empty, batch.extra.get(RESETS))
        image = self._told(policy.features(seen, policy.mask(obs)), evaluation)
        apart = mirror_loss(image, self.mirror.actions(said))
        if batch.policy_carry:
            valid = batch.extra.get(VALID, torch.ones_like(batch.advantage, dtype=torch.bool))
            apart = _spread(apart, valid & _remembered(batch.extra[RESETS], *batch.policy_carry), valid)
        return apart

    def _told(self, features: Tensor, evaluation: Evaluation) -> Tensor:
        """What is compared [..., A]: the action without its noise, or the probabilities of choices [..., K]."""
        return features.softmax(-1) if self.mirror.discrete else evaluation.distribution.mode(features)

    def learn(self, rollout: Rollout) -> Metrics:
        """Nothing: it counts updates, for its schedule."""
        weight = torch.tensor(self.config.weight.at(self.updates))
        self.updates += 1
        return {"weight": weight}


def _remembered(resets: Tensor, *carry: Tensor) -> Tensor:
    """[T, n]: where a sequence that began empty remembers all there is, since an episode began in it or before it."""
    empty = torch.ones_like(resets[0])
    for part in carry:
        empty = empty & (part == 0).flatten(1).all(1)
    return empty | (resets.cumsum(0) > 0)


def _spread(apart: Tensor, known: Tensor, counted: Tensor) -> Tensor:
    """[T, n], whose mean over the rows that are counted is the mean over those that are known among them; 0 of none."""
    return torch.where(known, apart, 0.0) * (counted.sum() / known.sum().clamp_min(1))


def _begun_anew(carry: Carry) -> Carry:
    """[n, …] → [2n, …], the second half empty."""
    return tuple(torch.cat([part, torch.zeros_like(part)]) for part in carry)


def needs(config: Config) -> Roles:
    return Roles()


def build(config: Config, context: BuildContext) -> Symmetry:
    return Symmetry(config, make_mirror(config, context.spec, context.device, WHERE))

"""What PPO learns from: a rollout and what was thought of it before anything moved, whole or in minibatches; and what
its steps tell."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from understudy.core.batch import POLICY_WEIGHT, Obs
from understudy.core.protocols import Carry, Metrics
from understudy.core.spec import ACTION_MASK
from understudy.losses.returns import standardised
from understudy.losses.surrogate import clip_fraction, estimated_kl
from understudy.nn.actor import Actor
from understudy.nn.value_network import ValueNetwork

SEEN = "<seen>"
"""The one group of a network whose perception has nothing to learn: what it made of the observations, once."""
FEATURES, VALID, RESETS = "<features>", "<valid>", "<resets>"
"""In `PPOBatch.extra`, beside the rollout's: the density that drew the actions, where somebody asks how far the policy
has moved from it; which rows count, where not all do; and where a memory starts anew, where there is one."""

PLAYED = "<played>"
"""In `PPOBatch.extra`, where an objective made up rows: which ones were really played [B]."""
LARGEST_LOG_RATIO = 60.0
"""What is told of ratios stays finite where PPO does not keep the policy near (`policy_coef` 0)."""


@final
@dataclass(frozen=True)
class PPOBatch:
    """Rows [B], or whole sequences [T, n] of some environments."""

    policy_obs: Obs
    value_obs: Obs
    """What each network is shown: observation groups, or `SEEN`."""
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    value: Tensor
    target: Tensor
    extra: dict[str, Tensor]
    """Facts of the rollout, and what only some settings need."""
    policy_carry: Carry = ()
    value_carry: Carry = ()

    @property
    def sequential(self) -> bool:
        """Sequences [T, n], for memory, and some of their rows may not count; not rows [B], all of which do."""
        return RESETS in self.extra

    def counted(self, numbers: Tensor) -> Tensor:
        """Those of rows that count [n]."""
        return numbers[self.extra[VALID]] if VALID in self.extra else numbers

    def played(self, numbers: Tensor) -> Tensor:
        """Those of rows that count and were played [n]: of others nobody knows what the policy thought before."""
        if PLAYED not in self.extra:
            return self.counted(numbers)
        return numbers[self.extra[PLAYED] & self.extra[VALID] if VALID in self.extra else self.extra[PLAYED]]

    def weighed(self, numbers: Tensor) -> Tensor:
        """Times what a row counts in the policy's loss, where that is not 1."""
        return numbers * self.extra[POLICY_WEIGHT] if POLICY_WEIGHT in self.extra else numbers

    def normalized(self) -> "PPOBatch":
        """With advantages of mean 0 and deviation 1 over the rows that count."""
        return replace(self, advantage=standardised(self.advantage, self.counted(self.advantage)))

    def value_metrics(self) -> Metrics:
        """What V says, and how much of y it knows; of advantages that nobody normalised."""
        value, advantage, target = (self.counted(column) for column in (self.value, self.advantage, self.target))
        unknown = advantage.var(correction=0) / target.var(correction=0).clamp(min=1e-8)
        return {"value/mean": value.mean(), "value/explained": 1.0 - unknown}

    def flattened(self) -> "PPOBatch":
        """The rows [B] that count, for networks without memory."""
        flat = self._picked(lambda column: column.flatten(0, 1))
        if VALID not in flat.extra:
            return flat
        counts = flat.extra.pop(VALID).nonzero()[:, 0]
        return flat._picked(lambda column: column.index_select(0, counts))

    def minibatches(self, count: int, rng: torch.Generator) -> Iterator[Tensor]:
        """One epoch, nothing left out: numbers of rows [b], or of environments where there is memory."""
        total = self.action.shape[1 if self.sequential else 0]
        order = torch.randperm(total, generator=rng).to(self.action.device)
        return (chosen for chosen in order.tensor_split(max(1, min(count, total))) if self._counts(chosen))

    def _counts(self, chosen: Tensor) -> bool:
        """Whether anything in a minibatch does."""
        return len(chosen) > 0 and (VALID not in self.extra or bool(self.extra[VALID][:, chosen].any()))

    def select(self, chosen: Tensor) -> "PPOBatch":
        """A minibatch: rows of rows [B], or whole sequences [T, n] where there is memory."""
        axis = 1 if self.sequential else 0
        carries = (tuple(part[chosen] for part in carry) for carry in (self.policy_carry, self.value_carry))
        return self._picked(lambda column: column.index_select(axis, chosen), *carries)

    def _picked(
        self, pick: Callable[[Tensor], Tensor], policy_carry: Carry = (), value_carry: Carry = ()
    ) -> "PPOBatch":
        shown = {id(values): pick(values) for obs in (self.policy_obs, self.value_obs) for values in obs.values()}
        return PPOBatch(
            {name: shown[id(values)] for name, values in self.policy_obs.items()},
            {name: shown[id(values)] for name, values in self.value_obs.items()},
            pick(self.action),
            pick(self.log_prob),
            pick(self.advantage),
            pick(self.value),
            pick(self.target),
            {name: pick(values) for name, values in self.extra.items()},
            policy_carry,
            value_carry,
        )


@final
@dataclass
class Tally:
    """What the steps of an update told, read once at its end."""

    scalars: dict[str, list[Tensor]] = field(default_factory=dict)
    log_ratios: list[Tensor] = field(default_factory=list)

    def note(self, name: str, number: Tensor) -> None:
        self.scalars.setdefault(name, []).append(number.detach())

    def note_policy(self, loss: Tensor, entropy: Tensor, log_ratio: Tensor) -> None:
        self.note("loss/policy", loss)
        self.note("policy/entropy", entropy)
        self.log_ratios.append(log_ratio.detach().flatten())

    @property
    def moved(self) -> bool:
        """A step came before the last minibatch: ratios of the first are 1 but for rounding, and say nothing."""
        return len(self.log_ratios) > 1

    def moved_beyond(self, kl: float) -> bool:
        """By the ratios of the last minibatch."""
        return self.moved and bool(estimated_kl(self.log_ratios[-1]) > kl)

    def metrics(self, clip: float) -> Metrics:
        """Means of what was noted, in an order that does not depend on which network was faster. Where nobody computed
        KL(before‖now) it is estimated from the ratios, if the policy learned at all."""
        means = {name: torch.stack(numbers).mean() for name, numbers in sorted(self.scalars.items())}
        if not self.log_ratios:
            return means
        log_ratio = torch.cat(self.log_ratios).clamp(max=LARGEST_LOG_RATIO)
        outside = clip_fraction(log_ratio, torch.zeros_like(log_ratio), clip)
        return {"policy/kl": estimated_kl(log_ratio), **means, "policy/clip_fraction": outside}


def shown(network: Actor | ValueNetwork, obs: Obs, *, raw: bool) -> Obs:
    """Observations, or, unless they must be `raw`, what a network makes of them that never changes its mind until all
    is learned."""
    if raw or not network.perception.fixed:
        return obs
    kept = {ACTION_MASK: obs[ACTION_MASK]} if ACTION_MASK in obs else {}
    return {SEEN: network.perception.look(obs), **kept}


def seen(network: Actor | ValueNetwork, obs: Obs, carry: Carry, extra: Mapping[str, Tensor]) -> Tensor:
    """What a network's trunk reads, with gradient where its perception learns."""
    return obs[SEEN] if SEEN in obs else network.perception.sequence(obs, carry, extra.get(RESETS))

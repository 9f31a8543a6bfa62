"""FQE of many candidates at once: one stack of critics, of which each judges another policy.

Every candidate gets what `algorithms/fqe` would give it alone with this seed, of the same episodes in the same units:
the same networks to begin with, the same batches, a target of its own. What the candidates would do is asked once,
before training, and not in every batch; in the stack products round in another order than alone, so that numbers agree
to about 1e-6 and not to the bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from understudy.algorithms import fqe
from understudy.core.machine_memory import check_room
from understudy.core.protocols import MAIN, BuildContext, Demand, Policy
from understudy.core.rng import stream
from understudy.core.spec import Discrete
from understudy.data.experience import LoggedExperience
from understudy.nn.critic import Critic
from understudy.parts.frozen_choices import frozen_choices
from understudy.run.monitor import largest_return
from understudy.sources.offline import Config as OfflineConfig
from understudy.sources.offline import check_batch, transition_sampler

ROWS = 4096
"""Rows that candidates and critics are asked about at once."""
BEYOND = 2.0
"""|Q| above so many times the largest return has diverged. The best that there is earns that return nearly, and critics
of it are a little above it somewhere."""
NOTICED = 200
"""Updates from one look at the progress to the next."""


@final
@dataclass(frozen=True)
class Choices:
    """What each of C candidates would do at the starts of E episodes and after each of N steps: actions in policy space
    [E or N, C, m, A], or probabilities [E or N, C, choices]."""

    starts: Tensor
    after: Tensor


@final
@dataclass(frozen=True)
class Judged:
    """What critics of one seed say, in units of the recorded rewards, float64."""

    starts: Tensor
    """E_{a~π} Q(s₀,a) [C, E]."""
    largest: Tensor
    """The largest |Q| [C] met at the starts and in the data."""
    bound: float
    """What no return can be beyond: largest reward/(1 − γ)."""
    steps: tuple["StepValues", ...] = ()
    """Of every step, where somebody asked for them."""

    @property
    def diverged(self) -> Tensor:
        """[C]: at some start they believe in more than any return. NaN is beyond every number."""
        return ~(self.starts.abs().amax(1) <= BEYOND * self.bound)

    @property
    def strained(self) -> Tensor:
        """[C]: they do so at some start or elsewhere in the data."""
        return ~(self.largest <= BEYOND * self.bound)


@final
@dataclass(frozen=True)
class StepValues:
    """[C, N] each."""

    q: Tensor
    """Q(s,a) of what was done."""
    after: Tensor
    """E_{a~π} Q(s',a)."""


def ask(policies: Sequence[Policy], data: LoggedExperience, samples: int, seed: int) -> Choices:
    """Of every candidate, with the same draws; `samples` 0 is greedy."""
    width = data.spec.action.count if isinstance(data.spec.action, Discrete) else max(samples, 1) * data.spec.box.size
    needed = (data.steps + data.dataset.episodes) * len(policies) * width * 4
    check_room("ope", f"what {len(policies)} policies do in {data.steps:,} steps", needed, "Judge fewer at once.")
    masks = ("mask", "next_mask") if data.spec.masked else ()

    def everywhere(rows: Tensor, *, after: bool) -> Tensor:
        rngs = [stream(seed, f"ope/choices/{after}") for _ in policies]
        told = []
        for index in torch.split(rows, ROWS):
            batch = data.rows(index, Demand(masks))
            obs, mask = (batch.next_obs, "next_mask") if after else (batch.obs, "mask")
            asked = zip(policies, rngs, strict=True)
            chosen = [frozen_choices(one, data.spec, obs, batch.extra.get(mask), samples, rng) for one, rng in asked]
            told.append(torch.stack([one if one.dim() == 2 else one.transpose(0, 1) for one in chosen], dim=1))
            data.dataset.release()
        return torch.cat(told)

    return Choices(everywhere(data.starts(), after=False), everywhere(torch.arange(data.steps), after=True))


def by_candidate(part: Tensor) -> Tensor:
    """Some rows of choices [B, C, m, A] or [B, C, N] as critics take them: [C, m, B, A] or [C, B, N]."""
    return part.permute(1, 2, 0, 3) if part.dim() == 4 else part.transpose(0, 1)


def train_stack(
    config: fqe.Config,
    data: LoggedExperience,
    policy: Policy,
    choices: Choices,
    rows: Tensor,
    seed: int,
    updates: int,
    batch_size: int,
    advance: Callable[[int], None] = lambda done: None,
    *,
    every_step: bool = False,
) -> Judged:
    """Critics of one seed, one per candidate, that learn from the steps `rows` [R], each as likely as any other;
    `policy` is any of the candidates. `every_step`: also what they say of each."""
    check_batch(batch_size, data)
    context = BuildContext(data.spec, updates, seed, data.device, data={MAIN: data})
    learner = stack(config, context, policy, choices.after.shape[1])
    demand = replace(learner.demand, columns=(*learner.demand.columns, "row"))
    sampler = transition_sampler(OfflineConfig(batch_size=batch_size), data, demand, seed, among=rows)
    for number in range(updates):
        batch = sampler.next()
        learner.learn(batch, by_candidate(choices.after.index_select(0, batch.extra["row"])))
        if number % NOTICED == NOTICED - 1:
            advance(number + 1)
    return _judged(learner, data, choices, config.gamma, every_step=every_step)


def stack(config: fqe.Config, context: BuildContext, policy: Policy, count: int) -> fqe.FQE:
    """As many learners in one as there are candidates, each of which begins as one alone would."""
    alone = fqe.assemble(config.model_copy(update={"critics": 1}), context, policy)
    wide = fqe.assemble(config.model_copy(update={"critics": count}), context, policy)
    for critic in (wide.critic, wide.target.network):
        _begin_alike(critic, alone.critic)
    return wide


@torch.no_grad()
def _begin_alike(critic: Critic, alone: Critic) -> None:
    """Every member of one has the numbers of the other."""
    for mine, theirs in zip(critic.trunk.layers(), alone.trunk.layers(), strict=True):
        mine.weight.copy_(theirs.weight.expand_as(mine.weight))
        mine.bias.copy_(theirs.bias.expand_as(mine.bias))


@torch.no_grad()
def _judged(learner: fqe.FQE, data: LoggedExperience, choices: Choices, gamma: float, *, every_step: bool) -> Judged:
    unit = 1.0 / data.reward.scale
    q, after = [], []
    rows = torch.arange(data.steps)
    for index in torch.split(rows if every_step else rows[:: max(1, data.steps // ROWS)], ROWS):
        batch = data.rows(index, Demand())
        q.append(learner.critic(learner.critic.perception.look(batch.obs), batch.action).double() * unit)
        if every_step:
            after.append(learner.value(batch.next_obs, by_candidate(choices.after[index])).double() * unit)
        data.dataset.release()
    begun = []
    for index, chosen in zip(torch.split(data.starts(), ROWS), torch.split(choices.starts, ROWS), strict=True):
        begun.append(learner.value(data.rows(index, Demand()).obs, by_candidate(chosen)).double() * unit)
    taken, starts = torch.cat(q, 1), torch.cat(begun, 1)
    largest = torch.maximum(taken.abs().amax(1), starts.abs().amax(1))
    return Judged(starts, largest, bound(data, gamma), (StepValues(taken, torch.cat(after, 1)),) if every_step else ())


def bound(data: LoggedExperience, gamma: float) -> float:
    """What no return can be beyond, in units of the recorded rewards."""
    return largest_return(data.recorded, data.reward, gamma) / data.reward.scale

"""What episodes held out of training say of a learner, measured at every evaluation.

    eval/action_error     how far the policy's greedy actions are from the recorded ones: the mean square in policy
                          units, of choices the share that differ
    eval/td_error         mean (Q_j(s,a) − y)² over critics and rows, y = r + γ·V(s'), or r where the episode terminated
    eval/q_data           mean Q(s, a) of the recorded actions
    eval/q_policy         mean Q(s, π(s)) of the policy's greedy actions
    eval/value_of_starts  mean V(s₀) over the start states of all episodes, learned from or not

V is the value network's where there is one, and min_j Q_j(s, π(s)) where there is none; of several learners in one
(two branches) everything is their mean. Rewards are those that are learned from. Algorithms without critics have the
first number only. Nothing is drawn and nothing moves.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.protocols import Algorithm, Carry, Demand, Metrics
from understudy.core.spec import ACTION_MASK
from understudy.data.dataset import Dataset
from understudy.data.experience import LoggedExperience
from understudy.losses.value import bootstrap_target, squared_error
from understudy.nn.critic import Critic
from understudy.nn.deployed import Deployed
from understudy.nn.dropout import eval_mode
from understudy.nn.perception import Seen
from understudy.nn.value_network import ValueNetwork
from understudy.run.config import ACTION_ERROR
from understudy.run.monitor import Monitored, evenly_spread, greedy_actions

BLOCK = 4096
STARTS = 512
"""Start states of either side that are asked about, evenly spread."""


@final
@dataclass(frozen=True)
class Validation:
    """A probe that measures it at every evaluation."""

    held_out: LoggedExperience
    starts: tuple[tuple[Obs, Tensor | None], ...]
    """Observations and masks of start states, of the data learned from and of those held out."""

    @classmethod
    def of(cls, data: LoggedExperience, held_out: Dataset) -> "Validation":
        """`data` are learned from: what their rewards are made of is what those of `held_out` are made of."""
        other = replace(data, dataset=held_out.with_rewards(data.reward).to(data.device), recorded=held_out)
        return cls(other, (start_states(data), start_states(other)))

    def metrics(self, algorithm: Algorithm[Any]) -> Metrics:
        return {}

    def eval_metrics(self, algorithm: Algorithm[Any]) -> dict[str, float]:
        policy = algorithm.policy
        assert isinstance(policy, Deployed)
        told = {ACTION_ERROR: action_error(policy, self.held_out.recorded)}
        learners = judges(algorithm)
        if not learners or policy.initial(1) or not isinstance(policy, Monitored):
            return told
        with ExitStack() as stack:
            for network in (policy, *(part for learner in learners for part in learner.networks())):
                stack.enter_context(eval_mode(network))
            told |= value_errors(policy, learners, self.held_out, algorithm.demand.gamma)
            values = [state_values(policy, learners, Seen(obs), mask) for obs, mask in self.starts]
        return {**told, "eval/value_of_starts": float(torch.cat(values).double().mean())}

    def warning(self, values: Mapping[str, float]) -> str:
        return ""


@final
@dataclass(frozen=True)
class Judge:
    """The networks of one learner that rate states and actions."""

    critic: Critic
    value: ValueNetwork | None

    def networks(self) -> list[torch.nn.Module]:
        return [self.critic] if self.value is None else [self.critic, self.value]


def judges(algorithm: Algorithm[Any]) -> list[Judge]:
    """Of every learner in an algorithm that has critics."""
    found, networks = [], algorithm.networks()
    for role, critic in networks.items():
        owner, dot, name = role.rpartition(".")
        if name == "critic" and isinstance(critic, Critic):
            value = networks.get(f"{owner}{dot}value")
            found.append(Judge(critic, value if isinstance(value, ValueNetwork) else None))
    return found


def start_states(data: LoggedExperience) -> tuple[Obs, Tensor | None]:
    """The first observations of episodes and what is legal in them, at most STARTS."""
    starts = torch.from_numpy(data.dataset.index.starts)
    some = starts[evenly_spread(min(STARTS, len(starts)), len(starts))]
    rows = data.rows(some, Demand(("mask",) if data.spec.masked else ()))
    return rows.obs, rows.extra.get("mask")


@torch.no_grad()
def state_values(policy: Monitored, learners: list[Judge], seen: Seen, mask: Tensor | None) -> Tensor:
    """V(s) [B], the mean of all learners': the value network's, or min_j Q_j(s, π(s))."""
    found = []
    for learner in learners:
        if learner.value is not None:
            found.append(learner.value(seen.by(learner.value)))
        else:
            critic = learner.critic
            found.append(critic(seen.by(critic), greedy_actions(policy, seen, mask)).amin(0))
    return torch.stack(found).mean(0)


@torch.no_grad()
def value_errors(policy: Monitored, learners: list[Judge], data: LoggedExperience, gamma: float) -> dict[str, float]:
    """`eval/td_error`, `eval/q_data` and `eval/q_policy` over all rows; the first only of known successors."""
    masks = ("mask", "next_mask") if data.spec.masked else ()
    squares, of_data, of_policy = (torch.zeros((), dtype=torch.float64) for _ in range(3))
    known = 0
    for index, _ in _blocks(data.recorded):
        rows = data.rows(index, Demand(("td_valid", *masks), gamma=gamma))
        seen, seen_next = Seen(rows.obs), Seen(rows.next_obs)
        chosen, valid = greedy_actions(policy, seen, rows.extra.get("mask")), rows.extra["td_valid"]
        known += int(valid.sum())
        for learner in learners:
            critic = learner.critic
            after = state_values(policy, [learner], seen_next, rows.extra.get("next_mask"))
            target = bootstrap_target(rows.reward, gamma, rows.terminated, after)
            q = critic(seen.by(critic), rows.action)
            squares += torch.where(valid, squared_error(q, target), 0.0).mean(0).sum().double().cpu()
            of_data += q.mean(0).sum().double().cpu()
            of_policy += critic(seen.by(critic), chosen).mean(0).sum().double().cpu()
    rows_told = data.steps * len(learners)
    told = {"eval/td_error": float(squares) / (known * len(learners))} if known else {}
    return {**told, "eval/q_data": float(of_data) / rows_told, "eval/q_policy": float(of_policy) / rows_told}


@torch.no_grad()
def action_error(policy: Deployed, dataset: Dataset) -> float:
    """Mean squared difference over steps and dimensions, in policy units; of choices, the share that differ."""
    total = torch.zeros((), dtype=torch.float64)
    carry: Carry = ()
    for index, alive in _steps(dataset) if policy.initial(1) else _blocks(dataset):
        rows = dataset.rows(index, Demand(("mask",) if policy.spec.masked else ()))
        obs = {**rows.obs, ACTION_MASK: rows.extra["mask"]} if policy.spec.masked else rows.obs
        carry = tuple(part[alive] for part in carry) if carry else policy.initial(len(index))
        action, carry = policy.act(obs, carry, greedy=True)
        if policy.discrete:
            total += (action.cpu() != rows.action).sum()
        else:
            difference = (action.cpu() - rows.action) / policy.action_half_range.cpu()
            total += difference.double().square().sum()
    return float(total) / dataset.actions.numel()


def _blocks(dataset: Dataset) -> Iterator[tuple[Tensor, Tensor]]:
    """All rows, some at a time; nobody remembers anything."""
    for first in range(0, dataset.steps, BLOCK):
        yield torch.arange(first, min(first + BLOCK, dataset.steps)), torch.empty(0, dtype=torch.int64)


def _steps(dataset: Dataset) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows of step 0, 1, … of all episodes that still last, and which of those of the step before they are."""
    starts, lengths = (torch.from_numpy(part) for part in (dataset.index.starts, dataset.index.lengths))
    alive = torch.arange(len(starts))
    for step in range(int(lengths.max())):
        lasting = lengths[alive] > step
        alive = alive[lasting]
        yield starts[alive] + step, lasting.nonzero()[:, 0]

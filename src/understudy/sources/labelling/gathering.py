"""How labelled rows become batches: single steps, or stretches of episodes for policies with a memory."""

from collections.abc import Callable

import torch
from torch import Tensor

from understudy.core.batch import Sequences, Transitions
from understudy.core.protocols import MAIN
from understudy.data.experience import LoggedExperience, into_policy_space
from understudy.data.replay_ring import ReplayRing
from understudy.data.rewards import RewardTransform
from understudy.sources import SourceInputs
from understudy.sources.labelling.aggregate import Gathering


def single_steps(
    inputs: SourceInputs, ring: ReplayRing, batch_size: int, data: tuple[LoggedExperience, ...]
) -> Gathering[Transitions]:
    """Rows of demonstrations, if there are any, and own ones."""
    of_ring, demand = _own_rows(inputs, ring), inputs.demand
    if not data:
        return Gathering(0, of_ring, of_ring, Transitions.joined, batch_size)
    (logged,) = data
    return Gathering(logged.steps, lambda index: logged.rows(index, demand), of_ring, Transitions.joined, batch_size)


def stretches(
    inputs: SourceInputs, ring: ReplayRing, batch_size: int, data: tuple[LoggedExperience, ...], length: int
) -> Gathering[Sequences]:
    """Stretches of `length` steps: none leaves its episode, what is missing at the end repeats the last step."""
    own_rows, demand = _own_rows(inputs, ring), inputs.demand

    def of_ring(slots: Tensor) -> Sequences:
        window, lengths = ring.stretches(slots, length)
        steps = torch.arange(length).expand_as(window)
        rows = own_rows(window.gather(1, torch.minimum(steps, lengths.unsqueeze(1) - 1)).flatten())
        valid, first = steps < lengths.unsqueeze(1), torch.zeros(window.shape, dtype=torch.bool)
        first[:, 0] = ring.begins(slots)
        return Sequences.folded(rows, valid.to(inputs.device), first.to(inputs.device))

    if not data:
        return Gathering(0, of_ring, of_ring, Sequences.joined, batch_size)
    (logged,) = data

    def of_data(start: Tensor) -> Sequences:
        return logged.windows(start, length, demand)

    return Gathering(logged.steps, of_data, of_ring, Sequences.joined, batch_size)


def _own_rows(inputs: SourceInputs, ring: ReplayRing) -> Callable[[Tensor], Transitions]:
    """Own rows by slot, in policy space, on the run's device."""
    convert, device = into_policy_space(inputs.spec.action, inputs.device), inputs.device
    reward = inputs.data[MAIN].reward if MAIN in inputs.data else RewardTransform()
    return lambda slots: convert(ring.transitions(slots, inputs.demand, reward).to(device))

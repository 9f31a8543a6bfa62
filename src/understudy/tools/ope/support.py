"""Whether the data knows what a policy would do: how far its actions are from those of similar states.

For some steps the nearest states of *other* episodes are found. A policy's action is far from the data if it is further
from all of their actions than 95 of 100 recorded actions are from theirs; a choice is, if none of them took it. Where
much is far, critics guess and importance weights vanish, and no interval shows it.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.core.protocols import Demand
from understudy.core.rng import stream
from understudy.core.spec import Discrete
from understudy.data.experience import LoggedExperience
from understudy.sources.sampling.draws import rows_without_replacement

NEIGHBOURS = 20
ASKED, KNOWN = 1000, 20_000
"""Steps that are looked at, and among which their neighbours are."""
USUAL = 0.95
THIN = 0.25
"""A larger share of actions that are far from the data deserves a warning."""


@final
@dataclass(frozen=True)
class Neighbourhood:
    """Some steps, and what was done in states like theirs."""

    rows: Tensor
    """Which steps [n]."""
    actions: Tensor
    """[n, neighbours, A] in policy space, or choices as one-hot rows."""
    limit: float
    """What is further is far."""

    @classmethod
    def of(cls, data: LoggedExperience, seed: int = 0) -> "Neighbourhood":
        """States are compared in units of the data's deviations; numbers that never change do not count."""
        known = rows_without_replacement(KNOWN, data.steps, stream(seed, "ope/known"))
        asked = rows_without_replacement(ASKED, data.steps, stream(seed, "ope/asked"))
        states, actions = _vectors(data, known)
        own_states, own_actions = _vectors(data, asked)
        spread = states.std(0, correction=0)
        scale = torch.where(spread > 1e-9 * (1 + states.abs().amax(0)), 1 / spread.clamp(min=1e-30), 0.0)
        apart = torch.cdist(own_states * scale, states * scale)
        episodes = torch.from_numpy(data.dataset.index.ends).to(known.device)
        same = torch.bucketize(asked, episodes, right=True)[:, None] == torch.bucketize(known, episodes, right=True)
        apart = torch.where(same, torch.inf, apart)
        nearest = apart.topk(min(NEIGHBOURS, len(known)), largest=False)
        near = torch.where(nearest.values.isfinite()[..., None], actions[nearest.indices], torch.nan)
        limit = _distance(own_actions, near).nanquantile(USUAL) if not _discrete(data) else torch.tensor(0.5)
        return cls(asked, near, float(limit))

    def far_share(self, chosen: Tensor) -> float:
        """Of what a policy would do in these steps, actions [m, n, A] or probabilities [n, N]: how much is far. NaN
        where the data is one episode, and nobody else was in a similar state."""
        met = self.actions.isfinite().flatten(1).any(1)
        if chosen.dim() == 2:
            taken = (self.actions > 0.5).any(1)
            return float((chosen * ~taken).sum(-1)[met].mean())
        apart = torch.stack([_distance(one, self.actions) for one in chosen])[:, met]
        return float(apart.gt(self.limit).float().mean())


def _distance(action: Tensor, near: Tensor) -> Tensor:
    """To the nearest [n] of what neighbours did [n, k, A]; NaN where there are none."""
    apart = (action[:, None] - near).norm(dim=-1)
    found = torch.where(apart.isnan(), torch.inf, apart).amin(1)
    return torch.where(found.isinf(), torch.nan, found)


def _discrete(data: LoggedExperience) -> bool:
    return isinstance(data.spec.action, Discrete)


def _vectors(data: LoggedExperience, index: Tensor) -> tuple[Tensor, Tensor]:
    """States [n, S] and actions [n, A] of steps."""
    rows = data.rows(index, Demand())
    data.dataset.release()
    states = torch.cat([values.flatten(1).float() for values in rows.obs.values()], dim=1).cpu()
    action = rows.action.cpu()
    if isinstance(data.spec.action, Discrete):
        action = torch.nn.functional.one_hot(action.long(), data.spec.action.count).float()
    return states, action

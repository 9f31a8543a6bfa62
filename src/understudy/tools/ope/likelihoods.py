"""How likely recorded actions were, for those who made the data and for a policy: what importance weights are made of.

Who made the data said so in a column, `behaviour_log_prob` (of continuous actions a density in environment units) or
`behaviour_probability`; where nobody did, a policy is cloned from the data and its numbers are taken.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.algorithms import bc
from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import MAIN, BuildContext, Demand, Policy
from understudy.core.spec import ACTION_MASK, Box
from understudy.data.experience import LoggedExperience
from understudy.losses.action_values import legal_or_all
from understudy.nn.actor import Actor
from understudy.nn.deployed import Choosing
from understudy.nn.distributions.gaussians import Deterministic
from understudy.sources import SourceInputs
from understudy.sources.offline import Config as OfflineConfig
from understudy.sources.offline import build as offline_source

Array = NDArray[np.float64]
LOG_COLUMN, COLUMN = "behaviour_log_prob", "behaviour_probability"
ROWS = 4096
CLONING = 5000
"""Updates of a policy that is cloned where nobody said how likely actions were."""


def logged_log_probs(data: LoggedExperience) -> Array | None:
    """log β(a|s) [steps] as it was recorded; None where it was not."""
    dataset = data.recorded
    name = next((one for one in (LOG_COLUMN, COLUMN) if one in dataset.extra), None)
    if name is None:
        return None
    values = dataset.extra[name].cpu().double().numpy().reshape(dataset.steps, -1)
    where, discrete = f"dataset '{dataset.name}', column '{name}'", not isinstance(data.spec.action, Box)
    if values.shape[1] != 1:
        raise DataError(where, "is not one number per step", got=list(values.shape))
    if name == COLUMN:
        if not ((values > 0) & np.isfinite(values)).all():
            raise DataError(where, "holds probabilities that are not above 0", got=float(values.min()))
        values = np.log(values)
    if not np.isfinite(values).all() or (discrete and values.max() > 1e-4):
        expected = "finite logarithms of probabilities, at most 0" if discrete else "finite logarithms of densities"
        raise DataError(where, "cannot be probabilities of choices" if discrete else "not finite", expected=expected)
    return values[:, 0]


def cloned_log_probs(data: LoggedExperience, seed: int, updates: int = CLONING) -> Array:
    """log β̂(a|s) [steps] of a policy that was cloned from the data."""
    actor: dict[str, Any] = {"distribution": "state_gaussian"} if isinstance(data.spec.action, Box) else {}
    config = bc.Config.parse({"name": "bc", "actor": actor}, "ope")
    learner = bc.build(config, BuildContext(data.spec, updates, seed, data.device, data={MAIN: data}))
    inputs = SourceInputs(data.spec, seed, data.device, learner.demand, learner.policy, data={MAIN: data})
    source = offline_source(OfflineConfig(batch_size=256), inputs)
    for _ in range(updates):
        learner.update(source.next(learner.policy))
    learner.policy.train(False)
    return log_probs(learner.policy, data, "the cloned policy", greedy=False)


def log_probs(policy: Policy, data: LoggedExperience, where: str, *, greedy: bool) -> Array:
    """log π(a|s) [steps] of recorded actions, of continuous ones a density in environment units."""
    if isinstance(data.spec.action, Box):
        check_density(policy, where, greedy=greedy)
    found = [_of_rows(policy, data, index, greedy=greedy) for index in torch.split(torch.arange(data.steps), ROWS)]
    data.dataset.release()
    return torch.cat(found).double().cpu().numpy()


def check_density(policy: Policy, where: str, *, greedy: bool) -> None:
    """Somebody who draws continuous actions, of which each has a density."""
    drawn = isinstance(policy, Actor) and not isinstance(policy.distribution, Deterministic)
    if greedy or not drawn:
        raise ConfigError(
            where,
            "has no density: greedy continuous actions are never exactly those of the data",
            do="Use method fqe, or judge a policy that draws as it draws (stochastic).",
        )


@torch.no_grad()
def _of_rows(policy: Policy, data: LoggedExperience, index: Tensor, *, greedy: bool) -> Tensor:
    rows = data.rows(index, Demand(("mask",) if data.spec.masked else ()))
    mask = rows.extra.get("mask")
    obs: Obs = rows.obs if mask is None else {**rows.obs, ACTION_MASK: legal_or_all(mask)}
    if isinstance(data.spec.action, Box):
        assert isinstance(policy, Actor)
        scale = float(np.log(data.spec.action.half_range).sum())
        return policy.judge(policy.perceive(obs), rows.action).log_prob - scale
    if greedy:
        action, _ = policy.act(obs, policy.initial(len(index)), greedy=True)
        return torch.where(action == rows.action, 0.0, -math.inf)
    assert isinstance(policy, Choosing)
    logs = torch.log_softmax(policy.ratings(obs, policy.initial(len(index))), -1)
    return logs.gather(-1, rows.action.long().unsqueeze(-1)).squeeze(-1)

"""Networks of given sizes, which see one vector as it is."""

from typing import Any

import torch

from understudy.core.errors import ConfigError
from understudy.core.spec import Box, Discrete, Group, Spec
from understudy.nn.actor import ActorSettings
from understudy.nn.critic import ActionValues, CriticSettings, QEnsemble
from understudy.nn.distributions import CONTINUOUS
from understudy.nn.value_network import ValueNetwork


def vector_spec(size: int, action: Box | Discrete) -> Spec:
    return Spec({"state": Group((size,), "float32")}, action)


def unit_box(size: int) -> Box:
    return Box((-1.0,) * size, (1.0,) * size)


def q_ensemble(size: int, action_size: int, rng: torch.Generator, *, members: int = 2, **settings: Any) -> QEnsemble:
    shape = CriticSettings.parse({"normalize": False, **settings})
    return QEnsemble(vector_spec(size, unit_box(action_size)), shape, rng, members=members)


def action_values(
    size: int, count: int, rng: torch.Generator, *, members: int = 2, quantiles: int = 1, **settings: Any
) -> ActionValues:
    shape = CriticSettings.parse({"normalize": False, **settings})
    return ActionValues(vector_spec(size, Discrete(count)), shape, rng, members=members, quantiles=quantiles)


def state_value(size: int, rng: torch.Generator, **settings: Any) -> ValueNetwork:
    shape = CriticSettings.parse({"normalize": False, **settings})
    return ValueNetwork(vector_spec(size, unit_box(1)), shape, rng)


def distribution_kinds(actor: type[ActorSettings]) -> list[str]:
    """Words for continuous actions that these settings accept."""
    return [kind for kind in CONTINUOUS if _accepts(actor, kind)]


def _accepts(actor: type[ActorSettings], kind: str) -> bool:
    try:
        actor.parse({"distribution": kind})
    except ConfigError:
        return False
    return True

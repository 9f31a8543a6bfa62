"""Small policies and data for tests of off-policy evaluation."""

from typing import Any

import numpy as np
import torch

from understudy import Box, Dataset, Discrete, Episode
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.nn.actor import Actor, ActorSettings


def actor(spec: Spec, seed: int = 0, **settings: Any) -> Actor:
    """A policy of a few units, which differs from others of other seeds."""
    shape = ActorSettings.parse({"hidden": (8,), "normalize": False, "output_gain": 2.0, **settings})
    return Actor(spec, shape, stream(seed, "candidate")).train(False)


def constant(spec: Spec, action: float, **settings: Any) -> Actor:
    """Always the same, in policy space."""
    policy = actor(spec, **{"distribution": "deterministic", **settings})
    output = policy.trunk.layers()[-1]
    output.weight.zero_()
    output.bias.fill_(float(np.arctanh(action)))
    return policy


def boxes(episodes: int = 30, steps: int = 5, *, terminated: bool = True, seed: int = 0) -> Dataset:
    """Anybody's actions between −2 and 2, of which 1 is best: r = −(a − 1)², whatever the state."""
    rng = np.random.default_rng(seed)
    played = []
    for _ in range(episodes):
        action = rng.uniform(-2, 2, (steps, 1)).astype(np.float32)
        state = rng.standard_normal((steps + 1, 2)).astype(np.float32)
        played.append(Episode({"state": state}, action, -((action[:, 0] - 1) ** 2), terminated, not terminated))
    return Dataset.from_episodes(played, Box((-2.0,), (2.0,)), name="boxes")


def choices(episodes: int = 40, steps: int = 3, *, logged: bool = True, masked: bool = False) -> Dataset:
    """Three choices with chances ½, ¼, ¼, of which the last pays 1; `logged`: with the chances."""
    rng, chance = np.random.default_rng(0), np.array([0.5, 0.25, 0.25])
    played = []
    for _ in range(episodes):
        action = rng.choice(3, steps, p=chance)
        state = rng.standard_normal((steps + 1, 2)).astype(np.float32)
        extra = {"behaviour_log_prob": np.log(chance[action])} if logged else {}
        mask = np.ones((steps + 1, 3), bool) if masked else None
        played.append(
            Episode({"state": state}, action, (action == 2).astype(float), True, False, mask=mask, extra=extra)
        )
    return Dataset.from_episodes(played, Discrete(3), name="choices")


def favouring(spec: Spec, probabilities: tuple[float, ...]) -> Actor:
    """The same chances in every state."""
    policy = actor(spec)
    output = policy.trunk.layers()[-1]
    output.weight.zero_()
    output.bias.copy_(torch.tensor(probabilities).log())
    return policy

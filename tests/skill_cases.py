"""Small skill sets for tests: three actors that disagree, over one observation with named columns."""

from typing import Any

import torch

from understudy.core.protocols import Carry
from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete, Group, Spec
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.deployed import Deployed
from understudy.nn.skill_set import SkillSet
from understudy.run.skill_sets import skill_set

SEGMENTS = {"state": {"body": (0, 3), "command": (3, 5), "last_action": (5, 7), "zone": (7, 10), "height": (10, 11)}}
SPEC = Spec({"state": Group((11,), "float32")}, Box((-2.0, -2.0), (2.0, 2.0))).with_segments(SEGMENTS)
CHOICES = Spec({"state": Group((11,), "float32")}, Discrete(4)).with_segments(SEGMENTS)
NAMES = ("walk", "leap", "climb")
BY_ZONE: dict[str, Any] = {"kind": "observation", "observation": "state.zone", "fallback": "walk"}


def actors(spec: Spec = SPEC, memory: str = "none", count: int = 3) -> dict[str, Deployed]:
    """Policies with other weights and other normalisers each."""
    found: dict[str, Deployed] = {}
    for number, name in enumerate(NAMES[:count]):
        settings = ActorSettings.parse({"hidden": [16], "init": "default", "memory": {"kind": memory, "units": 4}})
        actor = Actor(spec, settings, stream(number, "init"))
        actor.observe({"state": number + (1.0 + number) * torch.randn(50, 11, generator=stream(number, "obs"))})
        found[name] = actor.train(False).requires_grad_(False)
    return found


def make_set(policies: dict[str, Deployed] | None = None, choose: Any = None, **words: Any) -> SkillSet:
    policies = actors() if policies is None else policies
    words = {"selector": BY_ZONE, **words} if choose is None else words
    skills = words.pop("skills", {})
    return skill_set(
        {"skills": {name: skills.get(name, {}) for name in policies}, **words}, policies=policies, choose=choose
    )


def observe(zones: list[int], seed: int = 0, heights: list[float] | None = None) -> dict[str, torch.Tensor]:
    """Random observations [N, 11] with these zones; −1 is none."""
    state = torch.randn(len(zones), 11, generator=stream(seed, "state"))
    state[:, 7:10] = 0.0
    for row, zone in enumerate(zones):
        if zone >= 0:
            state[row, 7 + zone] = 1.0
    if heights is not None:
        state[:, 10] = torch.tensor(heights)
    return {"state": state}


def alone(policy: Deployed, obs: dict[str, torch.Tensor], carry: Carry | None = None) -> torch.Tensor:
    """What a skill does by itself."""
    memory = policy.initial(len(obs["state"])) if carry is None else carry
    return policy.act(obs, memory, greedy=True)[0]


ZONE_SEGMENTS = {
    "state": {
        "velocity": (0, 2),
        "offset": (2, 3),
        "command": (3, 4),
        "last_action": (4, 6),
        "zone": (6, 8),
        "spin": (8, 9),
    }
}


def zones_set(memory: str = "none", seed: int = 0, **words: Any) -> SkillSet:
    """Three untrained skills for the world of zones."""
    spec = Spec({"state": Group((9,), "float32")}, Box((-1.0, -1.0), (1.0, 1.0))).with_segments(ZONE_SEGMENTS)
    settings = ActorSettings.parse({"hidden": [8], "init": "default", "memory": {"kind": memory, "units": 4}})
    names = ("ground", "mirror", "left")
    policies: dict[str, Deployed] = {
        name: Actor(spec, settings, stream(10 * seed + number, "init")).train(False).requires_grad_(False)
        for number, name in enumerate(names)
    }
    return make_set(policies, **{"selector": {"kind": "fixed", "skill": "ground"}, **words})

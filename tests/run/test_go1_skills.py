"""The quadruped of docs/skills.md: a policy that gets up and one that walks, as one policy that does both (slow).

The two were trained by ppo/go1-getup and ppo/go1-student (tests/teachers).
"""

import importlib.util
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor

import understudy as us
from understudy.core.protocols import Policy
from understudy.run.env_settings import EnvSettings
from understudy.run.environments import make_vector_env

TEACHERS = Path(__file__).parents[1] / "teachers"
DROPPED = EnvSettings(id="Go1Getup-v1", simulator="envpool", settings={"drop_from_height_prob": 1.0})
"""Nobody begins on its feet: all fall from half a metre, turned anyhow, and lie for half a second."""
ROBOTS, STEPS, LAST = 64, 299, 50
GRAVITY, FORWARD, HEIGHT = 5, 48, 90
"""Columns: gravity's z of `state`, the base's speed forward and the trunk's height of `privileged_state`."""
needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed")


def skill_set(*changes: str) -> Policy:
    paths = [f"skills.{name}.path={TEACHERS / f'go1-{name}'}" for name in ("getup", "walk")]
    return us.skill_set("skills/go1", [*paths, *changes])


def last_second(policy: Policy, seed: int) -> tuple[Tensor, Tensor]:
    """Who stands [N] in the last of six seconds, upright and with its trunk above 0.2 m all the time; and who of these
    goes forward with more than half of the 0.5 m/s that it is told."""
    told, known = [], []
    with closing(make_vector_env(DROPPED, ROBOTS)) as robots:
        obs, carry = robots.reset(seed), policy.initial(ROBOTS)
        for _ in range(STEPS):
            action, carry = policy.act(obs, carry, greedy=True)
            step = robots.step(action)
            obs = step.obs
            told.append(step.final_obs["state"].clone())
            known.append(step.final_obs["privileged_state"].clone())
    state, privileged = torch.stack(told[-LAST:]), torch.stack(known[-LAST:])
    stands = (state[..., GRAVITY].mean(0) < -0.9) & (privileged[..., HEIGHT].amin(0) > 0.2)
    return stands, stands & (privileged[..., FORWARD].mean(0) > 0.25)


def shares(policy: Policy) -> tuple[float, float]:
    """Of three times 64 robots, those that stand and those that walk at the end."""
    played = [last_second(policy, seed) for seed in range(3)]
    stands, walks = (torch.cat(robots).double().mean().item() for robots in zip(*played, strict=True))
    return stands, walks


@pytest.mark.slow
@needs_envpool
def test_a_go1_that_was_dropped_gets_up_and_walks_away_as_it_does_with_neither_skill_alone() -> None:
    both = shares(skill_set())
    getup, walk = (shares(skill_set(f"selector={{kind: fixed, skill: {name}}}")) for name in ("getup", "walk"))
    told = {"both": both, "getup": getup, "walk": walk}
    assert getup[0] > 0.8, told
    assert getup[1] < 0.1, told
    assert walk[0] < 0.2, told
    assert both[1] > max(getup[1], walk[1]) + 0.6, told

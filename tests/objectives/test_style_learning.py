"""Style alone, without any reward of the task, recovers what was recorded: the known-answer test of motion priors."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import understudy as us
from understudy.algorithms import ppo
from understudy.core.protocols import BuildContext
from understudy.core.rng import stream
from understudy.data.motions import MotionSettings, load_motions
from understudy.envs.builtin.circle import circle_motion
from understudy.envs.vector.local import LocalVectorEnv
from understudy.objectives.style import Style
from understudy.sources.rollout import RolloutSource

WORLD, COUNT, STEPS = "UnderstudyCircle-v0", 32, 64


class Learned(NamedTuple):
    style: Style
    radius: float
    speed: float
    turn: float
    """Counter-clockwise, in radians a second."""


def laps(folder: Path) -> Path:
    lap = {name: values.astype(np.float32) for name, values in circle_motion(1.0, 1.0).items()}
    steps = len(lap["position"]) - 1
    episode = us.Episode(lap, np.zeros((steps, 2), np.float32), np.zeros(steps, np.float32), False, True)
    return us.write_store(us.Dataset.from_episodes([episode], us.Box((-1, -1), (1, 1))), folder / "laps")


def learn(motions: Path, updates: int = 80, **settings: Any) -> Learned:
    """What a policy does at last that was paid for nothing but its style."""
    env, role = LocalVectorEnv(WORLD, COUNT), {"hidden": [64, 64]}
    quiet = {**role, "distribution": {"initial_std": 0.3}}  # noise alone would carry a point around the middle
    style = {"features": ["position", "velocity"], "task_weight": 0, **settings}
    told = {"actor": quiet, "critic": role, "learning_rate": 1e-3, "schedule": "linear", "objectives": {"style": style}}
    clips = load_motions(MotionSettings(path=str(motions), loop=True))
    context = BuildContext(env.spec, updates, 0, torch.device("cpu"), num_envs=COUNT, motions=(clips,))
    algorithm = ppo.build(ppo.Config.parse(told, "algo"), context)
    source = RolloutSource.build(env, algorithm.policy, STEPS, 0)
    for _ in range(updates):
        algorithm.update(source.next(algorithm.policy))
    place, velocity = played(algorithm)
    across = place[..., 0] * velocity[..., 1] - place[..., 1] * velocity[..., 0]
    distance = place.norm(dim=-1)
    member = algorithm.objectives.members["style"]
    assert isinstance(member, Style)
    numbers = distance.mean(), velocity.norm(dim=-1).mean(), (across / distance.square().clamp_min(0.01)).mean()
    return Learned(member, *map(float, numbers))


@torch.no_grad()
def played(algorithm: ppo.PPO) -> tuple[torch.Tensor, torch.Tensor]:
    """Places and velocities [T, N, 2], once it had the time to get anywhere, of what is compared with the motions: play
    with its noise."""
    env, rng = LocalVectorEnv(WORLD, COUNT), stream(0, "play")
    obs, seen = env.reset(5), []
    for _ in range(199):
        action, _ = algorithm.policy.act(obs, (), greedy=False, rng=rng)
        obs = env.step(action).obs
        seen.append(obs)
    places, velocities = (torch.stack([one[name] for one in seen[80:]]) for name in ("position", "velocity"))
    return places, velocities


def is_the_motion(learned: Learned) -> bool:
    within = [abs(number - 1.0) < 0.15 for number in (learned.radius, learned.speed, learned.turn)]
    return all(within)


def test_a_point_goes_round_as_it_was_shown_and_another_style_scores_low(tmp_path: Path) -> None:
    learned = learn(laps(tmp_path))
    assert is_the_motion(learned), learned[1:]
    style, rng = learned.style, torch.Generator().manual_seed(0)
    shown = style.motions.draw(256, rng)
    with torch.no_grad():
        own, other = style.worth(shown).mean(), style.worth(shown * torch.tensor([1.0, 1.0, -1.0, -1.0])).mean()
    assert float(own) > 0.6
    assert float(other) < 0.75 * float(own), "the other way round"


@pytest.mark.slow
def test_every_loss_and_penalty_recovers_it(tmp_path: Path) -> None:
    motions = laps(tmp_path)
    for settings in (
        {"loss": "bce"},
        {"loss": "wgan", "gradient_penalty": 1.0},
        {"penalty_on": "both"},
        {"frames": 4},
        {"adapt": True},
        {"replay": 0},
    ):
        learned = learn(motions, 200, **settings)
        assert is_the_motion(learned), (settings, learned[1:])


@pytest.mark.slow
def test_a_discriminator_that_never_learns_teaches_nothing(tmp_path: Path) -> None:
    assert not is_the_motion(learn(laps(tmp_path), learning_rate=1e-30))

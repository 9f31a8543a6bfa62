"""Style alone, without any reward of the task, recovers what was recorded: the known-answer test of motion priors."""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import understudy as us
from understudy.algorithms import ppo
from understudy.core.batch import Obs
from understudy.core.protocols import BuildContext, Carry, Policy
from understudy.core.rng import stream
from understudy.data.motions import MotionSettings, load_motions
from understudy.envs.builtin.circle import circle_motion, circling_action
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


STEADY = {"gradient_penalty": 1.0, "penalty_on": "both", "steps": 16, "learning_rate": 1e-3}
"""A point follows its discriminator within a few updates: one that is slow, or steep where the point is, it runs after
in circles of ever another size."""


NOISE = {"distribution": {"initial_std": 0.3}}
"""More of it alone would carry a point around."""
OTHER = 0.7
"""Radius of the circle that the teacher goes round; the motions are of one of radius 1."""


class Circling:
    """A teacher that knows where it is and how fast, and goes round, but not as the motions do."""

    def __init__(self, radius: float) -> None:
        self._radius = radius

    def initial(self, count: int) -> Carry:
        return ()

    def act(
        self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None
    ) -> tuple[torch.Tensor, Carry]:
        places, velocities = (obs[name].double().numpy() for name in ("position", "velocity"))
        pairs = zip(places, velocities, strict=True)
        actions = [circling_action(place, velocity, 1.0, self._radius) for place, velocity in pairs]
        return torch.tensor(np.array(actions), dtype=torch.float32), ()


def learn(
    motions: Path,
    updates: int,
    seed: int = 0,
    algo: Mapping[str, Any] | None = None,
    teacher: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Learned:
    """What a policy does at last that was paid for nothing but its style; `teacher` says how it learns from one that
    goes round another circle."""
    env, role = LocalVectorEnv(WORLD, COUNT), {"hidden": [64, 64]}
    objectives = {"style": {"features": ["position", "velocity"], "task_weight": 0, **STEADY, **settings}}
    told = {
        "actor": {**role, **NOISE},
        "critic": role,
        "gamma": 0.95,
        "learning_rate": 3e-4,
        "schedule": "linear",
        **(algo or {}),
        "objectives": objectives | ({"teacher": teacher} if teacher is not None else {}),
    }
    clips = load_motions(MotionSettings(path=str(motions), loop=True))
    policies: dict[str, Policy] = {"teacher": Circling(OTHER)} if teacher is not None else {}
    context = BuildContext(
        env.spec,
        updates,
        seed,
        torch.device("cpu"),
        num_envs=COUNT,
        policies=policies,
        motions=(clips,),
        rollout_length=STEPS,
    )
    algorithm = ppo.build(ppo.Config.parse(told, "algo"), context)
    source = RolloutSource.build(env, algorithm.policy, STEPS, seed, recorders=algorithm.recorders())
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
    obs, carry, seen = env.reset(5), algorithm.policy.initial(COUNT), []
    for _ in range(199):
        action, carry = algorithm.policy.act(obs, carry, greedy=False, rng=rng)
        obs = env.step(action).obs
        seen.append(obs)
    places, velocities = (torch.stack([one[name] for one in seen[80:]]) for name in ("position", "velocity"))
    return places, velocities


def is_the_motion(learned: Learned, margin: float = 0.15) -> bool:
    return all(abs(number - 1.0) < margin for number in learned[1:])


@pytest.mark.slow
def test_a_point_begins_to_go_round_as_it_was_shown_and_another_style_scores_low(tmp_path: Path) -> None:
    learned = learn(laps(tmp_path), 60)
    assert learned.turn > 0.3, "counter-clockwise"
    style, rng = learned.style, torch.Generator().manual_seed(0)
    shown = style.motions.draw(256, rng)
    with torch.no_grad():
        own, other = style.worth(shown).mean(), style.worth(shown * torch.tensor([1.0, 1.0, -1.0, -1.0])).mean()
    assert float(own) > 0.6
    assert float(other) < 0.5 * float(own), "the other way round"


@pytest.mark.slow
def test_style_alone_recovers_the_recorded_circle(tmp_path: Path) -> None:
    """Radius, speed and turn within 15 %, in the middle of five seeds; a discriminator that never learns, or two
    normalisers, teach nothing of it."""
    motions = laps(tmp_path)
    found = [learn(motions, 150, seed) for seed in range(5)]
    middle = Learned(
        found[0].style,
        statistics.median(one.radius for one in found),
        statistics.median(one.speed for one in found),
        statistics.median(one.turn for one in found),
    )
    assert is_the_motion(middle), [one[1:] for one in found]
    assert sum(map(is_the_motion, found)) >= 3
    assert not is_the_motion(learn(motions, 150, learning_rate=1e-30))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"loss": "bce"}, {"loss": "wgan"}, {"frames": 4}, {"adapt": True}, {"replay": 0}], ids=str
)
def test_whatever_is_chosen_a_circle_is_gone_round(settings: dict[str, Any], tmp_path: Path) -> None:
    learned = learn(laps(tmp_path), 150, **settings)
    assert all(abs(number - 1.0) < 0.4 for number in learned[1:]), learned[1:]


BLIND: dict[str, Any] = {"sees": ["position"], **NOISE}
"""An actor that is not shown its velocity, which D is."""
MEMORY: dict[str, Any] = {**BLIND, "hidden": [64], "memory": {"kind": "gru", "units": 32}}
NEVER: dict[str, Any] = {"learning_rate": 1e-30}
"""A discriminator that does not learn."""


@pytest.mark.slow
def test_a_memory_learns_a_style_of_what_it_is_not_shown(tmp_path: Path) -> None:
    motions, algo = laps(tmp_path), {"actor": MEMORY, "learning_rate": 1e-3}
    learned = learn(motions, 100, algo=algo)
    assert is_the_motion(learned, 0.3), learned[1:]
    broken = learn(motions, 100, algo=algo, **NEVER)
    assert not is_the_motion(broken, 0.5), broken[1:]


@pytest.mark.slow
def test_encoders_learn_a_style(tmp_path: Path) -> None:
    encoder = {"kind": "mlp", "hidden": [32], "size": 16}
    actor = {"encoders": {"position": encoder, "velocity": encoder}, **NOISE}
    motions, algo = laps(tmp_path), {"actor": actor, "learning_rate": 1e-3}
    learned = learn(motions, 80, algo=algo)
    assert is_the_motion(learned, 0.2), learned[1:]
    broken = learn(motions, 80, algo=algo, **NEVER)
    assert not is_the_motion(broken, 0.5), broken[1:]


@pytest.mark.slow
def test_a_student_takes_the_turn_from_its_teacher_and_the_circle_from_the_motions(tmp_path: Path) -> None:
    """ATPPO: a student with a memory that is not shown velocities, a teacher that is and goes round another circle, and
    whose weight fades. Without either it is not there after as many updates."""
    motions, algo = laps(tmp_path), {"actor": MEMORY, "learning_rate": 1e-3}
    teacher = {"weight": {"start": 1, "end": 0, "over": 20}}
    learned = learn(motions, 40, algo=algo, teacher=teacher)
    assert is_the_motion(learned, 0.35), learned[1:]
    broken = learn(motions, 40, algo=algo, teacher=teacher, **NEVER)
    assert not is_the_motion(broken, 0.5), broken[1:]
    alone = learn(motions, 40, algo=algo)
    assert not is_the_motion(alone, 0.5), alone[1:]

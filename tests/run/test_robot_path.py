"""The path of docs/robots.md: one world, students that are blind for velocities, and what they reach (slow).

Teachers are policies that were trained by ppo/go1-teacher and ppo/halfcheetah-teacher (tests/teachers).
"""

import importlib.util
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

import understudy as us
from understudy.algorithms import bc, ppo
from understudy.core.protocols import BuildContext
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.run.config import load_config
from understudy.run.evaluate import Evaluator

TEACHERS = Path(__file__).parents[1] / "teachers"
GO1 = ("ppo/go1-student", "ppo/go1-estimator", "dagger/go1")
FRESH_SEEDS = (1000, 2000, 2001, 2002)
CHEETAH = ("ppo/halfcheetah-student", "ppo/halfcheetah-estimator")
needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed")
needs_mujoco = pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="MuJoCo is not installed")


def load(name: str) -> us.RunConfig:
    path = TEACHERS / ("go1" if "go1" in name else "halfcheetah")
    return load_config(name, [f"policies.teacher.path={path}"] if name in (*GO1, *CHEETAH) else [])


def test_all_steps_are_of_one_world() -> None:
    """Returns and task metrics of teachers and students are of the same rewards and columns."""
    for names in (("ppo/go1-joystick", "ppo/go1-teacher", *GO1), ("ppo/halfcheetah-teacher", *CHEETAH)):
        first, *others = (load(name) for name in names)
        assert first.eval_metrics
        for config in others:
            assert config.world == first.world
            assert config.eval_metrics == first.eval_metrics


def hidden_columns(name: str) -> dict[str, list[int]]:
    """Go1's measured velocity and all that only the simulator knows; the cheetah's nine velocities."""
    return (
        {"state": [0, 1, 2], "privileged_state": list(range(123))} if "go1" in name else {"state": list(range(8, 17))}
    )


def test_students_do_not_read_what_is_hidden() -> None:
    """Numbers there may be anything: what is done stays as it is, and all else counts."""
    for name in (*GO1, *CHEETAH):
        config = load(name)
        teacher = us.load_policy(config.policies["teacher"].path)
        spec = teacher.spec.with_segments(config.world.segments)
        policy = built(config, spec, {"teacher": teacher})
        rng = stream(0, "obs")
        obs = {group: torch.randn(4, *shape.shape, generator=rng) for group, shape in spec.observation.items()}
        before = acted(policy, obs)
        for group, columns in hidden_columns(name).items():
            moved = obs[group].clone()
            moved[:, columns] += 10 * torch.randn(4, len(columns), generator=rng)
            assert torch.equal(acted(policy, {**obs, group: moved}), before), f"{name} reads {group}"
        assert not torch.equal(acted(policy, {**obs, "state": obs["state"] + 1}), before)


def built(config: us.RunConfig, spec: Spec, policies: dict[str, Any]) -> us.Actor:
    context = BuildContext(spec, 10, 0, torch.device("cpu"), num_envs=4, policies=policies)
    module: Any = bc if isinstance(config.algo, bc.Config) else ppo
    policy: us.Actor = module.build(config.algo, context).policy
    return policy


def acted(policy: us.Actor, obs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        carry = policy.initial(4)
        for _ in range(3):
            action, carry = policy.act(obs, carry, greedy=True)
    return action


def ratio(config: us.RunConfig, run: us.Run) -> float:
    """The student's greedy return over the teacher's, in 80 episodes that the run was not evaluated in.

    A fall costs half an episode: with 20 at a time the ratio goes up and down by a tenth.
    """
    student, teacher = (fresh_return(config, path) for path in (run.path, config.policies["teacher"].path))
    return student / teacher


def fresh_return(config: us.RunConfig, policy: str | Path) -> float:
    """Mean greedy return in the episodes that docs/robots.md tells of."""
    means = []
    for seed in FRESH_SEEDS:
        with closing(Evaluator(config.model_copy(update={"seed": seed}))) as evaluator:
            means.append(evaluator.evaluate(us.load_policy(policy), 20).mean)
    return fmean(means)


def explained(run: us.Run) -> float:
    """R² of rollouts that nothing was learned from, over the last tenth of a run."""
    return float(run.curves()["estimator/r2"].values[-3:].mean())


@pytest.mark.slow
@needs_envpool
@pytest.mark.parametrize("name", GO1)
def test_a_go1_that_is_blind_for_its_velocity_walks_as_its_teacher_does(name: str, tmp_path: Path) -> None:
    config = load(name)
    run = us.train(config, out=str(tmp_path / "run"), eval_every=config.updates, threads=1, progress=False)
    if name.endswith("estimator"):
        assert explained(run) > 0.9
    else:
        assert ratio(config, run) >= 0.9


@pytest.mark.slow
@needs_mujoco
@pytest.mark.parametrize("name", CHEETAH)
def test_a_cheetah_without_velocities_runs_as_its_teacher_does_or_knows_them(name: str, tmp_path: Path) -> None:
    config = load(name)
    run = us.train(config, out=str(tmp_path / "run"), eval_every=config.updates, threads=1, progress=False)
    if name.endswith("estimator"):
        assert explained(run) > 0.9
    else:
        assert ratio(config, run) >= 0.9

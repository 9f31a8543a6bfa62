"""Gates: environments whose actions are choices of skills, runs in them, and what comes of those."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small import content

import understudy as us
from skill_cases import BY_ZONE, actors, make_set, zones_set
from understudy.core.errors import CheckpointError, ConfigError
from understudy.core.rng import stream
from understudy.core.spec import Discrete
from understudy.envs.vector.contract import VectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.run.skill_env import SkillVectorEnv
from understudy.run.skill_sets import gated_set, load_skill_set, save_skill_set

ZONES = "UnderstudyZones-v0"
OVERRIDE = {"state.command": {"low": 0.3, "high": 0.6}}
RICH: dict[str, Any] = {"memory": "gru", "smoothing": 3, "skills": {"left": {"overrides": OVERRIDE}}}
GATE: dict[str, Any] = {
    "algo": {"name": "ppo", "epochs": 1, "minibatches": 2, "actor": {"sees": ["state.zone", "state.spin"]}},
    "source": {"num_envs": 4, "rollout_length": 30},
    "updates": 4,
    "log_every": 1,
    "eval_every": 2,
    "eval_episodes": 2,
    "save_every": 2,
    "tensorboard": False,
}


def choices(steps: int, count: int) -> torch.Tensor:
    return torch.randint(3, (steps, count), generator=stream(3, "choices"))


def test_a_choice_is_one_step_of_that_skill_in_the_environment() -> None:
    """Played by hand beside it: the set's own steps, with everything it remembers anew where an episode begins."""
    made = zones_set(**RICH)
    worlds = [LocalVectorEnv(ZONES, 3, stagger_episodes=True) for _ in range(2)]
    inner, envs = worlds[0], SkillVectorEnv(worlds[1], made, ZONES)
    assert envs.spec.action == Discrete(3)
    assert envs.spec.segments == made.spec.segments
    seen = {name: values.clone() for name, values in inner.reset(5).items()}
    assert torch.equal(envs.reset(5)["state"], seen["state"])
    carry, draws, ends = made.initial(3), stream(5, "skills"), 0
    for chosen in choices(230, 3):
        action, carry = made.act_chosen(seen, chosen, carry, greedy=True, rng=draws)
        expected, step = inner.step(action), envs.step(chosen)
        for name in ("reward", "terminated", "truncated", "valid"):
            assert torch.equal(getattr(step, name), getattr(expected, name))
        assert torch.equal(step.obs["state"], expected.obs["state"])
        assert torch.equal(step.final_obs["state"], expected.final_obs["state"])
        over = expected.terminated | expected.truncated
        ends += int(over.sum())
        fresh = made.initial(3)
        carry = tuple(
            torch.where(over.view(-1, *[1] * (old.dim() - 1)), new, old) for old, new in zip(carry, fresh, strict=True)
        )
        seen = {"state": expected.obs["state"].clone()}
    assert ends >= 3, "each began anew"


def test_it_goes_on_to_the_bit_from_where_it_was_saved() -> None:
    made = zones_set(**RICH)
    first, other = (SkillVectorEnv(LocalVectorEnv(ZONES, 2), made, ZONES) for _ in range(2))
    table = choices(240, 2)
    first.reset(1)
    other.reset(2)
    for chosen in table[:130]:
        first.step(chosen)
    saved = {name: values.clone() for name, values in first.save().items()}
    after = [(step.obs["state"].clone(), step.reward.clone()) for step in map(first.step, table[130:])]
    other.load(saved)
    for (state, reward), chosen in zip(after, table[130:], strict=True):
        step = other.step(chosen)
        assert torch.equal(step.obs["state"], state)
        assert torch.equal(step.reward, reward)
    with pytest.raises(CheckpointError, match="cannot be put where it stood"):
        other.load({name: values for name, values in saved.items() if name != "draws"})


def test_environments_that_do_not_fit_are_refused() -> None:
    made = make_set(actors())
    world: VectorEnv = LocalVectorEnv(ZONES, 1)
    with pytest.raises(ConfigError, match=r"env.skills: do not fit environment 'Underst.*: got .*state \[11\]"):
        SkillVectorEnv(world, made, ZONES)


@pytest.fixture(scope="module")
def skills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("skills") / "set"
    save_skill_set(zones_set(**RICH), folder)
    return folder


def gate_config(skills: Path, out: Path, **changes: Any) -> dict[str, Any]:
    return {**GATE, "env": {"id": ZONES, "skills": {"path": str(skills)}}, "out": str(out), **changes}


@pytest.mark.usefixtures("no_plots")
def test_a_gate_is_trained_judged_and_put_into_its_set(skills: Path, tmp_path: Path) -> None:
    run = us.train(gate_config(skills, tmp_path / "run"), progress=False)
    made = gated_set(load_skill_set(skills), run.path)
    us.save_policy(made, tmp_path / "gated")
    judged = us.evaluate_policy(us.load_policy(tmp_path / "gated"), ZONES, 3, seed=0)
    assert run.evaluate(3, progress=False).returns == judged.returns, "the gate among its skills, in the world itself"
    with pytest.raises(ConfigError, match="not a gate over these skills"):
        make_set(actors(count=2), selector={**BY_ZONE, "skills": ["walk"] * 3}).chosen_by(run.policy())


@pytest.mark.usefixtures("no_plots")
def test_a_run_that_was_stopped_goes_on_to_the_bit_and_with_no_other_skills(skills: Path, tmp_path: Path) -> None:
    whole = us.train(gate_config(skills, tmp_path / "whole"), progress=False)
    us.train(gate_config(skills, tmp_path / "half"), progress=False, callbacks=[lambda updates, _: updates == 2])
    again = us.resume(tmp_path / "half", progress=False)
    assert content(again.path) == content(whole.path)
    kept = {file.name: file.read_bytes() for file in skills.iterdir()}
    try:
        save_skill_set(zones_set(seed=9), skills)
        with pytest.raises(CheckpointError, match=r"env.skills .* holds another policy than this run was started from"):
            us.resume(tmp_path / "half", updates=6, progress=False)
    finally:
        for name, former in kept.items():
            (skills / name).write_bytes(former)


def test_what_is_no_skill_set_is_told_before_the_first_step(tmp_path: Path) -> None:
    us.save_policy(actors()["walk"], tmp_path / "walk")
    with pytest.raises(ConfigError, match=r"env.skills.path: '.*' is no skill set: got policy.*understudy skills"):
        us.train(gate_config(tmp_path / "walk", tmp_path / "run"), progress=False)
    with pytest.raises(Exception, match="nowhere"):
        us.train(gate_config(Path("nowhere"), tmp_path / "run"), progress=False)
    assert not (tmp_path / "run").exists()

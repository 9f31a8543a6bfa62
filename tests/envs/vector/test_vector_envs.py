"""What any vector world must do, whatever its simulator does at the end of an episode."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from understudy.core.errors import ConfigError, DataError, RunError, UnderstudyError
from understudy.core.spec import ACTION_MASK, Discrete
from understudy.envs.gym import Env, make_env
from understudy.envs.vector.contract import VectorEnv, environment_seeds
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.envs.vector.tensor_adapter import TensorVectorEnv
from vector_cases import (
    BATTLE,
    CARTPOLE,
    LIMITS,
    PENDULUM,
    WORLDS,
    TensorBatch,
    action_table,
    play,
    play_single,
)

COUNT, STEPS = 3, 45
CASES = [(kind, name) for kind in WORLDS for name in (CARTPOLE, PENDULUM)]
MASKED = [kind for kind in WORLDS if kind != "tensors"]


def made(kind: str, name: str) -> tuple[VectorEnv, Tensor]:
    world = WORLDS[kind](name, COUNT)
    return world, action_table(world.spec.action, COUNT, STEPS)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_it_repeats_single_environments(kind: str, name: str) -> None:
    """Observations, rewards, ends and, at every end, the true successor."""
    world, table = made(kind, name)
    facts, _ = play(world, table, seed=5)
    for mine, reference in zip(facts, play_single(name, table, seed=5), strict=True):
        assert mine
        assert all(one.same(other) for one, other in zip(mine, reference[: len(mine)], strict=True))
    ends = [(fact.terminated, fact.truncated) for mine in facts for fact in mine]
    assert (False, True) in ends, "the case has no time limit to check"
    assert name == PENDULUM or (True, False) in ends, "the case has no termination to check"
    world.close()


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_shapes_and_kinds(kind: str, name: str) -> None:
    world, table = made(kind, name)
    _, steps = play(world, table, seed=1)
    assert world.count == COUNT
    assert world.spec.fits(WORLDS["local"](name, 1).spec)
    for step in steps:
        for obs in (step.obs, step.final_obs):
            shapes = {group: tuple(values.shape) for group, values in obs.items()}
            assert shapes == {group: (COUNT, *told.shape) for group, told in world.spec.observation.items()}
        assert step.reward.dtype == torch.float32
        assert {flag.dtype for flag in (step.terminated, step.truncated, step.valid)} == {torch.bool}
        going_on = ~(step.terminated | step.truncated)
        assert torch.equal(step.obs["state"][going_on], step.final_obs["state"][going_on])


@pytest.mark.parametrize("kind", WORLDS)
def test_dummy_steps_are_marked(kind: str) -> None:
    world, table = made(kind, CARTPOLE)
    _, steps = play(world, table, seed=2)
    before = torch.zeros(COUNT, dtype=torch.bool)
    for step in steps:
        expected = ~before if kind == "next step" else torch.ones(COUNT, dtype=torch.bool)
        assert torch.equal(step.valid, expected)
        assert not step.reward[~step.valid].any()
        before = step.terminated | step.truncated
    assert any(not step.valid.all() for step in steps) == (kind == "next step")


@pytest.mark.parametrize("kind", WORLDS)
def test_a_seed_is_repeatable_and_another_is_another(kind: str) -> None:
    world, table = made(kind, CARTPOLE)
    first, again, other = (play(world, table, seed)[0] for seed in (3, 3, 4))
    for mine, theirs in zip(first, again, strict=True):
        assert all(one.same(two) for one, two in zip(mine, theirs, strict=True))
    assert not first[0][0].same(other[0][0])
    assert not first[0][0].same(first[1][0]), "environments of one world must differ"


@pytest.mark.parametrize("kind", MASKED)
def test_masks_and_nested_groups_come_along(kind: str) -> None:
    world = WORLDS[kind](BATTLE, COUNT)
    assert isinstance(world.spec.action, Discrete)
    obs, steps, seen_end = world.reset(0), 0, False
    rng = torch.Generator().manual_seed(0)
    while steps < 60 or not seen_end:
        mask = obs[ACTION_MASK]
        assert mask.dtype == torch.bool
        assert mask.any(1).all(), "the policy must always have a choice"
        step = world.step(torch.multinomial(mask.float(), 1, generator=rng)[:, 0])
        assert set(step.final_obs) == {*world.spec.observation, ACTION_MASK}
        seen_end = seen_end or bool(step.terminated.any())
        obs, steps = step.obs, steps + 1


@pytest.mark.parametrize("kind", WORLDS)
def test_actions_are_checked(kind: str) -> None:
    pendulum, cartpole = WORLDS[kind](PENDULUM, 2), WORLDS[kind](CARTPOLE, 2)
    pendulum.reset(0)
    cartpole.reset(0)
    with pytest.raises(RunError, match=r"wrong shape: got \(2,\), expected \(2, 1\)"):
        pendulum.step(torch.zeros(2))
    with pytest.raises(RunError, match="for environment 1"):
        pendulum.step(torch.tensor([[0.0], [torch.nan]]))
    with pytest.raises(RunError, match="not whole numbers"):
        cartpole.step(torch.zeros(2))
    with pytest.raises(RunError, match="for environment 0: got 2, expected one of 2"):
        cartpole.step(torch.tensor([2, 0]))


class Faulty(gymnasium.Env[Any, Any]):
    """Fine for two steps, then not."""

    observation_space = gymnasium.spaces.Dict(
        {"eye": gymnasium.spaces.Box(-9, 9, (2,)), "ear": gymnasium.spaces.Discrete(3)}
    )
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, fault: str) -> None:
        self.fault, self.steps = fault, 0

    def reset(self, **options: Any) -> Any:
        self.steps = 0
        return self._seen(), {}

    def _seen(self) -> dict[str, Any]:
        return {"eye": np.full(2, self.steps, np.float32), "ear": self.steps % 3}

    def step(self, action: Any) -> Any:
        self.steps += 1
        seen, reward, late = self._seen(), 1.0, self.steps == 3
        if late and self.fault == "nan":
            seen["eye"][1] = np.nan
        if late and self.fault == "shape":
            seen["eye"] = np.zeros(3, np.float32)
        if late and self.fault == "ear":
            seen["ear"] = 7
        if late and self.fault == "raise":
            raise ZeroDivisionError("wheels")
        return seen, np.inf if late and self.fault == "reward" else reward, late and self.fault == "end", False, {}


FAULTS = {
    "nan": (DataError, "group 'eye' of environment 1 is not finite"),
    "shape": (DataError, r"group 'eye' of environment 1 has the wrong shape: got \(3,\), expected \(2,\)"),
    "ear": (DataError, "group 'ear' of environment 1 cannot be read .*7 is not one of 3"),
    "reward": (RunError, "the reward of environment 1 is not finite: got inf"),
    "raise": (
        RunError,
        r"environment 1 failed in its step \(ZeroDivisionError: wheels, at \S*vector_envs\.py:\d+\)\.",
    ),
}


def one_faulty(fault: str) -> LocalVectorEnv:
    faults = iter(["", fault])
    return LocalVectorEnv("Faulty", 2, make=lambda name: Faulty(next(faults)))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_environment_is_named(fault: str) -> None:
    kind, told = FAULTS[fault]
    world = one_faulty(fault)
    world.reset(0)
    for _ in range(2):
        world.step(torch.zeros(2, 1))
    asked = rf"Environment 1: seed {environment_seeds(0, 2)[1]}, episode 1, step 3, action \[0\.\]\.$"
    with pytest.raises(kind, match=f"environment 'Faulty': .*{told}.* {asked}"):
        world.step(torch.zeros(2, 1))


@pytest.mark.parametrize("fault", ["nan", "reward", "raise", "shape"])
def test_a_faulty_environment_in_gymnasiums_vectors_is_an_error_of_ours(fault: str) -> None:
    vector = SyncVectorEnv([lambda: Faulty(""), lambda: Faulty(fault)])
    world = GymnasiumVectorEnv(vector, "Faulty")
    world.reset(0)
    for _ in range(2):
        step = world.step(torch.zeros(2, 1))
    assert step.obs["ear"].tolist() == [[0, 0, 1]] * 2
    with pytest.raises(UnderstudyError, match="environment 'Faulty'"):
        world.step(torch.zeros(2, 1))


class Forgetful(SyncVectorEnv):
    """Leaves out what it should tell."""

    fault = ""

    def reset(self, **options: Any) -> Any:
        raw, infos = super().reset(**options)
        return ({"eye": raw["eye"]} if self.fault == "group" else raw), infos

    def step(self, actions: Any) -> Any:
        raw, rewards, terminated, truncated, infos = super().step(actions)
        short = slice(0, 1) if self.fault == "ends" else slice(None)
        return raw, rewards[: 1 if self.fault == "rewards" else None], terminated[short], truncated[short], infos


def test_what_a_vector_leaves_out_is_told() -> None:
    vector = Forgetful([lambda: Faulty("end"), lambda: Faulty("")], autoreset_mode=AutoresetMode.NEXT_STEP)
    world = GymnasiumVectorEnv(vector, "Faulty")
    vector.fault = "group"
    with pytest.raises(DataError, match=r"observation group 'ear' is missing: got \['eye'\]"):
        world.reset(0)
    vector.fault = ""
    world.reset(0)
    for _ in range(3):
        step = world.step(torch.zeros(2, 1))
    assert step.terminated.tolist() == [True, False]
    for vector.fault, told in (("rewards", "rewards have"), ("ends", "ends have")):
        with pytest.raises(RunError, match=rf"{told} the wrong shape: got \(1,\), expected \(2,\)"):
            world.step(torch.zeros(2, 1))


def test_a_world_must_be_reset_first_and_have_environments() -> None:
    for world in (LocalVectorEnv(PENDULUM, 1), WORLDS["next step"](PENDULUM, 1)):
        with pytest.raises(RunError, match="before it was reset"):
            world.step(torch.zeros(1, 1))
    with pytest.raises(ConfigError, match="at least 1"):
        LocalVectorEnv(PENDULUM, 0)


def test_a_vector_that_hides_its_mode_or_its_finals_is_refused() -> None:
    vector = SyncVectorEnv([lambda: make_env(PENDULUM)], autoreset_mode=AutoresetMode.NEXT_STEP)
    honest = dict(vector.metadata)
    vector.metadata = {}
    with pytest.raises(ConfigError, match="does not say when it resets"):
        GymnasiumVectorEnv(vector, PENDULUM)
    vector.metadata = honest
    world = GymnasiumVectorEnv(vector, PENDULUM, autoreset=AutoresetMode.SAME_STEP)  # it is not
    world.reset(0)
    for _ in range(LIMITS[PENDULUM] - 1):
        world.step(torch.zeros(1, 1))
    with pytest.raises(DataError, match="environment 0 ended without its final observation"):
        world.step(torch.zeros(1, 1))


def test_a_tensor_world_without_finals_says_so_once_and_uses_what_it_saw_last() -> None:
    batch = TensorBatch(PENDULUM, 2, finals=False)
    world = TensorVectorEnv(batch, batch.spec.action, PENDULUM, restart=batch.restart)
    seen = world.reset(0)
    for _ in range(LIMITS[PENDULUM] - 1):
        seen = world.step(torch.zeros(2, 1)).obs
    with pytest.warns(UserWarning, match="a time limit was reached and extras has no 'final_obs'"):
        step = world.step(torch.zeros(2, 1))
    assert step.truncated.all()
    assert torch.equal(step.final_obs["state"], seen["state"])
    assert not torch.equal(step.final_obs["state"], step.obs["state"])
    for _ in range(LIMITS[PENDULUM]):
        world.step(torch.zeros(2, 1))  # a second warning would be an error here


def test_a_tensor_world_begins_anew_only_if_it_was_told_how() -> None:
    batch = TensorBatch(PENDULUM, 1)
    world = TensorVectorEnv(batch, batch.spec.action, PENDULUM)
    world.reset(0)
    world.reset(0)
    world.step(torch.zeros(1, 1))
    with pytest.raises(RunError, match=r"cannot begin anew .*Pass restart="):
        world.reset(0)


class Teller(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Tells a reward term at every step but the third."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.steps = 0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.steps += 1
        return (*super().step(action)[:4], {} if self.steps == 3 else {"reward_count": float(self.steps)})


def test_a_term_that_is_not_told_is_not_told_again() -> None:
    world = LocalVectorEnv(PENDULUM, 1, make=lambda name: Teller(make_env(name)))
    world.reset(0)
    told = [world.step(torch.zeros(1, 1)).extras["reward_count"].clone() for _ in range(4)]
    assert torch.cat(told).nan_to_num(-1.0).tolist() == [1.0, 2.0, -1.0, 4.0]


class Loud(SyncVectorEnv):
    """Tells a term of every environment at every step, also of those that only begin anew."""

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(actions)
        return obs, reward, terminated, truncated, {"reward_x": np.ones(self.num_envs, np.float32)}


def test_terms_of_steps_that_did_nothing_are_not_told() -> None:
    vector = Loud([lambda: make_env(PENDULUM)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    world = GymnasiumVectorEnv(vector, PENDULUM)
    world.reset(0)
    steps = [world.step(torch.zeros(2, 1)) for _ in range(LIMITS[PENDULUM] + 2)]
    told = torch.stack([step.extras["reward_x"] for step in steps])
    valid = torch.stack([step.valid for step in steps])
    assert not valid.all()
    assert torch.equal(told.isfinite(), valid)


def test_a_tensor_world_without_time_outs_says_so() -> None:
    batch = TensorBatch(PENDULUM, 1, time_outs=False)
    world = TensorVectorEnv(batch, batch.spec.action, PENDULUM, restart=batch.restart)
    world.reset(0)
    for _ in range(LIMITS[PENDULUM] - 1):
        world.step(torch.zeros(1, 1))
    with pytest.warns(UserWarning, match="every end counts as a termination"):
        step = world.step(torch.zeros(1, 1))
    assert step.terminated.all()
    assert torch.equal(step.extras["all"], torch.tensor([3.0]))
    assert torch.equal(step.extras["each"], step.reward * 2)


def test_a_tensor_world_names_what_changes() -> None:
    batch = TensorBatch(PENDULUM, 2)
    world = TensorVectorEnv(batch, batch.spec.action, PENDULUM)
    batch.rows["state"][1, 2] = torch.nan
    with pytest.raises(DataError, match="group 'state' of environment 1 is not finite"):
        world.reset(0)
    batch.rows["state"] = torch.zeros(2, 5)
    with pytest.raises(DataError, match="group 'state' has another shape"):
        world.reset(0)


def test_first_episodes_can_be_spread() -> None:
    """Shortened ones are truncated with their true final observation; what follows has its whole length."""
    world = LocalVectorEnv(PENDULUM, 12, stagger_episodes=True)
    table = action_table(world.spec.action, 12, 25)
    facts, _ = play(world, table, seed=8)
    single = play_single(PENDULUM, table, seed=8)
    lengths = set()
    for mine, reference in zip(facts, single, strict=True):
        ends = [number for number, fact in enumerate(mine) if fact.truncated]
        first = mine[ends[0]]
        assert np.array_equal(first.next_obs["state"], reference[ends[0]].next_obs["state"])
        assert not first.terminated
        assert ends[1] - ends[0] == LIMITS[PENDULUM]
        lengths.add(ends[0] + 1)
    assert len(lengths) > 3
    assert max(lengths) <= LIMITS[PENDULUM]


def test_spreading_needs_a_time_limit() -> None:
    with pytest.raises(ConfigError, match="no time limit"):
        LocalVectorEnv("Faulty", 1, stagger_episodes=True, make=lambda name: Faulty(""))


@pytest.mark.parametrize("kind", ["local", "same step"])
def test_reward_terms_come_along_also_at_an_end(kind: str) -> None:
    pytest.importorskip("mujoco")
    name = "UnderstudyTestCheetah-v0"
    if name not in gymnasium.registry:
        gymnasium.register(name, "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv", max_episode_steps=3)
    world = WORLDS[kind](name, 2)
    _, steps = play(world, action_table(world.spec.action, 2, 7), seed=0)
    assert any(step.truncated.any() for step in steps)
    for step in steps:
        assert set(step.extras) == {"reward_forward", "reward_ctrl"}
        torch.testing.assert_close(step.extras["reward_forward"] + step.extras["reward_ctrl"], step.reward)

"""The small worlds: what they show, what they hide, and that seeds decide everything."""

import math
import time
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, RunError
from understudy.core.spec import Box, Group, MultiDiscrete, as_actions
from understudy.envs.builtin.cart_pole_pixels import HEIGHT, METRE, WIDTH, draw
from understudy.envs.builtin.kept_columns import KeptColumns
from understudy.envs.builtin.windy_point import MASSES, NOISE, SECONDS, WALL, WIND
from understudy.envs.gym import Env, env_spec, make_env
from understudy.envs.vector.local import LocalVectorEnv
from vector_cases import WORLDS, Fact, action_table, play, play_single

PENDULUM, CARTPOLE = "UnderstudyPendulumMasked-v0", "UnderstudyCartPoleMasked-v0"
PIXELS, POINT, THRUSTERS = "UnderstudyCartPolePixels-v0", "UnderstudyWindyPoint-v0", "UnderstudyWindyThrusters-v0"
ALL = [PENDULUM, CARTPOLE, PIXELS, POINT, THRUSTERS]


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_and_actions_give_the_same_steps(name: str) -> None:
    table = action_table(env_spec(make_env(name), name).action, 2, 30)
    runs = [play_single(name, table, seed) for seed in (3, 3, 4)]
    same, other = ([one.same(two) for one, two in zip(joined(runs[0]), joined(run), strict=True)] for run in runs[1:])
    assert all(same)
    assert not all(other)


def joined(facts: list[list[Fact]]) -> list[Fact]:
    return [fact for mine in facts for fact in mine]


@pytest.mark.parametrize("kind", ["local", "same step", "next step", "disabled"])
@pytest.mark.parametrize("name", [PIXELS, THRUSTERS])
def test_vectors_of_them_repeat_single_ones(kind: str, name: str) -> None:
    world = WORLDS[kind](name, 2)
    table = action_table(world.spec.action, 2, 120 if name == THRUSTERS else 40)
    facts, _ = play(world, table, seed=5)
    for mine, reference in zip(facts, play_single(name, table, seed=5), strict=True):
        assert any(fact.terminated or fact.truncated for fact in mine), "no end to check"
        assert all(one.same(other) for one, other in zip(mine, reference[: len(mine)], strict=True))
    world.close()


@pytest.mark.parametrize(
    ("name", "whole", "kept"), [(PENDULUM, "Pendulum-v1", [0, 1]), (CARTPOLE, "CartPole-v1", [0, 2])]
)
def test_masked_worlds_are_the_whole_ones_without_velocities(name: str, whole: str, kept: list[int]) -> None:
    table = action_table(env_spec(make_env(whole), whole).action, 2, 250)
    masked, full = play_single(name, table, 0), play_single(whole, table, 0)
    for one, other in zip(masked[0] + masked[1], full[0] + full[1], strict=True):
        np.testing.assert_array_equal(one.next_obs["state"], other.next_obs["state"][kept])
        assert (one.reward, one.terminated, one.truncated) == (other.reward, other.terminated, other.truncated)


class Grouped(gymnasium.ObservationWrapper[Any, Any, Any]):
    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.observation_space = spaces.Dict({"body": env.observation_space, "time": spaces.Discrete(3)})

    def observation(self, observation: Any) -> Any:
        return {"body": observation, "time": 2}


def test_columns_of_a_group_are_kept_by_name_and_in_order() -> None:
    env = KeptColumns(Grouped(make_env("Pendulum-v1")), {"body": [2, 0]})
    spec = env_spec(env, "x")
    assert spec.observation == {"body": Group((2,), "float32"), "time": Group((3,), "uint8")}
    seen, _ = env.reset(seed=1)
    whole, _ = make_env("Pendulum-v1").reset(seed=1)
    np.testing.assert_array_equal(seen["body"], whole[[2, 0]])
    assert seen["time"] == 2
    assert isinstance(env.observation_space, spaces.Dict)
    assert env.observation_space["body"].contains(seen["body"])


@pytest.mark.parametrize("columns", [[], [0, 0], [3], [-1], {"body": [0]}])
def test_columns_that_are_none_are_refused(columns: Any) -> None:
    with pytest.raises(ConfigError, match="columns"):
        KeptColumns(make_env("Pendulum-v1"), columns)
    with pytest.raises(ConfigError, match=r"no group 'bod'.*'body'"):
        KeptColumns(Grouped(make_env("Pendulum-v1")), {"bod": [0]})


def centre(image: NDArray[np.uint8], row: int) -> float:
    """Where a row is bright, in pixels."""
    shares = image[row].astype(float)
    return float(shares @ (np.arange(WIDTH) + 0.5) / shares.sum())


@pytest.mark.parametrize(("position", "angle"), [(0.0, 0.0), (1.03, 0.11), (-1.3, 0.05), (0.4, -0.2)])
def test_the_picture_tells_cart_and_pole_to_a_fraction_of_a_pixel(position: float, angle: float) -> None:
    image = draw(position, angle)
    assert image.shape == (HEIGHT, WIDTH)
    assert image.dtype == np.uint8
    cart = centre(image, 21)
    assert (cart - WIDTH / 2) / METRE == pytest.approx(position, abs=0.02)
    bottom, top = centre(image, 18), centre(image, 3)
    assert math.atan((top - bottom) / 15) == pytest.approx(angle, abs=0.01)


def test_a_cart_at_the_end_of_the_track_is_still_seen() -> None:
    assert all(draw(side * 2.4, side * 0.2)[21].any() for side in (-1, 1))


def test_pixels_are_the_look_three_steps_ago_and_the_look_now() -> None:
    env = make_env(PIXELS)
    inner: Any = env.unwrapped
    seen, _ = env.reset(seed=0)
    looks = [draw(inner.state[0], inner.state[2])] * 4
    for _ in range(7):
        np.testing.assert_array_equal(seen["pixels"], [looks[-4], looks[-1]])
        given, before = seen, seen["pixels"].copy()
        seen, *_ = env.step(1)
        np.testing.assert_array_equal(given["pixels"], before, err_msg="an observation changed after it was given")
        looks.append(draw(inner.state[0], inner.state[2]))
        assert not np.array_equal(seen["pixels"][0], seen["pixels"][1])


def test_pictures_are_drawn_fast() -> None:
    speeds = []
    for _ in range(5):
        began = time.process_time()
        for number in range(2000):
            draw(0.001 * number, 0.1)
        speeds.append(2000 / (time.process_time() - began))
    assert max(speeds) > 10_000


def test_the_point_follows_its_equations_and_tells_its_rewards() -> None:
    env = make_env(POINT)
    seen, _ = env.reset(seed=2)
    for action in np.random.default_rng(0).uniform(-1, 1, (60, 2)):
        x, v, wind, mass = np.split(seen["privileged"].astype(float), [2, 4, 6])
        seen, reward, terminated, truncated, info = env.step(action)
        v = v + SECONDS * (action + wind - 0.5 * v) / mass
        x = np.clip(x + SECONDS * v, -WALL, WALL)
        np.testing.assert_allclose(seen["privileged"][:2], x, atol=1e-5)
        assert reward == pytest.approx(-0.1 * (x @ x) - 0.005 * (action @ action), abs=1e-5)
        assert sum(info.values()) == reward
        assert set(info) == {"reward_distance", "reward_effort"}
        assert not terminated
        assert not truncated


def test_the_actors_sensors_are_poor_and_say_nothing_of_wind_and_mass() -> None:
    env = make_env(POINT)
    errors, hidden = [], []
    for seed in range(300):
        seen, _ = env.reset(seed=seed)
        errors.append(seen["state"] - seen["privileged"][:4])
        hidden.append(seen["privileged"][4:])
    noise, secret = np.array(errors), np.array(hidden)
    assert noise.std(0) == pytest.approx(np.full(4, NOISE), rel=0.15)
    assert np.abs(noise.mean(0)).max() < 0.06
    assert np.abs(secret[:, :2]).max() <= WIND
    assert secret[:, 2].min() >= MASSES[0]
    assert secret[:, 2].max() <= MASSES[1]


def test_walls_stop_the_point() -> None:
    env = make_env(POINT)
    env.reset(seed=0)
    for _ in range(90):
        seen, *_ = env.step(np.ones(2, np.float32))
    np.testing.assert_allclose(seen["privileged"][:4], [WALL, WALL, 0, 0])


def test_thrusters_push_back_not_or_forth() -> None:
    spec = env_spec(make_env(THRUSTERS), THRUSTERS)
    assert spec.action == MultiDiscrete((3, 3))
    assert as_actions(np.array([[0.0, 2.0]]), spec.action).dtype == np.int64
    for choice in ([0, 2], [1, 1], [2, 0]):
        forces, thrusters = make_env(POINT), make_env(THRUSTERS)
        forces.reset(seed=1)
        thrusters.reset(seed=1)
        same = forces.step(np.array(choice) - 1.0)[0], thrusters.step(np.array(choice))[0]
        np.testing.assert_array_equal(same[0]["privileged"], same[1]["privileged"])


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (torch.zeros(2, dtype=torch.int64), "wrong shape"),
        (torch.zeros(2, 2), "whole numbers"),
        (
            torch.tensor([[0, 2], [0, 3]]),
            r"no such action, for environment 1: got \[0 3\], expected one of 3 and one of 3",
        ),
        (torch.tensor([[-1, 2], [0, 0]]), "no such action, for environment 0"),
    ],
)
def test_choices_that_are_none_are_refused(action: torch.Tensor, told: str) -> None:
    world = LocalVectorEnv(THRUSTERS, 2)
    world.reset(0)
    with pytest.raises(RunError, match=told):
        world.step(action)


@pytest.mark.parametrize(
    "space", [spaces.MultiDiscrete([3, 2], start=[0, 1]), spaces.MultiDiscrete(np.array([[2, 3], [3, 2]]))]
)
def test_factors_that_are_no_vector_from_zero_are_refused(space: spaces.MultiDiscrete) -> None:
    env = make_env("Pendulum-v1")
    env.action_space = space
    with pytest.raises(ConfigError, match="actions not supported"):
        env_spec(env, "x")
    env.action_space = spaces.Box(-1.0, 1.0, (2,))
    assert isinstance(env_spec(env, "x").action, Box)

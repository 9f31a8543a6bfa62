"""What environments tell in `info`: one number per episode, in every kind of world."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from understudy import Actor, Box, Spec, evaluate_policy
from understudy.core.rng import stream
from understudy.core.spec import Group
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.envs.vector.tensor_adapter import TensorVectorEnv
from understudy.nn.actor import ActorSettings
from understudy.run.config import parse_config
from understudy.run.environments import make_vector_env
from understudy.run.episode_info import InfoTally, Summary, describe_info, info_number
from understudy.run.evaluate import evaluate_in_vector_env
from understudy.run.evaluation import Evaluation
from worlds import tiny_settings

COUNTING = "Counting/Info-v0"
NAN = float("nan")


class CountingEnv(gymnasium.Env[Any, Any]):
    """Five steps; tells its step, a success in the fourth only, and things that are no numbers."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(3, np.float32), {"height": 99.0}

    def step(self, action: Any) -> Any:
        self._steps += 1
        told = {"height": float(self._steps), "words": "none", "success": self._steps == 4}
        return np.zeros(3, np.float32), 1.0, self._steps == 5, False, told


class SucceedsInTheSecondEpisode(CountingEnv):
    """Of those that are evaluated; it says nothing of success in any other."""

    episodes = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.episodes += seed is not None  # not those that begin where nobody looks
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        *answer, told = super().step(action)
        return *answer, {**told, "success": True} if self.episodes == 2 else {"height": told["height"]}


if COUNTING not in gymnasium.registry:
    gymnasium.register(COUNTING, lambda **_: CountingEnv())


def some_policy() -> Actor:
    spec = Spec({"state": Group((3,), "float32")}, Box((-2.0,), (2.0,)))
    return Actor(spec, ActorSettings(hidden=(8,)), stream(0, "init"))


def test_each_way_to_sum_up_is_what_numpy_says() -> None:
    rng = np.random.default_rng(0)
    steps, count = 7, 5
    values = rng.normal(size=(steps, count))
    values[rng.random((steps, count)) < 0.3] = NAN
    values[:, 4] = NAN
    playing = np.arange(steps)[:, None] < np.array([7, 5, 3, 7, 7])
    seen = np.where(playing, values, NAN)
    ways: dict[Summary, Any] = {"mean": np.nanmean, "max": np.nanmax, "min": np.nanmin, "sum": np.nansum}
    for how in (*ways, "final"):
        tally = InfoTally({"x": how}, count)
        for row, counts in zip(values, playing, strict=True):
            tally.add({"x": torch.from_numpy(row), "y": torch.zeros(count)}, torch.from_numpy(counts))
        told = tally.told(count)
        assert list(told) == ["x"]
        for column in range(4):
            mine = seen[:, column][~np.isnan(seen[:, column])]
            expected = mine[-1] if how == "final" else ways[how](mine)
            assert told["x"][column] == pytest.approx(expected), how
        assert np.isnan(told["x"][4]), "it never told"


def test_what_counts_as_a_number() -> None:
    numbers: tuple[Any, ...] = (True, np.float32(2.5), np.array(3), torch.tensor(4.0))
    assert [info_number(value) for value in numbers] == [1.0, 2.5, 3.0, 4.0]
    others: tuple[Any, ...] = ("1", None, [1.0], np.ones(2), 1j, np.complex64(1), np.array(1j))
    assert all(np.isnan(info_number(value)) for value in others)


def test_rounds_need_not_tell_the_same() -> None:
    """One environment, episode after episode: what only one of them told is not lost, and is no error."""
    found = evaluate_policy(some_policy(), SucceedsInTheSecondEpisode(), 3, seed=0, info={"height": "max"})
    assert found.success_rate == pytest.approx(1 / 3)
    assert found.info["height"] == (5.0,) * 3


def test_success_is_a_share_of_all_episodes() -> None:
    assert describe_info({"success": (1.0, NAN, 0.0, 1.0)}, {}) == {"eval/success_rate": 0.5}
    record = describe_info({"is_success": (0.0, 1.0), "x": (2.0, NAN)}, {"x": "max"})
    assert record == {"eval/success_rate": 0.5, "eval/x_max": 2.0}
    assert Evaluation((1.0,), (1,)).success_rate is None


def test_a_registered_environment_tells_its_task() -> None:
    found = evaluate_policy(some_policy(), COUNTING, 3, seed=0, info={"height": "mean", "words": "max"})
    assert found.info == {"success": (1.0,) * 3, "height": (3.0,) * 3}
    record = found.to_json()
    assert (record["eval/success_rate"], record["eval/height_mean"], record["eval/length_std"]) == (1.0, 3.0, 0.0)
    assert "eval/words_max" not in record
    assert found.seconds > 0
    assert found.steps_per_second > 0
    assert any("success rate 100.0%" in line for line in found.notes())
    final = evaluate_policy(some_policy(), COUNTING, 1, seed=0, info={"success": "final"})
    assert final.success_rate == 0.0, "the last step was none"


class TensorInfo:
    """Two copies that end after five steps, as an rsl_rl-style simulator."""

    num_envs = 2
    _steps = 0

    def get_observations(self) -> Tensor:
        return torch.zeros(2, 3)

    def step(self, actions: Tensor, /) -> Any:
        self._steps += 1
        ended = torch.full((2,), self._steps % 5 == 0)
        extras = {"time_outs": ended, "height": torch.full((2,), float(self._steps)), "log": {"reward_a": 1.0}}
        return self.get_observations(), torch.ones(2), ended, extras


def test_vectors_of_environments_tell_it_for_evaluations_only() -> None:
    action = Box((-2.0,), (2.0,))
    for mode in AutoresetMode:
        vector = SyncVectorEnv([CountingEnv] * 2, autoreset_mode=mode)
        settings = tiny_settings("iql", Path("unused"), env={"id": "custom", "simulator": "custom"})
        env = parse_config(settings).world

        def make(count: int, vector: Any = vector) -> Any:
            return GymnasiumVectorEnv(vector, "counting")

        plain = make_vector_env(env, 2, make)
        plain.reset(0)
        assert not list(plain.step(torch.zeros(2, 1)).extras), "rollouts do not pay for it"
        asked = make_vector_env(env, 2, make, extras=("success", "height"))
        found = evaluate_in_vector_env(some_policy(), asked, 2, 0, info={"height": "max"})
        assert found.info == {"success": (1.0, 1.0), "height": (5.0, 5.0)}, mode
    local = make_vector_env(env, 2, lambda count: LocalVectorEnv(COUNTING, count), extras=("success", "height"))
    found = evaluate_in_vector_env(some_policy(), local, 2, 0, info={"height": "max"})
    assert found.info == {"success": (1.0, 1.0), "height": (5.0, 5.0)}, "environments that a caller hands over"
    local.close()
    simulator = TensorVectorEnv(TensorInfo(), action, "tensors", restart=lambda seed: None)
    assert "height" not in simulator.step(torch.zeros(2, 1)).extras
    simulator.keep_extras(("height",))
    assert simulator.step(torch.zeros(2, 1)).extras["height"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("flags", [True, False])
def test_a_share_of_all_environments_is_no_success_of_an_episode(flags: bool) -> None:
    """The log of a simulator often has one; flags beside it are what counts."""

    class Reaching(TensorInfo):
        def step(self, actions: Tensor, /) -> Any:
            *others, extras = super().step(actions)
            told = {"success": torch.tensor([True, False])} if flags else {}
            return *others, {**extras, **told, "log": {"success": 0.5}}

    simulator = TensorVectorEnv(Reaching(), Box((-2.0,), (2.0,)), "tensors", restart=lambda seed: None)
    assert simulator.step(torch.zeros(2, 1)).extras["success"].tolist() == [0.5, 0.5], "a term of rollouts"
    simulator.keep_extras(("is_success", "success"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = evaluate_in_vector_env(some_policy(), simulator, 2, 0)
    assert found.success_rate == (0.5 if flags else None)
    assert any("'success' is one number for all environments" in str(one.message) for one in said) != flags

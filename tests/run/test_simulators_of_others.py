"""Simulators of other people: seeds they can take, evaluations that do not touch them, and episodes that never end."""

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from small import SHORT, short_settings
from torch import Tensor

import understudy as us
from learners import differences
from understudy.core.batch import Obs
from understudy.core.errors import RunError
from understudy.core.rng import stream
from understudy.core.spec import Box, Group, Spec
from understudy.envs.vector.contract import Step, VectorEnv
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.envs.vector.tensor_adapter import TensorVectorEnv
from understudy.nn.actor import ActorSettings
from understudy.run.checkpoint import list_checkpoints, load_checkpoint
from understudy.run.config import parse_config
from understudy.run.evaluate import evaluate_in_vector_env
from worlds import pendulum_recipe

DRAWING, ENDLESS = "UnderstudyTestDrawing-v0", "UnderstudyTestEndless-v0"
BOX = Box((-1.0,), (1.0,))
SPEC = Spec({"state": Group((2,), "float32")}, BOX)


class Drawing(gymnasium.Env[Any, Any]):
    """Draws from all global generators; notes the seeds it is given."""

    observation_space = spaces.Box(-99, 99, (2,))
    action_space = spaces.Box(-1, 1, (1,))
    seeds: ClassVar[list[int]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.seeds.append(seed)
        return self.drawn(), {}

    def drawn(self) -> Any:
        return np.array([random.random() + np.random.rand(), float(torch.rand(()))], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.drawn(), float(np.random.rand()), False, False, {}


class DrawingBatch:
    """The same for rsl_rl's runners. It draws when it is made, too."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.age = num_envs, 0
        self.state = torch.randn(num_envs, 2)

    def restart(self, seed: int) -> None:
        Drawing.seeds.append(seed)
        self.state, self.age = torch.randn(self.num_envs, 2), 0

    def get_observations(self) -> Tensor:
        return self.state

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Mapping[str, Any]]:
        self.age += 1
        self.state = torch.randn(self.num_envs, 2)
        ended = torch.full((self.num_envs,), self.age % 5 == 0)
        return self.state, torch.rand(self.num_envs), ended, {"time_outs": ended, "final_obs": self.state}


class Own:
    """A vector world of somebody's own."""

    def __init__(self, count: int) -> None:
        self.count, self.spec, self._world = count, SPEC, LocalVectorEnv(DRAWING, count)

    def reset(self, seed: int) -> Obs:
        Drawing.seeds.append(seed)
        return self._world.reset(seed)

    def step(self, action: Tensor) -> Step:
        return self._world.step(action)

    def close(self) -> None:
        self._world.close()


def tensors(count: int) -> VectorEnv:
    batch = DrawingBatch(count)
    return TensorVectorEnv(batch, BOX, "Drawing", restart=batch.restart)


def vector(count: int) -> VectorEnv:
    single = lambda: gymnasium.make(DRAWING)  # noqa: E731
    return GymnasiumVectorEnv(SyncVectorEnv([single] * count, autoreset_mode=AutoresetMode.NEXT_STEP), DRAWING)


GIVEN = {"tensors": tensors, "vector": vector, "own": Own}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("understudy.run.loop.draw_run", lambda run: None)  # takes longer than all the rest
    Drawing.seeds.clear()
    gymnasium.register(DRAWING, lambda **_: Drawing(), max_episode_steps=5)
    gymnasium.register(ENDLESS, lambda **_: Drawing())
    yield
    del gymnasium.registry[DRAWING], gymnasium.registry[ENDLESS]


def some_policy() -> us.Actor:
    return us.Actor(SPEC, ActorSettings(hidden=(8,)), stream(0, "init"))


def train(out: Path, given: str, **changes: Any) -> us.Run:
    env = {"id": DRAWING, "simulator": "custom" if given else "gymnasium"}
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    changes = {"updates": 4, "source": {"num_envs": 3, "rollout_length": 7}, **changes}
    return us.train(parse_config(short_settings("ppo", out, env=env, **changes)), make_envs=GIVEN.get(given))


@pytest.mark.parametrize("given", ["", *GIVEN])
def test_seeds_fit_into_31_bits_and_evaluations_draw_nothing_from_training(given: str, tmp_path: Path) -> None:
    """Wherever training and evaluation draw from the same generators: with and without evaluations, the same run."""
    often, never = (train(tmp_path / str(every), given, eval_every=every) for every in (1, 4))
    first, second = (load_checkpoint(run.path / "checkpoints", 4).state for run in (often, never))
    assert differences(first, second) == []
    assert often.evaluations()[-1] == never.evaluations()[-1], "and the same evaluation, whatever was drawn before"
    assert Drawing.seeds
    assert all(0 <= seed < 2**31 for seed in Drawing.seeds)


def test_a_resumed_simulator_is_given_such_seeds_too(tmp_path: Path) -> None:
    train(tmp_path / "run", "tensors")
    Drawing.seeds.clear()
    us.resume(tmp_path / "run", updates=6, make_envs=tensors)
    assert Drawing.seeds
    assert all(0 <= seed < 2**31 for seed in Drawing.seeds)


def test_recipes_and_evaluations_repeat_what_draws_from_global_generators() -> None:
    recipe = pendulum_recipe(env=DRAWING, episodes=2, behaviours=[{"policy": "random"}])
    random.seed(1)
    datasets = [us.make_dataset(recipe) for _ in range(2)]
    evaluations = [us.evaluate_policy(some_policy(), DRAWING, 2, seed=seed) for seed in (0, 0, 1)]
    after = random.random()
    random.seed(1)
    assert after == random.random(), "and leave them where they stood"
    assert datasets[0].fingerprint == datasets[1].fingerprint
    assert evaluations[0] == evaluations[1] != evaluations[2]
    assert all(0 <= seed < 2**31 for seed in Drawing.seeds)


class Tired(DrawingBatch):
    """Answers in training, and no longer once it has been started anew."""

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Mapping[str, Any]]:
        if len(Drawing.seeds) > 1:
            time.sleep(60)
        return super().step(actions)


def test_the_only_simulator_is_not_waited_for_either(tmp_path: Path) -> None:
    def tired(count: int) -> VectorEnv:
        batch = Tired(count)
        return TensorVectorEnv(batch, BOX, "Tired", restart=batch.restart)

    env = {"id": "Tired", "simulator": "custom", "shared": True}
    source = {"num_envs": 3, "rollout_length": 7, "step_timeout": 0.3}
    config = parse_config(short_settings("ppo", tmp_path / "run", env=env, source=source, save_every=100))
    with pytest.raises(
        RunError, match=r"^environment 'Tired': has not answered for 0\.3 seconds\. .*All environments: "
    ):
        us.train(config, make_envs=tired)
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == [3], "the evaluation was due at update 3"


def test_an_episode_that_never_ends_is_told() -> None:
    told = r"^environment 'UnderstudyTestEndless-v0': LABEL has not ended after 30 steps\. Give the environment a"
    with pytest.raises(RunError, match=told.replace("LABEL", "evaluation episode 0")) as caught:
        us.evaluate_policy(some_policy(), ENDLESS, 2, seed=0, max_steps=30)
    assert "Evaluation episode 0: seed" in str(caught.value)
    with pytest.raises(RunError, match=told.replace("LABEL", "evaluation episode 0")):
        evaluate_in_vector_env(some_policy(), LocalVectorEnv(ENDLESS, 2), 2, 0, max_steps=30, name=ENDLESS)
    assert us.evaluate_policy(some_policy(), DRAWING, 1, seed=0, max_steps=3).lengths == (5,), "its own limit is enough"
    assert us.evaluate_policy(some_policy_of(SHORT), SHORT, 1, seed=0, max_steps=10).lengths == (10,)


def test_an_episode_may_be_cut_where_nothing_else_ends_it(tmp_path: Path) -> None:
    """At the same place whoever makes the environments, and later ends are not waited for."""
    for play in (us.evaluate_policy, evaluate_in_vector_env):
        name = ENDLESS if play is us.evaluate_policy else LocalVectorEnv(ENDLESS, 2)
        short, long = (play(some_policy(), name, 2, 0, cut_after=cut) for cut in (3, 8))  # type: ignore[arg-type]
        assert short.lengths == (3, 3)
        assert long.lengths == (8, 8)
        assert all(0 < less < more for less, more in zip(short.returns, long.returns, strict=True))
    assert us.evaluate_policy(some_policy(), DRAWING, 1, 0, cut_after=9).lengths == (5,), "its own limit comes first"
    env = {"id": ENDLESS, "simulator": "gymnasium"}
    run = us.train(
        parse_config(short_settings("ppo", tmp_path / "run", env=env, updates=1, eval_episodes=2, eval_max_steps=6))
    )
    assert run.evaluations()[-1]["lengths"] == [6, 6]
    assert run.evaluate(3).lengths == (6, 6, 6)


@pytest.mark.parametrize("given", GIVEN)
def test_a_simulator_is_made_once_for_all_evaluations_and_closed_at_the_end(given: str, tmp_path: Path) -> None:
    """Each begins from the same start states: the greedy policy is another one each time, so the lengths tell."""
    made: list[Counted] = []

    def counting(count: int) -> VectorEnv:
        made.append(Counted(GIVEN[given](count)))
        return made[-1]

    env = {"id": DRAWING, "simulator": "custom"}
    changes = {"updates": 4, "source": {"num_envs": 3, "rollout_length": 7}, "eval_every": 1, "eval_episodes": 2}
    run = us.train(parse_config(short_settings("ppo", tmp_path / "run", env=env, **changes)), make_envs=counting)
    assert [world.count for world in made] == [3, 2], "rollouts, and four evaluations"
    assert [world.closed for world in made] == [1, 1]
    assert len({tuple(line["returns"]) for line in run.evaluations()}) == 1, "rewards are drawn, whatever is done"


def test_a_simulator_that_cannot_begin_anew_is_made_for_each_evaluation(tmp_path: Path) -> None:
    made = []

    def make(count: int) -> VectorEnv:
        made.append(Counted(TensorVectorEnv(DrawingBatch(count), BOX, "Drawing")))
        return made[-1].world

    env = {"id": DRAWING, "simulator": "custom"}
    changes = {"updates": 3, "source": {"num_envs": 3, "rollout_length": 7}, "eval_every": 1}
    run = us.train(parse_config(short_settings("ppo", tmp_path / "run", env=env, **changes)), make_envs=make)
    assert len(made) == 4
    assert len({tuple(line["returns"]) for line in run.evaluations()}) == 1, "built from the same draws"


class Counted:
    """A world that counts how often it is closed."""

    def __init__(self, world: VectorEnv) -> None:
        self.world, self.count, self.spec, self.closed = world, world.count, world.spec, 0

    def reset(self, seed: int) -> Obs:
        return self.world.reset(seed)

    def step(self, action: Tensor) -> Step:
        return self.world.step(action)

    def close(self) -> None:
        self.closed += 1
        self.world.close()


def test_a_run_is_saved_before_it_is_evaluated(tmp_path: Path) -> None:
    """An evaluation that kills the process costs nothing that was learned, and is played again."""
    out = tmp_path / "run"
    seen: list[list[int]] = []

    class Watched(DrawingBatch):
        def restart(self, seed: int) -> None:
            if self.num_envs == 2:  # evaluations
                seen.append(list_checkpoints(out / "checkpoints"))
            super().restart(seed)

    def watched(count: int) -> VectorEnv:
        batch = Watched(count)
        return TensorVectorEnv(batch, BOX, "Drawing", restart=batch.restart)

    env = {"id": DRAWING, "simulator": "custom"}
    beats = {"updates": 4, "eval_every": 2, "save_every": 2, "eval_episodes": 2, "keep_checkpoints": 9}
    source = {"num_envs": 3, "rollout_length": 7}
    run = us.train(parse_config(short_settings("ppo", out, env=env, source=source, **beats)), make_envs=watched)
    assert seen == [[2], [2, 4]]
    best = max(run.evaluations(), key=lambda line: line["eval/return_mean"])["updates"]
    told = load_checkpoint(out / "checkpoints", 4).facts["history"]
    assert (told["best"]["updates"], told["logs"]["eval.jsonl"]["lines"]) == (best, 2), "and told what it found"


def some_policy_of(env: str) -> us.Actor:
    spec = LocalVectorEnv(env, 1).spec
    return us.Actor(spec, ActorSettings(hidden=(8,)), stream(0, "init"))


def test_whoever_asks_can_stop_an_evaluation_before_any_step() -> None:
    class EnoughError(Exception):
        pass

    left = 7

    def between() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise EnoughError

    with pytest.raises(EnoughError):
        us.evaluate_policy(some_policy(), ENDLESS, 2, seed=0, between=between)
    left = 7
    with pytest.raises(EnoughError):
        evaluate_in_vector_env(some_policy(), LocalVectorEnv(ENDLESS, 2), 2, 0, between=between)

"""D4RL's flat observations of today's mazes and kitchen: axes, origins and goals by what the simulator does."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import understudy as us
from understudy.envs.builtin.d4rl_layout import GOALS, POINT_GOALS, approximation_note
from understudy.run.config import parse_config

maps = pytest.importorskip("gymnasium_robotics.envs.maze.maps")
MAZES = {"UMaze": "U_MAZE", "Medium": "MEDIUM_MAZE", "Large": "LARGE_MAZE"}


def test_the_point_is_where_d4rl_would_say() -> None:
    for name, maze in MAZES.items():
        env = gymnasium.make(f"UnderstudyMaze2d{name}-v1")
        cells = getattr(maps, maze)
        seen = set()
        for seed in range(12):
            obs, _ = env.reset(seed=seed)
            assert (obs.shape, obs.dtype) == ((4,), np.float32)
            row, column = np.rint(obs[:2]).astype(int).tolist()
            assert cells[row][column] == 0, (name, obs)
            seen.add((row, column))
        assert len(seen) > 2
        goal = env.unwrapped.goal + np.array([len(cells), len(cells[0])]) / 2 - 0.5  # type: ignore[attr-defined]
        assert np.rint(goal).astype(int).tolist() == list(POINT_GOALS[maze])
        for axis in (0, 1):  # an action pushes along its own axis, and position follows speed
            before, _ = env.reset(seed=3)
            push = np.zeros(2, np.float32)
            push[axis] = 1.0
            after = env.step(push)[0]
            assert after[2 + axis] > before[2 + axis] + 1e-3
            assert abs(after[3 - axis]) < 1e-3
        env.close()


def test_the_ant_starts_at_the_origin() -> None:
    for name, maze in MAZES.items():
        env = gymnasium.make(f"UnderstudyAntMaze{name}-v2")
        obs, _ = env.reset(seed=0)
        assert obs.shape == (29,)
        assert np.abs(obs[:2]).max() <= 1.01
        cells = getattr(maps, maze)
        origin = 4 * (np.array([len(cells[0]), len(cells)]) / 2 - 1.5)
        goal = env.unwrapped.goal + origin  # type: ignore[attr-defined]
        row, column = GOALS[maze]
        assert np.abs(goal - 4 * np.array([column - 1, row - 1])).max() <= 1.01
        inner = env.unwrapped.data.qpos  # type: ignore[attr-defined]
        assert obs[2:15].tolist() == pytest.approx(inner[2:15].tolist(), abs=1e-5)
        env.close()


def test_the_kitchen_has_robot_things_and_goal() -> None:
    env = gymnasium.make("UnderstudyFlatKitchenSlider-v0")
    obs, _ = env.reset(seed=0)
    assert obs.shape == (60,)
    qpos = env.unwrapped.data.qpos  # type: ignore[attr-defined]
    assert obs[:30].tolist() == pytest.approx(qpos.tolist(), abs=0.1)  # but for the noise of its sensors
    assert obs[30 + 22] == pytest.approx(-0.75)  # the microwave's door
    assert obs[30 + 19] == pytest.approx(0.37)  # the cabinet
    assert not obs[30:39].any()
    env.close()


def test_approximations_are_named() -> None:
    assert "scores are not D4RL's" in approximation_note("UnderstudyAntMazeUMaze-v2")
    assert approximation_note("Hopper-v4") == approximation_note("UnderstudyKitchenSlider-v0") == ""


def test_a_score_says_that_it_is_an_approximation(tmp_path: Path) -> None:
    """In an evaluation, its record, and what the command line shows."""
    rng = np.random.default_rng(0)
    ends = np.arange(1, 61) % 20 == 0
    columns = {"observations": rng.normal(size=(60, 4)), "actions": rng.uniform(-1, 1, (60, 2)), "timeouts": ends}
    dataset = us.load_dataset({**columns, "rewards": np.zeros(60)}, env="UnderstudyMaze2dUMaze-v1")
    config = {
        "algo": {"name": "bc", "actor": {"hidden": [4]}},
        "data": {"path": str(us.write_store(dataset, tmp_path / "data"))},
        "env": {"id": "UnderstudyMaze2dUMaze-v1", "reference": "maze2d-umaze-v1"},
        "updates": 1,
        "eval_every": 1,
        "eval_episodes": 1,
        "eval_max_steps": 5,
        "compile": False,
        "tensorboard": False,
        "out": str(tmp_path / "run"),
    }
    run = us.train(parse_config(config), progress=False)
    assert run.result["eval/approximate"] == 1.0
    played = run.evaluate(1)
    assert "(an approximation)" in repr(played)
    assert next(iter(played.notes())).startswith("approximation: UnderstudyMaze2dUMaze-v1")

"""The waypoint player: shortest ways, never through a wall, and at the goal."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy import Dataset, Recipe, make_dataset
from understudy.envs.builtin.controllers import CONTROLLERS, find_controller
from understudy.envs.builtin.point_maze import WaypointPlayer, free_cells, make_waypoint_player, ways
from understudy.envs.gym import Env, env_spec, make_env, observe

RING: list[list[object]] = [[1, 1, 1, 1, 1], [1, "r", 0, 0, 1], [1, 0, 1, 0, 1], [1, 0, 0, "g", 1], [1, 1, 1, 1, 1]]
"""Eight cells around a pillar."""
REACH = 0.45


def play(env_id: str, episodes: int, **behaviour: Any) -> Dataset:
    recipe = {"env": env_id, "episodes": episodes, "seed": 5, "behaviours": [behaviour]}
    return make_dataset(Recipe.parse(recipe))


def reached(dataset: Dataset) -> NDArray[np.bool_]:
    """[E]: the ball came to the goal in this episode."""
    away = (dataset.observations["achieved_goal"] - dataset.observations["desired_goal"]).norm(dim=1).numpy()
    return np.array([part.min() <= REACH for part in np.split(away, dataset.episodes)])


def test_ways_are_shortest() -> None:
    cells = free_cells(RING)
    assert len(cells) == 8
    table = ways(cells)
    corner, opposite = cells.index((1, 1)), cells.index((3, 3))
    steps, here = 0, corner
    while here != opposite:
        before, here = here, int(table[opposite, here])
        assert abs(np.subtract(cells[before], cells[here])).sum() == 1
        steps += 1
    assert steps == 4
    assert cells[table[cells.index((1, 2)), corner]] == (1, 2)
    assert (table.diagonal() == np.arange(8)).all()


def test_without_a_way_it_stays() -> None:
    assert ways([(0, 0), (0, 2)]).tolist() == [[0, 1], [0, 1]]


@pytest.fixture(scope="module")
def medium() -> Env:
    return make_env("PointMaze_Medium-v3")


def test_the_straight_line_to_the_waypoint_is_free(medium: Env) -> None:
    """From anywhere in any free cell, to any goal."""
    player = make_waypoint_player(medium)
    unwrapped: Any = medium.unwrapped
    maze, rng = unwrapped.maze, np.random.default_rng(0)
    cells = free_cells(maze.maze_map)
    for _ in range(2000):
        start, end = (maze.cell_rowcol_to_xy(np.array(cells[rng.integers(len(cells))])) for _ in range(2))
        start, end = start + rng.uniform(-0.4, 0.4, 2), end + rng.uniform(-0.25, 0.25, 2)
        waypoint = player.waypoint(start, end)
        for part in np.linspace(0, 1, 9):
            i, j = maze.cell_xy_to_rowcol(start + part * (waypoint - start))
            assert maze.maze_map[i][j] != 1


def test_in_the_goals_cell_the_goal_is_the_waypoint(medium: Env) -> None:
    player = make_waypoint_player(medium)
    goal = np.array([2.6, 2.4])
    np.testing.assert_array_equal(player.waypoint(np.array([2.3, 2.7]), goal), goal)


def test_it_pushes_toward_the_waypoint_and_against_speed() -> None:
    cells = free_cells(RING)
    player = WaypointPlayer(RING, {(i, j): np.array([float(j), -float(i)]) for i, j in cells})

    def push(x: float, y: float, speed: float, skill: float = 1.0) -> list[float]:
        groups = {"observation": np.array([x, y, speed, 0.0]), "desired_goal": np.array([2.0, -1.0])}
        return [float(part) for part in player(groups, skill)]

    assert push(1.0, -1.0, 0.0) == [1.0, 0.0]
    assert push(1.95, -1.0, 0.0) == pytest.approx([0.5, 0.0])
    assert push(1.95, -1.0, 1.0) == pytest.approx([-0.5, 0.0])
    assert push(1.95, -1.0, 0.0, skill=0.5) == pytest.approx([0.25, 0.0])
    assert push(1.0, -2.0, 0.0) == [0.0, 1.0]


@pytest.mark.parametrize("env_id", ["PointMaze_UMaze-v3", "PointMaze_Medium-v3"])
def test_it_reaches_goals_that_chance_does_not(env_id: str) -> None:
    skilled = play(env_id, 15, policy="scripted", noise=0.5, epsilon=0.1)
    chance = play(env_id, 15, policy="random")
    assert reached(skilled).mean() > 0.9
    assert reached(chance).mean() < 0.5
    assert skilled.returns().mean() > 5 * chance.returns().mean()


def test_skill_pays() -> None:
    helpless, weak, best = (
        play("PointMaze_UMaze-v3", 3, policy="scripted", skill=skill).returns().mean() for skill in (0.0, 0.1, 1.0)
    )
    assert helpless < weak < best
    assert helpless == 0


def steps_to_goal(env_id: str, seed: int) -> int:
    env = make_env(env_id)
    spec, player = env_spec(env, env_id), find_controller(env_id)
    seen, _ = env.reset(seed=seed)
    success = truncated = False
    steps = 0
    while not (success or truncated):
        seen, _, _, truncated, info = env.step(player(observe(seen, spec, env_id), 1.0))
        success = info["success"]
        steps += 1
    env.close()
    return steps if success else 10**9


@pytest.mark.parametrize("env_id", [name for name in CONTROLLERS if name.startswith("PointMaze_")])
def test_every_maze_has_a_player_that_gets_there(env_id: str) -> None:
    assert steps_to_goal(env_id, seed=3) < 500


def test_an_episode_is_one_start_one_goal_and_the_time_limit() -> None:
    dataset = play("PointMaze_UMaze-v3", 3, policy="scripted")
    assert dataset.index.lengths.tolist() == [300] * 3
    assert dataset.index.truncated.all()
    assert not dataset.index.terminated.any()
    goals = np.split(dataset.observations["desired_goal"].numpy(), 3)
    assert all((goal == goal[0]).all() for goal in goals)
    assert len({tuple(goal[0]) for goal in goals}) == 3
    assert set(np.unique(dataset.rewards.numpy())) == {0.0, 1.0}


def test_no_model_files_are_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    env = make_env("PointMaze_UMaze-v3")
    env.reset(seed=0)
    env.close()
    assert list(tmp_path.iterdir()) == []

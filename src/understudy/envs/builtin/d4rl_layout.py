"""Today's mazes and kitchen with the observations of D4RL's flat files, so that a policy learned from those can be
played.

D4RL's environments are not made any more. gymnasium-robotics has successors, whose observations are in groups, and
whose coordinates begin elsewhere. Here the maze is turned so that its axes are D4RL's, positions are counted from where
D4RL counts, the goal is D4RL's, and the vector is put together in its order:

maze2d   [x, y, ẋ, ẏ]; row w and column h of the maze are at about (w, h)
antmaze  [x, y, 27 more of the ant]; the start is at (0, 0), a cell is 4 wide; reaching the goal ends an episode
kitchen  [9 of the robot, 21 of the things, 30 of the goal]

The physics are gymnasium-robotics': masses, gains, thresholds and starts differ, so a score is an approximation, and
said to be one wherever it is shown.
"""

from collections.abc import Callable
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import MissingPackageError

ANT_CELL = 4.0
GOALS = {"U_MAZE": (3, 1), "MEDIUM_MAZE": (6, 6), "LARGE_MAZE": (7, 9)}
"""Of AntMaze, by row and column; those of maze2d are the same but for the U."""
POINT_GOALS = {**GOALS, "U_MAZE": (1, 1)}
START = (1, 1)
KITCHEN_SIZE = 30
APPROXIMATES = {"UnderstudyMaze2d": "maze2d", "UnderstudyAntMaze": "antmaze", "UnderstudyFlatKitchen": "kitchen"}
Vector = NDArray[np.float32]
Cells = list[list[Any]]


def approximation_note(env_id: str) -> str:
    """What to say beside a score of this environment; nothing of most."""
    for beginning, name in APPROXIMATES.items():
        if env_id.startswith(beginning):
            return (
                f"approximation: {env_id} has the observations of D4RL's {name} and the physics of gymnasium-robotics; "
                "scores are not D4RL's"
            )
    return ""


@final
class FlatObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """One vector of the groups of an observation."""

    def __init__(self, env: "gymnasium.Env[Any, Any]", size: int, flat: Callable[[Any], NDArray[Any]]) -> None:
        super().__init__(env)
        self._flat = flat
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def observation(self, observation: Any) -> Vector:
        return np.asarray(self._flat(observation), np.float32)


def make_maze2d(maze: str, reward_type: str = "sparse", render_mode: str | None = None) -> FlatObservation:
    """`maze`: U_MAZE, MEDIUM_MAZE or LARGE_MAZE."""
    maps, point_maze = _mazes("point_maze")
    cells = marked(maps[maze], goal=POINT_GOALS[maze])
    env = point_maze.PointMazeEnv(
        maze_map=turned(cells),
        reward_type=reward_type,
        continuing_task=True,
        reset_target=False,
        render_mode=render_mode,
    )
    origin = np.array([len(cells), len(cells[0])]) / 2 - 0.5

    def flat(groups: Any) -> NDArray[Any]:
        seen = groups["observation"]
        return np.concatenate([seen[:2] + origin, seen[2:]])

    return FlatObservation(env, 4, flat)


def make_ant_maze(maze: str, render_mode: str | None = None) -> FlatObservation:
    """The ant starts in the first cell and has one goal."""
    maps, ant_maze = _mazes("ant_maze_v4")
    cells = marked(maps[maze], goal=GOALS[maze], start=START)
    env = ant_maze.AntMazeEnv(
        maze_map=cells[::-1], reward_type="sparse", continuing_task=False, reset_target=False, render_mode=render_mode
    )
    origin = ANT_CELL * (np.array([len(cells[0]), len(cells)]) / 2 - 0.5 - np.array(START[::-1]))

    def flat(groups: Any) -> NDArray[Any]:
        return np.concatenate([groups["achieved_goal"] + origin, groups["observation"]])

    return FlatObservation(env, 29, flat)


def make_flat_kitchen(last_task: str, render_mode: str | None = None) -> FlatObservation:
    """Microwave, kettle, light switch and one task more."""
    try:
        from gymnasium_robotics.envs.franka_kitchen import kitchen_env  # type: ignore[import-untyped]
    except ImportError as error:
        raise _missing() from error
    tasks = ["microwave", "kettle", "light switch", last_task]
    goal = np.zeros(KITCHEN_SIZE)
    for task in tasks:
        goal[kitchen_env.OBS_ELEMENT_INDICES[task]] = kitchen_env.OBS_ELEMENT_GOALS[task]

    def flat(groups: Any) -> NDArray[Any]:
        seen = groups["observation"]  # 9 positions and 9 speeds of the robot, 21 positions and 20 speeds of the things
        return np.concatenate([seen[:9], seen[18:39], goal])

    env = kitchen_env.KitchenEnv(tasks_to_complete=tasks, render_mode=render_mode)
    return FlatObservation(env, 2 * KITCHEN_SIZE, flat)


def marked(cells: Cells, goal: tuple[int, int], start: tuple[int, int] | None = None) -> Cells:
    """Walls and free cells, with the goal, and the start where there is only one."""
    plain: Cells = [[1 if cell == 1 else 0 for cell in row] for row in cells]
    plain[goal[0]][goal[1]] = "g"
    if start is not None:
        plain[start[0]][start[1]] = "r"
    return plain


def turned(cells: Cells) -> Cells:
    """The same maze with its rows along x and its columns along y, as D4RL's point sees it."""
    return [[row[column] for row in cells] for column in reversed(range(len(cells[0])))]


def _mazes(module: str) -> tuple[dict[str, Cells], Any]:
    try:
        from importlib import import_module

        maps = import_module("gymnasium_robotics.envs.maze.maps")
        return vars(maps), import_module(f"gymnasium_robotics.envs.maze.{module}")
    except ImportError as error:
        raise _missing() from error


def _missing() -> MissingPackageError:
    return MissingPackageError(
        "environment", "needs gymnasium-robotics", do="Run: pip install 'understudy-rl[robotics]'"
    )

"""PointMaze's player: shortest way through the maze's free cells, and a push toward the next waypoint.

D4RL made its maze2d data so (Fu et al. 2020, arXiv:2004.07219, appendix B): a planner finds waypoints, a PD controller
follows them. There the plan is made once and remembered; here the waypoint follows from the observation alone, so
that a policy without memory can imitate it. The ball is always in a free cell, the waypoint is the centre of the
next one, and two neighbouring cells are a convex room: the straight line is never blocked.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from understudy.envs.gym import Env

WALL = 1
PULL = 10.0
"""Push per metre of distance, before the bounds of the action cut it."""
DRAG = 1.0
"""Push against each metre per second of speed."""
Cell = tuple[int, int]


@final
class WaypointPlayer:
    """Observation and skill → force [2]. Less skill pushes more weakly: late and overshooting; 0 never moves."""

    def __init__(self, maze_map: Sequence[Sequence[object]], centres: Mapping[Cell, NDArray[np.float64]]) -> None:
        cells = free_cells(maze_map)
        self._centres = np.stack([centres[cell] for cell in cells])
        self._next = ways(cells)

    def __call__(self, groups: Mapping[str, NDArray[Any]], skill: float) -> NDArray[np.float64]:
        state = groups["observation"].astype(np.float64)
        position, velocity = state[:2], state[2:4]
        wish = PULL * (self.waypoint(position, groups["desired_goal"]) - position) - DRAG * velocity
        return skill * np.clip(wish, -1.0, 1.0)

    def waypoint(self, position: NDArray[Any], goal: NDArray[Any]) -> NDArray[Any]:
        """Where to go now [2]: the centre of the next cell, or the goal itself once in its cell."""
        here, there = self._cell(position), self._cell(goal)
        return goal if here == there else self._centres[self._next[there, here]]

    def _cell(self, position: NDArray[Any]) -> int:
        """The free cell around a position, or the nearest if a collision pressed it into a wall."""
        return int(np.abs(self._centres - position).max(1).argmin())


def free_cells(maze_map: Sequence[Sequence[object]]) -> list[Cell]:
    """(row, column) of every cell without a wall."""
    return [(i, j) for i, row in enumerate(maze_map) for j, content in enumerate(row) if content != WALL]


def ways(cells: Sequence[Cell]) -> NDArray[np.int64]:
    """[goal, here] → the next cell of a shortest way, all as positions in `cells`; without a way: here.

    Breadth-first search from each goal.
    """
    numbers = {cell: number for number, cell in enumerate(cells)}
    table = np.tile(np.arange(len(cells)), (len(cells), 1))
    for goal, cell in enumerate(cells):
        seen, queue = {cell}, deque([cell])
        while queue:
            reached = queue.popleft()
            for neighbour in _neighbours(reached):
                if neighbour in numbers and neighbour not in seen:
                    table[goal, numbers[neighbour]] = numbers[reached]
                    seen.add(neighbour)
                    queue.append(neighbour)
    return table


def _neighbours(cell: Cell) -> Iterator[Cell]:
    i, j = cell
    yield from ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1))


def make_waypoint_player(env: Env) -> WaypointPlayer:
    """The player of this environment's own maze."""
    unwrapped: Any = env.unwrapped
    maze = unwrapped.maze
    centres = {cell: maze.cell_rowcol_to_xy(np.array(cell)) for cell in free_cells(maze.maze_map)}
    return WaypointPlayer(maze.maze_map, centres)

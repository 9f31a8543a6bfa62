"""A canvas for the small worlds: discs, bars and lines with soft edges, drawn by NumPy. No screen, no OpenGL."""

import math
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

Frame = NDArray[np.uint8]
Color = tuple[int, int, int]
Point = tuple[float, float]
Part = tuple[slice, slice]
Distances = NDArray[np.floating[Any]]
PAPER: Color = (247, 250, 252)
INK: Color = (45, 55, 72)
FAINT: Color = (203, 213, 224)


@final
class Canvas:
    """Pixels [H, W, 3]; x grows to the right, y downward, both in pixels."""

    def __init__(self, width: int, height: int, color: Color = PAPER) -> None:
        self._pixels = np.tile(np.asarray(color, np.float32), (height, width, 1))
        self._x = np.arange(width, dtype=np.float32)[None, :] + np.float32(0.5)
        self._y = np.arange(height, dtype=np.float32)[:, None] + np.float32(0.5)

    def disc(self, centre: Point, radius: float, color: Color) -> None:
        part = self._part(centre, centre, radius)
        self._blend(part, np.hypot(*self._from(part, centre)) - radius, color)

    def ring(self, centre: Point, radius: float, color: Color, width: float = 2.0) -> None:
        part = self._part(centre, centre, radius + width)
        self._blend(part, np.abs(np.hypot(*self._from(part, centre)) - radius) - width / 2, color)

    def bar(self, corner: Point, opposite: Point, color: Color) -> None:
        part = self._part(corner, opposite, 0.0)
        right, below = self._from(part, corner)
        left, above = self._from(part, opposite)
        self._blend(part, np.maximum(np.maximum(-right, left), np.maximum(-below, above)), color)

    def line(self, start: Point, end: Point, color: Color, width: float = 2.0) -> None:
        part = self._part(start, end, width)
        along, down = end[0] - start[0], end[1] - start[1]
        x, y = self._from(part, start)
        place = np.clip((x * along + y * down) / max(along * along + down * down, 1e-9), 0.0, 1.0)
        self._blend(part, np.hypot(x - place * along, y - place * down) - width / 2, color)

    def _part(self, one: Point, other: Point, margin: float) -> Part:
        """Rows and columns around two points: all that a shape between them can touch."""
        (left, right), (top, bottom) = (sorted(pair) for pair in zip(one, other, strict=True))
        rows = slice(max(0, math.floor(top - margin - 1)), max(0, math.ceil(bottom + margin + 1)))
        return rows, slice(max(0, math.floor(left - margin - 1)), max(0, math.ceil(right + margin + 1)))

    def _from(self, part: Part, point: Point) -> tuple[Distances, Distances]:
        """How far the pixels of a part are to the right of a point and below it."""
        return self._x[:, part[1]] - np.float32(point[0]), self._y[part[0]] - np.float32(point[1])

    def _blend(self, part: Part, distance: Distances, color: Color) -> None:
        """Colour where the distance from an edge is negative, half of it on the edge."""
        pixels = self._pixels[part]
        pixels += np.clip(0.5 - distance, 0.0, 1.0)[:, :, None] * (np.asarray(color, np.float32) - pixels)

    def frame(self) -> Frame:
        return np.rint(self._pixels).astype(np.uint8)

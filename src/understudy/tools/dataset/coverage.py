"""How much of the world the data has seen, in three numbers one can compare between datasets."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.data.episode import Array
from understudy.tools.dataset.column_tally import LARGEST

CELLS = 20
WIDEST = 512
"""More columns are an image; its directions say little."""


@dataclass(frozen=True)
class Coverage:
    """Of a sample of states, every column scaled to unit spread."""

    columns: int
    """Columns that vary at all."""
    dimensions: float
    """Effective dimensions (Σλ)²/Σλ² of the covariance's eigenvalues: 1 is a line, `columns` an even ball."""
    plane: float
    """Share of the variance that the first two principal directions hold."""
    visited: float
    """Share of a CELLS × CELLS grid over that plane (up to three standard deviations) that holds a state."""
    even: float
    """Effective share of the grid: exp(entropy)/cells, which is `visited` if every visited cell is as full."""


def coverage(groups: Mapping[str, Array]) -> Coverage | None:
    """Of states [k, …] in groups; nothing if there is too little to say."""
    vectors = [values.reshape(len(values), -1) for values in groups.values()]
    narrow = [values for values in vectors if 0 < values.shape[1] <= WIDEST]
    if not narrow or len(narrow[0]) < 2:
        return None
    states = np.concatenate([np.asarray(values, np.float64) for values in narrow], axis=1)
    states = states[(np.abs(states) <= LARGEST).all(axis=1)]
    if len(states) < 2:
        return None
    spread = states.std(axis=0)
    varying = spread > 1e-9 * (1 + np.abs(states).max(axis=0))
    if not varying.any():
        return None
    return _measure((states - states.mean(axis=0))[:, varying] / spread[varying])


def _measure(states: NDArray[np.float64]) -> Coverage:
    values, directions = np.linalg.eigh(states.T @ states / len(states))
    values, directions = np.maximum(values[::-1], 0), directions[:, ::-1]
    axes = min(2, len(values))
    plane = states @ directions[:, :axes] / np.sqrt(np.maximum(values[:axes], 1e-12))
    cells = np.clip(((plane + 3) / 6 * CELLS).astype(np.int64), 0, CELLS - 1)
    counts = np.bincount(cells @ CELLS ** np.arange(axes), minlength=CELLS**axes)
    shares = counts[counts > 0] / len(states)
    even = float(np.exp(-(shares * np.log(shares)).sum())) / len(counts)
    return Coverage(
        len(values),
        float(values.sum() ** 2 / (values**2).sum()),
        float(values[:axes].sum() / values.sum()),
        float((counts > 0).mean()),
        even,
    )

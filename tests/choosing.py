"""Random play over discrete actions, with or without masks."""

import numpy as np

from understudy import Dataset, Discrete, Episode


def choices(masked: bool) -> Dataset:
    """Random play over five actions, of which masks allow about three."""
    rng = np.random.default_rng(0)
    mask = rng.random((4, 21, 5)) < 0.5
    mask[..., 1] = True
    episodes = [
        Episode(
            {"state": rng.standard_normal((21, 4)).astype(np.float32)},
            np.array([rng.choice(np.flatnonzero(row)) for row in legal[:-1]]),
            rng.standard_normal(20),
            True,
            False,
            mask=legal if masked else None,
        )
        for legal in mask
    ]
    return Dataset.from_episodes(episodes, Discrete(5))

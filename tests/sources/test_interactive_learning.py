"""What DAgger is for: a student that learns from its own mistakes, where one that clones never sees any."""

from pathlib import Path
from typing import Any

import pytest

import understudy as us
from understudy.run.replay_data import replay_recording

pytestmark = pytest.mark.usefixtures("no_plots")
CONFIG = "dagger/cartpole-masked"
LABELS = 6000


def returns(out: Path, seed: int, **settings: Any) -> float:
    run = us.train(CONFIG, seed=seed, out=out, threads=1, eval_every=0, tensorboard=False, progress=False, **settings)
    return run.evaluate(episodes=20, progress=False).mean


@pytest.mark.slow
def test_at_equal_numbers_of_labels_dagger_balances_what_cloning_drops(tmp_path: Path) -> None:
    """A pole whose speeds are hidden: the same network, batches and updates, and as many labels, for three seeds.

    Measured, of 500: 499, 457 and 500 with labels of what the student met; 45, 25 and 47 with as many of what the
    teacher met; 140, 153 and 87 where each round forgets those before.
    """
    dagger, cloned = [], []
    for seed in range(3):
        place = tmp_path / f"dagger{seed}"
        dagger.append(returns(place, seed))
        assert replay_recording(place).steps <= LABELS
        played = {"env": "CartPole-v1", "episodes": LABELS // 500, "seed": seed, "behaviours": [{"policy": "scripted"}]}
        batches = {"kind": "sequences", "batch_size": 16, "length": 32}
        cloned.append(returns(tmp_path / f"bc{seed}", seed, source=batches, data={"recipe": played}))
    assert min(dagger) > max(cloned) + 200, (dagger, cloned)

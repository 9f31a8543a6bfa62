"""DAgger beside BC at equal numbers of labels: the picture of docs/dagger.md.

    python benchmarks/dagger_curves.py          # a few minutes on two cores; docs/pictures/dagger_cartpole_masked.png

A pole whose speeds are hidden. Both have the same network, batches and number of updates. DAgger has as many labels as
its rounds so far, 6,000 at the end; BC has 6,000 from the start, of twelve episodes that the teacher played. Runs are
kept in runs/dagger_curves and not repeated.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

import understudy as us
from understudy.run.plots import RETURN, UPDATES, curve, draw_curves

ROOT = Path(__file__).parent.parent
CONFIG, EVERY, SEEDS = "dagger/cartpole-masked", 500, (0, 1, 2)
PICTURE = ROOT / "docs" / "pictures" / "dagger_cartpole_masked.png"


def cloning(seed: int) -> dict[str, Any]:
    """What BC has in place of a teacher that is asked."""
    played = {"env": "CartPole-v1", "episodes": 12, "seed": seed, "behaviours": [{"policy": "scripted"}]}
    return {"source": {"kind": "sequences", "batch_size": 16, "length": 32}, "data": {"recipe": played}}


def evaluations(name: str, seed: int) -> list[dict[str, Any]]:
    out = ROOT / "runs" / "dagger_curves" / name / str(seed)
    if not (out / "result.json").exists():
        instead = cloning(seed) if name == "BC" else {}
        us.train(CONFIG, seed=seed, out=out, eval_every=EVERY, threads=1, overwrite=True, progress=False, **instead)
    return us.Run(out).evaluations()


def over_seeds(name: str) -> list[dict[str, Any]]:
    """Mean over seeds, and the worst and the best of them."""
    lines = []
    for points in zip(*(evaluations(name, seed) for seed in SEEDS), strict=True):
        returns = [point["eval/return_mean"] for point in points]
        spread = {"eval/return_low": min(returns), "eval/return_high": max(returns)}
        lines.append({"updates": points[0]["updates"], "eval/return_mean": fmean(returns), **spread})
        print(name, lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    curves = {name: curve(over_seeds(name), RETURN, UPDATES) for name in ("DAgger", "BC")}
    label = "episode return (mean, worst and best seed)"
    print(draw_curves(curves, PICTURE, UPDATES, {"the teacher": 500.0}, f"{CONFIG}, three seeds", label))

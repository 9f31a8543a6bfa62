"""A gate that learns which of four skills is due, beside each of them alone: the picture of docs/skills.md.

    python benchmarks/skill_curves.py           # a few minutes on two cores; docs/pictures/skills_zones.png

Four skills, trained each in its own kind of zone; three gates over all of them. Runs are kept in runs/skill_curves and
not repeated.
"""

import os
from pathlib import Path
from statistics import fmean
from typing import Any

import understudy as us
from understudy.run.plots import RETURN, UPDATES, curve, draw_curves

ROOT = Path(__file__).parent.parent
WORLD, EVERY, EPISODES, SEEDS = "UnderstudyZones-v0", 2, 50, (0, 1, 2)
NAMES = ("ground", "mirror", "left", "right")
PICTURE = ROOT / "docs" / "pictures" / "skills_zones.png"
PLACE = ROOT / "runs" / "skill_curves"


def trained(config: str, out: str, **settings: Any) -> us.Run:
    if not Path(out, "result.json").exists():
        us.train(config, out=out, threads=1, overwrite=True, progress=False, **settings)
    return us.Run(out)


def single_skills() -> dict[str, float]:
    """Returns of each alone."""
    for name in NAMES:
        trained("ppo/zones", f"runs/{name}", env=f"UnderstudyZones{name.capitalize()}-v0")
    us.save_policy(us.skill_set("skills/mutex"), "policies/mutex")
    alone = {}
    for name in NAMES:
        only = us.skill_set("skills/mutex", ["selector.kind=fixed", f"selector.skill={name}"])
        alone[f"{name} alone"] = us.evaluate_policy(only, WORLD, EPISODES, seed=0).mean
    print(alone, flush=True)
    return alone


def gates() -> list[dict[str, Any]]:
    """Mean over seeds, and the worst and the best of them."""
    every = {"eval_every": EVERY, "eval_episodes": EPISODES}
    runs = [trained("ppo/zones-gate", f"runs/gate{seed}", seed=seed, **every) for seed in SEEDS]
    lines = []
    for points in zip(*(run.evaluations() for run in runs), strict=True):
        returns = [point["eval/return_mean"] for point in points]
        spread = {"eval/return_low": min(returns), "eval/return_high": max(returns)}
        lines.append({"updates": points[0]["updates"], "eval/return_mean": fmean(returns), **spread})
    print(lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    PLACE.mkdir(parents=True, exist_ok=True)
    os.chdir(PLACE)
    alone = single_skills()
    curves = {"a gate over all four": curve(gates(), RETURN, UPDATES)}
    label = "episode return (mean, worst and best seed)"
    print(draw_curves(curves, PICTURE, UPDATES, alone, "ppo/zones-gate, three seeds", label))

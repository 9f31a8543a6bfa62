"""The picture in docs/estimator.md: R² of a hidden velocity, and what the policy that is shown the estimate earns.

    python benchmarks/estimator_curves.py            # three seeds, with and without memory; some minutes on one core
    python benchmarks/estimator_curves.py --draw     # only draw what estimator_curves.jsonl holds

`ppo/pendulum-estimator`, evaluated every ten updates, beside the same without a memory, from whose rows nobody can tell
how fast a pendulum turns. Runs are kept in runs/estimator and not repeated.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import understudy as us
from understudy.run.plots import save_figure

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).with_suffix(".jsonl")
PICTURE = ROOT / "docs" / "pictures" / "ppo_pendulum_estimator.png"
CASES = {"with its memory": [], "without memory": ["algo.actor.estimate.memory.kind=none"]}
COLORS = dict(zip(CASES, ("#1f5fa8", "#b5651d"), strict=True))
SEEDS = (0, 1, 2)
PANELS = {"estimator/r2": "R² of the velocity, in rollouts", "eval/return_mean": "return in evaluations"}
FIXED = ("threads=1", "tensorboard=false", "eval_every=10", "eval_episodes=20")


def finish(case: str, seed: int) -> dict[str, Any]:
    """A run that has ended, and what is drawn of it."""
    out = ROOT / "runs" / "estimator" / case.replace(" ", "-") / str(seed)
    if not (out / "result.json").exists():
        words = ["train", "ppo/pendulum-estimator", f"seed={seed}", f"out={out}", *FIXED, *CASES[case], "--quiet"]
        subprocess.run([sys.executable, "-m", "understudy", *words], check=True)
    run, kept = us.Run(out), {"case": case, "seed": seed}
    for name, lines in (("estimator/r2", run.metrics()), ("eval/return_mean", run.evaluations())):
        kept[name] = [[line["updates"], round(line[name], 4)] for line in lines]
    return kept


def draw(lines: list[dict[str, Any]]) -> Path:
    figure = Figure(figsize=(9.6, 3.8), dpi=120, layout="constrained", facecolor="white")
    for axes, (name, label) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
        for line in lines:
            mark = line["case"] if line["seed"] == SEEDS[0] else ""
            axes.plot(*zip(*line[name], strict=True), color=COLORS[line["case"]], linewidth=1.3, label=mark)
        axes.set_xlabel("updates")
        axes.set_ylabel(label)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
    return save_figure(figure, PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="only draw what the file holds")
    if not parser.parse_args().draw:
        lines = [finish(case, seed) for case in CASES for seed in SEEDS]
        FILE.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    kept = [json.loads(line) for line in FILE.read_text().splitlines()]
    for line in kept:
        last = [r2 for _, r2 in line["estimator/r2"][-10:]]
        print(
            f"{line['case']}, seed {line['seed']}: R² {min(last):.3f} or more in the last ten updates, "
            f"return {line['eval/return_mean'][-1][1]:.0f}"
        )
    print(draw(kept))


if __name__ == "__main__":
    main()

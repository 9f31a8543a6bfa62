"""How well methods learn from the same files: runs any time, any number of seeds, one table of all that was ever run.

    python benchmarks/quality                                  # every method, every set, seed 0
    python benchmarks/quality --methods IQL "TD3+BC" --sets hopper-medium-expert --seeds 0 1 2
    python benchmarks/quality --table                          # no run, only the table

What is compared stands in plan.yaml, what came out in scores.jsonl (one line a run, added when it ends). A run that was
stopped goes on where it was; one that has ended is not repeated. Two runs at once with one thread each are the fastest
use of two cores.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from plan import Plan, Trial, read_plan
from scores import record, recorded, write_table

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def main() -> None:
    plan = read_plan(HERE / "plan.yaml")
    options = _options(plan)
    if not options.table:
        trials = [
            Trial(chosen, method, seed)
            for seed in options.seeds
            for method in options.methods
            for chosen in options.sets
        ]
        done = {entry.trial for entry in recorded(HERE / "scores.jsonl")}
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda trial: _play(plan, trial, options), [trial for trial in trials if trial not in done]))
    write_table(plan, recorded(HERE / "scores.jsonl"), HERE / "README.md")


def _play(plan: Plan, trial: Trial, options: argparse.Namespace) -> None:
    """One run from its first or its last checkpoint to its end, in a process of its own."""
    out = options.runs / trial.folder
    understudy = [sys.executable, "-m", "understudy"]
    if not (out / "result.json").exists():
        fresh = ["train", *plan.command(trial, options.data), f"out={out}", "--quiet"]
        started = (out / "config.yaml").exists()
        subprocess.run([*understudy, *(["resume", str(out), "--quiet"] if started else fresh)], check=True)
    score = record(trial, out, HERE / "scores.jsonl")
    print(f"{trial.set:28} {trial.method:8} seed {trial.seed}: {score:6.1f}", flush=True)


def _options(plan: Plan) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=list(plan.sets), choices=list(plan.sets))
    parser.add_argument("--methods", nargs="*", default=list(plan.methods), choices=list(plan.methods))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "tiers", help="the sets' folder")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "quality", help="where runs are kept")
    parser.add_argument("--table", action="store_true", help="write the table of what was run, and run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()

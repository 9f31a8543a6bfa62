"""How long a report takes: 200 runs of 1,000 evaluations and 1,000 logs each, on one thread.

    python benchmarks/report_speed.py [--runs 200] [--keep FOLDER]

Runs are written as training writes them, with random curves; processor seconds are those of this process.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import understudy as us
from understudy.run.rundir import RunDir

METHODS = {
    "iql": 62.0,
    "cql": 60.0,
    "td3bc": 57.0,
    "rebrac": 66.0,
    "bc": 44.0,
    "iql wide": 63.0,
    "cql slow": 55.0,
    "bc slow": 38.0,
}
TASKS = (
    "hopper-medium-v2",
    "hopper-medium-replay-v2",
    "walker2d-medium-v2",
    "halfcheetah-medium-v2",
    "hopper-medium-expert-v2",
)
LINES, EPISODES, EVERY = 1000, 10, 1000


def write_run(path: Path, method: str, level: float, task: str, seed: int) -> None:
    algorithm, rng = method.partition(" ")[0], np.random.default_rng([seed, len(method), len(task)])
    changes = [f"task={task}", "data.path=data.hdf5", f"seed={seed}", f"method={method}", f"updates={LINES * EVERY}"]
    run = RunDir(path)
    path.mkdir(parents=True)
    dataset = {
        "name": task,
        "fingerprint": task.encode().hex(),
        "steps": 1_000_000,
        "episodes": 2000,
        "return_mean": 1500.0,
    }
    config = us.load_config(f"{algorithm}/corl-locomotion", changes)
    run.create(config, {"dataset": dataset, "host": "here", "platform": "Linux", "git": {}, "versions": {"torch": "2"}})
    updates = np.arange(1, LINES + 1) * EVERY
    grown = 1 - np.exp(-updates / (200_000 + 30_000 * rng.standard_normal()))
    scores = (level + 6 * rng.standard_normal()) * grown + 3 * rng.standard_normal(LINES)
    with run.eval_file.open("w") as file:
        for at, score in zip(updates.tolist(), scores.tolist(), strict=True):
            returns = (score + 5 * rng.standard_normal(EPISODES)).tolist()
            numbers = dict.fromkeys(("eval/return_mean", "eval/return_low", "eval/return_high", "eval/score"), score)
            file.write(json.dumps({"updates": at, **numbers, "returns": returns, "lengths": [1000] * EPISODES}) + "\n")
    names = [f"loss/{name}" for name in ("actor", "critic", "value")] + [
        f"value/{name}" for name in ("q", "q_gap", "q_largest")
    ]
    walks = np.cumsum(rng.standard_normal((LINES, len(names))), 0)
    with run.metrics_file.open("w") as file:
        file.writelines(
            json.dumps({"updates": at, **dict(zip(names, row, strict=True))}) + "\n"
            for at, row in zip(updates.tolist(), walks.tolist(), strict=True)
        )
    run.timing_file.write_text(
        "".join(
            json.dumps({"updates": at, "seconds": at / 300, "updates_per_second": 300.0}) + "\n"
            for at in updates.tolist()
        )
    )
    run.result_file.write_text("{}")


def write_runs(folder: Path, runs: int) -> None:
    cells = [(method, task) for method in METHODS for task in TASKS]
    for number in range(runs):
        method, task = cells[number % len(cells)]
        write_run(
            folder / method.replace(" ", "_") / task / str(number // len(cells)),
            method,
            METHODS[method],
            task,
            number // len(cells),
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--keep", type=Path)
    wishes = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = wishes.keep or Path(scratch) / "runs"
        if not folder.exists():
            write_runs(folder, wishes.runs)
        out = Path(scratch) / "report.html"
        clock, processor = time.perf_counter(), time.process_time()
        us.report(folder, out)
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        size = out.stat().st_size / 1e6
        print(f"{wishes.runs} runs of {LINES} evaluations: {clock:.1f} s, {processor:.1f} of processor, {size:.2f} MB")


if __name__ == "__main__":
    main()

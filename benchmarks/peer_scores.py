"""What a peer scores on the sets of benchmarks/quality: the same rows, the same budget, the same start states as ours.

    python benchmarks/peer_scores.py                                     # d3rlpy's IQL, TD3+BC and BC, three seeds
    python benchmarks/peer_scores.py --sets halfcheetah-medium-replay --seeds 5
    python benchmarks/peer_scores.py --python .venv-bench-d3rlpy/bin/python

d3rlpy has its own virtualenv, made on first use (.venv-bench-d3rlpy). Every run that ends is written into
benchmarks/quality/scores.jsonl, and is not repeated; `python benchmarks/quality --table` makes the page.
"""

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from interleaved import peer_python

from understudy.core.rng import derived_seed, simulator_seed

HERE = Path(__file__).parent
ROOT = HERE.parent
BOOK = HERE / "quality" / "scores.jsonl"
METHODS = ("d3rlpy IQL", "d3rlpy TD3+BC", "d3rlpy BC")


def main() -> None:
    suite = yaml.safe_load((HERE / "quality" / "quality.yaml").read_text())
    options = _options([task["id"].removesuffix("-v2") for task in suite["tasks"]])
    tasks = {task["id"].removesuffix("-v2"): task for task in suite["tasks"]}
    updates, episodes = suite["settings"]["updates"], suite["settings"]["eval_episodes"]
    python = options.python or peer_python("d3rlpy")
    if python is None:
        raise SystemExit(1)
    for seed in range(options.seeds):
        for name in options.sets:
            for method in options.methods:
                who = {"set": name, "method": method, "seed": seed}
                if any(who.items() <= line.items() for line in _recorded()):
                    continue
                wanted = {**who, "env": tasks[name]["env"], "updates": updates, "starts": starts(seed, episodes)}
                _record({**who, "updates": updates}, played(python, wanted, options.data), tasks[name]["reference"])


def starts(seed: int, episodes: int) -> list[int]:
    """What the environments of our own evaluations of this seed are reset with."""
    return [simulator_seed(derived_seed(seed, "eval", number)) for number in range(episodes)]


def played(python: Path, wanted: dict[str, Any], folder: Path) -> list[float]:
    """The returns of a policy that is learned first."""
    asked = json.dumps({**wanted, "data": str(folder / f"{wanted['set']}.npz")})
    script = str(HERE / "peers" / "peer_d3rlpy_scores.py")
    told = subprocess.run([str(python), script], input=asked, capture_output=True, text=True, check=False)
    if told.returncode:
        raise SystemExit(f"{wanted['method']} on {wanted['set']} failed:\n{told.stderr}")
    returns: list[float] = json.loads(told.stdout.splitlines()[-1])
    return returns


def _recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in BOOK.read_text().splitlines()]


def _record(who: dict[str, Any], returns: list[float], reference: list[float]) -> None:
    low, high = reference
    score = round(100 * (float(np.mean(returns)) - low) / (high - low), 2)
    with BOOK.open("a") as book:
        book.write(json.dumps({**who, "score": score, "returns": [round(value, 1) for value in returns]}) + "\n")
    print(f"{who['method']} on {who['set']}, seed {who['seed']}: {score}", flush=True)


def _options(sets: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", choices=sets, default=sets)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "tiers", help="the sets' folder")
    parser.add_argument("--python", type=Path, help="of a virtualenv with benchmarks/peers/requirements-d3rlpy.txt")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""The curves in docs/: every small config, three seeds, evaluated as its YAML says, one picture each.

    python benchmarks/reference_curves.py                       # all of them, about a quarter of an hour on two cores
    python benchmarks/reference_curves.py cql/pendulum          # docs/pictures/cql_pendulum.png

Runs are kept in runs/reference and not repeated; one that was stopped goes on.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import understudy as us
from understudy.core.files import read_json
from understudy.run.plots import draw_returns

ROOT = Path(__file__).parent.parent
CONFIGS = [
    *("bc/pendulum", "td3bc/pendulum", "rebrac/pendulum", "cql/pendulum", "ciql/pendulum"),
    *("discrete_cql/cartpole", "iql/battle", "discrete_cql/battle", "iact/pendulum"),
]
SEEDS = (0, 1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", default=CONFIGS)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each")
    options = parser.parse_args()
    trials = [(config, seed) for config in options.configs for seed in SEEDS]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda trial: finish(*trial), trials))
    for config in options.configs:
        print(draw(config))


def folder(config: str, seed: int) -> Path:
    return ROOT / "runs" / "reference" / config / str(seed)


def finish(config: str, seed: int) -> None:
    """A run that has ended, whatever it takes."""
    out = folder(config, seed)
    if (out / "result.json").exists():
        return
    fresh = ["train", config, f"seed={seed}", f"out={out}", "tensorboard=false", "eval_every=500"]
    words = ["resume", str(out)] if (out / "config.yaml").exists() else fresh
    subprocess.run([sys.executable, "-m", "understudy", *words, "--quiet"], check=True)


def draw(config: str) -> Path:
    runs = {f"seed {seed}": us.Run(folder(config, seed)) for seed in SEEDS}
    data = read_json(folder(config, SEEDS[0]) / "meta.json")["dataset"]["return_mean"]
    curves = {name: run.evaluations() for name, run in runs.items()}
    picture = ROOT / "docs" / "pictures" / f"{config.replace('/', '_')}.png"
    return draw_returns(curves, picture, {"mean of the data": data})


if __name__ == "__main__":
    main()

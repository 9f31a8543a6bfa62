"""The curves in docs/: every small config, three seeds, evaluated as its YAML says, one picture each.

    python benchmarks/reference_curves.py                       # all of them, about a quarter of an hour on two cores
    python benchmarks/reference_curves.py cql/pendulum          # docs/pictures/cql_pendulum.png
    python benchmarks/reference_curves.py --draw                # only draw what reference_curves.jsonl holds

Runs are kept in runs/reference and not repeated; one that was stopped goes on. What is drawn of them is kept in
benchmarks/reference_curves.jsonl, with a digest of the config it is of: drawing it again takes seconds, and a test says
which pictures are older than their configs.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

import understudy as us
from understudy.core.files import json_bytes, read_json, sha256_bytes
from understudy.run.packaged import read_packaged
from understudy.run.plots import draw_returns

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).with_suffix(".jsonl")
CONFIGS = [
    *("bc/pendulum", "td3bc/pendulum", "rebrac/pendulum", "cql/pendulum", "ciql/pendulum"),
    *("discrete_cql/cartpole", "iql/battle", "discrete_cql/battle", "iact/pendulum"),
]
SEEDS = (0, 1, 2)
EVERY = 500
"""Updates between evaluations."""
NAMES = ("updates", "eval/return_mean", "eval/return_low", "eval/return_high")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", default=CONFIGS)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each")
    parser.add_argument("--draw", action="store_true", help="only draw what the file holds")
    options = parser.parse_args()
    if not options.draw:
        trials = [(config, seed) for config in options.configs for seed in SEEDS]
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda trial: finish(*trial), trials))
        keep(options.configs)
    held = {line["config"] for line in read()}
    for config in options.configs:
        known = f"python benchmarks/reference_curves.py {config}"
        print(draw(config) if config in held else f"{picture(config)}: left as it is, its data are not kept; {known}")


def folder(config: str, seed: int) -> Path:
    return ROOT / "runs" / "reference" / config / str(seed)


def picture(config: str) -> Path:
    return ROOT / "docs" / "pictures" / f"{config.replace('/', '_')}.png"


def config_digest(config: str) -> str:
    """Of what a config's YAML says, whatever its comments do."""
    return sha256_bytes(json_bytes(yaml.safe_load(read_packaged(config))))


def finish(config: str, seed: int) -> None:
    """A run that has ended, whatever it takes."""
    out = folder(config, seed)
    if (out / "result.json").exists():
        return
    fresh = ["train", config, f"seed={seed}", f"out={out}", "tensorboard=false", f"eval_every={EVERY}"]
    words = ["resume", str(out)] if (out / "config.yaml").exists() else fresh
    subprocess.run([sys.executable, "-m", "understudy", *words, "--quiet"], check=True)


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


def keep(configs: list[str]) -> None:
    """Write down what is drawn, in place of what was known of these configs."""
    lines = [line for line in read() if line["config"] not in configs]
    for config in configs:
        for seed in SEEDS:
            evaluations = us.Run(folder(config, seed)).evaluations()
            data = read_json(folder(config, seed) / "meta.json")["dataset"]["return_mean"]
            curve = {name: [round(line[name], 3) for line in evaluations] for name in NAMES}
            facts = {"config": config, "config_sha256": config_digest(config), "seed": seed, "data": round(data, 3)}
            lines.append({**facts, **curve})
    FILE.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def draw(config: str) -> Path:
    mine = [line for line in read() if line["config"] == config]
    curves = {
        f"seed {line['seed']}": [
            dict(zip(NAMES, point, strict=True)) for point in zip(*(line[name] for name in NAMES), strict=True)
        ]
        for line in mine
    }
    return draw_returns(curves, picture(config), {"mean of the data": mine[0]["data"]}, config)


if __name__ == "__main__":
    main()

"""The curve of docs/ciql.md: PyBullet's half cheetah with our settings, without the penalty, and with the first ones.

    python benchmarks/ciql_bullet_curves.py              # 200,000 updates each, seed 0; most of a day on two cores
    python benchmarks/ciql_bullet_curves.py --seeds 0 1  # and a second seed
    python benchmarks/ciql_bullet_curves.py --keep       # keep what the runs have reached by now, and draw it
    python benchmarks/ciql_bullet_curves.py --draw       # only draw what ciql_bullet_curves.jsonl holds

Stop it when you like: the same command goes on where each run was saved, to the bit.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import understudy as us
from understudy.core.files import read_json
from understudy.run.plots import draw_returns

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).with_suffix(".jsonl")
PICTURE = ROOT / "docs" / "pictures" / "ciql_halfcheetah_bullet.png"
ARMS = {
    "iql": ("IQL: α = 0", ["ciql/halfcheetah-bullet", "algo.alpha=0"]),
    "ours": ("CIQL: α = 0.1", ["ciql/halfcheetah-bullet"]),
    "original": ("CIQL as first described: α = 1, relu_mean, …", ["ciql/halfcheetah-bullet-original"]),
}
LEVELS = {"best of the data (833)": 833.0, "standing still (990)": 990.0}
"""What docs/ciql.md tells of the recipe."""
NAMES = ("updates", "eval/return_mean", "eval/return_low", "eval/return_high")
Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "ciql_bullet", help="where runs are kept")
    parser.add_argument("--keep", action="store_true", help="train nothing, keep what there is")
    parser.add_argument("--draw", action="store_true", help="only draw what the file holds")
    options = parser.parse_args()
    trials = [(arm, options.runs / arm / str(seed)) for seed in options.seeds for arm in ARMS]
    if not options.draw and not options.keep:
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda trial: finish(*trial), trials))
    if not options.draw:
        keep([trial for trial in trials if (trial[1] / "eval.jsonl").exists()])
    print(draw())


def finish(arm: str, folder: Path) -> None:
    """A run that has ended, whatever it takes."""
    if (folder / "result.json").exists():
        return
    fresh = ["train", *ARMS[arm][1], f"seed={folder.name}", f"out={folder}"]
    words = ["resume", str(folder)] if (folder / "config.yaml").exists() else fresh
    subprocess.run([sys.executable, "-m", "understudy", *words, "--quiet"], check=True)


def read() -> list[Line]:
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


def keep(trials: list[tuple[str, Path]]) -> None:
    """Write down what is drawn, in place of what was known of these runs."""
    lines = {(line["arm"], line["seed"]): line for line in read()}
    for arm, folder in trials:
        evaluations = us.Run(folder).evaluations()
        data = read_json(folder / "meta.json")["dataset"]["return_mean"]
        curve = {name: [round(line[name], 1) for line in evaluations] for name in NAMES}
        lines[arm, int(folder.name)] = {"arm": arm, "seed": int(folder.name), "data": round(data, 1), **curve}
    FILE.write_text("".join(f"{json.dumps(lines[key])}\n" for key in sorted(lines)))


def draw() -> Path:
    lines = sorted(read(), key=lambda line: (list(ARMS).index(line["arm"]), line["seed"]))
    curves = {
        f"{ARMS[line['arm']][0]}, seed {line['seed']}": [
            dict(zip(NAMES, point, strict=True)) for point in zip(*(line[name] for name in NAMES), strict=True)
        ]
        for line in lines
    }
    levels = {f"mean of the data ({lines[0]['data']:.0f})": lines[0]["data"], **LEVELS}
    return draw_returns(curves, PICTURE, levels, "HalfCheetahBulletEnv-v0")


if __name__ == "__main__":
    main()

"""SAC's returns over environment steps beside Stable-Baselines3's, with the same settings, on Hopper and HalfCheetah.

    python benchmarks/sac_curves.py              # 300,000 steps, three seeds, both tasks; a day on two cores
    python benchmarks/sac_curves.py --tasks hopper --draw docs/pictures/sac_hopper.png

`sac/hopper` and `sac/halfcheetah` as they are, and Stable-Baselines3 with the settings of `peers/_sac.py`, which are
the same: 10,000 random steps, then an update of 256 rows for every step, 256-256 networks. One thread each, two curves
at a time, ten greedy episodes every 10,000 steps. Stop it when you like: the same command goes on where each curve was
last saved (ours to the bit), and a curve that is in the file is not drawn again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from interleaved import HERE, ROOT, peer_python

PEERS = ("understudy", "sb3")
PRESETS = {"hopper": "sac/hopper", "cheetah": "sac/halfcheetah"}
FILE = HERE / "sac_curves.jsonl"
RUNS = ROOT / "runs" / "sac_curves"
"""Where curves are saved while they are drawn."""
Line = dict[str, Any]
WRITING = Lock()


def read(file: Path) -> list[Line]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def our_curve(task: str, seed: int, folder: Path, options: argparse.Namespace) -> list[Line]:
    """A run like any other."""
    run = [sys.executable, "-m", "understudy"]
    if (folder / "config.yaml").exists():
        words = [*run, "resume", str(folder)]
    else:
        every = f"eval_every={options.every}", f"save_every={options.every}", f"log_every={min(1000, options.every)}"
        steps = f"updates={options.steps - options.starts}", f"source.learning_starts={options.starts}"
        words = [*run, "train", PRESETS[task], f"seed={seed}", *steps, *every, "eval_episodes=10", f"out={folder}"]
    if not (folder / "result.json").exists():
        _run(words, folder.parent / f"{folder.name}.log")
    seconds = {line["updates"]: line["seconds"] for line in read(folder / "timing.jsonl") if "updates" in line}
    facts = {"peer": "understudy", "task": task, "seed": seed}
    return [
        {
            **facts,
            "env_steps": int(line["env_steps"]),
            "seconds": seconds.get(line["updates"], 0.0),
            "return_mean": line["eval/return_mean"],
        }
        for line in read(folder / "eval.jsonl")
    ]


def their_curve(python: Path, task: str, seed: int, folder: Path, options: argparse.Namespace) -> list[Line]:
    words = [str(python), str(HERE / "peers" / "peer_sb3.py"), "sac_curve", "--task", task, "--seed", str(seed)]
    numbers = ["--steps", str(options.steps), "--every", str(options.every), "--starts", str(options.starts)]
    _run([*words, *numbers, "--folder", str(folder)], folder.parent / f"{folder.name}.log")
    return read(folder / "curve.jsonl")


def _run(words: Sequence[str], log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as output:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(words, check=True, stdout=output, stderr=subprocess.STDOUT, env=environment)


def draw(peer: str, task: str, seed: int, pythons: dict[str, Path], options: argparse.Namespace) -> None:
    folder = options.runs / f"{peer}-{task}-{seed}"
    if peer == "understudy":
        lines = our_curve(task, seed, folder, options)
    else:
        lines = their_curve(pythons[peer], task, seed, folder, options)
    with WRITING, options.file.open("a") as file:
        file.write("".join(f"{json.dumps(line)}\n" for line in lines))
    print(f"{peer}, {task}, seed {seed}: {lines[-1]['return_mean']:.0f} after {options.steps:,} steps", flush=True)


def curves(lines: list[Line], peer: str, task: str) -> list[Line]:
    return [line for line in lines if (line["peer"], line["task"]) == (peer, task)]


def table(lines: list[Line], tasks: Sequence[str]) -> None:
    """The last evaluation of every seed, their mean, and the mean over all evaluations (the area under the curve)."""
    print(f"\n{'task':<10}{'peer':<12}{'seeds':>6}{'last mean':>12}{'curve mean':>12}   last of each seed")
    for task in tasks:
        for peer in PEERS:
            mine = curves(lines, peer, task)
            last = {line["seed"]: line["return_mean"] for line in sorted(mine, key=lambda line: int(line["env_steps"]))}
            if last:
                ends = ", ".join(f"{end:.0f}" for end in last.values())
                area = statistics.mean(line["return_mean"] for line in mine)
                print(
                    f"{task:<10}{peer:<12}{len(last):>6}{statistics.mean(last.values()):>12.1f}{area:>12.1f}   {ends}"
                )


def picture(lines: list[Line], task: str, path: Path) -> None:
    from matplotlib.figure import Figure

    from understudy.run.plots import PALETTE, save_figure

    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    for color, peer in zip(PALETTE, PEERS, strict=False):
        mine = curves(lines, peer, task)
        steps = sorted({line["env_steps"] for line in mine})
        rows = [[line["return_mean"] for line in mine if line["env_steps"] == step] for step in steps]
        if steps:
            axes.plot(steps, [statistics.mean(row) for row in rows], color=color, label=peer)
            axes.fill_between(steps, list(map(min, rows)), list(map(max, rows)), color=color, alpha=0.15, linewidth=0)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("greedy return: mean and range of seeds")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    print(f"drawn: {save_figure(figure, path)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(PRESETS), choices=list(PRESETS))
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--every", type=int, default=10_000, help="steps between evaluations")
    parser.add_argument("--starts", type=int, default=10_000, help="random steps before the first update")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=2, help="curves that are drawn at the same time")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--python", nargs="*", default=[], metavar="PEER=PATH", help="an interpreter that is there")
    parser.add_argument("--file", type=Path, default=FILE, help="where curves are kept")
    parser.add_argument("--runs", type=Path, default=RUNS, help="where they are saved while they are drawn")
    parser.add_argument("--draw", type=Path, help="only draw what the file holds of one task, into this picture")
    options = parser.parse_args()
    if options.draw is not None:
        picture(read(options.file), options.tasks[0], options.draw)
    else:
        given = dict(pair.split("=", 1) for pair in options.python)
        theirs = [name for name in options.peers if name != "understudy"]
        found = {name: Path(given[name]) if name in given else peer_python(name) for name in theirs}
        pythons = {name: path for name, path in found.items() if path is not None}
        known = {(line["peer"], line["task"], line["seed"]) for line in read(options.file)}
        peers = [peer for peer in options.peers if peer == "understudy" or peer in pythons]
        wanted = [(peer, task, seed) for seed in range(options.seeds) for task in options.tasks for peer in peers]
        with ThreadPoolExecutor(options.at_once) as pool:
            list(pool.map(lambda one: draw(*one, pythons, options), [one for one in wanted if one not in known]))
    table(read(options.file), options.tasks)


if __name__ == "__main__":
    main()

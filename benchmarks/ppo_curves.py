"""PPO's returns over environment steps beside Stable-Baselines3's and rsl-rl-lib's, with the same settings.

    python benchmarks/ppo_curves.py                       # HalfCheetah-v5, three seeds of each; about half an hour
    python benchmarks/ppo_curves.py --task go1-walk --steps 2000000 --seeds 2 --at-once 1 --peers understudy rsl
    python benchmarks/ppo_curves.py --draw docs/pictures/ppo_halfcheetah.png

64-64 tanh networks, 2,048 transitions an iteration, 4 minibatches, 5 epochs, step size 3e-4, γ 0.99, λ 0.95, ε 0.2, no
entropy bonus, observations normalised by each library's own means, one thread. Go1 is as in `ppo/go1-joystick`, but
with a constant step size: its weights of reward terms, 64 environments, 4,096 transitions an iteration, 256-128 ELU
networks, σ 0.5 at the start, entropy worth 0.002. A curve that is in the file is not drawn again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from interleaved import HERE, peer_python

from understudy.run.config import load_config

PEERS = ("understudy", "sb3", "rsl")
FILE = HERE / "ppo_curves.jsonl"
Line = dict[str, Any]


def read() -> list[Line]:
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


def draw(peer: str, task: str, seed: int, steps: int) -> None:
    python = Path(sys.executable) if peer == "understudy" else peer_python(peer)
    if python is None:
        return
    script = HERE / "peers" / f"peer_{peer}.py"
    words = [str(python), str(script), "ppo_curve", "--task", task, "--seed", str(seed), "--steps", str(steps)]
    if task == "go1-walk":
        words += ["--settings", json.dumps(load_config("ppo/go1-joystick").env.settings)]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    with FILE.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))
    print(f"{peer} seed {seed}: {json.loads(lines[-1])['return_mean']:.0f} after {steps:,} steps", flush=True)


def table(lines: list[Line], task: str) -> None:
    """The last evaluation of every seed, their mean, and the mean over all evaluations (the area under the curve)."""
    print(f"\n{'peer':<12}{'seeds':>6}{'last mean':>12}{'curve mean':>12}   last of each seed")
    for peer in PEERS:
        mine = [line for line in lines if (line["peer"], line["task"]) == (peer, task)]
        seeds = sorted({line["seed"] for line in mine})
        last = [max((one for one in mine if one["seed"] == seed), key=lambda one: one["env_steps"]) for seed in seeds]
        if last:
            ends = [line["return_mean"] for line in last]
            area = statistics.mean(line["return_mean"] for line in mine)
            shown = ", ".join(f"{end:.0f}" for end in ends)
            print(f"{peer:<12}{len(seeds):>6}{statistics.mean(ends):>12.1f}{area:>12.1f}   {shown}")


def picture(lines: list[Line], task: str, path: Path) -> None:
    from matplotlib.figure import Figure

    from understudy.run.plots import PALETTE, save_figure

    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    for color, peer in zip(PALETTE, PEERS, strict=False):
        mine = [line for line in lines if (line["peer"], line["task"]) == (peer, task)]
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
    parser.add_argument("--task", default="cheetah", choices=("cheetah", "go1-walk"))
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=2, help="curves that are drawn at the same time")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--draw", type=Path, help="only draw what the file holds, into this picture")
    options = parser.parse_args()
    if options.draw is None:
        known = {(line["peer"], line["task"], line["seed"]) for line in read()}
        wanted = [(peer, options.task, seed) for seed in range(options.seeds) for peer in options.peers]
        with ThreadPoolExecutor(options.at_once) as pool:
            list(pool.map(lambda one: draw(*one, options.steps), [one for one in wanted if one not in known]))
    else:
        picture(read(), options.task, options.draw)
    table(read(), options.task)


if __name__ == "__main__":
    main()

"""The numbers and pictures of docs/style.md: what is learned from recorded states alone, and beside a task.

    python benchmarks/style_curves.py MOTIONS        # three seeds of four cases; half an hour or more on one core
    python benchmarks/style_curves.py --draw         # only draw what style_curves.jsonl holds

MOTIONS is a gait of HalfCheetah, recorded from `ppo/halfcheetah-teacher` by `understudy collect`; the hopper's motions
come with the library. Environments are EnvPool's (v4) where that is installed, else Gymnasium's. `task alone` is PPO
with the environment's reward, and the preset of the teacher; the others learn by `ppo/hopper-style` and
`ppo/halfcheetah-style`. The last policies play ten new episodes, greedily: speed, and how far the angles of their
joints are from the nearest of the motions, in deviations of the motions. Runs are kept in runs/style, not repeated.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

import understudy as us
from understudy.envs.gym import make_env
from understudy.parts.style.diagnostics import nearest_distance
from understudy.run.plots import save_figure

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).with_suffix(".jsonl")
PICTURE = ROOT / "docs" / "pictures" / "style.png"
SEEDS = (0, 1, 2)
HOPPER, CHEETAH = "Hopper-v5", "HalfCheetah-v5"
SPEED = {HOPPER: 5, CHEETAH: 8}
"""The column of an observation that is the forward velocity."""
JOINTS = {HOPPER: slice(2, 5), CHEETAH: slice(2, 8)}
FIXED = ("threads=1", "tensorboard=false", "source.workers=1")


class Case(NamedTuple):
    env: str
    config: str
    words: tuple[str, ...] = ()


STYLE = "algo.objectives.style"
CASES = {
    "hopper, style alone": Case(HOPPER, "ppo/hopper-style"),
    "cheetah, style alone": Case(CHEETAH, "ppo/halfcheetah-style"),
    "cheetah, task alone": Case(CHEETAH, "ppo/halfcheetah-teacher", ("log_every=10", "eval_every=50")),
    "cheetah, task and style": Case(
        CHEETAH, "ppo/halfcheetah-style", (f"{STYLE}.task_weight=1", f"{STYLE}.weight=2", "algo.gamma=0.99")
    ),
}
COLORS = dict(zip(CASES, ("#1f5fa8", "#2f855a", "#4a5568", "#b5651d"), strict=True))


def finish(name: str, seed: int, motions: str) -> dict[str, Any]:
    """A run that has ended, and what is kept of it."""
    case = CASES[name]
    out = ROOT / "runs" / "style" / name.replace(", ", "-").replace(" ", "-") / str(seed)
    clips = "hopper-ladder/expert" if case.env == HOPPER else motions
    if not (out / "result.json").exists():
        words = ["train", case.config, f"seed={seed}", f"out={out}", *FIXED, *case.words, "--quiet"]
        words += [f"motions.path={clips}"] if case.config.endswith("style") else []
        if importlib.util.find_spec("envpool") is not None:
            words += ["env.simulator=envpool", f"env.id={case.env.replace('v5', 'v4')}"]
        subprocess.run([sys.executable, "-m", "understudy", *words], check=True)
    run = us.Run(out)
    shown = us.load_dataset(clips).observations["state"].float()
    kept = {"case": name, "seed": seed, **played(us.load_policy(run.path), case.env, shown)}
    kept["eval/return_mean"] = [[line["env_steps"], round(line["eval/return_mean"], 1)] for line in run.evaluations()]
    for metric in ("style/reward", "style/distance"):
        lines = [line for line in run.metrics() if metric in line]
        kept[metric] = [[line["env_steps"], round(line[metric], 4)] for line in lines]
    return kept


def played(policy: Any, env_id: str, shown: torch.Tensor) -> dict[str, float]:
    """Speed, return and distance of the joints in ten new episodes; of the motions themselves, too."""
    env, seen, returns = make_env(env_id), [], []
    for seed in range(1000, 1010):
        obs, total, over = env.reset(seed=seed)[0], 0.0, False
        while not over:
            seen.append(obs)
            obs, reward, terminated, truncated, _ = env.step(np.asarray(policy(obs)))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    frames, joints = torch.from_numpy(np.array(seen)).float(), JOINTS[env_id]
    unit = shown[:, joints].std(0)
    rows, others = ((values[::9, joints] / unit).contiguous() for values in (frames, shown))
    return {
        "return": float(np.mean(returns)),
        "speed": float(frames[:, SPEED[env_id]].mean()),
        "speed_of_motions": float(shown[:, SPEED[env_id]].mean()),
        "distance": float(nearest_distance(rows, others).mean()),
        "distance_of_motions": float(nearest_distance(others[::2], others[1::2]).mean()),
    }


def draw(lines: list[dict[str, Any]]) -> Path:
    figure = Figure(figsize=(10.6, 3.8), dpi=120, layout="constrained", facecolor="white")
    for axes, animal in zip(figure.subplots(1, 2), ("hopper", "cheetah"), strict=True):
        for line in (line for line in lines if line["case"].startswith(animal)):
            mark = line["case"].partition(", ")[2] if line["seed"] == SEEDS[0] else ""
            points = zip(*line["eval/return_mean"], strict=True)
            axes.plot(*points, color=COLORS[line["case"]], linewidth=1.3, label=mark)
        axes.set_title(animal, fontsize=10)
        axes.set_xlabel("environment steps")
        axes.set_ylabel("return of the task, in evaluations")
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
    return save_figure(figure, PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("motions", nargs="?", default="", help="a recorded gait of HalfCheetah")
    parser.add_argument("--draw", action="store_true", help="only draw what the file holds")
    options = parser.parse_args()
    if not options.draw:
        lines = [finish(name, seed, options.motions) for seed in SEEDS for name in CASES]
        FILE.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    kept = [json.loads(line) for line in FILE.read_text().splitlines()]
    for line in sorted(kept, key=lambda line: list(CASES).index(line["case"])):
        print(
            f"{line['case']:<26} seed {line['seed']}: return {line['return']:7.1f}, speed {line['speed']:5.2f} "
            f"(motions {line['speed_of_motions']:.2f}), joints {line['distance']:.3f} from the motions "
            f"(they themselves {line['distance_of_motions']:.3f})"
        )
    print(draw(kept))


if __name__ == "__main__":
    main()

"""The numbers and pictures of docs/style.md: what is learned from recorded states alone, and beside a task.

    python benchmarks/style_curves.py GAIT EXPERT WALK    # three seeds of every case; an hour or less on one core
    python benchmarks/style_curves.py --draw              # only draw what style_curves.jsonl holds

GAIT is what `ppo/halfcheetah-teacher` does, recorded by `understudy collect`, and is imitated alone. EXPERT is a fast
gait of HalfCheetah, any recording of its 17 numbers: what is learned from the task alone is compared with what is
learned from task and style, with everything else the same (`ppo/halfcheetah-style`, γ 0.99). WALK is what
Walker2d does (`ppo/walker2d-style` says how to record it). The hopper's motions come with the library. Environments are
EnvPool's (v4) where that is installed, else Gymnasium's.

The last policies play ten new episodes, greedily: speed, and how far the angles of their joints are from the nearest
of the motions, in deviations of the motions. Runs are kept in runs/style, not repeated; interrupted ones go on.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
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
HOPPER, CHEETAH, WALKER = "Hopper-v5", "HalfCheetah-v5", "Walker2d-v5"
SPEED = {HOPPER: 5, CHEETAH: 8, WALKER: 8}
"""The column of an observation that is the forward velocity."""
JOINTS = {HOPPER: slice(2, 5), CHEETAH: slice(2, 8), WALKER: slice(2, 8)}
FIXED = ("threads=1", "tensorboard=false", "source.workers=1")


class Case(NamedTuple):
    env: str
    motions: str
    """That it is compared with."""
    config: str
    words: tuple[str, ...] = ()


STYLE = "algo.objectives.style"
LONGER = ("algo.gamma=0.99", "updates=1000", "eval_every=200", "save_every=200")
"""Two million steps, for what is learned beside a task."""
CASES = {
    "hopper, style alone": Case(HOPPER, "hopper-ladder/expert", "ppo/hopper-style"),
    "walker, style alone": Case(WALKER, "walk", "ppo/walker2d-style"),
    "cheetah, style alone": Case(CHEETAH, "gait", "ppo/halfcheetah-style"),
    "cheetah, task alone": Case(CHEETAH, "expert", "ppo/halfcheetah-style", (*LONGER, f"{STYLE}=null")),
    "cheetah, task and style": Case(
        CHEETAH, "expert", "ppo/halfcheetah-style", (*LONGER, f"{STYLE}.task_weight=1", f"{STYLE}.weight=5")
    ),
}
COLORS = dict(zip(CASES, ("#1f5fa8", "#6b46c1", "#2f855a", "#4a5568", "#b5651d"), strict=True))


def finish(name: str, seed: int, given: Mapping[str, str]) -> dict[str, Any]:
    """A run that has ended, and what is kept of it."""
    case = CASES[name]
    out = ROOT / "runs" / "style" / name.replace(", ", "-").replace(" ", "-") / str(seed)
    clips = given.get(case.motions, case.motions)
    if not (out / "result.json").exists():
        words = (
            ["resume", str(out)] if (out / "checkpoints" / "latest").exists() else first_words(case, seed, clips, out)
        )
        subprocess.run([sys.executable, "-m", "understudy", *words, "--quiet"], check=True)
    run = us.Run(out)
    mended = us.Transforms(actions="clip")  # some experts ask for more than there is
    shown = us.load_dataset(clips, env=case.env, transforms=mended).observations["state"].float()
    kept = {"case": name, "seed": seed, **played(us.load_policy(run.path / "policy" / "final"), case.env, shown)}
    kept["eval/return_mean"] = [[line["env_steps"], round(line["eval/return_mean"], 1)] for line in run.evaluations()]
    for metric in ("style/reward", "style/distance"):
        lines = [line for line in run.metrics() if metric in line]
        kept[metric] = [[line["env_steps"], round(line[metric], 4)] for line in lines]
    return kept


def first_words(case: Case, seed: int, clips: str, out: Path) -> list[str]:
    words = ["train", case.config, f"seed={seed}", f"out={out}", *FIXED, *case.words]
    words += [f"motions.path={clips}"] if f"{STYLE}=null" not in case.words else []
    if importlib.util.find_spec("envpool") is not None:
        words += ["env.simulator=envpool", f"env.id={case.env.replace('v5', 'v4')}"]
    return words


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
    figure = Figure(figsize=(12.4, 3.6), dpi=120, layout="constrained", facecolor="white")
    for axes, animal in zip(figure.subplots(1, 3), ("hopper", "walker", "cheetah"), strict=True):
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
    parser.add_argument("gait", nargs="?", default="", help="a recorded gait of HalfCheetah, imitated alone")
    parser.add_argument("expert", nargs="?", default="", help="a fast one, imitated beside the task")
    parser.add_argument("walk", nargs="?", default="", help="a recorded walk of Walker2d, imitated alone")
    parser.add_argument("--draw", action="store_true", help="only draw what the file holds")
    options = parser.parse_args()
    if not options.draw:
        given = {"gait": options.gait, "expert": options.expert, "walk": options.walk}
        lines = [finish(name, seed, given) for seed in SEEDS for name in CASES]
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

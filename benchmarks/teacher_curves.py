"""What a teacher that sees more is worth to a student that does not: returns over environment steps.

    python benchmarks/teacher_curves.py --runs runs/teacher-curves     # three seeds of each, some minutes
    python benchmarks/teacher_curves.py --draw docs/pictures/teacher_pendulum.png

One teacher (`ppo/pendulum`, which sees the velocity), and `ppo/pendulum-student`, which does not: as it is, by DAgger
alone, and without the teacher. A run that is finished is not started again.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import understudy as us
from understudy.run.config import load_config

FILE = Path(__file__).with_suffix(".jsonl")
EVERY, EPISODES = 5, 20
"""Updates between evaluations, and episodes of each, from starts of the run's own."""
LAST, STARTS, FAILED = 100, 1000, -600.0
"""Episodes of the last evaluation, the seed of their starts, the same for all, and below what return one failed."""
KINDS: dict[str, list[str]] = {
    "teacher, then PPO": [],
    "DAgger": ["algo.policy_coef=0", "algo.objectives.teacher.weight=1"],
    "PPO alone": ["algo.policy_coef=1", "algo.objectives.teacher.weight=0", "algo.objectives.teacher.beta=0"],
}
Line = dict[str, Any]


def trained(config: str, out: Path, words: list[str]) -> us.Run:
    if (out / "result.json").is_file():
        return us.Run(out)
    often = ["threads=1", f"eval_every={EVERY}", f"eval_episodes={EPISODES}"]
    return us.train(load_config(config, [*often, *words, f"out={out}"]))


def curve(run: us.Run, kind: str, seed: int) -> Line:
    told = [json.loads(line) for line in (run.path / "eval.jsonl").read_text().splitlines()]
    updates, returns = ([line[name] for line in told] for name in ("updates", "eval/return_mean"))
    steps = run.config.source_needs.envs[0].count * run.config.source_needs.envs[0].steps_kept
    last = us.evaluate_policy(us.load_policy(run.path), run.config.world.id, LAST, STARTS)
    return {
        "kind": kind,
        "seed": seed,
        "env_steps": [steps * number for number in updates],
        "returns": returns,
        "last": last.mean,
        "failed": sum(one < FAILED for one in last.returns),
    }


def play(runs: Path, seeds: int) -> list[Line]:
    teacher = trained("ppo/pendulum", runs / "teacher", [])
    lines = [curve(teacher, "the teacher", 0)]
    for kind, words in KINDS.items():
        for seed in range(seeds):
            out = runs / kind.replace(",", "").replace(" ", "-") / str(seed)
            student = trained(
                "ppo/pendulum-student", out, [f"policies.teacher.path={teacher.path}", f"seed={seed}", *words]
            )
            lines.append(curve(student, kind, seed))
    return lines


def table(lines: list[Line]) -> None:
    for kind in ("the teacher", *KINDS):
        mine = [line for line in lines if line["kind"] == kind]
        told = ", ".join(f"{line['last']:.1f} ({line['failed']} failed)" for line in mine)
        print(f"{kind:<20}{statistics.mean(line['last'] for line in mine):>10.1f}   of seeds: {told}")


def picture(lines: list[Line], path: Path) -> None:
    from matplotlib.figure import Figure

    from understudy.run.plots import PALETTE, save_figure

    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    for color, kind in zip(PALETTE, KINDS, strict=False):
        mine = [line for line in lines if line["kind"] == kind]
        rows = list(zip(*(line["returns"] for line in mine), strict=True))
        steps = mine[0]["env_steps"]
        axes.plot(steps, [statistics.mean(row) for row in rows], color=color, label=kind)
        axes.fill_between(steps, list(map(min, rows)), list(map(max, rows)), color=color, alpha=0.15, linewidth=0)
    (teacher,) = (line for line in lines if line["kind"] == "the teacher")
    axes.axhline(teacher["last"], color="0.4", linestyle="--", label="the teacher, which sees the velocity")
    axes.set_xlabel("environment steps of the student")
    axes.set_ylabel("greedy return: mean and range of seeds")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    print(f"drawn: {save_figure(figure, path)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="where runs are, or will be")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draw", type=Path, help="only draw what the file holds, into this picture")
    options = parser.parse_args()
    if options.runs is not None:
        lines = play(options.runs, options.seeds)
        FILE.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    if options.draw is not None:
        picture(lines, options.draw)
    table(lines)


if __name__ == "__main__":
    main()

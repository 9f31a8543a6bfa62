"""The curves of docs/robots.md: returns over environment steps of teachers, students, DAgger and estimators.

    python benchmarks/robot_curves.py --keep go1-student=runs/ppo/go1-student/0     # copies a run's evaluations here
    python benchmarks/robot_curves.py --draw                                        # docs/pictures/robots_*.png

Runs are made by the commands of that page. Kept are returns and task metrics of every evaluation, and R² of estimators.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from understudy import Run
from understudy.run.plots import PALETTE, save_figure

FILE = Path(__file__).parent / "robot_curves.jsonl"
PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
ROBOTS = {"go1": "Go1 joystick", "halfcheetah": "HalfCheetah"}
TEACHER = "teacher"
Line = dict[str, Any]


def read() -> list[Line]:
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


def keep(name: str, run: Run) -> None:
    """Evaluations of a run in place of those that were kept under its name."""
    lines = [line for line in read() if line["name"] != name]
    for line in run.evaluations():
        told = {key: value for key, value in line.items() if key.startswith("eval/")}
        lines.append({"name": name, "updates": line["updates"], "env_steps": line["env_steps"], **told})
    for line in run.metrics():
        scores = {key: value for key, value in line.items() if key.endswith("estimator/r2")}
        if scores:
            lines.append({"name": name, "updates": line["updates"], "env_steps": line["env_steps"], **scores})
    FILE.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def of(robot: str, lines: list[Line]) -> dict[str, list[Line]]:
    """Lines of a robot by who they are of, the teacher first."""
    names = sorted({line["name"] for line in lines if line["name"].startswith(f"{robot}-")}, key=_teacher_first)
    return {name.removeprefix(f"{robot}-"): [line for line in lines if line["name"] == name] for name in names}


def _teacher_first(name: str) -> tuple[bool, str]:
    return not name.endswith(TEACHER), name


def draw(robot: str, lines: list[Line]) -> None:
    found = of(robot, lines)
    teacher = max(line["eval/return_mean"] for line in found.pop(TEACHER) if "eval/return_mean" in line)
    figure = Figure(figsize=(7.2, 4.0), dpi=130, layout="constrained")
    axes = figure.subplots()
    axes.axhline(teacher, color="0.3", linewidth=1, label=f"teacher ({teacher:,.1f})")
    axes.axhline(0.9 * teacher, color="0.3", linewidth=1, linestyle=":", label="90 % of it")
    for color, (name, mine) in zip(PALETTE, found.items(), strict=False):
        points = [line for line in mine if "eval/return_mean" in line]
        steps, means = ([line[key] for line in points] for key in ("env_steps", "eval/return_mean"))
        axes.plot(steps, means, color=color, marker="o", markersize=3, label=name)
        low, high = ([line[key] for line in points] for key in ("eval/return_low", "eval/return_high"))
        axes.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
    axes.set_title(f"{ROBOTS[robot]}: students that cannot measure velocities", fontsize=10)
    axes.set_xlabel("environment steps of the student")
    axes.set_ylabel("greedy return, with 95 % intervals")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    print(f"drawn: {save_figure(figure, PICTURES / f'robots_{robot}.png')}")


def table(robot: str, lines: list[Line]) -> None:
    """The last evaluation of each."""
    for name, mine in of(robot, lines).items():
        last = [line for line in mine if "eval/return_mean" in line][-1]
        told = {key.removeprefix("eval/"): value for key, value in last.items() if key.startswith("eval/")}
        scores = [line[key] for line in mine for key in line if key.endswith("estimator/r2")][-5:]
        shown = ", ".join(f"{key} {value:.3g}" for key, value in told.items() if key not in ("return_std",))
        r2 = f", R² {statistics.mean(scores):.3f}" if scores else ""
        print(f"{robot}-{name}: {last['updates']:,} updates, {last['env_steps']:,} steps: {shown}{r2}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", nargs="*", default=[], metavar="NAME=RUN")
    parser.add_argument("--draw", action="store_true")
    options = parser.parse_args()
    for pair in options.keep:
        name, _, path = pair.partition("=")
        keep(name, Run(path))
    for robot in ROBOTS:
        if of(robot, read()):
            table(robot, read())
            if options.draw:
                draw(robot, read())


if __name__ == "__main__":
    main()

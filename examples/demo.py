"""Offline RL in a minute: mixed play on a pendulum, cloned by BC and improved by IQL.

Run it with `make demo`.
"""

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import understudy as us
from understudy.run.evaluation import bootstrap_interval
from understudy.run.plots import draw_returns
from understudy.run.progress import Reporter

EPISODES = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder of the demo's runs; a new one under runs/demo by default")
    parser.add_argument("--steps", type=int, help="gradient steps instead of the configs' own")
    options = parser.parse_args()
    out = options.out or fresh_folder(Path("runs/demo"))
    changes = {} if options.steps is None else {"updates": options.steps}
    console, reporter = Console(), Reporter()

    console.print("\n[bold]1. The data[/bold]: a pendulum played by chance and by clumsy hands. Nobody in it is good.")
    recipe = us.load_config("iql/pendulum").logged.recipe
    assert recipe is not None
    data = us.make_dataset(recipe, reporter)
    returns = data.returns()
    console.print(f"   {data.episodes} episodes, {data.steps:,} steps, mean return {returns.mean():.0f}")

    runs = {}
    for number, (label, name) in enumerate({"BC": "bc/pendulum", "IQL": "iql/pendulum"}.items(), start=2):
        console.print(f"\n[bold]{number}. {label}[/bold]: understudy train {name}")
        runs[label] = us.train(name, reporter=reporter, out=str(out / label.lower()), **changes)

    console.print(f"\n[bold]4. The policies[/bold], {EPISODES} episodes each, always the same start states")
    table = Table("", "mean return", "95 % interval", "worst", "best")
    table.add_row("data", *row(returns))
    for label, run in runs.items():
        evaluation = run.evaluate(EPISODES, reporter=reporter)
        table.add_row(label, *row(np.asarray(evaluation.returns)))
    console.print(table)
    curves = {label: run.evaluations() for label, run in runs.items()}
    picture = draw_returns(curves, out / "learning_curve.png", {"data mean": float(returns.mean())})
    console.print(f"runs:    {', '.join(str(run.path) for run in runs.values())}", soft_wrap=True, highlight=False)
    console.print(f"picture: {picture}", soft_wrap=True, highlight=False)
    console.print("Next, try a bolder expectile. Stop it with Ctrl-C whenever you like, then resume it:")
    console.print(f"  .venv/bin/understudy train iql/pendulum algo.expectile=0.95 out={out / 'bolder'}", soft_wrap=True)
    console.print(f"  .venv/bin/understudy resume {out / 'bolder'}", soft_wrap=True)


def row(returns: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> tuple[str, ...]:
    low, high = bootstrap_interval(returns)
    return f"{returns.mean():.0f}", f"{low:.0f} to {high:.0f}", f"{returns.min():.0f}", f"{returns.max():.0f}"


def fresh_folder(parent: Path) -> Path:
    """The first of parent/1, parent/2, … that is not there yet."""
    return next(folder for number in range(1, 10_000) if not (folder := parent / str(number)).exists())


if __name__ == "__main__":
    main()

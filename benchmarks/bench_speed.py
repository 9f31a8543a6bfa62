"""What several runs at once are worth, and what the manager takes: two runs with one thread each, side by side, against
one after the other with two threads.

    python benchmarks/bench_speed.py                  # a few minutes on two idle cores
    python benchmarks/bench_speed.py --hidden 64 --updates 5000 --rounds 3

IQL with two hidden layers of so many units (--hidden), each width by itself: what wide networks do is matrix products,
which two threads share well, so that less is left to be won.

Rounds take turns. Speed is told by the clock (of no use on a machine that others use) and by processor seconds (less
disturbed: what a second of all cores does). The manager's share is its own processor time, of all that was spent.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import understudy as us

CONFIG = {
    "updates": 3000,
    "source.batch_size": 256,
    "eval_every": 1_000_000,  # one step at the end: an experiment wants to be judged
    "eval_episodes": 1,
    "eval_max_steps": 1,
    "log_every": 500,
    "save_every": 1000,
    "tensorboard": False,
    "compile": False,
}
PLAY = {"env": "Pendulum-v1", "episodes": 20, "behaviours": [{"policy": "random"}]}
TASK = {"id": "pendulum", "env": "Pendulum-v1", "recipe": PLAY}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 256])
    options = parser.parse_args()
    for hidden in options.hidden:
        compare(hidden, options.updates, options.rounds)


def compare(hidden: int, updates: int, rounds: int) -> None:
    best: dict[str, float] = {}
    for number in range(rounds):
        for name, threads, jobs in (("side by side", 1, 2), ("one by one", 2, 1)):
            wall, processors, manager = play(hidden, updates, threads, jobs)
            total = 2 * updates
            best[name] = max(best.get(name, 0.0), total / wall)
            best[f"{name}, by processor"] = max(best.get(f"{name}, by processor", 0.0), total / processors)
            share = 100 * manager / (manager + processors)
            speeds = f"{total / wall:7.0f} updates/s, {total / processors:7.0f} per processor second"
            print(
                f"{hidden}-{hidden} round {number} {name:13} {speeds}, manager {share:.2f} % of the processors",
                flush=True,
            )
    for which in ("", ", by processor"):
        print(f"{hidden}-{hidden} ratio{which}: {best[f'side by side{which}'] / best[f'one by one{which}']:.2f}")


def play(hidden: int, updates: int, threads: int, jobs: int) -> tuple[float, float, float]:
    """Seconds by the clock, of all runs' processors, and of the manager's own, for two runs of a host that is warm."""
    with tempfile.TemporaryDirectory() as folder:
        networks = {"algo.actor.hidden": [hidden, hidden], "algo.critic.hidden": [hidden, hidden]}
        settings = {**CONFIG, **networks, "updates": updates, "threads": threads}
        experiment = us.Experiment({"IQL": "iql/pendulum"}, [TASK], 2, settings=settings, out=Path(folder) / "runs")
        for making in experiment.plan.makings:
            making.make()
        own, others, clock = _processor(resource.RUSAGE_SELF), _processor(resource.RUSAGE_CHILDREN), time.perf_counter()
        experiment.run(jobs, progress=False)
        wall = time.perf_counter() - clock
        return wall, _processor(resource.RUSAGE_CHILDREN) - others, _processor(resource.RUSAGE_SELF) - own


def _processor(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()

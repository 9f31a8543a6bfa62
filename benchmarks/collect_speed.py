"""Steps a second of `us.collect` against the same environments stepped bare: who plays, in how many, at what cost.

    python benchmarks/collect_speed.py                 # about ten minutes
    python benchmarks/collect_speed.py --windows 1 --steps 3200 --tasks Pendulum-v1

One thread. `bare` steps our vector of environments through the same episodes with their actions known beforehand, and
keeps nothing; both take turns, and what is read are ratios of the best windows: machines are shared and noisy. A
collection's time is of everything: making environments, playing, checking, writing a store, verifying it.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import understudy as us
from understudy.core.rng import derived_seed, simulator_seed, stream
from understudy.core.spec import Spec
from understudy.envs.vector.local import LocalVectorEnv
from understudy.nn.actor import Actor, ActorSettings

TASKS = ("HalfCheetah-v5", "Hopper-v5", "Pendulum-v1")
PLAYERS = ("random", "64-64", "256-256", "256-256 sampled")
TARGET = 0.7


def bare(task: str, count: int, data: us.Dataset) -> Callable[[], int]:
    """The environments alone, through the very episodes that were collected: what they cost depends on where they
    are."""
    seed = derived_seed(0, "collect", 0)
    world = LocalVectorEnv(task, count)
    slots = [range(slot, data.episodes, count) for slot in range(count)]
    played = [np.concatenate([data.episode(number).actions for number in numbers]) for numbers in slots]
    steps = min(map(len, played))
    actions = torch.from_numpy(np.stack([one[:steps] for one in played], 1))
    ends = [set(np.cumsum([len(data.episode(number)) for number in numbers]).tolist()) for numbers in slots]

    def begin(numbers: list[int]) -> None:
        world.seed_episodes([simulator_seed(derived_seed(seed, "episode", number)) for number in numbers])

    def run() -> int:
        numbers = list(range(count))
        begin(numbers)
        world.reset(0)
        begin([number + count for number in numbers])
        for step in range(steps):
            world.step(actions[step])
            if over := [slot for slot in range(count) if step + 1 in ends[slot]]:
                for slot in over:
                    numbers[slot] += count
                begin([number + count for number in numbers])
        return steps * count

    return run


def player(name: str, spec: Spec) -> object:
    """Chance, or a fresh policy as SAC's and IQL's are."""
    if name == "random":
        return name
    settings = ActorSettings.parse({"hidden": [int(width) for width in name.split(maxsplit=1)[0].split("-")]})
    return Actor(spec, settings, stream(0, "bench")).train(False).requires_grad_(False)


def collecting(task: str, name: str, count: int, steps: int, folder: Path) -> Callable[[], int]:
    world = LocalVectorEnv(task, 1)
    played, calls = player(name, world.spec), iter(range(1_000_000))
    world.close()

    def run() -> int:
        out = folder / f"{name}-{next(calls)}".replace(" ", "-")
        return us.collect(task, played, out, steps=steps, num_envs=count, greedy="sampled" not in name).steps

    return run


def speed(run: Callable[[], int]) -> float:
    """Steps in a second of the processor, which others on the machine disturb less than the clock."""
    began = time.process_time()
    return run() / (time.process_time() - began)


def measure(task: str, name: str, count: int, steps: int, windows: int) -> tuple[float, float]:
    """The best windows of the environments alone, and of a collection in them."""
    with tempfile.TemporaryDirectory() as folder:
        collect = collecting(task, name, count, steps, Path(folder))
        collect()
        alone = bare(task, count, us.load_dataset(next(Path(folder).iterdir())))
        turns = [(speed(alone), speed(collect)) for _ in range(windows)]
    return max(one for one, _ in turns), max(one for _, one in turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--num-envs", nargs="+", type=int, default=[16])
    parser.add_argument("--steps", type=int, default=32_000)
    parser.add_argument("--windows", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'task':<16}{'envs':>5}  {'who plays':<17}{'bare':>10}{'collect':>10}{'ratio':>7}")
    for task in asked.tasks:
        for count in asked.num_envs:
            for name in PLAYERS:
                alone, collected = measure(task, name, count, asked.steps, asked.windows)
                ratio = f"{collected / alone:>7.0%}{'' if collected >= TARGET * alone else '  below 70 %'}"
                print(f"{task:<16}{count:>5}  {name:<17}{alone:>8,.0f}/s{collected:>8,.0f}/s{ratio}", flush=True)


if __name__ == "__main__":
    main()

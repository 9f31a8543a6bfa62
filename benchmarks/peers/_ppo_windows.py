"""What every PPO peer measures, and how: three numbers a window, one JSON line each.

``environment``: random actions and nothing else, through what the peer's users step. ``rollout``: with inference and
everything stored. ``training``: whole iterations. All in iterations of 2,048 transitions a second.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

THREADS = int(os.environ.get("BENCH_THREADS", "1"))
os.environ["OMP_NUM_THREADS"] = str(THREADS)

TRANSITIONS, MINIBATCHES, EPOCHS = 2048, 4, 5
LEARNING_RATE, GAMMA, TRACE, CLIP, LARGEST_GRADIENT = 3e-4, 0.99, 0.95, 0.2, 1.0
POOL_THREADS = os.cpu_count() or 1
Run = Callable[[], None]


@dataclass(frozen=True)
class Task:
    env: str
    count: int
    pool: bool
    hidden: tuple[int, ...] = (64, 64)
    groups: tuple[str, str] = ("state", "state")
    """What actor and critic see."""
    transitions: int = TRANSITIONS
    """Of an iteration."""
    activation: str = "tanh"
    initial_std: float = 1.0
    gamma: float = GAMMA
    entropy_coef: float = 0.0
    settings: Mapping[str, float] = field(default_factory=dict)
    """Of the simulator."""

    @property
    def steps(self) -> int:
        return self.transitions // self.count


GO1 = ("Go1JoystickFlatTerrain-v1", 64, True)
ASYMMETRIC = ("state", "privileged_state")
TASKS = {
    "cheetah": Task("HalfCheetah-v5", 16, False),
    "cheetah-envpool": Task("HalfCheetah-v4", 16, True),
    "go1": Task(*GO1, groups=ASYMMETRIC),
    "go1-wide": Task(*GO1, hidden=(512, 256, 128), groups=ASYMMETRIC),
    "go1-walk": Task(
        *GO1,
        hidden=(256, 128),
        groups=ASYMMETRIC,
        transitions=4096,
        activation="elu",
        initial_std=0.5,
        entropy_coef=0.002,
    ),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=TASKS, default="cheetah")
    parser.add_argument("--normalize", action="store_true", help="observations by their running mean and deviation")
    parser.add_argument(
        "--processes", type=int, default=1, help="of Gymnasium's environments; peers: 1 or one for each"
    )
    parser.add_argument("--memory", choices=("none", "gru", "lstm"), default="none", help="understudy only")
    parser.add_argument("--updates", type=int, default=2, help="iterations per window")
    parser.add_argument("--windows", type=int, default=5, help="timing windows (without --stdin)")
    parser.add_argument("--stdin", action="store_true", help="one window per line 'go', until EOF")
    return parser.parse_args()


def serve(name: str, phases: dict[str, Run], options: argparse.Namespace) -> None:
    """Warm everything up, then time each phase in every window; a run is one iteration."""
    for run in phases.values():
        run()
    print(json.dumps({"peer": name, "ready": True}), flush=True)
    turns = (line for line in sys.stdin if line.strip() == "go") if options.stdin else range(options.windows)
    for _ in turns:
        told: dict[str, float] = {}
        for phase, run in phases.items():
            wall, processor = time.perf_counter(), time.process_time()
            for _ in range(options.updates):
                run()
            told[phase] = options.updates / (time.perf_counter() - wall)
            told[f"{phase}_cpu"] = options.updates / (time.process_time() - processor)
        answer = {"updates_per_second": told["training"], "updates_per_cpu_second": told["training_cpu"]}
        print(json.dumps({"peer": name, **answer, **told}), flush=True)

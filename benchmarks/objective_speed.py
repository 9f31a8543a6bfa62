"""What objectives cost: an iteration of PPO with each of them against PPO's own, in interleaved windows.

    python benchmarks/objective_speed.py                            # every objective that is found
    python benchmarks/objective_speed.py --objectives teacher rnd --windows 20
    python benchmarks/objective_speed.py --profile teacher          # where its time goes

The preset `ppo/robot` with networks of 256-128: 256 environments of HalfCheetah, 24 steps, 5 epochs of 4 minibatches.
Environments are EnvPool's where that is installed, else Gymnasium's. `plain` is PPO in plain autograd, which is what
runs with any objective; `ppo` is its compiled path. All take turns in one process with one thread, in one order and
then in the other. Machines are shared and noisy: read ratios of the best windows; those of processor time are disturbed
least.
"""

import argparse
import cProfile
import pstats
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from understudy import Actor, Dataset, Episode, write_store
from understudy.algorithms import ppo
from understudy.core.errors import UnderstudyError
from understudy.core.motion import Motions
from understudy.core.protocols import BuildContext, Experience, Policy
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.data.experience import LoggedExperience
from understudy.data.motions import MotionSettings, load_motions
from understudy.envs.vector.contract import VectorEnv
from understudy.nn.actor import ActorSettings
from understudy.objectives import PLUGINS
from understudy.run.allocator import keep_freed_memory
from understudy.run.config import load_config
from understudy.run.env_settings import EnvSettings
from understudy.run.environments import make_vector_env
from understudy.sources.rollout import RolloutSource

HIDDEN = [256, 128]
POSITIONS, VELOCITIES = "state.positions", "state.velocities"
SEGMENTS = {"state": {"positions": (0, 8), "velocities": (8, 17)}}
TARGETS = {"teacher": 1.3, "estimator": 1.15, "rnd": 1.15, "style": 1.5}
"""Times PPO's plain path."""


@dataclass(frozen=True)
class Case:
    """What PPO is told beside its preset."""

    objective: dict[str, Any] = field(default_factory=dict)
    algo: dict[str, Any] = field(default_factory=dict)
    actor: dict[str, Any] = field(default_factory=dict)


CASES = {
    "style": Case({"features": [POSITIONS, VELOCITIES]}),
    "symmetry": Case({"observations": {"state": {"signs": [1, -1] * 8 + [1]}}, "actions": {"signs": [-1] * 6}}),
    "ppo": Case(),
    "plain": Case(algo={"early_stop_kl": 1e9}),
    "estimator": Case(actor={"estimate": {"targets": [VELOCITIES], "hidden": [128, 64]}}),
}
BASELINES = ("ppo", "plain")


def frozen_teacher(spec: Spec) -> Policy:
    return Actor(spec, ActorSettings(hidden=tuple(HIDDEN), activation="elu"), stream(1, "teacher"))


def noise(spec: Spec) -> Dataset:
    """A hundred episodes of it."""
    rng, steps = np.random.default_rng(0), 100
    groups = {name: group.shape for name, group in spec.observation.items()}
    episodes = [
        Episode(
            {name: rng.standard_normal((steps + 1, *shape), np.float32) for name, shape in groups.items()},
            rng.uniform(-1, 1, (steps, spec.box.size)).astype(np.float32),
            rng.standard_normal(steps, np.float32),
            terminated=False,
            truncated=True,
        )
        for _ in range(100)
    ]
    return Dataset.from_episodes(episodes, spec.box)


def motions(spec: Spec) -> tuple[Motions, ...]:
    """The same, as recorded motions."""
    with tempfile.TemporaryDirectory() as folder:
        store = write_store(noise(spec), Path(folder, "noise"))
        return (load_motions(MotionSettings(path=str(store)), spec.segments),)


class Contestant:
    """PPO with or without an objective, in environments of its own."""

    def __init__(self, name: str, simulator: str) -> None:
        self.name, case = name, CASES.get(name, Case())
        preset = load_config("ppo/robot", ["env.id=HalfCheetah-v5"])
        told = preset.algo.model_dump()
        for role in ("actor", "critic"):
            told[role] |= {"hidden": HIDDEN}
        told["actor"] |= {**case.actor, "sees": (POSITIONS, VELOCITIES)}
        told |= case.algo | ({} if name in BASELINES else {"objectives": {name: case.objective}})
        self.rows, count = preset.source.model_dump()["rollout_length"], preset.source.model_dump()["num_envs"]
        world = make_world(simulator, count)
        spec = world.spec.with_segments(SEGMENTS)
        config = ppo.Config.parse(told)
        roles = ppo.needs(config)
        data: Mapping[str, Experience] = {role: LoggedExperience.of(noise(spec)) for role in roles.data}
        policies = {role: frozen_teacher(spec) for role in roles.policies}
        shown = motions(spec) if roles.motions else ()
        context = BuildContext(spec, 1_000_000, 0, torch.device("cpu"), count, data, policies, motions=shown)
        self.algorithm = ppo.build(config, context)
        self.source = RolloutSource.build(
            world, self.algorithm.policy, self.rows, 0, recorders=self.algorithm.recorders()
        )
        self.wall: list[float] = []
        self.processor: list[float] = []
        self.collecting: list[float] = []

    def iterate(self) -> float:
        """One rollout and one update; gives the processor seconds of the first."""
        started = time.process_time()
        rollout = self.source.next(self.algorithm.policy)
        seconds = time.process_time() - started
        self.algorithm.update(rollout)
        return seconds

    def turn(self, iterations: int) -> None:
        wall, processor = time.perf_counter(), time.process_time()
        collecting = sum(self.iterate() for _ in range(iterations))
        self.wall.append((time.perf_counter() - wall) / iterations)
        self.processor.append((time.process_time() - processor) / iterations)
        self.collecting.append(collecting / iterations)


def make_world(simulator: str, count: int) -> VectorEnv:
    version = "v4" if simulator == "envpool" else "v5"
    settings = EnvSettings(id=f"HalfCheetah-{version}", simulator=simulator)  # type: ignore[arg-type]
    return make_vector_env(settings, count)


def best_simulator() -> str:
    try:
        import envpool  # noqa: F401
    except ImportError:
        return "gymnasium"
    return "envpool"


def profile(one: Contestant, iterations: int) -> None:
    with cProfile.Profile() as profiler:
        for _ in range(iterations):
            one.iterate()
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(45)


def print_table(contestants: list[Contestant], windows: int, simulator: str) -> None:
    fused, plain = contestants[0], contestants[1]
    print(
        f"\nHalfCheetah, 256 environments of {simulator}, 24 steps, {HIDDEN}; best of {windows} windows, one iteration"
    )
    heads = ("wall ms", "cpu ms", "rollout cpu", "x ppo cpu", "x plain cpu", "x plain wall")
    print(f"{'':<16}" + "".join(f"{head:>14}" for head in heads))
    for one in contestants:
        wall, cpu, collecting = min(one.wall), min(one.processor), min(one.collecting)
        told = [1e3 * wall, 1e3 * cpu, 1e3 * collecting]
        ratio = cpu / min(plain.processor)
        ratios = [cpu / min(fused.processor), ratio, wall / min(plain.wall)]
        verdict = ""
        if one.name in TARGETS:
            verdict = f"   target {TARGETS[one.name]:.2f} {'PASS' if ratio <= TARGETS[one.name] else 'FAIL'}"
        cells = "".join(f"{cell:>14.1f}" for cell in told) + "".join(f"{cell:>14.2f}" for cell in ratios)
        print(f"{one.name:<16}{cells}{verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found = sorted(PLUGINS.names())
    parser.add_argument("--objectives", nargs="*", default=found, choices=found)
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--iterations", type=int, default=2, help="of a window")
    parser.add_argument("--simulator", choices=("envpool", "gymnasium"), default=best_simulator())
    parser.add_argument("--profile", choices=(*BASELINES, *found))
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    if options.profile:
        profile(Contestant(options.profile, options.simulator), 5 * options.iterations)
        return
    contestants = []
    for name in (*BASELINES, *options.objectives):
        try:
            contestants.append(Contestant(name, options.simulator))
        except UnderstudyError as error:
            print(f"{name} is not measured: it needs a row in CASES ({error})")
    for one in contestants:
        one.turn(1)
        one.wall, one.processor, one.collecting = [], [], []
    for window in range(options.windows):
        for one in contestants if window % 2 else reversed(contestants):
            one.turn(options.iterations)
        if (window + 1) % -(-options.windows // 4) == 0:
            print(f"window {window + 1}/{options.windows}", flush=True)
    print_table(contestants, options.windows, options.simulator)


if __name__ == "__main__":
    main()

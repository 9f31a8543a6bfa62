"""What recording demonstrations adds to stepping: the same policy in the same environments, kept or thrown away.

    python benchmarks/recording_speed.py                 # about three minutes
    python benchmarks/recording_speed.py --windows 2 --steps 8000 --worlds Pendulum-v1

One thread, a fresh policy of PPO of 256-128, greedy. `playing`: the policy acts and the environments step, no more.
`recording` does the same and keeps every episode: cut out of the vector, checked, written to a native store, which is
finished and sealed at the end. Both take turns, each in seconds of the processor for a step; what is read is the ratio
of the best windows: machines are shared and noisy.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from understudy.core.batch import Obs
from understudy.core.rng import stream
from understudy.core.spec import as_actions
from understudy.data.stores.recorder import Recorder
from understudy.data.success import SUCCESS
from understudy.envs.vector.contract import Step
from understudy.envs.vector.step_timeout import TimedVectorEnv
from understudy.nn.actor import Actor
from understudy.parts.ppo.networks import OnPolicyActorSettings
from understudy.run.env_settings import EnvSettings
from understudy.run.environments import make_vector_env
from understudy.sources.playing.players import PolicyPlayer
from understudy.sources.playing.vector_episodes import play_episodes

WORLDS: dict[str, dict[str, Any]] = {
    "HalfCheetah-v5": {},
    "Pendulum-v1": {},
    "Go1JoystickFlatTerrain-v1": {"simulator": "envpool"},
}
TARGET = 1.10


@dataclass
class Counted:
    """A vector of environments that counts its steps."""

    world: TimedVectorEnv
    calls: int = 0

    def __post_init__(self) -> None:
        self.count, self.spec = self.world.count, self.world.spec
        self.seeds_episodes, self.restartable = self.world.seeds_episodes, self.world.restartable

    def seed_episodes(self, seeds: Sequence[int]) -> None:
        self.world.seed_episodes(seeds)

    def reset(self, seed: int) -> Obs:
        return self.world.reset(seed)

    def step(self, actions: torch.Tensor) -> Step:
        self.calls += 1
        return self.world.step(actions)


def playing(world: TimedVectorEnv, player: PolicyPlayer, steps: int) -> int:
    """The loop without anything that is kept; calls of `step`."""
    if world.seeds_episodes:
        world.seed_episodes(list(range(world.count)))
    obs, space = world.reset(0), world.spec.action
    player.restart(0)
    player.begin(dict.fromkeys(range(world.count), 0))
    calls = -(-steps // world.count)
    for _ in range(calls):
        step = world.step(torch.from_numpy(as_actions(player.act(obs), space)))
        obs = step.obs
        ended = step.terminated | step.truncated
        if bool(ended.any()):
            player.begin(dict.fromkeys(torch.nonzero(ended).flatten().tolist(), 0))
    return calls


def recording(world: TimedVectorEnv, player: PolicyPlayer, steps: int, folder: Path) -> int:
    """The same as a store; calls of `step`."""
    counted = Counted(world)
    with Recorder(folder, world.spec.action) as recorder:
        for played in play_episodes(cast("TimedVectorEnv", counted), player, 0, 0, tuple(SUCCESS)):
            recorder.add(played.episode)
            if recorder.steps >= steps:
                break
    return counted.calls


def cost(run: Callable[[], int]) -> float:
    """Seconds of the processor for a step of all environments."""
    began = time.process_time()
    calls = run()
    return (time.process_time() - began) / calls


def measure(name: str, count: int, steps: int, windows: int) -> tuple[float, float]:
    """The best windows of playing and of recording."""
    settings = EnvSettings(id=name, **WORLDS[name])
    world = make_vector_env(settings, count, extras=tuple(SUCCESS))
    actor = Actor(world.spec, OnPolicyActorSettings(hidden=(256, 128)), stream(0, "bench"))
    player = PolicyPlayer(actor.train(False).requires_grad_(False), count, greedy=True)
    turns = []
    with tempfile.TemporaryDirectory() as folder:
        for window in range(windows + 1):
            out = Path(folder) / str(window)
            turns.append(
                (cost(lambda: playing(world, player, steps)), cost(lambda o=out: recording(world, player, steps, o)))
            )
    world.close()
    return min(one for one, _ in turns[1:]), min(other for _, other in turns[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=32_000)
    parser.add_argument("--windows", type=int, default=4)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'world':<28}{'envs':>5}{'playing':>12}{'recording':>12}{'adds':>8}")
    for name in asked.worlds:
        alone, kept = measure(name, asked.num_envs, asked.steps, asked.windows)
        verdict = "" if kept <= TARGET * alone else "  above 10 %"
        costs = f"{alone * 1e6:>9.0f} µs{kept * 1e6:>9.0f} µs{kept / alone - 1:>8.1%}"
        print(f"{name:<28}{asked.num_envs:>5}{costs}{verdict}", flush=True)


if __name__ == "__main__":
    main()

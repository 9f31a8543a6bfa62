"""Environment steps a second: our vector of environments against Gymnasium's, alone and with a policy that draws.

    python benchmarks/rollout_speed.py               # about three minutes
    python benchmarks/rollout_speed.py --windows 2 --steps 50

One thread, sixteen environments, the same random actions, in interleaved windows; read the ratios of the best
windows, machines are shared and noisy. `sync` is Gymnasium's SyncVectorEnv, in its SAME_STEP mode; `adapted` is the
same seen through our adapter, with its checks; `rollouts` is ours with a policy of no cost and everything stored.
"""

import argparse
import time
from collections.abc import Callable

import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.protocols import ActionSample, Carry
from understudy.core.spec import Box
from understudy.envs.gym import make_env
from understudy.envs.vector.contract import VectorEnv
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.sources.rollout import RolloutSource

TASKS = ("HalfCheetah-v5", "Pendulum-v1")
COUNT = 16
Run = Callable[[int], None]


class Thoughtless:
    """Actions drawn beforehand: what is measured is everything but the policy."""

    def __init__(self, actions: Tensor) -> None:
        self.actions, self.asked, self.log_prob = actions, 0, torch.zeros(COUNT)

    def initial(self, count: int) -> Carry:
        return ()

    def draw(self, obs: Obs, carry: Carry, rng: torch.Generator) -> ActionSample:
        self.asked += 1
        action = self.actions[self.asked % len(self.actions)]
        return ActionSample(action, action, self.log_prob, ())

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: object = None) -> tuple[Tensor, Carry]:
        raise NotImplementedError


def sync(name: str) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: make_env(name)] * COUNT, autoreset_mode=AutoresetMode.SAME_STEP)


def random_actions(space: Box) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return (2 * torch.rand(257, COUNT, space.size, generator=rng) - 1) * torch.tensor(space.high)


def bare(name: str, actions: Tensor) -> Run:
    """Tensors in, tensors out, as any policy in torch needs them."""
    vector, asked = sync(name), 0
    vector.reset(seed=0)

    def run(steps: int) -> None:
        nonlocal asked
        for _ in range(steps):
            asked += 1
            obs, reward, *_ = vector.step(actions[asked % len(actions)].numpy())
            torch.as_tensor(obs, dtype=torch.float32), torch.as_tensor(reward, dtype=torch.float32)

    return run


def world(made: VectorEnv, actions: Tensor) -> Run:
    made.reset(0)
    asked = 0

    def run(steps: int) -> None:
        nonlocal asked
        for _ in range(steps):
            asked += 1
            made.step(actions[asked % len(actions)])

    return run


def rollouts(name: str, actions: Tensor, steps: int) -> Run:
    policy = Thoughtless(actions)
    source = RolloutSource.build(LocalVectorEnv(name, COUNT), policy, steps, 0)

    def run(steps: int) -> None:
        source.next(policy)

    return run


def speeds(runs: dict[str, Run], windows: int, steps: int) -> dict[str, float]:
    """Environment steps a second in the best window of each."""
    best = dict.fromkeys(runs, 0.0)
    for _ in range(windows):
        for name, run in runs.items():
            start = time.perf_counter()
            run(steps)
            best[name] = max(best[name], COUNT * steps / (time.perf_counter() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in TASKS:
        local = LocalVectorEnv(name, COUNT)
        actions = random_actions(local.spec.box)
        runs = {
            "sync": bare(name, actions),
            "adapted": world(GymnasiumVectorEnv(sync(name), name), actions),
            "local": world(local, actions),
            "rollouts": rollouts(name, actions, arguments.steps),
        }
        best = speeds(runs, arguments.windows, arguments.steps)
        print(f"{name}, {COUNT} environments, best of {arguments.windows} windows of {arguments.steps} steps")
        for kind, speed in best.items():
            print(f"  {kind:<10}{speed:>10.0f} steps/s{speed / best['sync']:>8.2f} x sync")


if __name__ == "__main__":
    main()

"""A simulator of your own, as rsl_rl's are written: trained, evaluated, exported. python examples/own_simulator.py"""

from typing import Any

import torch
from torch import Tensor

import understudy as us


class Reach:
    """Points that shall come to the origin. It resets inside its step."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.rng = num_envs, torch.Generator()

    def restart(self, seed: int) -> None:
        self.rng.manual_seed(seed)
        self.place, self.age = self.start(), torch.zeros(self.num_envs, dtype=torch.long)

    def start(self) -> Tensor:
        return 4 * torch.rand(self.num_envs, 2, generator=self.rng) - 2

    def get_observations(self) -> dict[str, Tensor]:
        return {"policy": self.place.clone()}

    def step(self, actions: Tensor) -> Any:
        self.place, self.age = self.place + 0.2 * actions, self.age + 1
        rewards, dones = -self.place.norm(dim=1), self.age >= 50
        extras = {"time_outs": dones, "final_obs": self.get_observations()}
        self.place, self.age = torch.where(dones[:, None], self.start(), self.place), torch.where(dones, 0, self.age)
        return self.get_observations(), rewards, dones, extras


def make_envs(count: int) -> us.VectorEnv:
    env = Reach(count)
    env.restart(0)
    return us.TensorVectorEnv(env, us.Box((-1.0, -1.0), (1.0, 1.0)), "Reach", restart=env.restart)


small: dict[str, Any] = {"source.num_envs": 64, "algo.actor.hidden": [64, 64], "algo.critic.hidden": [64, 64]}
run = us.train("ppo/robot", make_envs=make_envs, updates=30, eval_every=10, out="runs/reach", **small)
print("played:  ", run.evaluate(episodes=100, make_envs=make_envs).mean)
print("exported:", us.export_policy(run.path).path)

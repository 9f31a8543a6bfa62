"""Vectors of short environments, each way they can be had, and what single environments do with the same actions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.spec import ActionSpace, Discrete, MultiDiscrete, Spec
from understudy.envs.gym import Env, env_spec, make_env, observe
from understudy.envs.vector.contract import Step, VectorEnv, environment_seeds
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.envs.vector.tensor_adapter import TensorVectorEnv

CARTPOLE, PENDULUM, BATTLE = "UnderstudyTestCartPole-v0", "UnderstudyTestPendulum-v0", "UnderstudyBattle-v0"
LIMITS = {CARTPOLE: 15, PENDULUM: 7}
"""Random play of the first ends both ways, of the second only by its time limit, of the last by itself; with masks."""
CLASSIC = "gymnasium.envs.classic_control"
for _name, _kind in ((CARTPOLE, "CartPoleEnv"), (PENDULUM, "PendulumEnv")):
    if _name not in gymnasium.registry:
        gymnasium.register(_name, f"{CLASSIC}:{_kind}", max_episode_steps=LIMITS[_name])


class TensorBatch:
    """Single environments behind the interface of rsl_rl's runners; its tensors are written over at every step."""

    def __init__(self, name: str, count: int, *, finals: bool = True, time_outs: bool = True) -> None:
        self.envs = [make_env(name) for _ in range(count)]
        self.num_envs = count
        self.spec = env_spec(self.envs[0], name)
        self.finals, self.time_outs = finals, time_outs
        self.rows = {
            name: torch.zeros(count, *group.shape, dtype=getattr(torch, group.dtype))
            for name, group in self.spec.observation.items()
        }
        self.restart(0)

    def restart(self, seed: int) -> None:
        for number, single in enumerate(environment_seeds(seed, self.num_envs)):
            self._write(self.rows, number, self.envs[number].reset(seed=single)[0])

    def _write(self, rows: Obs, number: int, raw: Any) -> None:
        for name, values in observe(raw, self.spec, "batch").items():
            rows[name][number] = torch.from_numpy(values)

    def get_observations(self) -> Obs:
        return self.rows

    def step(self, actions: Tensor) -> tuple[Obs, Tensor, Tensor, Mapping[str, Any]]:
        rewards, dones, late = torch.zeros(self.num_envs), torch.zeros(self.num_envs, dtype=torch.long), []
        finals = {name: torch.full_like(rows, 77) for name, rows in self.rows.items()}
        for number, env in enumerate(self.envs):
            raw, reward, terminated, truncated, _ = env.step(actions[number].numpy())
            if terminated or truncated:
                self._write(finals, number, raw)
                raw, _ = env.reset()
            self._write(self.rows, number, raw)
            rewards[number], dones[number] = float(reward), int(terminated or truncated)
            late.append(truncated and not terminated)
        extras: dict[str, Any] = {"log": {"all": 3.0, "each": rewards * 2}}
        extras |= {"final_obs": finals} if self.finals else {}
        extras |= {"time_outs": torch.tensor(late)} if self.time_outs else {}
        return self.rows, rewards, dones, extras


def _sync(mode: AutoresetMode) -> Callable[[str, int], VectorEnv]:
    def make(name: str, count: int) -> VectorEnv:
        copy = mode is not AutoresetMode.DISABLED  # one of them writes over what it gave
        vector = SyncVectorEnv([lambda: make_env(name)] * count, copy=copy, autoreset_mode=mode)
        return GymnasiumVectorEnv(vector, name)

    return make


def _tensors(name: str, count: int) -> VectorEnv:
    batch = TensorBatch(name, count)
    return TensorVectorEnv(batch, batch.spec.action, name, restart=batch.restart)


WORLDS: dict[str, Callable[[str, int], VectorEnv]] = {
    "local": LocalVectorEnv,
    "workers": lambda name, count: LocalVectorEnv(name, count, workers=2),
    "same step": _sync(AutoresetMode.SAME_STEP),
    "next step": _sync(AutoresetMode.NEXT_STEP),
    "disabled": _sync(AutoresetMode.DISABLED),
    "tensors": _tensors,
}


@dataclass(frozen=True)
class Fact:
    """One step of one environment."""

    obs: dict[str, NDArray[Any]]
    action: NDArray[Any]
    reward: float
    next_obs: dict[str, NDArray[Any]]
    terminated: bool
    truncated: bool

    def same(self, other: "Fact") -> bool:
        ends = (self.reward, self.terminated, self.truncated) == (other.reward, other.terminated, other.truncated)
        pairs = [(mine[name], theirs[name]) for mine, theirs in self._groups(other) for name in mine]
        return ends and all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    def _groups(self, other: "Fact") -> list[tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]]:
        return [(self.obs, other.obs), (self.next_obs, other.next_obs)]


def action_table(space: ActionSpace, count: int, steps: int, seed: int = 0) -> Tensor:
    """What environment n does at the k-th step in which anything happens [N, K, …]."""
    rng = torch.Generator().manual_seed(seed)
    if isinstance(space, Discrete):
        return torch.randint(0, space.count, (count, steps), generator=rng)
    if isinstance(space, MultiDiscrete):
        drawn = torch.rand(count, steps, space.size, generator=rng)
        return (drawn * torch.tensor(space.counts)).long()
    low, high = torch.tensor(space.low), torch.tensor(space.high)
    return low + (high - low) * torch.rand(count, steps, space.size, generator=rng)


def play(world: VectorEnv, table: Tensor, seed: int) -> tuple[list[list[Fact]], list[Step]]:
    """Steps until some environment has used up its row: facts per environment, and copies of all steps."""
    obs = _copy(world.reset(seed))
    facts: list[list[Fact]] = [[] for _ in range(world.count)]
    steps = []
    while all(len(done) < table.shape[1] for done in facts):
        action = torch.stack([table[number, len(done)] for number, done in enumerate(facts)])
        step = _copy_step(world.step(action))
        for number, done in enumerate(facts):
            if step.valid[number]:
                done.append(_fact(obs, action, step, number))
        obs = step.obs
        steps.append(step)
    return facts, steps


def play_single(name: str, table: Tensor, seed: int) -> list[list[Fact]]:
    """The same environments one by one: what every vector must repeat."""
    everything = []
    for number, single in enumerate(environment_seeds(seed, len(table))):
        env = make_env(name)
        everything.append(_play_one(env, env_spec(env, name), table[number], single))
        env.close()
    return everything


def _play_one(env: Env, spec: Spec, actions: Tensor, seed: int) -> list[Fact]:
    obs, facts = observe(env.reset(seed=seed)[0], spec, "single"), []
    for action in actions:
        raw, reward, terminated, truncated, _ = env.step(action.numpy())
        seen = observe(raw, spec, "single")
        facts.append(
            Fact(
                obs,
                action.numpy(),
                float(np.float32(float(reward))),
                seen,
                bool(terminated),
                bool(truncated and not terminated),
            )
        )
        obs = observe(env.reset()[0], spec, "single") if terminated or truncated else seen
    return facts


def _fact(obs: Obs, action: Tensor, step: Step, number: int) -> Fact:
    groups = [{name: values[number].numpy() for name, values in part.items()} for part in (obs, step.final_obs)]
    ends = bool(step.terminated[number]), bool(step.truncated[number])
    return Fact(groups[0], action[number].numpy(), float(step.reward[number]), groups[1], *ends)


def _copy(obs: Obs) -> Obs:
    return {name: values.clone() for name, values in obs.items()}


def _copy_step(step: Step) -> Step:
    return Step(
        _copy(step.obs),
        _copy(step.final_obs),
        step.reward.clone(),
        step.terminated.clone(),
        step.truncated.clone(),
        step.valid.clone(),
        _copy(dict(step.extras)),
    )

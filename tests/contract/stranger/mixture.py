"""A source of another package: half of every batch from a dataset, half from what the policy just did.

Its own steps are in a small ring, and are drawn in proportion to what the algorithm last said of them. Before the ring
holds a batch there is nothing to learn from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

import torch
from torch import Tensor

from understudy.core.batch import Obs, Transitions
from understudy.core.protocols import MAIN, Demand, EnvRequest, Metrics, Policy, SourceNeeds
from understudy.core.rng import derived_seed, stream
from understudy.core.settings import Settings
from understudy.core.state import Static
from understudy.data.experience import LoggedExperience
from understudy.envs.vector.contract import Resumable, VectorEnv
from understudy.sources import SourceInputs

YIELDS = Transitions
INTERVALS: dict[str, int] = {}
ASLEEP: list[int] = []
"""How often there was nothing to learn from yet."""


class Config(Settings):
    """Half of a dataset, half of one's own."""

    kind: Literal["mixture"] = "mixture"
    """`mixture`: a dataset and the policy's own steps."""
    batch_size: int = 8
    """Rows per update."""
    num_envs: int = 2
    """Environments that step together."""
    capacity: int = 40
    """Own steps that are kept."""


@final
@dataclass
class MixtureSource:
    data: Static[LoggedExperience]
    envs: Static[VectorEnv]
    batch_size: Static[int]
    ring: dict[str, Tensor]
    """Own steps [capacity, …]: state, next state, action, reward, terminated, priority."""
    obs: Obs
    standing: dict[str, Tensor]
    """Where the environments stand."""
    draws: torch.Generator
    explore: torch.Generator
    last: Tensor
    """Ring's rows in the last batch, of which feedback tells [B/2]."""
    played: int = 0
    moved: Static[list[bool]] = field(default_factory=list)
    """Whether somebody else played in the environments."""
    place: Static[int] = 0

    @property
    def exact(self) -> bool:
        return True

    def next(self, policy: Policy) -> Transitions | None:
        self._play(policy)
        if self.played < self.batch_size:
            ASLEEP.append(self.played)
            return None
        half = self.batch_size // 2
        filled = min(self.played, len(self.ring["reward"]))
        own = torch.multinomial(self.ring["priority"][:filled] + 1e-3, half, replacement=True, generator=self.draws)
        self.last = own
        index = torch.randint(self.data.steps, (half,), generator=self.draws)
        theirs = self.data.rows(index, NOTHING_MORE)
        mine = {name: column[own] for name, column in self.ring.items()}
        return Transitions(
            {"state": torch.cat([theirs.obs["state"], mine["state"]])},
            torch.cat([theirs.action, mine["action"]]),
            torch.cat([theirs.reward, mine["reward"]]),
            {"state": torch.cat([theirs.next_obs["state"], mine["next_state"]])},
            torch.cat([theirs.terminated, mine["terminated"]]),
            {},
        )

    def feedback(self, rows: Mapping[str, Tensor]) -> None:
        self.ring["priority"][self.last] = rows["priority"][-len(self.last) :]

    def _play(self, policy: Policy) -> None:
        """One step of each environment, from where they stood."""
        if self.moved or self.place != self.played:
            assert isinstance(self.envs, Resumable)
            self.obs = {name: values.clone() for name, values in self.envs.load(self.standing).items()}
            self.moved.clear()
        action, _ = policy.act(self.obs, policy.initial(self.envs.count), greedy=False, rng=self.explore)
        step = self.envs.step(action)
        box = self.data.spec.box
        scaled = (action - torch.as_tensor(box.centre)) / torch.as_tensor(box.half_range)
        columns = {
            "state": self.obs["state"],
            "next_state": step.final_obs["state"],
            "action": scaled.float(),
            "reward": step.reward.float(),
            "terminated": step.terminated,
            "priority": torch.ones(self.envs.count),
        }
        rows = (self.played + torch.arange(self.envs.count)) % len(self.ring["reward"])
        for name, values in columns.items():
            self.ring[name][rows] = values
        self.obs = {name: values.clone() for name, values in step.obs.items()}
        self.played += self.envs.count
        self.place = self.played
        assert isinstance(self.envs, Resumable)
        self.standing = self.envs.save()

    def envs_moved(self) -> None:
        self.moved.append(True)

    def counters(self) -> dict[str, int]:
        return {"env_steps": self.played}

    def metrics(self) -> Metrics:
        return {"mixture/priority": self.ring["priority"].mean()}

    def describe(self) -> dict[str, Any]:
        return {"mixture": {"num_envs": self.envs.count}}

    def close(self) -> None:
        self.envs.close()


NOTHING_MORE = Demand()


def needs(config: Config) -> SourceNeeds:
    return SourceNeeds(data=(MAIN,), envs=(EnvRequest(config.num_envs),))


def build(config: Config, inputs: SourceInputs) -> MixtureSource:
    (envs,), data = inputs.envs, inputs.data[MAIN]
    obs = {name: values.clone() for name, values in envs.reset(derived_seed(inputs.seed, "mixture")).items()}
    assert isinstance(envs, Resumable)
    size, count = inputs.spec.observation["state"].size, config.capacity
    ring = {
        "state": torch.zeros(count, size),
        "next_state": torch.zeros(count, size),
        "action": torch.zeros(count, inputs.spec.box.size),
        "reward": torch.zeros(count),
        "terminated": torch.zeros(count, dtype=torch.bool),
        "priority": torch.zeros(count),
    }
    return MixtureSource(
        data,
        envs,
        config.batch_size,
        ring,
        obs,
        envs.save(),
        stream(inputs.seed, "mixture/draws"),
        stream(inputs.seed, "mixture/explore"),
        torch.zeros(config.batch_size // 2, dtype=torch.int64),
    )

"""The replay ring against a plain list of what happened: windows, ends, barriers, wraps, images and masks."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy.core.errors import ConfigError
from understudy.core.protocols import Demand
from understudy.core.spec import ACTION_MASK, Box, Discrete, Group, Spec
from understudy.data.replay_ring import VALID, ReplayRing, row_flags

SPEC = Spec({"eye": Group((2, 2), "uint8"), "state": Group((3,), "float32")}, Box((-2.0, 0.0), (2.0, 1.0)))
GAMMA, COLUMNS = 0.9, ("td_valid", "discount", "next_action", "next_action_valid", "row")


@dataclass
class Told:
    """One step, as it happened."""

    state: list[float]
    action: list[float]
    reward: float
    after: list[float]
    terminated: bool
    truncated: bool
    valid: bool


@dataclass
class World:
    """Steps of N environments at random, written into a ring and into lists."""

    ring: ReplayRing
    rng: np.random.Generator
    told: list[list[Told]] = field(default_factory=list)

    def step(self) -> None:
        count = self.ring.num_envs
        draw = self.rng.standard_normal
        state, after, action = draw((count, 3)), draw((count, 3)), draw((count, 2))
        reward = draw(count)
        terminated = self.rng.random(count) < 0.1
        truncated = (self.rng.random(count) < 0.1) & ~terminated
        valid = self.rng.random(count) < 0.9
        terminated, truncated = terminated & valid, truncated & valid
        floats = [torch.from_numpy(part).float() for part in (state, after, action, reward)]
        images = [torch.from_numpy(self.rng.integers(0, 256, (count, 2, 2), dtype=np.uint8)) for _ in range(2)]
        flags = row_flags(*(torch.from_numpy(part) for part in (terminated, truncated, valid)))
        obs = {"eye": images[0], "state": floats[0]}
        self.ring.add(obs, floats[2], floats[3], {"eye": images[1], "state": floats[1]}, flags)
        rows = zip(floats[0], floats[2], floats[3], floats[1], terminated, truncated, valid, strict=True)
        self.told.append([Told(*(as_list(part) for part in row)) for row in rows])

    def window(self, number: int, horizon: int) -> list[tuple[int, Told]]:
        """Steps of the same environment from a row on, while nothing ends: by brute force."""
        step, env = divmod(number, self.ring.num_envs)
        found: list[tuple[int, Told]] = []
        for later in range(step, min(len(self.told), step + horizon)):
            told = self.told[later][env]
            if found and not told.valid:
                break
            found.append((later * self.ring.num_envs + env, told))
            if told.terminated or told.truncated:
                break
        return found


def as_list(part: Tensor | np.bool_) -> Any:
    return part.tolist() if isinstance(part, Tensor) else bool(part)


@pytest.mark.parametrize(("num_envs", "horizon"), [(1, 1), (1, 3), (3, 1), (3, 4)])
def test_every_row_is_what_happened(num_envs: int, horizon: int) -> None:
    """Also where the ring has gone round, and up to the newest step."""
    world = World(ReplayRing.empty(SPEC, 50, num_envs), np.random.default_rng(num_envs * 10 + horizon))
    for steps in (1, 7, 90):
        for _ in range(steps):
            world.step()
        check_all(world, horizon)


def check_all(world: World, horizon: int) -> None:
    ring = world.ring
    written, capacity = ring.rows.written, ring.rows.capacity
    numbers = range(max(0, written - capacity), written)
    slots = torch.tensor([number % capacity for number in numbers])
    batch = ring.transitions(slots, Demand(COLUMNS, horizon, GAMMA), lambda reward: 2 * reward + 1)
    valid = ring.valid(slots)
    for place, number in enumerate(numbers):
        step, env = divmod(number, ring.num_envs)
        first = world.told[step][env]
        assert bool(valid[place]) == first.valid
        if not first.valid:
            continue
        window = world.window(number, horizon)
        last = window[-1][1]
        assert batch.obs["state"][place].tolist() == first.state
        assert batch.action[place].tolist() == first.action
        assert batch.next_obs["state"][place].tolist() == last.after
        assert bool(batch.terminated[place]) == last.terminated
        returned = sum(GAMMA**k * (2 * told.reward + 1) for k, (_, told) in enumerate(window))
        assert float(batch.reward[place]) == pytest.approx(returned, rel=1e-5, abs=1e-5)
        assert float(batch.extra["discount"][place]) == pytest.approx(GAMMA ** len(window), rel=1e-6)
        further = world.window(window[-1][0], 2)[1:]
        assert bool(batch.extra["next_action_valid"][place]) == bool(further)
        for _, told in further:
            assert batch.extra["next_action"][place].tolist() == told.action


def test_images_stay_bytes() -> None:
    world = World(ReplayRing.empty(SPEC, 20, 2), np.random.default_rng(0))
    world.step()
    batch = world.ring.transitions(torch.tensor([0, 1]), Demand(()), lambda reward: reward)
    assert batch.obs["eye"].dtype == batch.next_obs["eye"].dtype == torch.uint8
    assert batch.obs["eye"].shape == (2, 2, 2)
    assert not torch.equal(batch.obs["eye"], batch.next_obs["eye"])


def test_choices_and_masks() -> None:
    spec = Spec({"state": Group((1,), "float32")}, Discrete(3), masked=True)
    ring = ReplayRing.empty(spec, 8, 2)
    seen = {"state": torch.zeros(2, 1), ACTION_MASK: torch.tensor([[True, False, True], [True, True, True]])}
    after = {"state": torch.ones(2, 1), ACTION_MASK: torch.tensor([[False, True, True], [False, False, True]])}
    ring.add(seen, torch.tensor([2, 1]), torch.tensor([0.5, 1.5]), after, np.full(2, VALID, np.uint8))
    batch = ring.transitions(torch.tensor([1, 0]), Demand(("mask", "next_mask")), lambda reward: reward)
    assert batch.action.tolist() == [1, 2]
    assert torch.equal(batch.extra["mask"], seen[ACTION_MASK].flip(0))
    assert torch.equal(batch.extra["next_mask"], after[ACTION_MASK].flip(0))


def test_a_cut_is_a_barrier() -> None:
    """Environments that begin anew in the middle of an episode: no window reaches across."""
    world = World(ReplayRing.empty(SPEC, 40, 2), np.random.default_rng(1))
    quiet = {"eye": torch.zeros(2, 2, 2, dtype=torch.uint8), "state": torch.zeros(2, 3)}

    def step() -> None:
        world.ring.add(quiet, torch.zeros(2, 2), torch.ones(2), quiet, np.full(2, VALID, np.uint8))

    world.ring.cut(quiet)
    assert world.ring.rows.written == 0, "nothing is there to be kept from what comes"
    step()
    world.ring.cut(quiet)
    step()
    batch = world.ring.transitions(torch.arange(6), Demand(("discount",), 3, 1.0), lambda reward: reward)
    assert batch.reward.tolist()[:2] == [1.0, 1.0], "not the rewards of the episodes behind the cut"
    assert world.ring.valid(torch.arange(6)).tolist() == [True, True, False, False, True, True]
    assert world.ring.barriers == 2


def test_what_it_cannot_be() -> None:
    with pytest.raises(ConfigError, match="buffer_size: has no room for one step of each environment: got 3"):
        ReplayRing.empty(SPEC, 3, 4)
    with pytest.raises(ConfigError, match=r"own experience has no column 'td_vald'.*td_valid"):
        ReplayRing.empty(SPEC, 8, 2).check(Demand(("td_vald",)))

"""A replay ring as episodes: all that happened, as it happened, however it lies in segments."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from understudy.core.errors import CheckpointError
from understudy.core.large_state import StoredRows
from understudy.core.spec import ACTION_MASK, Box, Discrete, Group, Spec
from understudy.data import replay_ring
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.replay_ring import ReplayRing, row_flags
from understudy.data.ring_episodes import ring_episodes, stored_blocks, valid_rows

PLAIN = Spec({"state": Group((3,), "float32"), "goal": Group((2, 2), "float32")}, Box((-1.0, -1.0), (1.0, 1.0)))
PICTURES = Spec({"state": Group((2,), "float32"), "camera": Group((2, 3), "uint8")}, Discrete(4), masked=True)
Step = tuple[Any, ...]


def seen_by(spec: Spec, rng: np.random.Generator, still: bool) -> dict[str, NDArray[Any]]:
    """An observation of one environment; of a `still` one always the same."""
    rng = np.random.default_rng(0) if still else rng
    groups: dict[str, NDArray[Any]] = {
        name: rng.integers(0, 256, group.shape, np.uint8)
        if group.dtype == "uint8"
        else rng.standard_normal(group.shape).astype(np.float32)
        for name, group in spec.observation.items()
    }
    return {**groups, ACTION_MASK: np.append(True, rng.random(3) < 0.5)} if spec.masked else groups


def told(groups: dict[str, NDArray[Any]]) -> tuple[Any, ...]:
    return tuple((name, values.tobytes()) for name, values in sorted(groups.items()))


@dataclass
class World:
    """Environments whose every step is written down as it happens, by environment: steps and `None` for a barrier."""

    ring: ReplayRing
    rng: np.random.Generator
    still: bool = False
    happened: list[list[Step | None]] = field(default_factory=list)
    obs: list[dict[str, NDArray[Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.happened = [[] for _ in range(self.ring.num_envs)]
        self.obs = [seen_by(self.spec, self.rng, self.still) for _ in self.happened]

    @property
    def spec(self) -> Spec:
        return self.ring.layout.spec

    def step(self) -> None:
        count, rng = self.ring.num_envs, self.rng
        discrete = isinstance(self.spec.action, Discrete)
        action: NDArray[Any] = np.zeros(count, np.int64) if discrete else rng.uniform(-1, 1, (count, 2))
        action = action if discrete else action.astype(np.float32)
        reward = rng.standard_normal(count).astype(np.float32)
        after = [seen_by(self.spec, rng, self.still) for _ in range(count)]
        chance = rng.random(count)
        terminated, truncated, valid = chance < 0.06, (chance > 0.03) & (chance < 0.1), chance < 0.97
        for number in range(count):
            ends = bool(terminated[number]), bool(truncated[number] and not terminated[number])
            step = told(self.obs[number]), action[number].tobytes(), float(reward[number]), told(after[number]), *ends
            self.happened[number].append(step if valid[number] else None)
        flags = row_flags(*(torch.from_numpy(part) for part in (terminated, truncated, valid)))
        paid = torch.from_numpy(reward)
        self.ring.add(self._stacked(self.obs), torch.from_numpy(action), paid, self._stacked(after), flags)
        anew = terminated | truncated | ~valid
        self.obs = [seen_by(self.spec, rng, self.still) if anew[n] else after[n] for n in range(count)]

    def _stacked(self, seen: list[dict[str, NDArray[Any]]]) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(np.stack([one[name] for one in seen])) for name in seen[0]}

    def begin_anew(self) -> None:
        self.ring.cut(self._stacked(self.obs))
        for steps in self.happened:
            steps.append(None)
        self.obs = [seen_by(self.spec, self.rng, self.still) for _ in self.happened]

    def truth(self) -> list[list[Step]]:
        """Of what is still in the ring: episodes, sorted; cut where the ring says nothing more."""
        kept = self.ring.rows.capacity // self.ring.num_envs
        episodes: list[list[Step]] = []
        for steps in self.happened:
            current: list[Step] = []
            for step in steps[-kept:]:
                if step is not None:
                    current.append(step)
                if current and (step is None or step[-2] or step[-1]):
                    episodes.append(current)
                    current = []
            episodes += [current] if current else []
        return sorted(episodes)


def steps_of(episode: Episode, masked: bool) -> list[Step]:
    groups = dict(episode.observations)
    if masked:
        assert episode.mask is not None
        groups[ACTION_MASK] = episode.mask
    ends = [(False, False)] * (len(episode) - 1) + [(episode.terminated, episode.truncated)]
    return [
        (
            told({name: values[t] for name, values in groups.items()}),
            episode.actions[t].tobytes(),
            float(episode.rewards[t]),
            told({name: values[t + 1] for name, values in groups.items()}),
            *ends[t],
        )
        for t in range(len(episode))
    ]


def with_cuts_as_truncations(episodes: list[list[Step]]) -> list[list[Step]]:
    return [[*steps[:-1], (*steps[-1][:-1], not steps[-1][-2])] for steps in episodes]


def stored(ring: ReplayRing, folder: Path) -> StoredRows:
    return ring.rows.capture().keep(folder)


def worlds(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for seed, (spec, num_envs, capacity, segment_bytes, steps, still) in enumerate(
        [
            (PLAIN, 1, 1000, 4 << 20, 150, False),
            (PLAIN, 3, 200, 2000, 40, False),
            (PLAIN, 3, 200, 2000, 217, False),
            (PLAIN, 4, 64, 1, 30, False),
            (PICTURES, 2, 90, 900, 130, False),
            (PLAIN, 3, 90, 2000, 60, True),
        ]
    ):
        monkeypatch.setattr(replay_ring, "SEGMENT_BYTES", segment_bytes)
        world = World(ReplayRing.empty(spec, capacity, num_envs), np.random.default_rng(seed), still)
        for number in range(steps):
            world.step()
            if number in (21, 22, steps - 5):
                world.begin_anew()
        yield world


def test_every_step_that_is_there_comes_back_as_it_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, world in enumerate(worlds(monkeypatch)):
        ring, rows = world.ring, stored(world.ring, tmp_path / str(number))
        episodes = list(ring_episodes(stored_blocks(rows, ring.rows), ring.layout, ring.num_envs))
        truth = world.truth()
        found = sorted(steps_of(episode, world.spec.masked) for episode in episodes)
        assert found == with_cuts_as_truncations(truth)
        assert all(episode.terminated != episode.truncated and episode.final_known for episode in episodes)
        assert sum(map(len, episodes)) == valid_rows(stored_blocks(rows, ring.rows)) == sum(map(len, truth))
        Dataset.from_episodes(episodes, world.spec.action)


def test_segments_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints = []
    for segment_bytes in (600, 1500, 4 << 20):
        monkeypatch.setattr(replay_ring, "SEGMENT_BYTES", segment_bytes)
        world = World(ReplayRing.empty(PLAIN, 90, 3), np.random.default_rng(5))
        for _ in range(100):
            world.step()
        rows = stored(world.ring, tmp_path / str(segment_bytes))
        episodes = ring_episodes(stored_blocks(rows, world.ring.rows), world.ring.layout, 3)
        prints.append(Dataset.from_episodes(episodes, PLAIN.action).fingerprint)
    assert len(set(prints)) == 1


def test_one_segment_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes come out as soon as they are whole: those of later segments are not read for them."""
    monkeypatch.setattr(replay_ring, "SEGMENT_BYTES", 2000)
    world = World(ReplayRing.empty(PLAIN, 900, 3), np.random.default_rng(0))
    for _ in range(200):
        world.step()
    ring, rows = world.ring, stored(world.ring, tmp_path)
    assert len(rows.segments) > 10
    read: list[int] = []

    def counted() -> Iterator[dict[str, torch.Tensor]]:
        for block in stored_blocks(rows, ring.rows):
            read.append(len(read))
            yield block

    episodes = ring_episodes(counted(), ring.layout, ring.num_envs)
    for _ in range(3):
        next(episodes)
    assert len(read) < len(rows.segments) // 2


def test_a_ring_of_another_layout_is_refused(tmp_path: Path) -> None:
    world = World(ReplayRing.empty(PLAIN, 90, 3), np.random.default_rng(0))
    world.step()
    rows = stored(world.ring, tmp_path)
    with pytest.raises(CheckpointError, match="replay buffer: of another layout"):
        list(stored_blocks(rows, ReplayRing.empty(PLAIN, 60, 3).rows))

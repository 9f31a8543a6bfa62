"""A point on a line that actions push: data by a lazy player, and where an eager one would be, by simulation."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.protocols import Carry
from understudy.core.spec import Box
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode

GAMMA = 0.9
SIGMA = 0.5
PULL = 0.9
PUSH = 0.3
FLOOR = 0.15
"""s' = PULL·s + PUSH·a + FLOOR·noise, from s₀ ~ N(0, 0.3); actions within [-2, 2]."""
EDGES = np.linspace(-2.5, 2.5, 51)


class Steady:
    """A policy that always pushes alike, in environment units."""

    def __init__(self, push: float) -> None:
        self.push = push
        self.asked = 0
        self.seen: list[Tensor] = []
        """What it was asked about."""

    def initial(self, count: int) -> Carry:
        return ()

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        assert greedy
        self.asked += 1
        self.seen.append(obs["state"])
        return torch.full((len(obs["state"]), 1), self.push), carry


def step(state: NDArray[np.float64], action: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    moved = PULL * state + PUSH * action + FLOOR * rng.standard_normal(len(state))
    return np.asarray(moved, np.float64)


def lazy_play(
    episodes: int = 150, steps: int = 20, seed: int = 0, *, wall: float = np.inf, final_known: bool = True
) -> Dataset:
    """Actions ~ N(0, 2·SIGMA) in [-2, 2]; beyond `wall` an episode terminates."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(episodes):
        states = [0.3 * rng.standard_normal(1)]
        actions: list[NDArray[np.float64]] = []
        while not actions or (len(actions) < steps and states[-1][0] < wall):
            actions.append(np.clip(2 * SIGMA * rng.standard_normal(1), -2, 2))
            states.append(step(states[-1], actions[-1], rng))
        over = bool(states[-1][0] >= wall)
        made.append(play(states, actions, over, final_known or over))
    return Dataset.from_episodes(made, Box((-2.0,), (2.0,)), name="drift")


def play(
    states: list[NDArray[np.float64]], actions: list[NDArray[np.float64]], terminated: bool, known: bool
) -> Episode:
    slots = states if known else states[:-1]
    rewards = np.array([state[0] for state in states[1:]], np.float32)
    observations = {"state": np.array(slots, np.float32)}
    return Episode(observations, np.array(actions, np.float32), rewards, terminated, not terminated, known)


def true_ratio(dataset: Dataset, push: float, *, wall: float = np.inf, restart: bool = True) -> NDArray[np.float64]:
    """d^π/d^β of every row, by histograms: π pushes with `push` and the data's own σ, and ends with chance 1 − γ."""
    rng = np.random.default_rng(1)
    state, seen = 0.3 * rng.standard_normal(20_000), []
    for _ in range(120):
        seen.append(state)
        action = np.clip(push + 2 * SIGMA * rng.standard_normal(len(state)), -2, 2)
        over = rng.random(len(state)) > GAMMA
        state = step(state, action, rng)
        over |= restart & (state >= wall)
        state = np.where(over, 0.3 * rng.standard_normal(len(state)), state)
    mine = np.histogram(np.concatenate(seen[60:]), EDGES)[0]
    here = states_of(dataset)
    theirs = np.histogram(here, EDGES)[0]
    place = np.clip(np.digitize(here, EDGES) - 1, 0, len(EDGES) - 2)
    return np.asarray((mine / mine.sum())[place] / (theirs / theirs.sum())[place], np.float64)


def states_of(dataset: Dataset) -> NDArray[np.float64]:
    """The state of every row [steps]."""
    return np.concatenate(
        [
            dataset.episode(number).observations["state"][: int(length), 0]
            for number, length in enumerate(dataset.index.lengths)
        ]
    )


def correlation(weights: Tensor, truth: NDArray[np.float64]) -> float:
    return float(np.corrcoef(weights.numpy(), truth)[0, 1])

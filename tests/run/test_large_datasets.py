"""More steps than float32 can count: data of 2²⁴ steps and beyond are drawn from, watched, checked and learned from."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy import Box, Dataset, Episode
from understudy.core.batch import Transitions
from understudy.core.protocols import Demand
from understudy.data.episode import Array
from understudy.data.experience import LoggedExperience
from understudy.data.recording import Recording
from understudy.data.stores.recorder import record
from understudy.data.stores.store import open_store
from understudy.run.build import build_learner
from understudy.run.loading import Prepared
from understudy.sources.sampling.draws import Draw, choose_draw
from worlds import random_dataset, tiny_config

WORLD = "MountainCarContinuous-v0"
ABOVE = (1 << 24) + 4
"""In float32 the last of these steps is rounded up to one that is not there."""
SIDE = 10_000
"""A step's observation is (step mod SIDE, step div SIDE): exact in float32, so that it tells which step it is."""
ACTIONS = np.linspace(-1, 1, 2001, dtype=np.float32)
REWARDS = np.arange(1009, dtype=np.float32)
"""What is done and earned at a step, over and over; a step counts only if its number is odd."""
MANY, LENGTH = 100_000_000, 100_000


def episodes(steps: int, length: int) -> Iterator[Episode]:
    """`steps` steps, cut off after every `length`; the final observation of one is the first of the next."""
    for first in range(0, steps, length):
        count = min(length, steps - first)
        states = np.empty((count + 1, 2), np.float32)
        states[:, 0] = over_and_over(np.arange(SIDE), first, count + 1)
        states[:, 1] = np.repeat(np.arange(first // SIDE, (first + count) // SIDE + 1), SIDE)[first % SIDE :][
            : count + 1
        ]
        actions, rewards = (over_and_over(column, first, count) for column in (ACTIONS, REWARDS))
        weights = over_and_over(np.array([False, True]), first, count)
        yield Episode({"state": states}, actions[:, None], rewards, False, True, extra={"weight": weights})


def over_and_over(values: Array, first: int, count: int) -> Array:
    """`count` elements of an endless repetition of `values`, from number `first` on."""
    return np.tile(np.roll(values, -first), -(-count // len(values)))[:count]


def steps_of(states: Tensor) -> Tensor:
    """Which steps observations [..., 2] are of."""
    return states[..., 0].long() + SIDE * states[..., 1].long()


def check_rows(rows: Transitions, index: Tensor, horizon: int, length: int, steps: int) -> None:
    """What was asked for is what came: observations, actions, rewards and successors of these very steps [B]."""
    ends = ((index // length + 1) * length).clamp(max=steps)
    assert torch.equal(steps_of(rows.obs["state"]), index)
    assert torch.equal(steps_of(rows.next_obs["state"]), torch.minimum(index + horizon, ends))
    assert torch.equal(rows.action[:, 0], torch.from_numpy(ACTIONS)[index % len(ACTIONS)])
    window = index[:, None] + torch.arange(horizon)
    earned = torch.where(window < ends[:, None], window % len(REWARDS), 0)
    assert torch.equal(rows.reward, (earned * 0.5 ** torch.arange(horizon)).sum(1))
    assert torch.equal(rows.extra["weight"], index % 2 == 1)


def check_dataset(dataset: Dataset, length: int, *drawing: Draw) -> None:
    """Rows at both ends, across episodes, and those that are drawn, alone and over several steps."""
    steps = dataset.steps
    edges = torch.tensor([0, 1, length - 1, length, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, steps - 2, steps - 1])
    drawn = [draw.indices(number) for draw in drawing for number in (0, 1000)]
    assert all(0.98 * steps < int(index.max()) < steps for index in drawn)
    for horizon in (1, 3):
        for index in (edges, *drawn):
            rows = dataset.rows(index, Demand(("weight",), horizon, 0.5))
            check_rows(rows, index, horizon, length, steps)


def draws(dataset: Dataset, *ways: dict[str, Any]) -> list[Draw]:
    return [choose_draw(dataset, 4096, 0, **way) for way in ways]


def settings(**changes: Any) -> dict[str, Any]:
    """A run of a few updates; the recipe is what is learned from where nothing else is given."""
    recipe = {"env": WORLD, "episodes": 1, "behaviours": [{"policy": "random"}]}
    return {"data": {"recipe": recipe}, "env": {"id": WORLD}, "updates": 4, "log_every": 2, "eval_every": 4, **changes}


def test_more_steps_than_float32_can_count_are_learned_from_and_watched_to_the_last(tmp_path: Path) -> None:
    length = ABOVE // 2 + 1
    dataset = Dataset.from_episodes(episodes(ABOVE, length), Box((-1.0,), (1.0,)), name="large")
    assert dataset.steps == ABOVE
    check_dataset(dataset, length, *draws(dataset, {}, {"replacement": False}))
    learner: Any = build_learner(tiny_config("iql", tmp_path, **settings()), ready={"main": Prepared(dataset, None)})
    watched = steps_of(learner.probes[0].rows.obs["state"])
    assert watched[[0, -1]].tolist() == [0, ABOVE - 1]
    assert set(watched.diff().tolist()) == {(ABOVE - 1) // 511, (ABOVE - 1) // 511 + 1}
    learner.update()
    assert all(np.isfinite(float(value)) for value in learner.metrics().values())


def test_concerns_are_about_all_rewards_or_evenly_chosen_ones() -> None:
    dataset = random_dataset(count=6, steps=20)
    assert torch.equal(LoggedExperience.of(dataset).rewards(), dataset.rewards)
    assert torch.equal(LoggedExperience.of(dataset).rewards(most=50), dataset.rewards[::3])


CHILD = """
import sys
from pathlib import Path
from understudy.cli.main import main
try:
    main()
finally:
    print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""
"""What a parent is told of a child's memory counts the parent's own at the fork; the child itself knows better."""


def run(*words: str | Path) -> tuple[str, int]:
    """What `understudy <words>` says in a process of its own, and the most memory it had, in MB."""
    child = subprocess.run([sys.executable, "-c", CHILD, *map(str, words)], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stdout + child.stderr
    return child.stdout, int(child.stderr.split()[-1]) >> 10


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_hundred_million_steps_in_bounded_memory(tmp_path: Path) -> None:
    """1.7 GB on disk, under three minutes. Memory may grow by so many bytes a step over that for few steps."""
    few, many = (stored(tmp_path / str(steps), steps) for steps in (10 * LENGTH, MANY))
    dataset = open_store(many, verify=False)
    by_weight, *others = draws(dataset, {"weights": "weight"}, {}, {"replacement": False})
    assert bool((by_weight.indices(0) % 2 == 1).all())
    check_dataset(dataset, LENGTH, by_weight, *others)
    del dataset, by_weight

    flags = of_every_step(2)  # whether an episode terminated there, and whether what follows is known
    hashes = of_every_step(2 * 8 + 2)  # of states and of transitions, and room to grow
    _, usual = run("dataset", "inspect", few)
    told, used = run("dataset", "inspect", many, "--json")
    found = json.loads(told)
    assert (found["steps"], found["distinct_states"], found["duplicate_steps"]) == (MANY, MANY, 0)
    assert found["columns"]["extra.weight"]["mean"] == [pytest.approx(0.5, abs=1e-12)]
    assert found["columns"]["reward"]["maximum"] == [1008.0]
    assert used - usual < 100 + flags + hashes
    told, used = run("dataset", "check", many)
    assert "100,000,000 steps" in told
    assert "PASS: 0 errors" in told
    assert used - usual < 100 + flags + hashes

    kept = 256  # the smallest columns, read once
    tables = of_every_step(8 + 8)  # and the weights they are made of
    chosen = of_every_step(50)  # episodes that are chosen are read: their columns, 17 bytes a step, mapped and copied
    _, usual = learned(tmp_path / "few", few)
    for name, way, most in (
        ("uniform", {}, flags + kept),
        ("once, by three steps", {"source": {"replacement": False}, "n_step": 3}, flags + kept),
        ("by weight", {"source": {"weights": "weight"}}, flags + kept + tables),
        ("held out", {"validation": 0.02}, chosen),
    ):
        evaluation, used = learned(tmp_path / name, many, **way)
        assert used - usual < 100 + most, name
    assert np.isfinite(evaluation["eval/action_error"])
    assert json.loads((tmp_path / "held out" / "meta.json").read_text())["dataset"]["steps"] == 0.98 * MANY


def stored(path: Path, steps: int) -> Path:
    """A store of so many steps, written as any recording is."""
    return record(Recording("steps", steps, lambda: episodes(steps, LENGTH)), path, Box((-1.0,), (1.0,)))


def learned(
    out: Path, store: Path, validation: float = 0.0, n_step: int = 1, **changes: Any
) -> tuple[dict[str, Any], int]:
    """The last evaluation of a run of a few updates, and the most memory it had, in MB."""
    data = {"path": str(store), "validation": validation}
    config = tiny_config("iql", out, **settings(data=data, eval_episodes=1, **changes))
    out.with_suffix(".yaml").write_text(config.model_dump_json())
    _, used = run("train", out.with_suffix(".yaml"), f"algo.n_step={n_step}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    assert all(np.isfinite(list(line.values())).all() for line in lines)
    return json.loads((out / "eval.jsonl").read_text().splitlines()[-1]), used


def of_every_step(size: int) -> int:
    """So many bytes for each of MANY steps, in MB."""
    return size * MANY >> 20

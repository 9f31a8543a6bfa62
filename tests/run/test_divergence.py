"""A loss that becomes NaN or infinite: the update is named, undone, and the state before it saved."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forks import forks
from small import SHORT, short_config

from understudy.core.rng import stream
from understudy.core.state import nonfinite
from understudy.run.checkpoint import list_checkpoints, load_checkpoint
from understudy.sources.sampling.blocks import BLOCK_BATCHES

ROWS, BATCH, SEED, POISONED = 200, 4, 0, 77


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finite data with one reward so large that its square is not."""
    rng = np.random.default_rng(0)
    rewards = rng.standard_normal(ROWS).astype(np.float32)
    rewards[POISONED] = 1e25
    path = tmp_path_factory.mktemp("data") / "poisoned.npz"
    timeouts = np.arange(1, ROWS + 1) % 10 == 0
    observations = rng.uniform(-1, 1, (ROWS, 3)).astype(np.float32)
    following = np.roll(observations, -1, axis=0)
    np.savez(
        path,
        observations=observations,
        next_observations=following,
        actions=rng.uniform(-1, 1, (ROWS, 1)).astype(np.float32),
        rewards=rewards,
        terminals=np.zeros(ROWS, bool),
        timeouts=timeouts,
    )
    return path


def guilty_update() -> int:
    """The first update whose batch holds the poisoned row."""
    for block in range(100):
        rows = torch.randint(ROWS, (BLOCK_BATCHES * BATCH,), generator=stream(SEED, f"sample/{block}"))
        for place, batch in enumerate(rows.view(BLOCK_BATCHES, BATCH)):
            if POISONED in batch:
                return block * BLOCK_BATCHES + place + 1
    raise AssertionError("the poisoned row is never drawn")


def config(folder: Path, recording: Path, name: str, **changes: Any) -> Path:
    settings = {
        "data": {"path": str(recording)},
        "env": {"id": SHORT},
        "source": {"batch_size": BATCH},
        "updates": 400,
        "log_every": 40,
        "eval_every": 400,
        "save_every": 40,
        "seed": SEED,
    }
    return short_config(folder, "iql", name, **{**settings, **changes})


def state_bytes(run: Path, updates: int) -> bytes:
    return (run / "checkpoints" / f"{updates:09d}" / "state.safetensors").read_bytes()


def test_the_guilty_update_is_named_and_undone(recording: Path, tmp_path: Path) -> None:
    guilty = guilty_update()
    assert guilty > 2
    assert guilty % 40 not in (0, 1), "it must lie between two checks"
    ending = forks().run("train", config(tmp_path, recording, "diverged"), "--quiet")
    assert ending.code == 1
    assert ending.err.startswith(
        f"update {guilty}: loss/critic became NaN or infinite. The last finite state was saved"
    )
    assert len(ending.err.splitlines()) == 1

    saved = load_checkpoint(tmp_path / "diverged" / "checkpoints", guilty - 1)
    assert list_checkpoints(tmp_path / "diverged" / "checkpoints")[-1] == guilty - 1
    assert nonfinite(saved.state) == []

    forks().run("train", config(tmp_path, recording, "stopped"), stop_at=guilty - 1)
    assert state_bytes(tmp_path / "diverged", guilty - 1) == state_bytes(tmp_path / "stopped", guilty - 1)


@pytest.mark.parametrize("every", [1, 3, 40])
def test_the_same_update_is_found_however_often_one_looks(every: int, recording: Path, tmp_path: Path) -> None:
    path = config(tmp_path, recording, "run", log_every=every, save_every=1000)
    assert forks().run("train", path, "--quiet").err.startswith(f"update {guilty_update()}: ")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert all(json.loads(line)["updates"] < guilty_update() for line in lines)


def test_going_on_meets_it_again_and_keeps_the_state(recording: Path, tmp_path: Path) -> None:
    guilty = guilty_update()
    forks().run("train", config(tmp_path, recording, "run"), "--quiet")
    before = state_bytes(tmp_path / "run", guilty - 1)
    again = forks().run("resume", tmp_path / "run", "--quiet")
    assert again.code == 1
    assert again.err.startswith(f"update {guilty}: ")
    assert state_bytes(tmp_path / "run", guilty - 1) == before


def test_an_absurd_learning_rate(tmp_path: Path) -> None:
    """Whatever the data, a bias of 1e30 squared is no float32."""
    ending = forks().run("train", short_config(tmp_path, "iql"), "algo.critic_learning_rate=1e30", "--quiet")
    assert ending.code == 1
    assert ending.err.startswith("update 2: loss/")
    saved = load_checkpoint(tmp_path / "run" / "checkpoints", 1)
    assert nonfinite(saved.state) == []
    assert max(float(leaf.abs().max()) for leaf in saved.state.values() if isinstance(leaf, torch.Tensor)) > 1e29

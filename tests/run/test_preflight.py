"""What a run says of its data before the first step."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from understudy.run.build import build_learner
from understudy.run.progress import Reporter
from worlds import tiny_config


def told(folder: Path, **data: Any) -> str:
    """A pendulum's 200 rows in episodes of 20, each of which says that it terminated."""
    rng = np.random.default_rng(0)
    ends = np.arange(1, 201) % 20 == 0
    columns: dict[str, Any] = {"observations": rng.standard_normal((200, 3)), "actions": rng.uniform(-1, 1, (200, 1))}
    np.savez(folder / "play.npz", **columns, rewards=np.ones(200), terminals=ends)
    console = Console(record=True, width=400)
    config = tiny_config("iql", folder / "run", data={"path": str(folder / "play.npz"), **data})
    build_learner(config, Reporter(console=console))
    return console.export_text()


def test_terminals_that_cannot_be_are_told(tmp_path: Path) -> None:
    text = told(tmp_path)
    assert "10 episodes of 10 terminated, and Pendulum-v1 never does" in text
    assert f"understudy dataset check {tmp_path / 'play.npz'} --env Pendulum-v1" in text


def test_mended_terminals_are_not_told(tmp_path: Path) -> None:
    assert "never does" not in told(tmp_path, time_limit=20)


def test_what_the_reader_decided_is_told(tmp_path: Path) -> None:
    """A file without successors leaves those at an episode's end open."""
    assert "play.npz: " in told(tmp_path, time_limit=20)

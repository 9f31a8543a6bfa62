"""Files in d4rl-pybullet's rows, however they are stored: the one printed command mends all of it."""

from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
from checked_rollouts import found, rollouts

from understudy.core.spec import Box
from understudy.data.transforms import Transforms
from understudy.run.overrides import apply_override
from understudy.tools.dataset.check import check_file
from understudy.tools.dataset.conversion import convert_file


def shifted_rows(count: int = 4) -> dict[str, Any]:
    """A row per observation: the reward that came with it, the action after it (none after the last), the end."""
    parts: dict[str, list[Any]] = {"observations": [], "actions": [], "rewards": [], "terminals": []}
    for episode in rollouts("Pendulum-v1", count):
        rows = len(episode.actions) + 1
        parts["observations"].append(episode.observations["state"])
        parts["actions"].append(np.append(episode.actions, [[0.0]], axis=0))
        parts["rewards"].append(np.append(0.0, episode.rewards))
        parts["terminals"].append(np.arange(rows) == rows - 1)
    return {name: np.concatenate(values) for name, values in parts.items()}


@pytest.mark.parametrize("env_id", ["Pendulum-v1", ""])
def test_rows_in_an_npz_file(env_id: str, tmp_path: Path) -> None:
    path = str(tmp_path / "log.npz")
    np.savez(path, **shifted_rows())
    report = check_file(path, env_id)
    assert "time-limit-as-terminal" in found(report, "error")
    assert "late-rewards" in found(report, "error" if env_id else "warning")
    assert "longer-than-limit" not in found(report, "error") | found(report, "warning")
    assert report.settings == ["time_limit=201", "late_rewards=true"]
    words: dict[str, Any] = {}
    for setting in report.settings:
        apply_override(words, setting)
    convert_file(path, tmp_path / "mended", space=Box((-2.0,), (2.0,)), transforms=Transforms.parse(words))
    again = check_file(str(tmp_path / "mended"), "Pendulum-v1")
    assert again.passed
    assert again.survey is not None
    assert again.survey.lengths.tolist() == [200] * 4
    assert again.physics is not None
    assert (again.physics.grade, again.physics.rewards) == ("exact", "recorded")


def test_the_same_rows_in_hdf5_are_realigned_by_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "log.hdf5"
    with h5py.File(path, "w") as file:
        for name, values in shifted_rows().items():
            file[name] = values
    report = check_file(str(path), "Pendulum-v1")
    assert report.settings == ["time_limit=200"]
    assert "late-rewards" not in found(report, "error") | found(report, "warning")

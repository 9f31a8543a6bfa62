"""What is found out before the first update: data, environment and settings that do not fit."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import understudy as us
from understudy.core.rng import stream
from understudy.core.spec import Group
from understudy.core.state import capture
from understudy.nn.actor import Actor, ActorSettings
from understudy.run.config import parse_config
from worlds import random_episodes, tiny_settings


def test_a_store_recorded_in_other_bounds_is_refused(tmp_path: Path) -> None:
    """Pendulum takes torques up to 2; a policy for ±1 would use half of them without a word."""
    half = us.Dataset.from_episodes(random_episodes(action=1), us.Box((-1.0,), (1.0,)))
    store = us.write_store(half, tmp_path / "store")
    config = parse_config(tiny_settings("bc", tmp_path / "run", data={"path": str(store)}))
    with pytest.raises(us.UnderstudyError, match=r"from \[-1\] to \[1\], expected .* from \[-2\] to \[2\]"):
        us.train(config)
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_images_that_are_no_bytes_are_refused() -> None:
    spec = us.Spec({"image": Group((2, 2), "uint8")}, us.Box((-1.0,), (1.0,)))
    encoder = {"kind": "conv", "layers": [{"channels": 1, "kernel": 1}], "size": 2}
    settings = ActorSettings.parse({"hidden": [4], "encoders": {"image": encoder}})
    policy = Actor(spec, settings, stream(0, "init"))
    assert us.predict(policy, np.full((2, 2), 255)).shape == (1,)
    for wrong in (0.5, 300, -1):
        with pytest.raises(us.UnderstudyError, match="does not fit uint8"):
            us.predict(policy, np.full((2, 2), wrong))


def test_reference_scores_have_a_range(tmp_path: Path) -> None:
    env = {"id": "Pendulum-v1", "reference": [5, 5]}
    with pytest.raises(us.UnderstudyError, match="low must be below high"):
        parse_config(tiny_settings("bc", tmp_path, env=env))


def test_a_tensor_that_no_checkpoint_would_hold_is_refused() -> None:
    module = nn.Linear(1, 1)
    module.loose = torch.zeros(1)
    with pytest.raises(TypeError, match="'loose' is no parameter or buffer"):
        capture(module)

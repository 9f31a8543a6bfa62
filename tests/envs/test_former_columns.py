"""Columns that later versions left out: without them, both versions show the same numbers to the bit."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from understudy.envs.facts import FORMER_COLUMNS, former_columns
from understudy.envs.gym import make_env


def play(env: Any, steps: int = 12) -> Any:
    env.action_space.seed(0)
    seen = [env.reset(seed=0)[0]]
    seen += [env.step(env.action_space.sample())[0] for _ in range(steps)]
    return np.array(seen)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("env_id", sorted(FORMER_COLUMNS))
def test_the_rest_is_equal(env_id: str) -> None:
    name = env_id.rpartition("-v")[0]
    contacts = {"use_contact_forces": True} if name == "Ant" else {}
    former = play(gymnasium.make(f"{name}-v4", disable_env_checker=True, **contacts).unwrapped)
    today = play(make_env(env_id).unwrapped)
    gone = former_columns(env_id, former.shape[1])
    assert former.shape[1] - len(gone) == today.shape[1]
    np.testing.assert_array_equal(np.delete(former, gone, axis=1), today)


def test_other_widths_have_no_former_columns() -> None:
    assert former_columns("Ant-v5", 105) == ()
    assert former_columns("Hopper-v5", 111) == ()

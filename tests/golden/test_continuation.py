"""O-41 without files: capture → fresh build → restore → continue equals going on, in every bit."""

from typing import Any

import pytest

from learners import differences, start, tiny_algorithm
from understudy.core.state import capture, restore

OPTIONS: list[dict[str, Any]] = [{}, {"dropout": 0.2}, {"layer_norm": True, "dropout": 0.1}, {"init": "default"}]


@pytest.mark.parametrize("network", OPTIONS)
@pytest.mark.parametrize("algorithm", ["bc", "iql"])
def test_continuation_is_exact(algorithm: str, network: dict[str, Any]) -> None:
    config = tiny_algorithm(algorithm, network)
    straight, interrupted = start(config), start(config)
    straight.update(30)
    interrupted.update(13)
    fresh = start(config)
    restore(fresh, capture(interrupted), "test")
    fresh.update(17)
    assert differences(capture(straight), capture(fresh)) == []

"""REDQ whose knobs are off is SAC, in every bit."""

from typing import Any

import torch

from learners import differences, start, tiny_algorithm
from understudy.core.state import State, capture

SAC: dict[str, Any] = {"critics": 2, "target_subset": 2, "policy_delay": 1, "actor_values": "min"}
KNOBS: dict[str, dict[str, Any]] = {
    "more critics": {"critics": 3},
    "a subset": {"critics": 3, "target_subset": 1},
    "a delay": {"policy_delay": 2},
    "the mean": {"actor_values": "mean"},
}
OWN = ["subset_noise.state", "updates"]


def trained(name: str, **changes: Any) -> State:
    """A dozen updates with dropped units, whose streams are part of the state."""
    learning = start(tiny_algorithm(name, {"dropout": 0.1, "layer_norm": True}, **changes))
    learning.update(12)
    return capture(learning.algorithm)


def test_all_off_is_sac() -> None:
    for changes in ({}, {"entropy_learning_rate": 0.0, "entropy_weight": 0.3}, {"n_step": 3, "critics": 4}):
        redq = trained("redq", **{**SAC, **changes, "target_subset": changes.get("critics", 2)})
        assert differences(trained("sac", **changes), redq) == OWN, changes


def test_each_knob_alone_changes_something() -> None:
    plain = trained("redq", **SAC)
    for name, knob in KNOBS.items():
        changed = differences(plain, trained("redq", **{**SAC, **knob}))
        assert any(path.startswith("policy.") for path in changed), name


def test_lots_are_drawn_only_where_there_is_a_choice() -> None:
    streams = [trained("redq", **{**SAC, "target_subset": count})["subset_noise.state"] for count in (2, 1)]
    fresh = capture(start(tiny_algorithm("redq")).algorithm)["subset_noise.state"]
    assert isinstance(fresh, torch.Tensor)
    assert torch.equal(streams[0], fresh)  # type: ignore[arg-type]
    assert not torch.equal(streams[1], fresh)  # type: ignore[arg-type]

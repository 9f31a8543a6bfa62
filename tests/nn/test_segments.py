"""Names for columns, and what a role sees."""

import pytest
import torch

from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import Box, Group, Segments, Spec
from understudy.nn.segments import find_inputs

SPEC = Spec(
    {
        "state": Group((10,), "float32"),
        "privileged": Group((4,), "float32"),
        "depth": Group((1, 6, 8), "float32"),
        "history": Group((5, 3), "float32"),
    },
    Box((-1.0,), (1.0,)),
)
SEGMENTS: Segments = {"state": {"velocity": (0, 3), "gravity": (3, 6), "body": (0, 6), "joints": (6, 10)}}
NAMED = SPEC.with_segments(SEGMENTS)


def test_inputs_are_columns_in_the_order_of_the_role() -> None:
    state = torch.arange(20.0).view(2, 10)
    joints, velocity = find_inputs(["state.joints", "state.velocity"], NAMED, "actor.sees")
    assert torch.equal(joints.of({"state": state}), state[:, 6:])
    assert torch.equal(velocity.of({"state": state.expand(4, 2, 10)}), state[:, :3].expand(4, 2, 3))
    assert (joints.size, joints.shape, joints.image) == (4, (4,), False)


def test_nothing_said_is_every_group() -> None:
    inputs = find_inputs([], SPEC, "critic.sees")
    assert [entry.name for entry in inputs] == ["depth", "history", "privileged", "state"]
    assert [entry.image for entry in inputs] == [True, False, False, False]


def test_segments_may_overlap_but_a_role_sees_a_column_once() -> None:
    assert len(find_inputs(["state.body", "state.joints"], NAMED, "actor.sees")) == 2
    for names in (["state.body", "state.gravity"], ["state", "state.joints"], ["state", "state"]):
        with pytest.raises(ConfigError, match="share columns"):
            find_inputs(names, NAMED, "actor.sees")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("stat", "'state'"), ("state.velocty", "'state.velocity'"), ("privileged.mass", "Did you mean|Known")],
)
def test_unknown_names_are_told_what_there_is(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        find_inputs([name], NAMED, "actor.sees")


@pytest.mark.parametrize(
    ("segments", "told"),
    [
        ({"stat": {"a": (0, 1)}}, r"segments\.stat: no such group\. Did you mean 'state'"),
        ({"depth": {"a": (0, 1)}}, "only a flat group"),
        ({"state": {"a": (8, 11)}}, "8 to 11.*≤ 10"),
        ({"state": {"a": (3, 3)}}, "not a range"),
        ({"state": {"a": (-2, 1)}}, "not a range"),
    ],
)
def test_segments_must_lie_in_a_flat_group(segments: Segments, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        SPEC.with_segments(segments)


def test_observations_that_changed_are_refused_by_name() -> None:
    (state,) = find_inputs(["state"], SPEC, "actor.sees")
    with pytest.raises(DataError, match="'state' has changed its shape"):
        state.of({"state": torch.zeros(2, 9)})
    with pytest.raises(DataError, match="group 'state' is missing"):
        state.of({"privileged": torch.zeros(2, 4)})

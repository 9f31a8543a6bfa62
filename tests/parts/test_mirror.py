"""Mirrors by settings: columns move and change signs as they are told, twice is nothing, and mistakes are named."""

from typing import Any

import pytest
import torch

from understudy.core.errors import ConfigError
from understudy.core.spec import ActionSpace, Box, Discrete, Group, MultiDiscrete, Spec
from understudy.parts.mirror import Mirror, MirrorSettings, make_mirror

CPU = torch.device("cpu")
ARMS = Box((-1.0, -2.0, -2.0), (1.0, 2.0, 2.0))
GROUPS = {
    "state": Group((5,), "float32"),
    "scan": Group((3, 4), "float32"),
    "depth": Group((1, 2, 3), "uint8"),
    "half": Group((2,), "float16"),
    "lit": Group((2,), "bool"),
}
TOLD: dict[str, Any] = {
    "state.turn": {"signs": [-1, 1]},
    "state.legs": {"permutation": [2, 1, 0], "signs": [-1, 1, -1]},
    "scan": {"permutation": [3, 2, 1, 0]},
    "depth": {"flip": -1},
    "half": {"signs": [1, -1]},
    "lit": {},
}
ACTIONS: dict[str, Any] = {"permutation": [0, 2, 1], "signs": [-1, 1, 1]}


def spec_of(action: ActionSpace = ARMS, *, masked: bool = False) -> Spec:
    segments = {"state": {"turn": (0, 2), "legs": (2, 5), "tail": (4, 5)}}
    return Spec(GROUPS, action, masked).with_segments(segments)


def mirror_of(observations: Any = TOLD, actions: Any = ACTIONS, spec: Spec | None = None) -> Mirror:
    settings = MirrorSettings.parse({"observations": observations, "actions": actions}, "here")
    return make_mirror(settings, spec or spec_of(), CPU, "here")


def test_columns_images_and_actions_are_mirrored_and_twice_is_nothing() -> None:
    rng = torch.Generator().manual_seed(0)
    state, scan = torch.arange(1.0, 6.0).expand(7, 5), torch.randn(7, 3, 4, generator=rng)
    depth = torch.randint(0, 256, (7, 1, 2, 3), generator=rng, dtype=torch.uint8)
    half, lit = torch.ones(7, 2, dtype=torch.float16), torch.tensor([[True, False]] * 7)
    obs = {"state": state, "scan": scan, "depth": depth, "half": half, "lit": lit, "teacher/label": scan}
    mirror = mirror_of()
    image = mirror.observations(obs)
    assert torch.equal(image["state"][0], torch.tensor([-1.0, 2.0, -5.0, 4.0, -3.0]))
    assert torch.equal(image["scan"], scan[..., [3, 2, 1, 0]])
    assert torch.equal(image["depth"], depth[..., [2, 1, 0]])
    assert torch.equal(image["half"], torch.tensor([1.0, -1.0], dtype=torch.float16).expand(7, 2))
    assert image["lit"] is lit, "nothing is copied that does not change"
    assert image["teacher/label"] is scan, "no observation of the environment"
    assert {name: values.dtype for name, values in image.items()} == {name: v.dtype for name, v in obs.items()}
    assert torch.equal(mirror.action(torch.tensor([[1.0, 2.0, 3.0]])), torch.tensor([[-1.0, 3.0, 2.0]]))
    twice = mirror.observations(image)
    assert all(torch.equal(twice[name], obs[name]) for name in obs)


def test_choices_and_their_masks_are_mirrored() -> None:
    mirror = mirror_of(actions={"permutation": [1, 0, 2]}, spec=spec_of(Discrete(3), masked=True))
    assert mirror.action(torch.tensor([0, 1, 2, 0])).tolist() == [1, 0, 2, 1]
    mask = torch.tensor([[True, False, False]])
    assert mirror.observations({"action_mask": mask})["action_mask"].tolist() == [[False, True, False]]
    assert mirror.actions(torch.tensor([[0.5, 0.25, 0.0]])).tolist() == [[0.25, 0.5, 0.0]]


def changed(**changes: Any) -> dict[str, Any]:
    return {name: told for name, told in {**TOLD, **changes}.items() if told is not None}


LEGS = "state.legs"
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"observations": {}}, r"here\.observations: nothing is said of 'depth': it must be named\. `{}` is for"),
    ({"observations": changed(**{LEGS: None})}, r"nothing is said of 'state': its columns 2, 3, 4 must be named"),
    ({"observations": changed(**{"state.leg": {}})}, r"no group or segment 'state\.leg'\. Did you mean 'state\.legs'"),
    ({"observations": changed(**{"state.tail": {}})}, r"'state\.legs' and 'state\.tail' share columns"),
    ({"observations": changed(state={})}, "share columns"),
    (
        {"observations": changed(**{LEGS: {"permutation": [1, 2, 0]}})},
        r"legs\.permutation: mirrored twice it is not what it was: got column 0 comes from 1, and 1 from 2",
    ),
    (
        {"observations": changed(**{LEGS: {"permutation": [2, 1, 0], "signs": [-1, 1, 1]}})},
        r"legs\.signs: mirrored twice it is not what it was: got -1 for column 0 and 1 for 2, which change places",
    ),
    (
        {"observations": changed(**{LEGS: {"permutation": [0, 1]}})},
        r"not every column once: got \[0, 1\]",
    ),
    ({"observations": changed(**{LEGS: {"permutation": [0, 0, 1]}})}, "not every column once"),
    ({"observations": changed(**{LEGS: {"signs": [1]}})}, r"legs\.signs: not one for each column: got 1, expected 3"),
    ({"observations": changed(**{LEGS: {"signs": [1, 2, 1]}})}, r"legs\.signs\.1.*a sign is -1 or 1"),
    ({"observations": changed(**{LEGS: {"flip": 0}})}, r"legs\.flip: only an image is turned round"),
    ({"observations": changed(depth={"signs": [1]})}, r"here\.observations\.depth: an image has no columns to name"),
    ({"observations": changed(depth={"flip": 3})}, r"depth\.flip: no such axis: got 3, expected -3 to 2"),
    ({"observations": changed(lit={"signs": [-1, 1]})}, r"lit\.signs: its numbers have no sign: got bool"),
    (
        {"actions": {"permutation": [1, 0, 2]}},
        r"here\.actions: mirrored, action 0 leaves its range: got -2 to 2",
    ),
    ({"actions": {"mirror": 1}}, "no such setting"),
    ({"spec": spec_of(Box((0.0,), (1.0,))), "actions": {"signs": [-1]}}, "leaves its range: got -1 to -?0, expected 0"),
    ({"spec": spec_of(Discrete(2)), "actions": {"signs": [-1, 1]}}, r"here\.actions\.signs: choices have no sign"),
    ({"spec": spec_of(Discrete(3)), "actions": {"permutation": [1, 0]}}, "expected each of 0 to 2"),
    ({"spec": spec_of(MultiDiscrete((2, 2))), "actions": {}}, "no mirror of these actions: got one of 2 and one of 2"),
]


def test_what_is_no_mirror_is_told() -> None:
    for given, told in MISTAKES:
        with pytest.raises(ConfigError, match=told):
            mirror_of(**given)

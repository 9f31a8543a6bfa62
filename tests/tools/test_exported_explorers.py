"""Exported exploring policies act as the live ones do, whatever these are composed of."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from explorers import BOX, CONV, DENSITIES, GROUPS, MEMORIES, SEGMENTS, SHAPES, chooser, estimating, explorer
from torch import Tensor

from understudy.core.errors import ConfigError, DataError
from understudy.core.rng import stream
from understudy.core.spec import ACTION_MASK, Discrete, MultiDiscrete, Spec
from understudy.nn.actor import Actor
from understudy.nn.policy_fit import policy_differences
from understudy.parts.distillation.teachers import Teachers, Wanted
from understudy.run.onnx_policy import OnnxPolicy
from understudy.tools.export import FORMATS, write_export
from understudy.tools.parity import BATCHES, TOLERANCE, Runner, measure_parity, random_observations
from understudy.tools.portable import Portable

NO_FACTS: dict[str, Any] = {"training": {}, "scores": {}}
BOTH = pytest.mark.parametrize("format", sorted(FORMATS))


def loaded(policy: Actor, format: str, folder: Path) -> Runner:
    """The policy, written to a file and read from it."""
    exported = write_export(policy, NO_FACTS, format, folder / "export")
    assert exported.parity.difference <= TOLERANCE
    assert exported.parity.rows >= 2 * sum(BATCHES)
    return FORMATS[format].load(exported.path.read_bytes(), Portable(policy))


def play(policy: Actor, run: Runner, batch: int, steps: int = 20) -> tuple[list[Tensor], list[Tensor]]:
    """What both do in the same states, each with its own memory."""
    portable, rng = Portable(policy), stream(5, "test")
    mine = theirs = policy.initial(batch)
    expected, found = [], []
    for _ in range(steps):
        seen = random_observations(portable, batch, rng)
        action, mine = policy.act(dict(zip(portable.observed, seen, strict=True)), mine, greedy=True)
        other, *after = run((*seen, *theirs))
        theirs = tuple(after)
        expected.append(action)
        found.append(other)
    return expected, found


@BOTH
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", DENSITIES)
def test_continuous_actions(kind: str, shape: str, memory: str, format: str, tmp_path: Path) -> None:
    policy = explorer(shape, memory, distribution={"kind": kind})
    run = loaded(policy, format, tmp_path)
    expected, found = (torch.stack(side) for side in play(policy, run, 5))
    span = torch.tensor(BOX.high) - torch.tensor(BOX.low)
    assert float(((expected - found).abs() / span).max()) <= TOLERANCE
    assert float(expected.std(0).min()) > 1e-3, "the states make a difference"


@BOTH
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_choices(shape: str, memory: str, masked: bool, format: str, tmp_path: Path) -> None:
    policy = chooser(shape, memory, masked=masked)
    run = loaded(policy, format, tmp_path)
    expected, found = (torch.stack(side) for side in play(policy, run, 5))
    assert torch.equal(expected, found)
    assert found.dtype == torch.int64
    assert len(set(found.flatten().tolist())) > 1


@BOTH
@pytest.mark.parametrize("masked", [False, True])
def test_choices_of_several_factors(masked: bool, format: str, tmp_path: Path) -> None:
    policy = explorer("vector", "gru", MultiDiscrete((3, 2)), masked=masked)
    expected, found = (torch.stack(side) for side in play(policy, loaded(policy, format, tmp_path), 4))
    assert found.shape == (20, 4, 2)
    assert torch.equal(expected, found)


@BOTH
def test_a_mask_decides(format: str, tmp_path: Path) -> None:
    """Each single legal choice is taken, whatever the policy would rather do."""
    policy = chooser("vector", masked=True)
    run = loaded(policy, format, tmp_path)
    state = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    (action,) = run((state, torch.eye(5, dtype=torch.bool)))
    assert action.tolist() == [0, 1, 2, 3, 4]


@BOTH
@pytest.mark.parametrize(
    "encoder",
    [
        {"final": "spatial_softmax", "activation": "elu"},
        {"norm": "group", "pooling": "max", "activation": "tanh"},
        {"norm": "layer", "pooling": "average"},
        {"channels_last": True, "shape": [8, 8, 3]},
        {"norm": "batch", "l2_normalize": True, "hidden": [7]},
        {
            "layers": [
                {"channels": 4, "kernel": [3, 2], "stride": [1, 2], "padding": [1, 0], "norm": "batch"},
                {"channels": 3, "kernel": 2, "pooling": "average", "pool_size": [1, 2]},
            ]
        },
    ],
)
def test_images_in_bytes(encoder: dict[str, Any], format: str, tmp_path: Path) -> None:
    layers = [{"channels": 4, "kernel": 3, "padding": 1}]
    changes: dict[str, Any] = {
        "sees": ["camera", "state"],
        "encoders": {"camera": {**CONV, "layers": layers, **encoder}},
    }
    policy = explorer("vector", "gru", **changes)
    assert [port.dtype for port in Portable(policy).inputs] == ["uint8", "float32", "float32"]
    expected, found = (torch.stack(side) for side in play(policy, loaded(policy, format, tmp_path), 3))
    torch.testing.assert_close(found, expected, atol=6e-6, rtol=0)


@BOTH
@pytest.mark.parametrize("trunk", [{"layer_norm": True}, {"activation": "elu"}, {"activation": "gelu"}, {"hidden": []}])
def test_trunks(trunk: dict[str, Any], format: str, tmp_path: Path) -> None:
    policy = explorer(**{"hidden": [16, 16], **trunk}, normalizer={"clip": None})
    expected, found = (torch.stack(side) for side in play(policy, loaded(policy, format, tmp_path), 3))
    torch.testing.assert_close(found, expected, atol=6e-6, rtol=0)


@BOTH
def test_what_goes_in_and_comes_out(format: str, tmp_path: Path) -> None:
    policy = chooser("visual", "lstm")
    card = write_export(policy, NO_FACTS, format, tmp_path / "export").card
    assert [(port["name"], port["shape"], port["dtype"]) for port in card["inputs"]] == [
        ("depth", ["batch", 1, 7, 9], "float32"),
        ("state", ["batch", 4], "float32"),
        (ACTION_MASK, ["batch", 5], "bool"),
        ("carry_0", ["batch", 2, 6], "float32"),
        ("carry_1", ["batch", 2, 6], "float32"),
    ]
    assert [(port["name"], port["shape"], port["dtype"]) for port in card["outputs"]] == [
        ("action", ["batch"], "int64"),
        ("next_carry_0", ["batch", 2, 6], "float32"),
        ("next_carry_1", ["batch", 2, 6], "float32"),
    ]


@BOTH
def test_actions_stay_in_the_box_however_far_off_the_state_is(format: str, tmp_path: Path) -> None:
    policy = explorer(normalizer={"clip": None})
    run = loaded(policy, format, tmp_path)
    (action,) = run((1e4 * torch.randn(200, 4, generator=torch.Generator().manual_seed(0)),))
    low, high = torch.tensor(BOX.low), torch.tensor(BOX.high)
    assert bool(((action >= low) & (action <= high)).all())
    assert bool((action == low).any()), "the clamp was needed"


def test_exporting_changes_nothing_in_the_policy(tmp_path: Path) -> None:
    policy = explorer("visual", "gru").train()
    before = {name: values.clone() for name, values in policy.state_dict().items()}
    stream_before = torch.get_rng_state()
    for format in FORMATS:
        write_export(policy, NO_FACTS, format, tmp_path / format)
    assert policy.training
    assert all(parameter.requires_grad for parameter in policy.parameters())
    assert all(torch.equal(values, before[name]) for name, values in policy.state_dict().items())
    assert torch.equal(torch.get_rng_state(), stream_before)


@pytest.mark.parametrize("memory", MEMORIES)
def test_torchscript_knows_what_an_episode_starts_with(memory: str, tmp_path: Path) -> None:
    policy = explorer("vector", memory)
    exported = write_export(policy, NO_FACTS, "torchscript", tmp_path / "export")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.load(exported.path)  # type: ignore[no-untyped-call]
    for mine, theirs in zip(policy.initial(3), module.initial(3), strict=True):
        assert torch.equal(mine, theirs)


@BOTH
def test_the_memory_is_read(format: str, tmp_path: Path) -> None:
    """An export that forgot would pass where nothing is remembered: here it would not."""
    policy = explorer("vector", "gru")
    run = loaded(policy, format, tmp_path)
    state = torch.zeros(1, 4)
    first, carry = run((state, *policy.initial(1)))
    second, _ = run((state, carry))
    assert float((first - second).abs().max()) > 1e-2
    assert measure_parity(policy, Portable(policy), run, "again").difference <= TOLERANCE


@BOTH
@pytest.mark.parametrize("memory", [{}, {"memory": {"kind": "gru", "units": 3}}])
def test_estimates_are_inside(memory: dict[str, Any], format: str, tmp_path: Path) -> None:
    """Also those by a memory of their own, and what is only estimated is no input."""
    estimate = {"targets": ["depths", "state.body"], "sees": ["state.goal"], **memory}
    for actors in ("none", "gru"):
        policy = estimating(actors, estimate)
        ports = [port.name for port in Portable(policy).inputs]
        assert ports == ["state", *(f"carry_{number}" for number in range(len(policy.initial(1))))]
        expected, found = (torch.stack(side) for side in play(policy, loaded(policy, format, tmp_path / actors), 5))
        span = torch.tensor(BOX.high) - torch.tensor(BOX.low)
        assert float(((expected - found).abs() / span).max()) <= TOLERANCE
        assert float(expected.std(0).min()) > 1e-3, "the states make a difference"


def test_a_file_fits_where_the_live_policy_does_and_masks_are_told_in_its_words(tmp_path: Path) -> None:
    """Also as a teacher: without masks its choices might not be legal."""
    spaces = Discrete(3), MultiDiscrete((3, 2)), Discrete(4), MultiDiscrete((2, 4))
    worlds = [Spec(GROUPS, space, masked).with_segments(SEGMENTS) for space in spaces for masked in (False, True)]
    for number, world in enumerate(worlds[:4]):
        live = explorer(action=world.action, masked=world.masked)
        path = write_export(live, NO_FACTS, "onnx", tmp_path / str(number)).path
        exported = OnnxPolicy(path)
        for other in worlds:
            told, expected = exported.differences(other), policy_differences(live, other)
            assert bool(told) == bool(expected), (world.describe(), other.describe(), told)
            assert [line for line in told if "mask" in line and line.startswith("it")] == [
                line for line in expected if "mask" in line
            ]
        path.with_name("card.json").unlink()
        masked = Spec(GROUPS, world.action, masked=True).with_segments(SEGMENTS)
        student = explorer(action=world.action, masked=True)
        for teacher in (OnnxPolicy(path), live):
            if world.masked:
                Teachers({"teacher": teacher}, "", Wanted(), student, "algo.objectives.teacher")
                continue
            assert policy_differences(teacher, masked) == ["it knows no masks, and here they say what is legal"]
            with pytest.raises(ConfigError, match=r"policies\.teacher: does not fit .*: it knows no masks, and here"):
                Teachers({"teacher": teacher}, "", Wanted(), student, "algo.objectives.teacher")


def test_what_lies_beside_a_file_is_a_card_or_is_told(tmp_path: Path) -> None:
    policy = explorer("vector", "gru")
    path = write_export(policy, NO_FACTS, "onnx", tmp_path / "export").path
    for card in ('{"action": [1]}', '{"memory": 3}'):
        path.with_name("card.json").write_text(card, encoding="utf-8")
        with pytest.raises(DataError, match=r"policy '.*': the card\.json beside it is not the card of a policy"):
            OnnxPolicy(path)
    for card in ("{}", '{"action": {"low": ["a"], "high": {"b": 1}}, "memory": [3, {"input": []}]}'):
        path.with_name("card.json").write_text(card, encoding="utf-8")
        assert OnnxPolicy(path).differences(policy.spec) == []

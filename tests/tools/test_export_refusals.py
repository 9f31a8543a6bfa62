"""An export that is not the live policy is refused, and nothing is left of it."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from explorers import GROUPS, chooser, disturb, explorer
from torch import Tensor
from torch.nn import functional as F

from learners import start, tiny_algorithm
from skill_cases import actors, alone, make_set, observe
from understudy.core.errors import ConfigError, MissingPackageError, RunError
from understudy.core.rng import stream
from understudy.core.spec import Discrete, Group, Spec
from understudy.nn.actor import Actor
from understudy.nn.committee import Committee
from understudy.parts.ppo.networks import OnPolicyActorSettings
from understudy.tools.export import FORMATS, write_export
from understudy.tools.onnx_file import onnx_bytes, run_onnx
from understudy.tools.parity import ExportError, Runner, measure_parity
from understudy.tools.plain_layers import PlainNorm
from understudy.tools.portable import Portable

NO_FACTS: dict[str, Any] = {"training": {}, "scores": {}}
Outputs = tuple[Tensor, ...]
Break = Callable[[Runner, Outputs], Outputs]


def plain(policy: Actor) -> Runner:
    """The wrapper itself, without a file."""
    portable = Portable(policy)

    def run(given: Outputs) -> Outputs:
        found = portable(*given)
        return found if isinstance(found, tuple) else (found,)

    return run


BREAKS: dict[str, Break] = {
    "a little off": lambda run, given: (run(given)[0] + 1e-4, *run(given)[1:]),
    "one row in 64 off": lambda run, given: (run(given)[0].index_fill(0, torch.tensor([0]), 0.3), *run(given)[1:]),
    "carry not read": lambda run, given: run((*given[:-1], torch.zeros_like(given[-1]))),
    "carry not moved": lambda run, given: (run(given)[0], given[-1]),
    "state in float16": lambda run, given: run((given[0].half().float(), *given[1:])),
    "clamp to another box": lambda run, given: (run(given)[0].clamp(-1.0, 0.5), *run(given)[1:]),
    "not a number": lambda run, given: (run(given)[0] / 0.0, *run(given)[1:]),
    "no carry comes out": lambda run, given: run(given)[:1],
    "double": lambda run, given: (run(given)[0].double(), *run(given)[1:]),
    "batch of one": lambda run, given: tuple(part[:1] for part in run(given)),
}


def test_the_wrapper_itself_is_accepted() -> None:
    policy = explorer("vector", "gru")
    assert measure_parity(policy, Portable(policy), plain(policy), "test").difference < 1e-6


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_wrapper_is_refused(name: str) -> None:
    policy = explorer("vector", "gru")
    run = plain(policy)
    with pytest.raises(ExportError, match="the exported policy"):
        measure_parity(policy, Portable(policy), lambda given: BREAKS[name](run, given), "test")


def other_statistics(policy: Actor) -> Actor:
    """The same policy, but for its normaliser."""
    other = explorer("visual", "lstm")
    other.observe({name: torch.rand(9, *group.shape) for name, group in GROUPS.items()})
    return other


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_nothing_is_left_of_a_refused_export(format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = explorer("visual", "lstm")
    writer = FORMATS[format].write
    broken = dataclasses.replace(
        FORMATS[format], write=lambda portable, told: writer(Portable(other_statistics(policy)), told)
    )
    monkeypatch.setitem(FORMATS, format, broken)
    with pytest.raises(ExportError, match=rf"policy as {format}: the exported policy is not the live one: got a diff"):
        write_export(policy, NO_FACTS, format, tmp_path / "export")
    assert list(tmp_path.iterdir()) == []


def test_a_refused_export_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = explorer("visual", "lstm")
    write_export(policy, NO_FACTS, "onnx", tmp_path / "export")
    before = {path.name: path.read_bytes() for path in (tmp_path / "export").iterdir()}
    other = Portable(other_statistics(policy))
    broken = dataclasses.replace(FORMATS["onnx"], write=lambda portable, told: onnx_bytes(other, told))
    monkeypatch.setitem(FORMATS, "onnx", broken)
    with pytest.raises(ExportError):
        write_export(policy, NO_FACTS, "onnx", tmp_path / "export")
    assert {path.name: path.read_bytes() for path in (tmp_path / "export").iterdir()} == before


def test_choices_may_differ_where_they_are_rated_alike_only() -> None:
    policy = chooser(masked=True)
    portable, run = Portable(policy), plain(policy)

    def last_legal(given: Outputs) -> Outputs:
        return ((given[-1].long() * torch.arange(5)).argmax(-1),)

    with pytest.raises(ExportError, match="not the live one"):
        measure_parity(policy, portable, last_legal, "test")
    with torch.no_grad():
        policy.trunk.flat.zero_()
    assert measure_parity(policy, portable, last_legal, "test").difference == 0
    with pytest.raises(ExportError, match="not the live one"):  # a forbidden one is never alike
        measure_parity(policy, portable, lambda given: ((~given[-1]).long().argmax(-1),), "test")
    assert measure_parity(policy, portable, run, "test").difference == 0


def test_ratings_are_the_live_policys() -> None:
    """A wrapper to which all choices are alike does not make them so."""
    policy = chooser(masked=False)
    with pytest.raises(ExportError, match="not the live one"):
        measure_parity(policy, Portable(policy), lambda given: (torch.zeros(len(given[0]), dtype=torch.long),), "test")


def test_a_committee_may_take_either_action_where_both_are_rated_alike_only() -> None:
    learning = start(tiny_algorithm("iact", act="max_q"))
    learning.update(5)
    policy = learning.algorithm.policy
    assert isinstance(policy, Committee)

    def only(actor: int) -> Runner:
        member = (policy.a, policy.b)[actor]
        return lambda given: (member.act({"state": given[0]}, (), greedy=True)[0],)

    for actor in (0, 1):
        with pytest.raises(ExportError, match="not the live one"):
            measure_parity(policy, Portable(policy), only(actor), "test")
    with torch.no_grad():
        for parameter in policy.critics.parameters():
            parameter.zero_()
    for actor in (0, 1):
        assert measure_parity(policy, Portable(policy), only(actor), "test").difference < 1e-6


def test_what_torch_cannot_write_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A width that is read off the tensor: ONNX wants a number."""
    monkeypatch.setattr(PlainNorm, "forward", lambda norm, units: F.layer_norm(units, units.shape[-1:]) * norm.weight)
    with pytest.raises(ExportError, match="policy as onnx: torch cannot write it") as told:
        write_export(explorer(layer_norm=True), NO_FACTS, "onnx", tmp_path / "export")
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("present", ["notes.txt", "policy.safetensors"])
def test_a_folder_of_somebody_else_is_left_alone(present: str, tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / present).write_text("mine")
    with pytest.raises(RunError, match="exists already and holds no exported policy"):
        write_export(explorer(), NO_FACTS, "onnx", tmp_path / "export")
    assert [path.name for path in (tmp_path / "export").iterdir()] == [present]


@pytest.mark.parametrize("card", ['{"kind": "another"}', "[]", "not JSON"])
def test_a_card_of_somebody_else_is_left_alone(card: str, tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "card.json").write_text(card)
    with pytest.raises(RunError, match="holds no exported policy"):
        write_export(explorer(), NO_FACTS, "onnx", tmp_path / "export")
    assert (tmp_path / "export" / "card.json").read_text() == card


def test_a_file_is_no_folder_and_an_empty_folder_is_free(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="holds no exported policy"):
        write_export(explorer(), NO_FACTS, "onnx", tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert write_export(explorer(), NO_FACTS, "onnx", tmp_path / "empty").path.is_file()


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_told(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # what Python sees when a package is not there
    with pytest.raises(
        MissingPackageError, match=r"export: ONNX needs onnx and .*pip install 'understudy-rl\[export\]'"
    ):
        write_export(explorer(), NO_FACTS, "onnx", tmp_path / "export")
    assert list(tmp_path.iterdir()) == []
    write_export(explorer(), NO_FACTS, "torchscript", tmp_path / "export")


def test_an_unknown_format_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"format: no format 'onxx'\. Did you mean 'onnx'"):
        write_export(explorer(), NO_FACTS, "onxx", tmp_path / "export")


@pytest.mark.parametrize("name", ["action", "carry_0"])
def test_a_group_with_the_name_of_another_tensor_is_told(name: str, tmp_path: Path) -> None:
    settings = OnPolicyActorSettings.parse({"memory": {"kind": "gru", "units": 4}})
    policy = Actor(Spec({name: Group((2,), "float32")}, Discrete(3)), settings, stream(0, "init"))
    with pytest.raises(ConfigError, match=f"observation group '{name}': has a name that exported files need"):
        write_export(policy, NO_FACTS, "onnx", tmp_path / "export")


def test_the_file_that_is_checked_is_the_one_on_the_disk(tmp_path: Path) -> None:
    policy = explorer("segments")
    exported = write_export(policy, NO_FACTS, "onnx", tmp_path / "export")
    before = measure_parity(policy, Portable(policy), run_onnx(exported.path.read_bytes(), Portable(policy)), "test")
    assert before == exported.parity
    disturb(policy)
    with pytest.raises(ExportError):
        measure_parity(policy, Portable(policy), run_onnx(exported.path.read_bytes(), Portable(policy)), "test")


def test_a_set_that_may_choose_nothing_is_refused_and_with_a_fallback_it_is_written(tmp_path: Path) -> None:
    """Live such a row is an error; a file would have to guess."""
    for selector in (
        {"kind": "observation", "observation": "state.zone"},
        {"kind": "observation", "observation": "state.height", "encoding": "index"},
    ):
        for format in sorted(FORMATS):
            with pytest.raises(
                ConfigError, match=r"may choose no skill.*expected selector\.fallback, one of walk, leap"
            ):
                write_export(make_set(selector=selector), NO_FACTS, format, tmp_path / "export")
            assert list(tmp_path.iterdir()) == []
    policies = actors()
    certain = make_set(policies, selector={"kind": "observation", "observation": "state.zone", "fallback": "leap"})
    exported = write_export(certain, NO_FACTS, "onnx", tmp_path / "export")
    nowhere = observe([-1, -1])
    (found,) = run_onnx(exported.path.read_bytes(), Portable(certain))((nowhere["state"],))
    assert torch.allclose(found, alone(policies["leap"], nowhere), atol=1e-5)

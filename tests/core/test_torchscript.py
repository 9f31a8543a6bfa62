"""Functions are compiled where torch can; where it cannot, they run as they are, to the same bits, and say so once."""

import warnings

import pytest
import torch
from torch import Tensor

from understudy.core.torchscript import scripted


def wave(values: Tensor, times: int = 3) -> Tensor:
    for _ in range(times):
        values = torch.sin(values) * 1.1
    return values


def other_wave(values: Tensor, times: int = 3) -> Tensor:
    return wave(values, times)


def third_wave(values: Tensor, times: int = 3) -> Tensor:
    return wave(values, times)


def not_torchscript(values: Tensor) -> Tensor:
    try:
        return wave(values)
    finally:
        pass


NUMBERS = torch.linspace(-3, 3, 50)


def test_what_torch_compiles_is_compiled() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = scripted(wave)
    assert isinstance(compiled, torch.jit.ScriptFunction)
    assert torch.equal(compiled(NUMBERS), wave(NUMBERS))


def test_a_torch_without_torchscript(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("torch.jit.script")
    with pytest.warns(RuntimeWarning, match=r"compiles no TorchScript here .*: other_wave runs as plain Python"):
        assert scripted(other_wave) is other_wave
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(scripted(other_wave)(NUMBERS), wave(NUMBERS))  # told once


def test_a_torch_whose_torchscript_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: object) -> object:
        raise RuntimeError("torch.jit.script is not supported in Python 3.99")

    monkeypatch.setattr("torch.jit.script", refuse)
    with pytest.warns(RuntimeWarning, match=r"RuntimeError: torch\.jit\.script is not supported in Python 3\.99"):
        assert scripted(third_wave) is third_wave


def test_what_is_not_torchscript_runs_all_the_same() -> None:
    with pytest.warns(RuntimeWarning, match="not_torchscript runs as plain Python"):
        assert torch.equal(scripted(not_torchscript)(NUMBERS), wave(NUMBERS))

"""Functions of tensors compiled by TorchScript: no Python between one operation and the next, and no lock held.

On the CPU the same operations run in the same order, and give the same bits. What is compiled reads no global names
but functions (numbers are arguments with defaults), and has types for everything. torch.compile would want a C++
compiler, and time.
"""

import warnings
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Result = TypeVar("Result")
COMPILING = Lock()
"""The compiler, and Python's list of warnings to ignore, are for one thread at a time."""


def scripted(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Compiled when it is first asked for, once for the process."""
    with COMPILING:
        return _scripted(function)  # type: ignore[return-value]


@cache
def _scripted(function: Callable[..., object]) -> Callable[..., object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled: Callable[..., object] = torch.jit.script(function)
    return compiled

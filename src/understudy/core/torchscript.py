"""Functions of tensors compiled by TorchScript: no Python between one operation and the next, and no lock held.

On the CPU the same operations run in the same order, and give the same bits. What is compiled reads no global names
but functions (numbers are arguments with defaults), and has types for everything. torch.compile would want a C++
compiler, and time.

torch calls TorchScript deprecated since 2.9, and it does not work under Python 3.14. Where there is none, or it fails,
the functions run as the Python they are: the same bits, later.
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
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            compiled: Callable[..., object] = torch.jit.script(function)
    except MemoryError:
        raise
    except Exception as error:
        told = str(error).strip().partition("\n")[0]
        warnings.warn(
            f"torch {torch.__version__} compiles no TorchScript here ({type(error).__name__}: {told}): "
            f"{function.__name__} runs as plain Python, slower and to the same bits.",
            RuntimeWarning,
            stacklevel=3,
        )
        return function
    return compiled

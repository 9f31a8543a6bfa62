"""TorchScript: the traced policy as one file for `torch.jit.load` in Python or C++.

`module(*inputs)` takes tensors in the card's order; `module.initial(count)` is the list of carries of `count` fresh
episodes (empty without memory).
"""

import io
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from understudy.core.errors import MissingPackageError
from understudy.core.rng import stream
from understudy.tools.parity import Runner, random_observations
from understudy.tools.portable import Portable

EXAMPLE = 3
"""Rows of the example a policy is traced with; any number fits the result."""


def torchscript_bytes(portable: Portable, metadata: Mapping[str, str]) -> bytes:
    """The policy as the content of a TorchScript file; what it says of itself stands on the card alone."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # that shapes are compared while tracing, and that TorchScript is old
        if "trace" not in dir(torch.jit):
            raise MissingPackageError(
                "export", f"torch {torch.__version__} has no TorchScript", do="Use --format onnx."
            )
        traced = torch.jit.trace(portable, example(portable), check_trace=False)  # type: ignore[no-untyped-call]
        traced.define(_initial(portable))
        content = io.BytesIO()
        torch.jit.save(traced, content)
    return content.getvalue()


def run_torchscript(content: bytes, portable: Portable) -> Runner:
    """A file's content in torch, ready to be asked. Only for files just written here: TorchScript is code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.load(io.BytesIO(content))  # type: ignore[no-untyped-call]

    def run(given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        found = module(*given)
        return found if isinstance(found, tuple) else (found,)

    return run


def example(portable: Portable) -> tuple[Tensor, ...]:
    """Inputs to trace with [3, …]."""
    return *random_observations(portable, EXAMPLE, stream(1, "export")), *portable.policy.initial(EXAMPLE)


def _initial(portable: Portable) -> str:
    """A method in TorchScript's own language."""
    sizes = [", ".join(["count", *["1"] * part.dim()]) for part in portable.carried]
    repeated = [f"self.carry_{number}.repeat([{size}])" for number, size in enumerate(sizes)]
    body = f"[{', '.join(repeated)}]" if repeated else "torch.jit.annotate(List[Tensor], [])"
    return f"def initial(self, count: int) -> List[Tensor]:\n    return {body}\n"

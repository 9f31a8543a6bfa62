"""ONNX: the policy as one file for onnxruntime and its relatives, with named inputs and outputs and any batch size.

torch's exporter by tracing is used, not the one over `torch.export`: it needs no further package, takes GRU and LSTM as
single operators, and leaves the batch size open for everything a policy here is made of.
"""

import io
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from understudy.run.onnx_policy import onnx_packages
from understudy.tools.parity import Runner
from understudy.tools.portable import Portable
from understudy.tools.torchscript_file import example

OPSET = 17
"""ONNX 1.12, of 2022: old enough for most runtimes."""


def onnx_bytes(portable: Portable, metadata: Mapping[str, str]) -> bytes:
    """The policy as the content of an ONNX file, valid by ONNX's own checker, with what it says of itself."""
    onnx, _ = onnx_packages()
    names, outputs = ([port.name for port in ports] for ports in (portable.inputs, portable.outputs))
    content = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of tracing, and of batch sizes with memory, which are compared afterwards
        torch.onnx.export(
            portable,
            example(portable),
            content,  # type: ignore[arg-type]
            dynamo=False,
            input_names=names,
            output_names=outputs,
            dynamic_axes={name: {0: "batch"} for name in (*names, *outputs)},
            opset_version=OPSET,
        )
    model = onnx.load_from_string(content.getvalue())
    onnx.helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    told: bytes = model.SerializeToString()
    return told


def run_onnx(content: bytes, portable: Portable) -> Runner:
    """A file's content in onnxruntime, ready to be asked."""
    _, runtime = onnx_packages()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        feeds = {port.name: values.numpy() for port, values in zip(portable.inputs, given, strict=True)}
        return tuple(torch.from_numpy(found) for found in session.run(None, feeds))

    return run


def onnx_versions() -> dict[str, str]:
    return {package.__name__: str(package.__version__) for package in onnx_packages()}

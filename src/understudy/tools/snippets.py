"""The few lines of Python on a card that run its file."""

from understudy.core.spec import ACTION_MASK
from understudy.tools.portable import Port, Portable


def onnx_snippet(file: str, portable: Portable) -> str:
    """One step from made-up observations, with onnxruntime; run it where the file is."""
    fed = [f'    "{port.name}": {_numpy(port)},\n' for port in portable.inputs]
    after = 'inputs |= {f"carry_{i}": part for i, part in enumerate(carry)}  # for the next step of the episode\n'
    return (
        "import numpy as np\nimport onnxruntime\n\n"
        f'session = onnxruntime.InferenceSession("{file}", providers=["CPUExecutionProvider"])\n'
        f"batch = 1\ninputs = {{\n{''.join(fed)}}}\n"
        f"{'action, *carry' if portable.carried else '(action,)'} = session.run(None, inputs)\n"
        f"{after if portable.carried else ''}print(action)\n"
    )


def torchscript_snippet(file: str, portable: Portable) -> str:
    """The same with torch."""
    given = ", ".join(_torch(port) for port in portable.inputs[: len(portable.observed)])
    call = f"action, *carry = module({given}, *carry)" if portable.carried else f"action = module({given})"
    start = "carry = module.initial(batch)  # at the start of an episode\n" if portable.carried else ""
    return (
        f'import torch\n\nmodule = torch.jit.load("{file}")\nbatch = 1\n{start}'
        f"with torch.no_grad():\n    {call}\nprint(action)\n"
    )


def _numpy(port: Port) -> str:
    made = "np.ones" if port.name == ACTION_MASK else "np.zeros"
    shape = ", ".join(["batch", *map(str, port.shape)]) if port.shape else "batch,"
    return f"{made}(({shape}), np.{_dtype(port)})"


def _torch(port: Port) -> str:
    made = "torch.ones" if port.name == ACTION_MASK else "torch.zeros"
    return f"{made}({', '.join(['batch', *map(str, port.shape)])}, dtype=torch.{port.dtype})"


def _dtype(port: Port) -> str:
    return "bool_" if port.dtype == "bool" else port.dtype

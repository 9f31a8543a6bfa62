"""An exported ONNX file as a policy: what `understudy export` wrote acts as the live one does, memory included."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import CheckpointError, ConfigError, DataError
from understudy.core.files import read_json, sha256_bytes
from understudy.core.protocols import Carry
from understudy.core.spec import ACTION_MASK, Box, Discrete, Spec
from understudy.tools.card import CARD
from understudy.tools.onnx_file import onnx_packages
from understudy.tools.portable import ACTION

CARRY = "carry_"
TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_}
"""What inputs of an exported policy are made of."""


@final
class OnnxPolicy:
    """Greedy, on the CPU, in one thread."""

    def __init__(self, path: Path) -> None:
        _, runtime = onnx_packages()
        self._where = f"policy '{path}'"
        content = path.read_bytes()
        self.sha256 = sha256_bytes(content)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session: Any = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            told = str(error).partition("\n")[0][:200]
            raise CheckpointError(self._where, f"not a readable ONNX file ({told})") from error
        ports = {port.name: port for port in self._session.get_inputs()}
        for name, port in ports.items():
            if port.type not in TYPES:
                raise DataError(self._where, f"its input '{name}' is of a kind no export of ours has", got=port.type)
        self._types = {name: TYPES[port.type] for name, port in ports.items()}
        self._shapes = {name: tuple(port.shape[1:]) for name, port in ports.items()}
        self._observed = [name for name in ports if not name.startswith(CARRY)]
        self._carried = [name for name in ports if name.startswith(CARRY)]
        self._first = [_initial(path, name, self._shapes[name], self._where) for name in self._carried]

    def check_fits(self, spec: Spec, env: str) -> None:
        """Its inputs are groups of the environment, and its action one that the environment takes."""
        groups = {name: group.shape for name, group in spec.observation.items()}
        if spec.masked and isinstance(spec.action, Discrete):
            groups[ACTION_MASK] = (spec.action.count,)
        wrong = [name for name in self._observed if groups.get(name) != self._shapes[name]]
        found = {port.name: port for port in self._session.get_outputs()}
        expected = (spec.action.size,) if isinstance(spec.action, Box) else ()
        action = found.get(ACTION)
        if action is None or tuple(action.shape[1:]) != expected:
            wrong.append(ACTION)
        if wrong:
            shapes = {**self._shapes, ACTION: None if action is None else tuple(action.shape[1:])}
            raise ConfigError(
                self._where,
                f"does not fit environment '{env}'",
                got=", ".join(f"{name} {list(shapes[name] or ())}" for name in wrong),
                expected=spec.describe(),
            )

    def initial(self, count: int) -> Carry:
        return tuple(torch.from_numpy(np.repeat(part[None], count, 0)) for part in self._first)

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        feeds: dict[str, NDArray[Any]] = {
            name: obs[name].numpy(force=True).astype(self._types[name], copy=False) for name in self._observed
        }
        feeds |= {name: part.numpy() for name, part in zip(self._carried, carry, strict=True)}
        outputs: Sequence[NDArray[Any]] = self._session.run([ACTION, *map(_after, self._carried)], feeds)
        action, *after = (torch.from_numpy(part) for part in outputs)
        return action, tuple(after)


def _after(name: str) -> str:
    return f"next_{name}"


def _initial(path: Path, name: str, shape: tuple[int, ...], where: str) -> NDArray[np.float32]:
    """What is remembered at the start of an episode: as the card beside the file says, zeros where it does not."""
    card: Mapping[str, Any] = read_json(path.with_name(CARD)) if path.with_name(CARD).is_file() else {}
    told = {part.get("input"): part.get("initial") for part in card.get("memory", []) if isinstance(part, dict)}
    if told.get(name, "zeros") == "zeros":
        return np.zeros(shape, np.float32)
    try:
        return np.asarray(told[name], np.float32).reshape(shape)
    except (TypeError, ValueError) as error:
        raise DataError(where, f"its card does not say how '{name}' begins ({error})") from error

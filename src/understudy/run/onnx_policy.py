"""An exported ONNX file as a policy: what `understudy export` wrote acts as the live one does, memory included."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import CheckpointError, ConfigError, DataError, MissingPackageError
from understudy.core.files import read_json, sha256_bytes
from understudy.core.protocols import Carry
from understudy.core.spec import ACTION_MASK, ActionSpace, Box, Discrete, MultiDiscrete, Spec

CARRY, ACTION = "carry_", "action"
"""Names of inputs and outputs."""
FILE = "policy.onnx"
"""What an export writes."""
CARD = "card.json"
"""Beside it: all there is to know of it."""
TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_}
"""What inputs of an exported policy are made of."""


@final
class OnnxPolicy:
    """Greedy, on the CPU, in one thread."""

    def __init__(self, path: Path) -> None:
        _, runtime = onnx_packages(f"policy '{path}'")
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
        self._card: Mapping[str, Any] = read_json(path.with_name(CARD)) if path.with_name(CARD).is_file() else {}
        self._first = [self._initial(name, self._shapes[name]) for name in self._carried]

    def check_playable(self, spec: Spec, env: str, *, greedy: bool) -> None:
        """It fits the environment, and nobody wants it to draw."""
        if not greedy:
            raise ConfigError(
                self._where, "is greedy: an exported file does not sample", do="Leave out --stochastic (greedy=False)."
            )
        self.check_fits(spec, env)

    def check_fits(self, spec: Spec, env: str) -> None:
        """Its inputs are groups of the environment, and its action one that the environment takes."""
        wrong = self.differences(spec)
        if wrong:
            raise ConfigError(
                self._where, f"does not fit environment '{env}'", got="; ".join(wrong), expected=spec.describe()
            )

    def differences(self, spec: Spec) -> list[str]:
        """What of its world is not as in this one: its inputs, its action, and that one's limits where a card is beside
        it."""
        groups = {name: group.shape for name, group in spec.observation.items()}
        counts = _counts(spec.action)
        if spec.masked and counts:
            groups[ACTION_MASK] = (sum(counts),)
        wrong = [
            f"{name} {list(self._shapes[name])}" for name in self._observed if groups.get(name) != self._shapes[name]
        ]
        found = {port.name: tuple(port.shape[1:]) for port in self._session.get_outputs()}
        box = spec.action if isinstance(spec.action, Box) else None
        factors = (len(counts),) if isinstance(spec.action, MultiDiscrete) else ()
        if found.get(ACTION) != ((box.size,) if box else factors):
            wrong.append(f"{ACTION} {list(found.get(ACTION, ()))}")
        elif (choices := self._choices()) not in ([], counts):
            wrong.append(f"{ACTION} one of {' × '.join(map(str, choices))}")
        elif box and [told for side in ("low", "high") if (told := self._limits(side)) not in (None, vars(box)[side])]:
            wrong.append(f"{ACTION} from {self._limits('low')} to {self._limits('high')}")
        return wrong

    def _limits(self, side: str) -> tuple[float, ...] | None:
        """Of the action, where the card says them."""
        told = self._card.get("action", {}).get(side)
        return tuple(map(float, told)) if isinstance(told, list) else None

    def _choices(self) -> list[int]:
        """Of each factor of the action, where the card says it."""
        action = self._card.get("action", {})
        told = action.get("multi_discrete", [action["discrete"]] if "discrete" in action else [])
        return [int(count) for count in told] if isinstance(told, list) else []

    def initial(self, count: int) -> Carry:
        return tuple(torch.from_numpy(np.repeat(part[None], count, 0)) for part in self._first)

    @property
    def card(self) -> Mapping[str, Any]:
        """What stands beside the file; empty where nothing does."""
        return self._card

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        feeds: dict[str, NDArray[Any]] = {
            name: obs[name].numpy(force=True).astype(self._types[name], copy=False) for name in self._observed
        }
        feeds |= {name: part.numpy() for name, part in zip(self._carried, carry, strict=True)}
        outputs: Sequence[NDArray[Any]] = self._session.run([ACTION, *map(_after, self._carried)], feeds)
        action, *after = (torch.from_numpy(part) for part in outputs)
        return action, tuple(after)

    def _initial(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """What is remembered at the start of an episode: as the card beside the file says, zeros where it does not."""
        parts = self._card.get("memory", [])
        told = {part.get("input"): part.get("initial") for part in parts if isinstance(part, dict)}
        if told.get(name, "zeros") == "zeros":
            return np.zeros(shape, np.float32)
        try:
            return np.asarray(told[name], np.float32).reshape(shape)
        except (TypeError, ValueError) as error:
            raise DataError(self._where, f"its card does not say how '{name}' begins ({error})") from error


def is_exported(path: Path) -> bool:
    """An .onnx file, or the folder of an export."""
    return path.suffix == ".onnx" or (path / CARD).is_file()


def open_exported(path: Path) -> OnnxPolicy:
    """The policy in an .onnx file, or in the folder of an export."""
    where, file = f"policy '{path}'", path / FILE if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise CheckpointError(
            where, f"holds no {FILE}", do="TorchScript is code, and is not run here: export the policy as ONNX, too."
        )
    if not file.is_file():
        raise CheckpointError(where, "no such file")
    return OnnxPolicy(file)


def _counts(space: ActionSpace) -> list[int]:
    """Choices of each factor; nothing of a box."""
    if isinstance(space, MultiDiscrete):
        return list(space.counts)
    return [space.count] if isinstance(space, Discrete) else []


def _after(name: str) -> str:
    return f"next_{name}"


def onnx_packages(where: str = "export") -> tuple[ModuleType, ModuleType]:
    """onnx and onnxruntime, or how to install them."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPackageError(
            where, f"ONNX needs onnx and onnxruntime ({error})", do="Run: pip install 'understudy-rl[export]'"
        ) from error
    return onnx, onnxruntime

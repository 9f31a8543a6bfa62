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
from understudy.core.spec import ACTION_MASK, ActionSpace, Box, Discrete, MultiDiscrete, Spec, space_json
from understudy.nn.policy_fit import mask_differences

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
        self._card = self._read_card(path.with_name(CARD))
        self._first = [self._initial(name, self._shapes[name]) for name in self._carried]

    def _read_card(self, path: Path) -> Mapping[str, Any]:
        """What lies beside the file, of which anything may be missing."""
        card = read_json(path) if path.is_file() else {}
        if not isinstance(card.get("action", {}), dict) or not isinstance(card.get("memory", []), list):
            raise DataError(self._where, f"the {CARD} beside it is not the card of a policy", do="Remove it.")
        return card

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
        """What of its world is not as in this one: its inputs, masks, its action, and that one's limits or number of
        choices where a card is beside it."""
        shapes = {name: group.shape for name, group in spec.observation.items()}
        if spec.masked:
            shapes[ACTION_MASK] = (sum(_choices(spec.action)),)
        masks = mask_differences(ACTION_MASK in self._observed, spec)
        named = [name for name in self._observed if name != ACTION_MASK or not masks]
        wrong = [f"{name} {list(self._shapes[name])}" for name in named if shapes.get(name) != self._shapes[name]]
        found = {port.name: tuple(port.shape[1:]) for port in self._session.get_outputs()}
        if found.get(ACTION) != _sent_shape(spec.action):
            wrong.append(f"{ACTION} {list(found.get(ACTION, ()))}")
        else:
            wrong += self._beyond_its_shape(spec.action)
        return wrong + masks

    def _beyond_its_shape(self, space: ActionSpace) -> list[str]:
        """What a card says of the action that its shape does not."""
        if isinstance(space, Box):
            differ = [told for side in ("low", "high") if (told := self._limits(side)) not in (None, vars(space)[side])]
            return [f"{ACTION} from {self._limits('low')} to {self._limits('high')}"] if differ else []
        told = self._card.get("action", {})
        return [f"{ACTION} of {told[kind]} choices" for kind, n in space_json(space).items() if told.get(kind, n) != n]

    def _limits(self, side: str) -> tuple[float, ...] | None:
        """Of the action, where the card says them."""
        told = self._card.get("action", {}).get(side)
        numbers = isinstance(told, list) and all(isinstance(limit, (int, float)) for limit in told)
        return tuple(map(float, told)) if numbers else None

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
        told = {str(part.get("input")): part.get("initial") for part in parts if isinstance(part, dict)}
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


def _choices(space: ActionSpace) -> tuple[int, ...]:
    """Of each factor."""
    if isinstance(space, MultiDiscrete):
        return space.counts
    return (space.count,) if isinstance(space, Discrete) else ()


def _sent_shape(space: ActionSpace) -> tuple[int, ...]:
    """Of one action."""
    if isinstance(space, Box):
        return (space.size,)
    return (len(space.counts),) if isinstance(space, MultiDiscrete) else ()


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

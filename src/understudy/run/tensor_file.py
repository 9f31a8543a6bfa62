"""Files of tensors, read only after their size and before anything in them is believed."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from understudy.core.errors import CheckpointError
from understudy.core.files import read_bytes, sha256_bytes
from understudy.core.machine_memory import machine_memory, told_bytes
from understudy.core.state import nonfinite


def read_tensors(path: Path, digest: str | None, where: str, limit: int) -> dict[str, Tensor]:
    """The tensors of a file of at most `limit` bytes whose sha256 is `digest`; all their numbers are finite."""
    try:
        content = read_bytes(path, min(limit, machine_memory()))
        if sha256_bytes(content) != digest:
            raise CheckpointError(where, f"damaged: the sha256 of {path.name} differs")
        tensors = load_tensors(content)
        check_finite(tensors, where)
    except OSError as error:
        raise CheckpointError(where, f"damaged or incomplete ({path.name}: {error.strerror})") from error
    except MemoryError as error:
        size = told_bytes(path.stat().st_size)
        raise CheckpointError(where, f"there is not memory enough for the {size} of {path.name}") from error
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(where, f"damaged or incomplete ({path.name}: {error})") from error
    return tensors


def check_finite(tensors: dict[str, Tensor], where: str) -> None:
    """Refuse weights that are not finite by name: what they made of observations would be no action."""
    for name in nonfinite(dict(tensors)):
        values = tensors[name].flatten()
        worst = values[~values.isfinite()][0]
        raise CheckpointError(
            where,
            f"'{name}' holds numbers that are not finite",
            got=float(worst),
            do="Take another checkpoint: nothing good comes of this one.",
        )

"""Shape rules every loss starts with.

A (B,) weight times a (B, 1) error broadcasts to (B, B) and averages to a plausible number: the most
expensive silent bug of this field. Nothing here broadcasts.
"""

from torch import Tensor


def check_same_shape(**tensors: Tensor) -> None:
    """All tensors have one shape; otherwise the names and shapes are told."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise ValueError(f"shapes must be equal, nothing broadcasts here: got {told}")


def check_no_gradient(**targets: Tensor) -> None:
    """Targets are constants; one that carries gradient is a bug of the caller."""
    for name, target in targets.items():
        if target.requires_grad:
            raise ValueError(f"{name} carries gradient: detach it, a target is a constant")

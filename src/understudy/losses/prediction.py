"""How wrong a prediction is, per sample, where that is worth something by itself."""

from typing import Literal

from torch import Tensor

from understudy.core.checks import check_same_shape

ErrorKind = Literal["squared", "norm"]


def prediction_error(predicted: Tensor, target: Tensor, kind: ErrorKind = "squared") -> Tensor:
    """[..., K] → [...]: the mean of squares over K as Burda et al. 2018, or ‖·‖₂ (`norm`) as rsl_rl."""
    check_same_shape(predicted=predicted, target=target)
    apart = predicted - target
    return apart.square().mean(-1) if kind == "squared" else apart.norm(dim=-1)

"""How far a policy is from doing the mirrored thing in the mirrored state, per sample."""

from torch import Tensor

from understudy.core.checks import check_same_shape


def mirror_loss(of_mirrored: Tensor, mirrored: Tensor) -> Tensor:
    """‖μ(M_s s) − M_a μ(s)‖²/A [...] of actions, or of probabilities of choices, [..., A]."""
    check_same_shape(of_mirrored=of_mirrored, mirrored=mirrored)
    return (of_mirrored - mirrored).square().mean(-1)

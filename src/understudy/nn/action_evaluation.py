"""What a policy thinks of actions."""

from typing import NamedTuple

from torch import Tensor


class ActionEvaluation(NamedTuple):
    """How likely they are, how wide the choice was, and all the density depends on."""

    log_prob: Tensor
    """[...]."""
    entropy: Tensor
    """[...]."""
    features: Tensor
    """[..., F]: the whole density in these states, for `kl`."""

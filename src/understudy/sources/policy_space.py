"""From the units of an environment to those of a policy."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from understudy.core.batch import Transitions
from understudy.core.spec import ActionSpace, Box


def into_policy_space(space: ActionSpace, device: torch.device) -> Callable[[Transitions], Transitions]:
    """A map of rows whose continuous actions end up in [-1, 1]; choices stay the whole numbers they are."""
    if not isinstance(space, Box):
        return lambda rows: rows
    centre = torch.as_tensor(space.centre, dtype=torch.float32, device=device)
    scale = torch.as_tensor(1.0 / space.half_range, dtype=torch.float32, device=device)

    def normalise(action: Tensor) -> Tensor:
        return (action - centre) * scale

    def convert(rows: Transitions) -> Transitions:
        extra = dict(rows.extra)
        if "next_action" in extra:
            extra["next_action"] = normalise(extra["next_action"])
        return replace(rows, action=normalise(rows.action), extra=extra)

    return convert

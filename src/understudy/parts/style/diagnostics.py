"""What is normal while a style is learned, and what is not: numbers for a log, and a sentence where they say nothing
will be learned.

A discriminator's own numbers say how a game stands, not how well a policy moves: distances do, which nobody can
deceive.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from understudy.core.protocols import Metrics
from understudy.nn.normalization import Normalizer

SURE, POOR, PATIENCE = 0.98, 0.1, 20
"""Saturated: so many windows are told rightly, less than so much of a draw is paid, after so many updates."""


def nearest_distance(rows: Tensor, others: Tensor) -> Tensor:
    """√(mean square) [B] from rows [B, F] to the nearest of others [M, F]."""
    nearest: Tensor = torch.cdist(rows, others).amin(1)
    return nearest / math.sqrt(rows.shape[1])


def window_distances(policy: Tensor, motions: Tensor, normalizer: Normalizer) -> Metrics:
    """How far windows of a policy [B, n, F], and of motions themselves, are from the nearest of other motions, in
    units of the normaliser; `motions` [M, n, F] are more than B."""
    shown, whole = (normalizer(windows).flatten(1) for windows in (policy, motions))
    ours, others = whole[: len(shown)], whole[len(shown) :]
    return {
        "distance": nearest_distance(shown, others).mean(),
        "distance_motions": nearest_distance(ours, others).mean(),
    }


def feature_gaps(policy: Tensor, motions: Tensor, normalizer: Normalizer, sizes: Mapping[str, int]) -> Metrics:
    """|mean of policy − mean of motions| of each feature, over its columns, in units of the normaliser."""
    apart = (normalizer(policy).mean((0, 1)) - normalizer(motions).mean((0, 1))).abs()
    parts = zip(sizes, apart.split(list(sizes.values())), strict=True)
    return {f"gap.{name}": part.mean() for name, part in parts}


def saturation(values: Mapping[str, float], normal: float, features: Sequence[str], updates: int, where: str) -> str:
    """The discriminator knows everything, and pays next to nothing whatever the policy does: what to do then.

    `values` are numbers of a log, `normal` what is paid in a draw.
    """
    told = [values.get(f"style/accuracy_{kind}", 0.0) for kind in ("expert", "policy")]
    paid = values.get("style/reward", normal)
    if updates < PATIENCE or min(told) < SURE or paid > POOR * normal:
        return ""
    gaps = {name: values.get(f"style/gap.{name}", 0.0) for name in features}
    worst = max(gaps, key=lambda name: gaps[name])
    return (
        f"{where}: the discriminator is saturated: it is right about {min(told):.0%} of windows or more, and the style "
        f"reward is {paid:.3g}, where a draw would be worth {normal:.3g}. Policy and motions differ most in '{worst}' "
        f"({gaps[worst]:.2g} deviations on average): if those are other units, another order of joints or another "
        f"frame of reference, mend {where}.features or motions.joints. Else slow the discriminator down: "
        f"{where}.adapt=true, a lower learning_rate, fewer steps, or a larger gradient_penalty."
    )

"""What is normal while a style is learned, and what is not: numbers for a log, and a sentence where they say nothing
will be learned.

A discriminator's own numbers say how a game stands, not how well a policy moves: distances do, which nobody can
deceive.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.core.protocols import Metrics
from understudy.nn.normalization import Normalizer

SURE, POOR, PATIENCE = 0.98, 0.1, 20
"""Saturated: so many windows are told rightly, and less than so much of the way to a draw is paid, after so many
updates."""


def nearest_distance(rows: Tensor, others: Tensor, *, twins: bool = True) -> Tensor:
    """√(mean square) [B] from rows [B, F] to the nearest of others [M, F]; without `twins`, to the nearest that is not
    the same, and 0 where there is none."""
    apart: Tensor = torch.cdist(rows, others, compute_mode="donot_use_mm_for_euclid_dist")
    if not twins:
        apart = apart.masked_fill(apart == 0, math.inf)
    nearest = apart.amin(1)
    return nearest.masked_fill(nearest.isinf(), 0.0) / math.sqrt(rows.shape[1])


def window_distances(policy: Tensor, motions: Tensor, normalizer: Normalizer) -> Metrics:
    """How far windows of a policy [B, n, F], and of motions themselves, are from the nearest of other motions, in
    units of the normaliser; `motions` [M, n, F] are more than B, and a few clips are drawn more than once."""
    shown, whole = (normalizer(windows).flatten(1) for windows in (policy, motions))
    ours, others = whole[: len(shown)], whole[len(shown) :]
    return {
        "distance": nearest_distance(shown, others).mean(),
        "distance_motions": nearest_distance(ours, others, twins=False).mean(),
    }


def feature_gaps(policy: Tensor, motions: Tensor, normalizer: Normalizer, sizes: Mapping[str, int]) -> Metrics:
    """|mean of policy − mean of motions| of each feature, over its columns, in units of the normaliser."""
    apart = (normalizer(policy).mean((0, 1)) - normalizer(motions).mean((0, 1))).abs()
    parts = zip(sizes, apart.split(list(sizes.values())), strict=True)
    return {f"gap.{name}": part.mean() for name, part in parts}


@dataclass(frozen=True)
class Stakes:
    """What a window is worth: where nobody can tell it from motions, and where nobody has a doubt."""

    draw: float
    lost: float


def style_warning(
    values: Mapping[str, float], stakes: Stakes, features: Sequence[str], updates: int, where: str
) -> str:
    """What is wrong with these numbers of a log: no window at all, or a discriminator that knows everything and pays
    next to nothing whatever the policy does."""
    if updates < PATIENCE:
        return ""
    if values.get("style/whole") == 0:
        return (
            f"{where}: no step has {where}.frames frames of its episode behind it, so nothing is paid and nothing is "
            "learned: episodes end sooner. Lower frames."
        )
    told = [values.get(f"style/accuracy_{kind}", 0.0) for kind in ("expert", "policy")]
    paid = values.get("style/reward", stakes.draw)
    if min(told) < SURE or paid - stakes.lost > POOR * (stakes.draw - stakes.lost):
        return ""
    gaps = {name: values.get(f"style/gap.{name}", 0.0) for name in features}
    worst = max(gaps, key=lambda name: gaps[name])
    return (
        f"{where}: the discriminator is saturated: it is right about {min(told):.0%} of windows or more, and the style "
        f"reward is {paid:.3g}, where a draw would be worth {stakes.draw:.3g}. Policy and motions differ most in "
        f"'{worst}' ({gaps[worst]:.2g} deviations on average): if those are other units, another order of joints or "
        f"another frame of reference, mend {where}.features or motions.joints. Else slow the discriminator down: "
        f"{where}.adapt=true, a lower learning_rate, fewer steps, or a larger gradient_penalty."
    )

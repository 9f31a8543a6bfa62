"""Where a clip comes round: the stretch of it that closes best, to be cut out and looped."""

from dataclasses import dataclass
from typing import final

import torch

from understudy.data.motions.clip import Clip
from understudy.data.motions.resampling import differences

SHORTEST = 0.4
"""Seconds of a round; a step of a runner takes less, two of them more."""
MOST_FRAMES = 3000
"""Of a longer clip only the beginning is looked at: every frame is compared with every other."""
SPEEDS = 0.05
"""Seconds: what a velocity counts beside an angle. A knee that bends is not where one is that stretches."""


@final
@dataclass(frozen=True)
class Round:
    """From `start` to `end`, in seconds, after which the frame at `start` would follow."""

    start: float
    end: float
    gap: float
    """How far the joint that is farthest is from closing, in radians."""


def best_round(clip: Clip) -> Round | None:
    """The stretch whose next frame is most like its first; none where the clip is too short to come round."""
    joints = clip.channels.get("joint_positions")
    if joints is None or clip.frames < 4:
        return None
    angles, times = joints.values[:MOST_FRAMES], clip.times[:MOST_FRAMES]
    features = torch.cat([angles, SPEEDS * differences(joints, clip.times)[:MOST_FRAMES]], 1)
    apart = torch.cdist(features, features)
    apart[times.unsqueeze(0) - times.unsqueeze(1) < SHORTEST] = torch.inf
    first, after = divmod(int(apart.argmin()), len(times))
    if not bool(apart[first, after].isfinite()):
        return None
    gap = float((angles[after] - angles[first]).abs().max())
    return Round(float(times[first]), float(times[after - 1]), gap)

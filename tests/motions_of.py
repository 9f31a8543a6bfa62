"""Motions made of arrays, for whoever tracks them: laps of a point mass, and states of other environments."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.data.motions import MotionSet
from understudy.data.motions.columns import Column, Columns, HeldRows
from understudy.data.motions.motion_set import clip_table
from understudy.envs.builtin.circle import SECONDS, circle_motion

Arrays = Mapping[str, NDArray[Any]]


def motions_of(clips: Sequence[Arrays], *, looped: bool = False, step: float = float("nan")) -> MotionSet:
    """Each clip's channels [F, K]; components are called 0, 1, …"""
    columns = {
        name: Column(
            HeldRows(torch.from_numpy(np.concatenate([clip[name] for clip in clips]).astype(np.float32))),
            tuple(map(str, range(clips[0][name].shape[1]))),
        )
        for name in clips[0]
    }
    lengths = [len(next(iter(clip.values()))) for clip in clips]
    table = clip_table(
        [f"clip {number}" for number in range(len(clips))],
        lengths,
        [looped] * len(clips),
        [1.0] * len(clips),
        torch.zeros(len(clips), 3),
    )
    return MotionSet("arrays", Columns(columns), table, step=step)


def laps(*, looped: bool = True, **circle: Any) -> MotionSet:
    return motions_of([circle_motion(**circle)], looped=looped, step=SECONDS)

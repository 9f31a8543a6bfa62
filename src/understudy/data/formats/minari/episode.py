"""One episode of a Minari dataset, from arrays in the shape Minari keeps them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.data.episode import Array, Episode, check_flags
from understudy.data.formats.hdf5_column import check_unfolded
from understudy.data.formats.minari.spaces import Action, Leaf


def one_hot_column(values: Array, leaf: Leaf, limit: int, where: str) -> NDArray[np.uint8]:
    """A choice [n] as vectors [n, count]."""
    flat = values.reshape(-1)
    if values.dtype.kind not in "iu" or flat.shape[0] != len(values):
        raise DataError(where, "not a choice", got=f"{values.dtype} {list(values.shape)}", expected="whole numbers [n]")
    chosen = flat.astype(np.int64) - leaf.start
    wrong = np.flatnonzero((chosen < 0) | (chosen >= leaf.count))
    if len(wrong):
        raise DataError(
            f"{where}, row {wrong[0]}", "no such choice", got=flat[wrong[0]], expected=f"one of {leaf.count}"
        )
    check_unfolded(len(chosen) * leaf.count, limit, where)
    vectors = np.zeros((len(chosen), leaf.count), np.uint8)
    vectors[np.arange(len(chosen)), chosen] = 1
    return vectors


def build_episode(
    observations: Mapping[str, Array],
    actions: Array,
    rewards: Array,
    flags: tuple[Array, Array],
    action: Action,
    where: str,
    *,
    final_known: bool = True,
    mask: Array | None = None,
    extra: Mapping[str, Array] | None = None,
) -> Episode:
    """n steps from n or n+1 observations; `flags` are terminations and truncations [n], of which the first wins."""
    steps = len(rewards)
    for name, values in (("actions", actions), ("terminations", flags[0]), ("truncations", flags[1])):
        if len(values) != steps:
            raise DataError(where, f"has {steps} rewards and {len(values)} {name}")
    terminated, truncated = (_ended(values, f"{where}, {name}") for values, name in zip(flags, NAMES, strict=True))
    kept = steps + 1 if final_known else steps
    if all(len(values) == steps for values in observations.values()):
        kept = steps  # some collectors lost the last observation (Minari issue 199)
    for name, values in observations.items():
        if not kept <= len(values) <= steps + 1:
            raise DataError(
                where, f"has {steps} actions and {len(values)} observations of '{name}'", expected=steps + 1
            )
    return Episode(
        {name: values[:kept] for name, values in observations.items()},
        action.read(actions),
        rewards.reshape(-1),
        terminated,
        truncated and not terminated,
        kept == steps + 1,
        None if mask is None else mask[:kept],
        extra or {},
    )


NAMES = ("terminations", "truncations")


def _ended(values: Array, where: str) -> bool:
    """Whether the episode ended so; a flag before the last step contradicts that it is one episode."""
    flags = check_flags(values.reshape(-1), where)
    early = np.flatnonzero(flags[:-1])
    if len(early):
        raise DataError(
            f"{where}, row {early[0]}",
            "ends the episode before its last step",
            do=f"The episode has {len(flags)} steps; split it there, or clear the flag.",
        )
    return bool(len(flags) and flags[-1])

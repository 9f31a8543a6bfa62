"""d3rlpy's HDF5 files. Version 2 (`ReplayBuffer.dump`) has a dataset per episode and column: `observations_0`,
`actions_0`, `rewards_0`, `terminated_0`, and `observations_0_1` for the second of several observations. Version 1
(`MDPDataset.dump`) has flat columns and is read like D4RL's, its `episode_terminals` being ends of either kind.

An episode of n actions has n observations there: what followed the last one was not kept.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from understudy.core.errors import DataError
from understudy.data.episode import Array, Episode, check_flags
from understudy.data.formats.hdf5 import Hdf5Group, open_hdf5_root
from understudy.data.recording import Recording

COUNT = "num_episodes"
FIRST = ("observations_0", "observations_0_0")


def is_d3rlpy(root: Hdf5Group) -> bool:
    return COUNT in root and any(name in root for name in FIRST)


def open_d3rlpy(path: Path) -> Recording:
    """The episodes of a dumped replay buffer."""
    where = f"dataset '{path}'"
    root = open_hdf5_root(path, where)
    names = set(root.names())
    count = root.column(COUNT)
    number = count.whole()
    if count.shape != () or number.dtype.kind not in "iu" or not 0 < int(number) <= len(names):
        raise DataError(f"{where}, {COUNT}", "not how many episodes it has", got=f"{number!s:.40}")
    episodes = int(number)
    steps = 0
    for episode in range(episodes):
        if f"actions_{episode}" not in names:
            raise DataError(where, f"has no 'actions_{episode}'", expected=f"{episodes} episodes")
        steps += len(root.column(f"actions_{episode}"))
    cut = sum(not _ended(root, episode, where) for episode in range(episodes))
    notes = [f"{cut} of {episodes} episodes did not terminate: their last step has no successor."] if cut else []

    def play() -> Iterator[Episode]:
        for episode in range(episodes):
            yield _episode(root, names, episode, where)

    return Recording(path.name, steps, play, layout="d3rlpy", notes=tuple(notes))


def _episode(root: Hdf5Group, names: set[str], number: int, where: str) -> Episode:
    place = f"{where}, episode {number}"
    actions = root.column(f"actions_{number}").whole()
    rewards = root.column(f"rewards_{number}").whole()
    terminated = _ended(root, number, where)
    return Episode(
        _observations(root, names, number, place),
        actions[:, 0] if actions.ndim == 2 and actions.shape[1] == 1 and actions.dtype.kind in "iu" else actions,
        rewards.reshape(-1) if rewards.shape in {(len(actions),), (len(actions), 1)} else rewards,
        terminated,
        not terminated,
        final_known=False,
    )


def _observations(root: Hdf5Group, names: set[str], number: int, where: str) -> dict[str, Array]:
    if f"observations_{number}" in names:
        return {"state": root.column(f"observations_{number}").whole()}
    groups: dict[str, Array] = {}
    while (name := f"observations_{number}_{len(groups)}") in names:
        groups[f"observation_{len(groups)}"] = root.column(name).whole()
    if not groups:
        raise DataError(where, "has no observations")
    return groups


def _ended(root: Hdf5Group, number: int, where: str) -> bool:
    name = f"terminated_{number}"
    flag = root.column(name).whole()
    if flag.size != 1:
        raise DataError(f"{where}, {name}", "not one flag", got=list(flag.shape))
    return bool(check_flags(np.asarray(flag).reshape(1), f"{where}, {name}")[0])

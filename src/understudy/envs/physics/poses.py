"""Poses: how the observation of an environment becomes its state again, for those where it can.

MuJoCo environments hide the global position, on which nothing depends: it is set to 0. What is computed from the
state (contact forces, inertias) is never read, and not predicted either. Ids -v2 and -v3 are absent: Gymnasium
registers them, but they need the old mujoco-py and cannot be made.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Put = Callable[[Any, Floats], None]

HUGE = 1e6
"""No state or action is as large; some environments loop for ever or raise on one that is."""
STOPPED = -0.98
"""The cosine of 2.94 rad; Reacher's elbow is stopped at 3."""


@contextmanager
def silent_mujoco() -> Iterator[None]:
    """An unstable simulation is one more mismatch here, not a line in MUJOCO_LOG.TXT of the current folder."""
    import mujoco  # type: ignore[import-untyped]

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _shown(env: Any) -> Any:
    return env._get_obs()


def _plain_state(env: Any) -> Floats32:
    return np.array(env.state, np.float32)


@dataclass(frozen=True)
class Pose:
    """What the first `columns` of an observation say of the state, and how an environment is put there."""

    columns: int
    put: Put
    hidden: tuple[int, int] = (0, 0)
    """From and up to which column values are cut off at ±`limit` in the observation, but not in the state."""
    limit: float = HUGE
    wound: int = -1
    """The column of the cosine of a joint that is stopped before half a turn, and may be pressed beyond it: then its
    sine tells the other side. -1: there is none."""
    rewards: bool = True
    """False: the reward also depends on something the observation does not hold."""
    quietly: Callable[[], AbstractContextManager[None]] = nullcontext
    unhealthy: bool = False
    """True: the environment says of the state it stands in whether it is over (`is_healthy`)."""
    shown: Callable[[Any], Any] = _shown
    """What the environment shows of the state it stands in."""

    def is_whole(self, observations: Floats) -> NDArray[np.bool_]:
        """Whether each observation [N, S] holds the whole state -> [N]."""
        state = np.abs(observations[:, : self.columns])
        bounds = np.full(self.columns, HUGE)
        bounds[slice(*self.hidden)] = self.limit
        whole: NDArray[np.bool_] = np.all(state < bounds, axis=1)
        return whole if self.wound < 0 else whole & (observations[:, self.wound] > STOPPED)


def _put_pendulum(env: Any, observation: Floats) -> None:
    cosine, sine, velocity = observation
    env.state = np.array([np.arctan2(sine, cosine), velocity])


def _put_cart_pole(env: Any, observation: Floats) -> None:
    env.state = observation.copy()
    env.steps_beyond_terminated = None


def _put_mountain_car(env: Any, observation: Floats) -> None:
    env.state = (observation[0], observation[1])


def _put_continuous_mountain_car(env: Any, observation: Floats) -> None:
    env.state = observation.astype(np.float32)  # the environment keeps its own state in this precision


def _put_acrobot(env: Any, observation: Floats) -> None:
    angles = np.arctan2(observation[[1, 3]], observation[[0, 2]])
    env.state = np.concatenate([angles, observation[4:]])


def _set_joints(env: Any, positions: Floats, velocities: Floats) -> None:
    """The solver would start warm from the step before: it is reset, so that rows do not know each other."""
    import mujoco

    mujoco.mj_resetData(env.model, env.data)
    env.set_state(positions, velocities)


def _joints(skipped: int) -> Put:
    """All joint positions but the first `skipped`, then all velocities."""

    def put(env: Any, observation: Floats) -> None:
        seen = env.model.nq - skipped
        _set_joints(env, np.concatenate([np.zeros(skipped), observation[:seen]]), observation[seen:])

    return put


def _put_double_pendulum(env: Any, observation: Floats) -> None:
    angles = np.arctan2(observation[1:3], observation[3:5])
    _set_joints(env, np.concatenate([observation[:1], angles]), observation[5:8])


def _put_reacher(env: Any, observation: Floats) -> None:
    """The goal is two joints that never move."""
    angles, goal = np.arctan2(observation[2:4], observation[0:2]), observation[4:6]
    _set_joints(env, np.concatenate([angles, goal]), np.concatenate([observation[6:8], np.zeros(2)]))


def _mujoco(
    columns: int, put: Put, hidden: tuple[int, int] = (0, 0), *, rewards: bool = True, unhealthy: bool = False
) -> Pose:
    return Pose(columns, put, hidden, limit=10.0, rewards=rewards, quietly=silent_mujoco, unhealthy=unhealthy)


_REACHER = replace(_mujoco(8, _put_reacher), wound=1)
_MUJOCO = {
    "HalfCheetah": _mujoco(17, _joints(1)),
    "Hopper": _mujoco(11, _joints(1), hidden=(5, 11), unhealthy=True),
    "Walker2d": _mujoco(17, _joints(1), hidden=(8, 17), unhealthy=True),
    "Swimmer": _mujoco(8, _joints(2)),
    "InvertedPendulum": _mujoco(4, _joints(0)),
    "InvertedDoublePendulum": _mujoco(8, _put_double_pendulum, hidden=(5, 8)),
    # Body positions lag the joints by one inner step, and the reward of these is a difference of two of them.
    "Ant": _mujoco(27, _joints(2), rewards=False, unhealthy=True),
    "Humanoid": _mujoco(45, _joints(2), rewards=False, unhealthy=True),
    "HumanoidStandup": _mujoco(45, _joints(2)),
    "Reacher": _REACHER,
}

POSES: dict[str, Pose] = {
    "Pendulum-v1": Pose(3, _put_pendulum),
    "CartPole-v0": Pose(4, _put_cart_pole, shown=_plain_state),
    "CartPole-v1": Pose(4, _put_cart_pole, shown=_plain_state),
    "MountainCar-v0": Pose(2, _put_mountain_car, shown=_plain_state),
    "MountainCarContinuous-v0": Pose(2, _put_continuous_mountain_car, shown=_plain_state),
    # Its speeds are at most 9π; from much faster ones it winds its angles back 2π at a time, for ever.
    "Acrobot-v1": Pose(6, _put_acrobot, hidden=(4, 6), limit=30.0, shown=lambda env: env._get_ob()),
    **{f"{name}-v{version}": pose for name, pose in _MUJOCO.items() for version in (4, 5)},
    "Reacher-v4": replace(_REACHER, rewards=False),  # rewarded before the step, from body positions that lag
}

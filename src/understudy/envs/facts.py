"""Facts of registered environments: how long an episode may last, whether it can end before that, and what observation
columns earlier versions showed and a later one leaves out."""

import gymnasium
from gymnasium.envs.registration import EnvSpec

from understudy.envs.gym import make_env

ENDLESS = {
    *("Pendulum", "HalfCheetah", "Reacher", "Pusher", "Swimmer", "HumanoidStandup", "HalfCheetahBulletEnv"),
    *("UnderstudyPendulumMasked", "UnderstudyWindyPoint", "UnderstudyWindyThrusters"),
    *(f"AdroitHand{task}{kind}" for task in ("Door", "Hammer", "Relocate") for kind in ("", "Sparse")),
    *(f"Fetch{task}{kind}" for task in ("Reach", "Push", "Slide", "PickAndPlace") for kind in ("", "Dense")),
}
"""Nothing ends these but the time limit: a stored terminal is a time limit in disguise."""
ENDING = {
    *("CartPole", "MountainCar", "MountainCarContinuous", "Acrobot", "InvertedPendulum", "InvertedDoublePendulum"),
    *("Hopper", "Walker2d", "Ant", "Humanoid", "UnderstudyBattle", "UnderstudyBattleScripted"),
    *("FrankaKitchen", "UnderstudyKitchenSlider", "UnderstudyKitchenBurner"),
    *("UnderstudyCartPoleMasked", "UnderstudyCartPolePixels"),
}
WORLD_BODY = (*range(45, 55), *range(185, 191), *range(269, 275), *range(292, 298))
"""Of humanoids up to -v4: inertia, velocity, actuator forces and contact forces of the ground itself."""

FORMER_COLUMNS: dict[str, tuple[int, tuple[int, ...]]] = {
    "Ant-v4": (111, tuple(range(27, 111))),  # all contact forces
    "Ant-v5": (111, tuple(range(27, 33))),  # contact forces on the ground
    "Humanoid-v5": (376, WORLD_BODY),
    "HumanoidStandup-v5": (376, WORLD_BODY),
    "InvertedDoublePendulum-v5": (11, (9, 10)),  # constraint forces of joints that cannot be blocked
    "Reacher-v5": (11, (10,)),  # the height of a finger that moves in a plane
}
"""Id to the former width, and the columns of it that are gone; the rest is equal to the bit, in the same order."""


def registered(env_id: str) -> EnvSpec:
    """The registry's entry of an id; an unknown id is refused with the closest known one."""
    if env_id not in gymnasium.registry:
        make_env(env_id).close()
    return gymnasium.registry[env_id]


def time_limit(env_id: str) -> int | None:
    """Steps after which the registry truncates an episode, None if it never does. Needs no simulator.

    Versions that moved to other packages (Hopper-v2) are registered without one: another version's is theirs.
    """
    own = registered(env_id)
    family = [own, *(spec for spec in gymnasium.registry.values() if spec.name == own.name)]
    return next((spec.max_episode_steps for spec in family if spec.max_episode_steps is not None), None)


def can_terminate(env_id: str) -> bool | None:
    """Whether an episode can end before the time limit; None: not known of this environment."""
    name = env_id.rpartition("-v")[0]
    if name in ENDLESS | ENDING:
        return name in ENDING
    return None


def former_columns(env_id: str, width: int) -> tuple[int, ...]:
    """The columns of a `width` wide observation that only earlier versions of this environment have."""
    former, gone = FORMER_COLUMNS.get(env_id, (0, ()))
    return gone if width == former else ()

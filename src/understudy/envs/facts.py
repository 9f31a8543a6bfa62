"""Facts of registered environments: how long an episode may last, and whether it can end before that."""

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

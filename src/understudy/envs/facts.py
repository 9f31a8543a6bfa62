"""Facts of registered environments: how long an episode may last, whether it can end before that, what observation
columns earlier versions showed and a later one leaves out, and what machine is in it."""

from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from understudy.core.errors import ConfigError
from understudy.core.motion import Motions
from understudy.envs.gym import Env, make_env

UNEQUAL = 0.01
"""By which share the motions' step may differ from the environment's."""
ENDLESS = {
    *("Pendulum", "HalfCheetah", "Reacher", "Pusher", "Swimmer", "HumanoidStandup", "HalfCheetahBulletEnv"),
    *("UnderstudyPendulumMasked", "UnderstudyWindyPoint", "UnderstudyWindyThrusters"),
    *("UnderstudyCircle", "UnderstudyCircleSpeed"),
    *(f"UnderstudyZones{kind}" for kind in ("", "Ground", "Mirror", "Left", "Right")),
    *(f"AdroitHand{task}{kind}" for task in ("Door", "Hammer", "Relocate") for kind in ("", "Sparse")),
    *(f"Fetch{task}{kind}" for task in ("Reach", "Push", "Slide", "PickAndPlace") for kind in ("", "Dense")),
}
"""Nothing ends these but the time limit: a stored terminal is a time limit in disguise."""
ENDING = {
    *("CartPole", "MountainCar", "MountainCarContinuous", "Acrobot", "InvertedPendulum", "InvertedDoublePendulum"),
    *("Hopper", "Walker2d", "Ant", "Humanoid", "UnderstudyBattle", "UnderstudyBattleScripted"),
    *("FrankaKitchen", "UnderstudyKitchenSlider", "UnderstudyKitchenBurner"),
    *("UnderstudyCartPoleMasked", "UnderstudyCartPolePixels", "UnderstudyDeepSea"),
    *("UnderstudyHumanoid", "UnderstudyHumanoidSpeed"),
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


def control_step(env: Env) -> float | None:
    """Seconds of a step, where the environment tells them."""
    told = vars(env.unwrapped)
    if "model" in told and (repeats := _repeats(told)):
        return float(told["model"].opt.timestep * repeats)
    step = told.get("dt", told.get("tau"))
    return step if isinstance(step, float) and step > 0 else None


def check_step(env: Env, motions: Motions) -> None:
    """The motions are told as fast as the environment steps, where both say it."""
    step = control_step(env)
    if step is not None and abs(motions.step - step) > UNEQUAL * step:  # not of nan
        raise ConfigError("motions.step", "is not the environment's", got=f"{motions.step:g} s", expected=f"{step:g} s")


def _repeats(told: dict[str, Any]) -> int:
    """Steps of MuJoCo in one of the environment; 0 where there is none."""
    repeats = told.get("frame_skip", told.get("n_substeps"))
    return repeats if isinstance(repeats, int) else 0


def control_facts(env_id: str) -> dict[str, Any]:
    """What an environment tells of the machine in it: `control_step` in seconds, and of MuJoCo's `joint_names` in the
    order of the action, with `joint_stiffness` and `joint_damping` where its actuators are servos."""
    env = make_env(env_id)
    try:
        step, told = control_step(env), vars(env.unwrapped)
        if step is None:
            return {}
        return {"control_step": step, **(_joints(told["model"]) if _repeats(told) and "model" in told else {})}
    finally:
        env.close()


def _joints(model: Any) -> dict[str, Any]:
    """Of a MuJoCo model in which every actuator moves one joint."""
    import mujoco  # type: ignore[import-untyped]

    if not model.nu or set(model.actuator_trntype.tolist()) != {int(mujoco.mjtTrn.mjTRN_JOINT)}:
        return {}
    joints = [int(number) for number in model.actuator_trnid[:, 0]]
    single = len(set(joints)) == len(joints)  # of a ball joint, each actuator has an axis and a name of its own
    kind, numbers = (mujoco.mjtObj.mjOBJ_JOINT, joints) if single else (mujoco.mjtObj.mjOBJ_ACTUATOR, range(model.nu))
    names = [mujoco.mj_id2name(model, kind, number) for number in numbers]
    if not all(names):
        return {}
    stiffness, damping = (-model.actuator_biasprm[:, column] for column in (1, 2))
    servos = {"joint_stiffness": stiffness.tolist(), "joint_damping": damping.tolist()} if (stiffness > 0).all() else {}
    return {"joint_names": names, **servos}

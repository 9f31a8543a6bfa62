"""Small worlds of this library's own, in Gymnasium's registry: who imports `understudy.envs` can make them by id."""

import gymnasium

for _name, _opponent in {"UnderstudyBattle-v0": "random", "UnderstudyBattleScripted-v0": "scripted"}.items():
    gymnasium.register(
        _name, "understudy.envs.builtin.battle.env:BattleEnv", max_episode_steps=100, kwargs={"opponent": _opponent}
    )
for _name, _last in {"Slider": "slide cabinet", "Burner": "bottom burner"}.items():
    gymnasium.register(  # FrankaKitchen with the four tasks of D4RL's sets, and not all seven
        f"UnderstudyKitchen{_name}-v0",
        "gymnasium_robotics.envs.franka_kitchen:KitchenEnv",
        max_episode_steps=280,
        kwargs={"tasks_to_complete": ["microwave", "kettle", "light switch", _last]},
    )
for _name, _env, _columns, _steps in (
    ("Pendulum", "Pendulum-v1", (0, 1), 200),
    ("CartPole", "CartPole-v1", (0, 2), 500),
):
    gymnasium.register(
        f"Understudy{_name}Masked-v0",
        "understudy.envs.builtin.kept_columns:keep_columns",
        max_episode_steps=_steps,
        kwargs={"env": _env, "columns": _columns},
    )
gymnasium.register(
    "UnderstudyCartPolePixels-v0", "understudy.envs.builtin.cart_pole_pixels:CartPolePixels", max_episode_steps=500
)
for _name, _thrusters in {"UnderstudyWindyPoint-v0": False, "UnderstudyWindyThrusters-v0": True}.items():
    gymnasium.register(
        _name, "understudy.envs.builtin.windy_point:WindyPoint", max_episode_steps=100, kwargs={"thrusters": _thrusters}
    )
for _name, _thrust in {"": 2.0, "Ground": 2.0, "Mirror": 1.0, "Left": 2.0, "Right": 2.0}.items():
    gymnasium.register(
        f"UnderstudyZones{_name}-v0",
        "understudy.envs.builtin.zones:Zones",
        max_episode_steps=200,
        kwargs={"kind": _name.lower() or None, "thrust": _thrust},
    )
for _name, _speed in {"UnderstudyCircle-v0": None, "UnderstudyCircleSpeed-v0": 1.0}.items():
    gymnasium.register(_name, "understudy.envs.builtin.circle:Circle", max_episode_steps=200, kwargs={"speed": _speed})
for _name, _speeds in {"UnderstudyHumanoid-v0": None, "UnderstudyHumanoidSpeed-v0": (0.0, 3.0)}.items():
    gymnasium.register(
        _name, "understudy.envs.builtin.humanoid:Humanoid", max_episode_steps=300, kwargs={"speeds": _speeds}
    )
gymnasium.register("UnderstudyDeepSea-v0", "understudy.envs.builtin.deep_sea:DeepSea", max_episode_steps=12)
for _name, _maze, _point_steps, _ant_steps in (
    ("UMaze", "U_MAZE", 300, 700),
    ("Medium", "MEDIUM_MAZE", 600, 1000),
    ("Large", "LARGE_MAZE", 800, 1000),
):
    for _kind, _reward in {"": "sparse", "Dense": "dense"}.items():
        gymnasium.register(
            f"UnderstudyMaze2d{_name}{_kind}-v1",
            "understudy.envs.builtin.d4rl_layout:make_maze2d",
            max_episode_steps=_point_steps,
            kwargs={"maze": _maze, "reward_type": _reward},
        )
    gymnasium.register(
        f"UnderstudyAntMaze{_name}-v2",
        "understudy.envs.builtin.d4rl_layout:make_ant_maze",
        max_episode_steps=_ant_steps,
        kwargs={"maze": _maze},
    )
for _name, _last in {"Slider": "slide cabinet", "Burner": "bottom burner"}.items():
    gymnasium.register(
        f"UnderstudyFlatKitchen{_name}-v0",
        "understudy.envs.builtin.d4rl_layout:make_flat_kitchen",
        max_episode_steps=280,
        kwargs={"last_task": _last},
    )

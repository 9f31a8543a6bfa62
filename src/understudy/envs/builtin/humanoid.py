"""A humanoid in MuJoCo with the skeleton of DeepMimic's clips: 15 bodies, 28 degrees of freedom, 30 steps a second.

`UnderstudyHumanoid-v0` rewards nothing: what it shall do is told by a motion. `UnderstudyHumanoidSpeed-v0` rewards the
speed along x that its group `command` [1] asks for: exp(−2·(v − command)²). Both end where it falls.

Groups have the names and the order of a motion's channels (docs/motions.md), so each can be compared with its own:

`joint_positions` [28]         angles; of joints with three axes, rotation vectors
`joint_velocities` [28]        their rates
`root_height` [1]              of the pelvis; the floor is at −0.06, for clips have it where ankles touch
`heading_free_rotation` [6]    where x and z of the pelvis point, its turn about the vertical taken off
`local_linear_velocity` [3]    and
`local_angular_velocity` [3]   of the pelvis, in its own frame
`body_positions_in_root` [45]  of every body, seen from the pelvis

Actions are targets of the joints' servos (proportional-derivative): 0 is to stand, 1 and −1 are as far as a joint goes
to either side. Motions that tell `joint_positions`, `joint_velocities` and the root's position, rotation and velocities
can be begun in; what would stand in the floor is lifted onto it.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.envs.call_log import number_words
from understudy.envs.physics.joint_states import JointStates, rotation_matrix

Floats = NDArray[np.float64]
Observation = dict[str, NDArray[np.float32]]
MODEL = Path(__file__).with_name("humanoid.xml")
GROUPS = {
    "joint_positions": 28,
    "joint_velocities": 28,
    "root_height": 1,
    "heading_free_rotation": 6,
    "local_linear_velocity": 3,
    "local_angular_velocity": 3,
    "body_positions_in_root": 45,
}
STANDING = {"right_shoulder_x": -0.15, "left_shoulder_x": 0.15, "right_elbow": -0.3, "left_elbow": -0.3}
"""Of the default pose what is not 0."""
HEIGHT, NOISE = 0.8314, 0.02
"""Of the pelvis above straight legs; and by how much a start differs from the default pose, in rad and rad/s."""
LOWEST, TILT = 0.45, 0.3
"""It has fallen where the pelvis is lower, or its vertical axis points up by less than this cosine."""


@final
class Humanoid(gymnasium.Env[Any, NDArray[Any]]):
    """`speeds`: between what the command is drawn, m/s; without them, nothing is rewarded."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    frame_skip = 5

    def __init__(self, speeds: tuple[float, float] | None = None, render_mode: str | None = None) -> None:
        try:
            import mujoco  # type: ignore[import-untyped]
        except ImportError as error:
            raise gymnasium.error.DependencyNotInstalled(f"mujoco ({error})") from error
        self._mujoco, self._speeds, self.render_mode = mujoco, speeds, render_mode
        self.frame_skip = Humanoid.frame_skip
        self.model = mujoco.MjModel.from_xml_path(str(MODEL))
        self.data = mujoco.MjData(self.model)
        self._joints = JointStates(self.model)
        self._default = np.array([STANDING.get(name, 0.0) for name in self._joints.names])
        low, high = self.model.actuator_ctrlrange.T
        self._up, self._down = high - self._default, self._default - low
        self._bodies = self.data.xpos[1:]
        self._row = np.zeros(sum(GROUPS.values()))
        self._command = 0.0
        self._renderer: Any = None
        sizes = GROUPS if speeds is None else {**GROUPS, "command": 1}
        self.observation_space = spaces.Dict(
            {name: spaces.Box(-np.inf, np.inf, (size,), np.float32) for name, size in sizes.items()}
        )
        self.action_space = spaces.Box(-1.0, 1.0, (self.model.nu,), np.float32)

    @property
    def reference_channels(self) -> dict[str, int | tuple[str, ...]]:
        """What it begins from."""
        return self._joints.channels

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        if self._speeds is not None:
            self._command = float(self.np_random.uniform(*self._speeds))
        count, nothing = len(self._default), np.zeros(3)
        seen = self.place(
            {
                "root_position": np.array([0.0, 0.0, HEIGHT]),
                "root_rotation": np.array([1.0, 0.0, 0.0, 0.0]),
                "root_linear_velocity": nothing,
                "root_angular_velocity": nothing,
                "joint_positions": self._default + self.np_random.uniform(-NOISE, NOISE, count),
                "joint_velocities": self.np_random.uniform(-NOISE, NOISE, count),
            }
        )
        return seen, {}

    def place(self, state: Mapping[str, Floats]) -> Observation:
        """Begin in a state of a motion, and not below the floor."""
        model, data = self.model, self.data
        self._mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = self._joints.write(state)
        self._mujoco.mj_forward(model, data)
        if data.ncon and (depth := -float(data.contact.dist.min())) > 0:
            data.qpos[2] += depth
        if self._fallen():
            raise DataError("UnderstudyHumanoid-v0", "a state in which it has fallen", got=number_words(data.qpos[:7]))
        self._mujoco.mj_kinematics(model, data)
        return self._observation(rotation_matrix(data.qpos[3:7]))

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        model, data = self.model, self.data
        aim = np.maximum(np.minimum(np.asarray(action, np.float64), 1.0), -1.0)
        data.ctrl[:] = self._default + np.maximum(aim, 0.0) * self._up + np.minimum(aim, 0.0) * self._down
        self._mujoco.mj_step(model, data, nstep=self.frame_skip)
        self._mujoco.mj_kinematics(model, data)  # a step leaves bodies where they were before its last part
        speed = float(data.qvel[0])
        reward = 0.0 if self._speeds is None else math.exp(-2.0 * (speed - self._command) ** 2)
        seen = self._observation(rotation_matrix(data.qpos[3:7]))
        return seen, reward, self._fallen(), False, {"x_velocity": speed}

    def _fallen(self) -> bool:
        _, x, y, _ = self.data.qpos[3:7]
        return bool(self.data.qpos[2] < LOWEST or 1 - 2 * (x * x + y * y) < TILT)

    def _observation(self, turn: Floats) -> Observation:
        """All groups are views of one array, a new one at every step; `turn` [3, 3] is the pelvis's rotation."""
        qpos, qvel, row = self.data.qpos, self.data.qvel, self._row
        row[:28], row[28:56] = self._joints.read(qpos, qvel)
        row[56] = qpos[2]
        row[57:63] = _heading_free(turn)
        row[63:66] = qvel[:3] @ turn
        row[66:69] = qvel[3:6]
        np.matmul(self._bodies - qpos[:3], turn, out=row[69:].reshape(15, 3))
        shown, groups, start = row.astype(np.float32), {}, 0
        for name, size in GROUPS.items():
            groups[name] = shown[start : start + size]
            start += size
        if self._speeds is not None:
            groups["command"] = np.array([self._command], np.float32)
        return groups

    def render(self) -> Any:
        """From the side, a camera that goes with it."""
        if self._renderer is None:
            from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

            self._renderer = MujocoRenderer(self.model, self.data, width=640, height=480, camera_name="side")
        return self._renderer.render("rgb_array")

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()

    def tell(self) -> dict[str, NDArray[Any]]:
        """All but the generator; where bodies are follows from it."""
        kind = self._mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.zeros(self._mujoco.mj_stateSize(self.model, kind))
        self._mujoco.mj_getState(self.model, self.data, physics, kind)
        return {"physics": physics, "command": np.array([self._command])}

    def recall(self, told: Mapping[str, NDArray[Any]]) -> None:
        kind = self._mujoco.mjtState.mjSTATE_INTEGRATION
        self._mujoco.mj_setState(self.model, self.data, told["physics"].copy(), kind)
        self._mujoco.mj_kinematics(self.model, self.data)
        self._command = float(told["command"][0])


def _heading_free(turn: Floats) -> list[float]:
    """Where x and z of a rotation [3, 3] point [6], turned about the vertical until x points forward from above."""
    (ax, _, cx), (ay, _, cy), (az, _, cz) = turn.tolist()
    flat = math.hypot(ax, ay)
    cosine, sine = (ax / flat, ay / flat) if flat > 0 else (1.0, 0.0)
    return [flat, 0.0, az, cosine * cx + sine * cy, cosine * cy - sine * cx, cz]

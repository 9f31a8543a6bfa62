"""What a person says of reference motions."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from understudy.core.settings import Settings

Seconds = Annotated[float, Field(gt=0, le=1e6)]
Weight = Annotated[float, Field(ge=0)]


class MirrorSettings(Settings):
    """How a motion looks in a mirror that stands along its way: left and right change places, sideways turns round."""

    swap: dict[str, str] = Field(
        default={"left": "right", "Left": "Right", "L": "R", "l": "r", "FL": "FR", "RL": "RR", "HL": "HR"},
        validate_default=False,
    )
    """Words in names of joints and bodies that change places, between `_`, `-`, `.` or the ends of a name:
    `left_knee` and `right_knee`, `FL_hip` and `FR_hip`."""
    turn: tuple[str, ...] = ("*roll*", "*yaw*", "*_x", "*_z")
    """Patterns of joints whose angle changes its sign: those that turn about the forward and the vertical axis. Names
    are the clip's."""


class ClipSettings(Settings):
    """What is said of clips that match a pattern; what is not said stays as it is for all."""

    weight: Weight = 1.0
    """How much more often windows of this clip are drawn than those of a clip of weight 1; 0: it is left out."""
    loop: bool | None = None
    """After its last frame it begins again; absent: as for all."""
    mirror: bool | None = None
    """Its mirror image is a clip, too; absent: as for all."""
    stride: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Only every n-th of its frames is read; absent: as for all."""
    start: Annotated[float, Field(ge=0)] = 0.0
    """Seconds at its beginning that are left out."""
    end: Seconds | None = None
    """The second at which it is cut off, counted from its own beginning; absent: its end."""


class MotionSettings(Settings):
    """Reference motions: where they are, and how they become frames of the robot at hand."""

    path: str
    """A clip (.npz of joint and body states, DeepMimic's .txt or .json, .csv of joint positions), a folder of clips, a
    packed store (`understudy motion pack`), or a recorded dataset, whose episodes are the clips."""
    step: Seconds | None = None
    """Seconds between frames: the control step. Clips are resampled to it. Absent: as packed; of a recorded dataset,
    where a row is a step, it is only written down."""
    fps: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Frames per second of clips that do not say it, or say it wrongly."""
    stride: Annotated[int, Field(ge=1, le=1000)] = 1
    """Only every n-th frame is read, at its own time: for files that hold each frame several times."""
    loop: bool | None = None
    """Clips begin again after their last frame; absent: where the file says so."""
    mirror: bool | MirrorSettings = False
    """The mirror image of every clip is a clip, too. `true`: names with left and right, roll and yaw are known."""
    clips: dict[str, ClipSettings] = Field(default_factory=dict)
    """By name or pattern of clips (`walk*`): weight, loop, mirror, stride, start, end. Of several that match,
    the later wins."""
    joints: tuple[str, ...] | dict[str, str] = ()
    """Joints in the robot's order, by their names in the clip; or {name in the robot: name in the clip}. `-name` turns
    the sign; `chest.x` is a component of the exponential map of a ball joint. Empty: all, as they are."""
    joint_offsets: dict[str, float] = Field(default_factory=dict)
    """By name or pattern, the angles of the robot's default pose, which are subtracted: for robots that tell joint
    angles relative to it."""
    velocities: Literal["file", "differences"] = "file"
    """Those that the file has, and finite differences where it has none; or finite differences throughout."""
    quaternions: Literal["wxyz", "xyzw"] = "wxyz"
    """The order of numbers in the file's quaternions."""
    up: Literal["z", "y"] = "z"
    """The axis that points up in the file; y, as in DeepMimic's humanoid, becomes z, and forward stays x."""
    layout: dict[str, Literal[1, 4]] = Field(default_factory=dict)
    """Of DeepMimic's files whose frames are of an unknown width: the joints that follow the root, in their order, with
    4 numbers for a ball joint and 1 for a hinge."""
    root: str = ""
    """The body that moves through the world; empty: the first."""
    fingerprint: str = ""
    """sha256 of all that can be drawn, filled in by the run; other content is refused."""

    @field_validator("path")
    @classmethod
    def _somewhere(cls, path: str) -> str:
        if not path.strip():
            raise ValueError("a path is needed")
        return path

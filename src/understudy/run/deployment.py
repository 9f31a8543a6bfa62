"""Facts of the machine that a policy is for. No learning depends on them: they go into its card and its ONNX file."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from understudy.core.errors import ConfigError, UnderstudyError
from understudy.core.settings import Options, Settings
from understudy.core.spec import ActionSpace, Box

Name = Annotated[str, StringConstraints(pattern=r"^[^,\n]+$")]
"""In an ONNX file names stand side by side, with commas between them."""


class DeploymentSettings(Settings):
    """What whoever runs a policy on a machine must know of it."""

    control_step: float | None = Field(None, gt=0)
    """Seconds from one action to the next."""
    joint_names: tuple[Name, ...] = ()
    """Joints, or whatever an action moves, in the order of the action."""
    joint_stiffness: tuple[float, ...] = ()
    """Proportional gain of each joint's controller."""
    joint_damping: tuple[float, ...] = ()
    """Derivative gain of each."""
    default_joint_pos: tuple[float, ...] = ()
    """Where each joint is when the action is 0."""
    action_scale: tuple[float, ...] = ()
    """What an action is multiplied by before a controller gets it, one for each joint."""
    notes: Options = Field(default_factory=dict)
    """Anything else, by name."""

    @model_validator(mode="after")
    def _one_for_each_joint(self) -> Self:
        counts = {name: len(value) for name, value in self if isinstance(value, tuple) and value}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{count} {name}" for name, count in counts.items())
            raise ValueError(f"one for each joint: got {told}")
        return self

    def check_actions(self, action: ActionSpace) -> None:
        """There is a joint for each number of an action, where actions are such."""
        for name, value in self:
            if isinstance(action, Box) and isinstance(value, tuple) and len(value) not in (0, action.size):
                numbers = f"{action.size}, in the order of the action"
                raise ConfigError(
                    f"deployment.{name}", "one for each number of an action", got=len(value), expected=numbers
                )

    def told(self) -> dict[str, Any]:
        """What somebody said, as plain data."""
        return self.model_dump(mode="json", exclude_defaults=True)


def deployment_facts(settings: DeploymentSettings, env_id: str = "") -> dict[str, Any]:
    """What is known of the machine: what an environment tells of it, if there is one and it can be made here, and
    above that what was said."""
    from understudy.envs.facts import control_facts

    try:
        told: Mapping[str, Any] = control_facts(env_id) if env_id else {}
    except (
        UnderstudyError
    ):  # a package is missing here, or the environment is not registered: nobody needs it to export
        told = {}
    said = settings.told()
    if {*told} - {"control_step"} and {*said} - {"control_step", "notes"}:
        told = {name: value for name, value in told.items() if name == "control_step"}  # joints are told by one of them
    return {**told, **said}

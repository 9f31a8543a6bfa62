"""Where a policy plays: what a run's config says of its environment."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from understudy.core.settings import Options, Settings
from understudy.envs.tracking import TrackingSettings
from understudy.run.frozen_policy import FrozenPolicySettings


class EnvSettings(Settings):
    """Where the policy is evaluated."""

    id: str
    """A registered environment id."""
    reference: str | tuple[float, float] | None = None
    """Reference score: a known id such as `hopper-medium-v2`, or [low, high]."""
    simulator: Literal["gymnasium", "envpool", "custom"] = "gymnasium"
    """Who makes it: Gymnasium's registry, EnvPool, or your own code (`train(…, make_envs=…)`)."""
    shared: bool = False
    """Evaluate in the environments that rollouts are played in: for simulators of which a process can have only one."""
    settings: Options = Field(default_factory=dict)
    """The simulator's own settings of this environment, as EnvPool's `make` takes them."""
    segments: dict[str, dict[str, tuple[int, int]]] = Field(default_factory=dict)
    """Names for columns of flat groups, for `sees` and `encoders`: {state: {gravity: [3, 6]}}."""
    skills: FrozenPolicySettings | None = None
    """A skill set (`understudy skills`): actions choose which of its skills acts, and a gate is learned."""
    tracking: TrackingSettings | None = None
    """A motion that shall be followed (`motions`): the reward is how near the environment is to it, and episodes begin
    in its states: {segments: {joint_positions: {scale: 2}}}."""

    @field_validator("reference")
    @classmethod
    def _low_below_high(cls, reference: str | tuple[float, float] | None) -> str | tuple[float, float] | None:
        if isinstance(reference, tuple) and not reference[0] < reference[1]:
            raise ValueError("low must be below high")
        return reference

    @model_validator(mode="after")
    def _settings_have_a_taker(self) -> Self:
        if self.settings and self.simulator != "envpool":
            raise ValueError(f"settings are EnvPool's, and the simulator is {self.simulator}")
        if self.shared and self.simulator != "custom":
            raise ValueError(f"{self.simulator} makes as many as needed: shared is for simulator=custom")
        if self.tracking is not None and self.simulator != "gymnasium":
            raise ValueError(
                f"tracking is for environments of Gymnasium's registry, and the simulator is {self.simulator}: "
                "wrap your own in us.TrackedEnv"
            )
        if self.tracking is not None and self.skills is not None:
            raise ValueError("tracking is for who acts, and a gate only chooses who does: leave tracking or skills out")
        return self

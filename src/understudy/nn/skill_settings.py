"""The words of a skill set: what each skill is given, who chooses among them, and how a choice becomes an action."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.settings import Settings

Numbers = float | tuple[float, ...]
"""One for all, or one for each."""
Positive = Annotated[float, Field(ge=1e-6, le=1e6)]
Scale = Positive | tuple[Positive, ...] | dict[str, Positive]
"""Of actions: one number, one for each dimension, or some dimensions by name."""
SkillName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=64)]
ResetMemory = Literal["never", "all", "when_selected"]
Column = Annotated[float | str, Field(union_mode="left_to_right")]
"""A constant, or the name of columns."""
LONGEST = 1000
"""Selections that are averaged at most."""


class OverrideSettings(Settings):
    """What a segment is set to while a skill acts: `value`, or a uniform draw between `low` and `high`."""

    value: Numbers | None = None
    """One number for all columns, or one for each. `state.command: 0.5` is short for it."""
    low: Numbers | None = None
    """Least of a uniform draw, for each environment one of its own."""
    high: Numbers | None = None
    """Greatest."""
    redraw: Literal["episode", "selection"] = "episode"
    """A draw holds until the episode ends, or until the skill is selected again after another one."""

    @model_validator(mode="before")
    @classmethod
    def _numbers_alone(cls, data: Any) -> Any:
        plain = isinstance(data, (int, float, str, list, tuple)) and not isinstance(data, bool)
        return {"value": data} if plain else data

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        drawn = self.low is not None and self.high is not None
        if drawn == (self.value is not None) or (self.low is None) != (self.high is None):
            raise ValueError("a value, or low and high")
        return self

    @property
    def drawn(self) -> bool:
        return self.low is not None


class SkillChanges(Settings):
    """What is changed on the way to a skill and from it. Names are those of the skill set's own observation."""

    inputs: dict[str, tuple[Column, ...]] = Field(default_factory=dict)
    """How groups that the skill reads are made, where the environment emits no such group or another of that name:
    {state: [state.gyro, state.gravity, 0.5]} joins these segments in this order; a number is a column that stays so."""
    overrides: dict[str, OverrideSettings] = Field(default_factory=dict)
    """Segments that the skill sees otherwise than they are, such as its command: {state.command: [0.8, 0, 0]}, or
    {state.command: {low: 0.3, high: 0.8}}."""
    observation_scale: dict[str, Numbers] = Field(default_factory=dict)
    """Segments that are multiplied before the skill sees them. A last action needs none: see `last_action`."""
    action_scale: Scale = 1.0
    """What the skill's action was multiplied by where it was trained: actions are sent times this over the set's
    `action_scale`."""
    action_offset: dict[str, Numbers] = Field(default_factory=dict)
    """Segments that are added to its action, times a number, where actions mean something else than in its training:
    {state.joint_angles: -2} makes targets of joints relative to where they are, with an action scale of 1/2."""
    reset_memory: ResetMemory | None = None
    """Of this skill, where it is another rule than the set's."""


class PolicyShape(Settings):
    """How a policy is rebuilt, as its own card says it."""

    kind: str
    """Its kind."""
    spec: dict[str, Any]
    """What it was trained to see and to do."""
    settings: dict[str, Any]
    """Its network."""


class SkillSettings(SkillChanges):
    """One skill of a set."""

    name: SkillName
    """What it is called."""
    policy: PolicyShape
    """How it is rebuilt."""


class SplitSettings(Settings):
    """A choice that is two skills, told apart by a sign."""

    observation: str
    """A vector group or a segment."""
    entry: int = 0
    """Which of its columns; −1 is the last."""
    negative: str
    """The skill where that is below 0."""


class FixedSelector(Settings):
    """Always the same skill."""

    kind: Literal["fixed"] = "fixed"
    """`fixed`: one skill acts alone; a gate is trained over such a set, too."""
    skill: str
    """Which."""


class ObservationSelector(Settings):
    """The environment says which skill is due."""

    kind: Literal["observation"] = "observation"
    """`observation`: a named observation chooses."""
    observation: str
    """A vector group or a segment."""
    encoding: Literal["one_hot", "index"] = "one_hot"
    """`one_hot`: its largest column, if that is above 0.5. `index`: a whole number from 0."""
    skills: tuple[str, ...] = ()
    """What each column, or each number, means; the set's skills in their order if nothing is said."""
    fallback: str = ""
    """The skill where nothing is chosen; without one that is an error."""
    split: dict[str, SplitSettings] = Field(default_factory=dict)
    """Choices that are two skills: {climb: {observation: state.height, negative: jump_down}}."""


class ThresholdSelector(Settings):
    """One number decides between two skills."""

    kind: Literal["threshold"] = "threshold"
    """`threshold`: one skill below a number, another one above."""
    observation: str
    """A vector group or a segment."""
    entry: int = 0
    """Which of its columns; −1 is the last."""
    threshold: float = 0.0
    """The number."""
    margin: float = Field(0.0, ge=0)
    """A selected skill stays until the number is passed by so much: no flutter where the two meet."""
    below: str
    """The skill below it."""
    above: str
    """The skill above it, or at it."""


class GateSelector(Settings):
    """A policy has learned which skill is due."""

    kind: Literal["gate"] = "gate"
    """`gate`: a policy with one action for each skill chooses."""
    policy: PolicyShape
    """How it is rebuilt."""


class CallableSelector(Settings):
    """A function of Python chooses; such a set can act, and cannot be written to a file."""

    kind: Literal["callable"] = "callable"
    """`callable`: a function [N, …] → [N]."""


Selector = Annotated[
    FixedSelector | ObservationSelector | ThresholdSelector | GateSelector | CallableSelector,
    Field(discriminator="kind"),
]


class MixingSettings(Settings):
    """What holds for all skills of a set."""

    smoothing: int = Field(1, ge=1, le=LONGEST)
    """L: a skill's weight is its share of the last L selections; 1: the selected one acts alone."""
    reset_memory: ResetMemory = "never"
    """When a skill's memory begins anew, besides with an episode: `never`, `all` that have no weight after each step,
    or `when_selected`, as a skill becomes the selected one."""
    action_scale: Scale = 1.0
    """What the environment multiplies an action by, in the units of the skills' own `action_scale`."""
    action_names: tuple[str, ...] = ()
    """What the dimensions of an action are called, for scales by name."""
    last_action: tuple[str, ...] = ()
    """Segments that hold the last action as it was sent: each skill sees them in its own scale."""


class SkillSetSettings(MixingSettings):
    """All that rebuilding a skill set takes beside its tensors."""

    skills: tuple[SkillSettings, ...] = Field(min_length=1)
    """In their order."""
    selector: Selector
    """Who chooses."""

    @model_validator(mode="after")
    def _names_are_one_each(self) -> Self:
        names = self.names
        if len(set(names)) < len(names):
            raise ValueError(f"two skills of one name: {', '.join(names)}")
        return self

    @property
    def names(self) -> list[str]:
        return [skill.name for skill in self.skills]

    def number(self, name: str, where: str) -> int:
        """Of a skill, which must be there."""
        if name not in self.names:
            raise ConfigError(where, f"no skill '{name}'", do=did_you_mean(name, self.names))
        return self.names.index(name)

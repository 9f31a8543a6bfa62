"""Skill sets in words: skills by the runs or policy folders they lie in, who chooses, and what is changed for each.

skills:
  walk: {path: runs/walk, overrides: {state.command: [0.5, 0, 0]}}
  jump: {path: runs/jump, checkpoint: best}
selector: {kind: observation, observation: state.obstacle, fallback: walk}
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import CheckpointError, ConfigError, did_you_mean, told_with
from understudy.core.settings import Settings
from understudy.core.spec import Group, Segments, Spec
from understudy.nn.deployed import Deployed
from understudy.nn.skill_set import SkillSet, shape_of
from understudy.nn.skill_settings import (
    CallableSelector,
    FixedSelector,
    GateSelector,
    MixingSettings,
    ObservationSelector,
    Selector,
    SkillChanges,
    SkillName,
    SkillSetSettings,
    SkillSettings,
    ThresholdSelector,
)
from understudy.run.env_settings import EnvSettings
from understudy.run.environments import spec_of
from understudy.run.frozen_policy import CheckpointName
from understudy.run.overrides import plain_data
from understudy.run.packaged import SKILLS, read_packaged, skill_set_names
from understudy.run.policies import load_policy
from understudy.run.policy_file import check_policy, save_policy
from understudy.run.removals import overridden, without_removed
from understudy.run.yaml_text import parse_yaml, read_yaml

Choose = Callable[[Obs], Tensor]


class SkillConfig(SkillChanges):
    """A skill: where its policy lies, and what is changed for it."""

    path: str = ""
    """A run directory or a policy folder."""
    checkpoint: CheckpointName = "last"
    """Of a run directory: last, best, or a number of updates."""


class GateConfig(Settings):
    """A learnt gate: where it lies."""

    kind: Literal["gate"] = "gate"
    """`gate`: a policy that was trained with `env.skills`, and has one action for each skill, chooses."""
    path: str
    """Its run directory or policy folder."""
    checkpoint: CheckpointName = "last"
    """Of a run directory: last, best, or a number of updates."""


SelectorConfig = Annotated[
    FixedSelector | ObservationSelector | ThresholdSelector | GateConfig, Field(discriminator="kind")
]


class SkillSetConfig(MixingSettings):
    """A skill set that is to be made."""

    skills: dict[SkillName, SkillConfig] = Field(min_length=1)
    """By name, in the order in which whoever chooses counts them."""
    selector: SelectorConfig | None = None
    """Who chooses: `fixed`, `observation`, `threshold` or `gate`; without one the first skill always acts."""
    env: EnvSettings | None = None
    """Where it will act, and what its columns are called; without one it sees what its skills were trained with."""
    out: str = ""
    """The policy folder that is written."""


SkillSetLike = str | Path | Mapping[str, Any] | SkillSetConfig
"""What a skill set can be made from: a YAML file, the name of one that comes with the library, or plain data."""


def load_skill_set_config(config: SkillSetLike, overrides: Iterable[str] = ()) -> SkillSetConfig:
    """Words as settings, with `key=value` changes."""
    data = without_removed(_read(config), {}, SkillSetConfig)
    return SkillSetConfig.parse(overridden(data, overrides, SkillSetConfig))


def _read(config: SkillSetLike) -> dict[str, Any]:
    if isinstance(config, (Mapping, SkillSetConfig)):
        plain: dict[str, Any] = plain_data(config)
        return plain
    if not isinstance(config, (str, Path)):
        raise ConfigError("config", "not one", got=type(config).__name__, expected="a name, a .yaml file or a dict")
    name = str(config)
    if name.endswith((".yaml", ".yml")):
        return read_yaml(Path(name))
    known, full = [f"{SKILLS}/{own}" for own in skill_set_names()], f"{SKILLS}/{name.removeprefix(f'{SKILLS}/')}"
    if full not in known:
        raise ConfigError(
            f"config '{name}'", "no skill set of this name", do=f"{did_you_mean(full, known)} A file ends in .yaml."
        )
    found: dict[str, Any] = parse_yaml(read_packaged(full), name)
    return found


def skill_set(
    config: SkillSetLike,
    overrides: Iterable[str] = (),
    *,
    policies: Mapping[str, Deployed] | None = None,
    choose: Choose | None = None,
) -> SkillSet:
    """One policy of several frozen ones, of which one is chosen at each step.

    `config`: a YAML file, a name (`skills/field`), or plain data. `policies`: live policies by the names of their
    skills, for those without a `path`. `choose`: a function of observations [N, …] that returns numbers of skills [N],
    in the place of `selector`; such a set cannot be written to a file.
    """
    settings = load_skill_set_config(config, overrides)
    given = dict(policies or {})
    for name in given:
        if name not in settings.skills:
            raise ConfigError(f"policies.{name}", "no skill of this name", do=did_you_mean(name, settings.skills))
    skills = {name: _policy(name, skill, given) for name, skill in settings.skills.items()}
    spec = _spec(settings, skills)
    stored = tuple(
        SkillSettings(
            **skill.model_dump(include=set(SkillChanges.model_fields)), name=name, policy=shape_of(skills[name])
        )
        for name, skill in settings.skills.items()
    )
    selector, gate = _selector(settings, choose)
    mixing = settings.model_dump(include=set(MixingSettings.model_fields))
    made = SkillSet(
        spec, SkillSetSettings(**mixing, skills=stored, selector=selector), [*skills.values()], gate=gate, choose=choose
    )
    made.requires_grad_(False).train(False)
    return made


def _selector(settings: SkillSetConfig, choose: Choose | None) -> tuple[Selector, Deployed | None]:
    said = settings.selector
    if choose is not None:
        if said is not None or not callable(choose):
            what = "there is a function that chooses, too" if said is not None else "not a function"
            raise ConfigError("selector" if said is not None else "choose", what)
        return CallableSelector(), None
    if isinstance(said, GateConfig):
        gate = _loaded(said.path, said.checkpoint, "selector.path")
        return GateSelector(policy=shape_of(gate)), gate
    return said or FixedSelector(skill=next(iter(settings.skills))), None


def _policy(name: str, skill: SkillConfig, given: Mapping[str, Deployed]) -> Deployed:
    where = f"skills.{name}"
    if name in given:
        if skill.path:
            raise ConfigError(f"{where}.path", "a policy of this name was given, too", got=skill.path)
        return check_policy(given[name], f"policies.{name}")
    if not skill.path:
        raise ConfigError(f"{where}.path", "is required", expected="a run directory or a policy folder")
    return _loaded(skill.path, skill.checkpoint, f"{where}.path")


def _loaded(path: str, checkpoint: str, where: str) -> Deployed:
    if not Path(path).exists():
        raise ConfigError(where, "no such run or policy folder", got=f"'{path}'")
    with told_with(where):
        return load_policy(path, checkpoint)


def _spec(settings: SkillSetConfig, skills: Mapping[str, Deployed]) -> Spec:
    """The environment's; without one what the skills see, as far as it is not made of something else."""
    seen = {
        name: {
            group: told for group, told in policy.spec.observation.items() if group not in settings.skills[name].inputs
        }
        for name, policy in skills.items()
    }
    first = next(iter(skills.values())).spec
    if settings.env is not None:
        spec = spec_of(settings.env.model_copy(update={"segments": {}}))
    else:
        spec = Spec(_merged(seen), first.action, first.masked)
    alike = {
        name: {group: named for group, named in policy.spec.segments.items() if _same(seen[name], spec, group)}
        for name, policy in skills.items()
    }
    named = {} if settings.env is None else settings.env.segments
    return spec.with_segments(_with_own(_merged_segments(alike, named), named))


def _same(seen: Mapping[str, Group], spec: Spec, group: str) -> bool:
    return group in seen and group in spec.observation and seen[group].shape == spec.observation[group].shape


def _merged(seen: Mapping[str, Mapping[str, Group]]) -> dict[str, Group]:
    merged: dict[str, Group] = {}
    for name, groups in seen.items():
        for group, told in groups.items():
            if group in merged and merged[group].shape != told.shape:
                raise ConfigError(
                    f"skills.{name}",
                    f"its group '{group}' is another than that of the skills before",
                    got=list(told.shape),
                    expected=list(merged[group].shape),
                    do="Say where the set acts (env), and what the group is made of there (inputs).",
                )
            merged[group] = told
    return merged


def _merged_segments(by_skill: Mapping[str, Segments], named: Segments) -> dict[str, dict[str, tuple[int, int]]]:
    """Names of the skills' columns; those that two of them use for different columns are left out, unless said."""
    merged: dict[str, dict[str, tuple[int, int]]] = {}
    disputed: set[tuple[str, str]] = set()
    for segments in by_skill.values():
        for group, ends in segments.items():
            for segment, range_ in ends.items():
                if merged.setdefault(group, {}).setdefault(segment, range_) != range_:
                    disputed.add((group, segment))
    return {
        group: {name: ends for name, ends in inner.items() if (group, name) not in disputed}
        for group, inner in merged.items()
    }


def _with_own(merged: dict[str, dict[str, tuple[int, int]]], named: Segments) -> Segments:
    return {group: {**merged.get(group, {}), **named.get(group, {})} for group in {**merged, **named}}


def gated_set(skills: SkillSet, gate: str | Path, checkpoint: str = "last") -> SkillSet:
    """The skills that a gate was trained over, chosen by that gate: one policy."""
    made = skills.chosen_by(_loaded(str(gate), checkpoint, "gate"))
    made.requires_grad_(False).train(False)
    return made


def load_skill_set(path: str | Path) -> SkillSet:
    """A skill set from its policy folder."""
    policy = load_policy(path)
    if not isinstance(policy, SkillSet):
        raise CheckpointError(f"policy '{path}'", "is no skill set", got=policy.kind, expected=SkillSet.kind)
    return policy


def save_skill_set(made: SkillSet, out: str | Path, env: EnvSettings | None = None) -> str:
    """Write it as one policy folder, which needs none of the folders its skills came from."""
    facts = {} if env is None else {"env": env.id, "world": env.model_dump(mode="json")}
    return save_policy(made, out, facts)

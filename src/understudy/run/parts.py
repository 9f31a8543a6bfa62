"""The parts of a run in plain data: its algorithm, its source, and what both of them ask for.

`source.kind` is looked up as `algo.name` is. Left out, it is the first that the algorithm names; what a source yields
must be what the algorithm consumes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from understudy.algorithms import find_algorithm, needs_of
from understudy.core.batch import Rollout
from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.other_names import Learning
from understudy.core.protocols import MAIN, Needs, Roles, SourceNeeds
from understudy.core.settings import Settings, whole_number
from understudy.sources import find_source, yields

NOBODY_IMITATES = ("nothing in this run imitates them", "Add algo.objectives.style or env.tracking, or leave {0} out.")
LONGEST = 18
"""Digits of a number of steps that somebody could mean."""


@final
@dataclass(frozen=True)
class Parts:
    algo: Settings
    source: Settings
    kind: str
    """Of the source."""

    @property
    def learning(self) -> Learning:
        """Whose names for settings may be meant."""
        plays = bool(self.source_needs.envs)
        return "rollouts" if Rollout in yields(self.kind) else "replay" if plays else "data"

    @property
    def source_needs(self) -> SourceNeeds:
        return find_source(self.kind).needs(self.source)

    @property
    def roles(self) -> Roles:
        """What somebody in the run reads or asks."""
        needs, others = needs_of(self.algo), self.source_needs
        return Roles((*needs.data, *others.data), (*needs.policies, *others.policies), bool(others.envs), needs.motions)


def parse_parts(data: Mapping[str, Any], place: str = "") -> Parts:
    """Of a run's plain data; `place` (`stages.0.`) stands before the names of settings in errors."""
    given = data.get("algo")
    algo = {"name": given} if isinstance(given, str) else given
    if not isinstance(algo, dict) or "name" not in algo:
        raise ConfigError(f"{place}algo", "which algorithm is missing", expected="algo: {name: iql, …}")
    parsed = find_algorithm(str(algo["name"])).Config.parse(algo, f"{place}algo")
    kind, settings = _source(data, needs_of(parsed), str(algo["name"]), f"{place}source")
    return Parts(parsed, find_source(kind).Config.parse(settings, f"{place}source"), kind)


def _source(data: Mapping[str, Any], needs: Needs, algorithm: str, place: str) -> tuple[str, dict[str, Any]]:
    """The kind of the source and its settings as plain data."""
    given = data.get("source", {})
    settings = given.model_dump(mode="json") if isinstance(given, Settings) else given
    if not isinstance(settings, dict):
        raise ConfigError(place, "wrong value", got=repr(given), expected="a group of settings")
    kind = str(settings.get("kind", needs.sources[0]))
    if needs.consumes not in yields(kind):
        expected = " or ".join(needs.sources)
        raise ConfigError(f"{place}.kind", f"{algorithm} learns from another kind", got=kind, expected=expected)
    return kind, {**settings, "kind": kind}


def planned_updates(data: Mapping[str, Any], parts: Parts, place: str = "") -> dict[str, int]:
    """`updates` where a run's budget is given in environment steps; nothing where it is not."""
    given = str(whole_number(data.get("env_steps", 0))).replace("_", "")  # a file says 1_000_000
    if not given.isdecimal() or len(given) > LONGEST or int(given) == 0:
        return {}  # what is wrong with it, the setting itself tells
    if "updates" in data:
        raise ConfigError(f"{place}env_steps", "is another word for updates", do="Give one of the two.")
    return {"updates": updates_within(int(given), parts.source_needs, parts.kind, place), "env_steps": 0}


def updates_within(env_steps: int, needs: SourceNeeds, kind: str, place: str = "") -> int:
    """Updates that a source makes of so many environment steps."""
    if not needs.updates_per_step:
        raise ConfigError(f"{place}env_steps", f"nobody plays with source.kind={kind}", do="Give updates.")
    updates = int((env_steps - needs.first_steps) * needs.updates_per_step)
    updates -= updates % needs.updates_at_once
    if updates < 1:
        first = needs.first_steps + -(-needs.updates_at_once // needs.updates_per_step)
        raise ConfigError(
            f"{place}env_steps",
            "ends before the first update",
            got=env_steps,
            expected=f"at least {first}",
            do=f"The first {needs.first_steps:,} only fill the buffer (source.learning_starts)."
            * (needs.first_steps > 0),
        )
    return updates


def source_kind(data: Mapping[str, Any]) -> str:
    """The kind of the source of data that may be wrong; empty where it cannot be told."""
    try:
        return parse_parts({key: value for key, value in data.items() if key in ("algo", "source")}).kind
    except ConfigError:
        return ""


def asked_roles(data: Mapping[str, Any]) -> Roles:
    """The same of data that may be wrong; of what is wrong with it others will tell."""
    try:
        return _roles(data, parse_parts(data))
    except ConfigError:
        return Roles()


def _roles(data: Mapping[str, Any], parts: Parts) -> Roles:
    """With what the environment asks for."""
    env = data.get("env")
    tracks = isinstance(env, Mapping) and env.get("tracking") is not None
    return replace(parts.roles, motions=True) if tracks else parts.roles


def check_roles(data: Mapping[str, Any], parts: Parts, place: str) -> None:
    """Every dataset and every frozen policy that somebody asks for is there, and none that nobody does."""
    roles, name = _roles(data, parts), parts.algo.model_dump()["name"]
    if MAIN in roles.data and data.get("data") is None:
        raise ConfigError(f"{place}data", "is required")
    if MAIN not in roles.data and data.get("data"):
        what = f"{name} learns from source.kind={parts.kind}, which reads no dataset"
        way = {"replay": "data_share=0.5", "interactive": "demonstrations=true"}.get(parts.kind, "")
        do = f"Give {place}source.{way} to learn from it, too, or leave data out." if way else "Leave data out."
        raise ConfigError(f"{place}data", what, do=do)
    if roles.motions != (data.get("motions") is not None):
        what, do = ("is required", "Say where they are: {0}.path=….") if roles.motions else NOBODY_IMITATES
        raise ConfigError(f"{place}motions", what, do=do.format(f"{place}motions"))
    for group, asked in (("datasets", {*roles.data} - {MAIN}), ("policies", {*roles.policies})):
        given = data.get(group) or {}
        for role in sorted(asked - set(given)):
            where = f"{place}{group}.{role}"
            raise ConfigError(where, "is required", do=f"Say where it is: {where}.path=….")
        for role in sorted(set(given) - asked):
            where = f"{place}{group}.{role}"
            do = did_you_mean(role, asked) if asked else f"Leave it out; {where}=null removes it."
            raise ConfigError(where, "nothing in this run reads it", do=do)

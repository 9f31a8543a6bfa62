"""Entries that are taken away: `algo.objectives.teacher=null`, on the line, for a task and in a stage.

A mapping whose entries somebody named (objectives, policies, datasets, encoders, segments, …) loses an entry that is
null; one that is null itself loses all. Which settings are such mappings is read off their types. A null that takes
nothing away is an error. Elsewhere null is a value like any other: `eval_max_steps=null` is no limit.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from understudy.algorithms import find_algorithm
from understudy.core.errors import ConfigError, did_you_mean, near
from understudy.core.settings import Settings, alternatives, entry_type
from understudy.objectives import find_objective
from understudy.run.overrides import apply_override
from understudy.sources import find_source


def overridden(data: Mapping[str, Any], overrides: Iterable[str], model: type[Settings]) -> dict[str, Any]:
    """Plain data of settings of this kind with `key=value` changes."""
    changed = dict(data)
    for override in overrides:
        before = dict(changed)
        apply_override(changed, override)
        changed = without_removed(changed, before, model)
    return changed


def without_removed(
    merged: Mapping[str, Any], below: Mapping[str, Any], model: type[Settings], where: str = ""
) -> dict[str, Any]:
    """Plain data that were laid over `below`, without the entries that are null now and were there."""
    types = {key: field.annotation for key, field in model.model_fields.items()}
    return {
        key: _settled(value, below.get(key), types.get(key), f"{where}.{key}" if where else key)
        for key, value in merged.items()
    }


def _settled(value: Any, below: Any, type_: Any, where: str) -> Any:
    """One setting, whatever is in it."""
    for annotation in alternatives(type_):
        entries = entry_type(annotation)
        if entries is not None and (value is None or isinstance(value, Mapping)):
            return _kept(value, below if isinstance(below, Mapping) else {}, entries, where)
        inner = _named_model(annotation, value, where)
        if inner is not None and isinstance(value, Mapping) and value.keys() <= inner.model_fields.keys():
            return without_removed(value, _same_kind(value, below), inner, where)
    return value


def _kept(value: Mapping[str, Any] | None, below: Mapping[str, Any], entries: Any, where: str) -> dict[str, Any]:
    """What is left of a mapping."""
    if value is None:
        if not below:
            raise ConfigError(where, "null removes all there is, and there is nothing", do="Leave it out.")
        return {}
    kept = {}
    for name, entry in value.items():
        place = f"{where}.{name}"
        if entry is not None:
            kept[name] = _settled(entry, below.get(name), entries, place)
        elif below.get(name) is None:
            leave = "Leave it out; for its defaults write {}." if Settings in alternatives(entries) else "Leave it out."
            do = did_you_mean(name, below) if near(name, below) else leave
            raise ConfigError(place, "null removes it, and there is none", do=do)
    return kept


def _same_kind(value: Mapping[str, Any], below: Any) -> Mapping[str, Any]:
    """Settings below, unless they are of another algorithm or another kind: then these replace them."""
    if not isinstance(below, Mapping):
        return {}
    other = any(word in value and word in below and value[word] != below[word] for word in ("name", "kind"))
    return {} if other else below


def _named_model(annotation: Any, value: Any, where: str) -> type[Settings] | None:
    """The settings class of a group; that of an algorithm, a source or an objective goes by its name."""
    if annotation is not Settings:
        return annotation if isinstance(annotation, type) and issubclass(annotation, Settings) else None
    group, _, name = where.rpartition(".")
    try:
        if group.endswith("objectives"):
            return find_objective(name).Config
        if name == "algo" and isinstance(value, Mapping):
            return find_algorithm(str(value.get("name"))).Config
        if name == "source" and isinstance(value, Mapping) and "kind" in value:
            return find_source(str(value["kind"])).Config
    except ConfigError:
        return None  # of which others will tell
    return None

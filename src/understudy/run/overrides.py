"""Changes to a config's plain data: `key=value`, and whole groups, which are laid over what is there."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import ConfigError
from understudy.core.settings import Settings
from understudy.run.tasks import ORIGINS
from understudy.run.yaml_text import parse_yaml


def plain_data(value: Any) -> Any:
    """What a YAML file would hold of a Python value: text for paths, numbers for NumPy's, lists for tuples."""
    if isinstance(value, Settings):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): plain_data(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


def override_words(settings: Mapping[str, Any]) -> list[str]:
    """Python values by key, as a command line would carry them: `key=value`. The one parser reads both."""
    try:
        texts = {
            key: value if isinstance(value, str) else json.dumps(plain_data(value)) for key, value in settings.items()
        }
    except (TypeError, ValueError) as error:  # a number of thousands of digits, or what no YAML file could say
        raise ConfigError("train", f"a setting that cannot be written down ({error})") from error
    return [f"{key}={text}" for key, text in texts.items()]


def with_overrides(data: Mapping[str, Any], words: Iterable[str]) -> dict[str, Any]:
    """Plain data with `key=value` changes, one after the other."""
    changed = dict(data)
    for word in words:
        apply_override(changed, word)
    return changed


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set one dotted key in plain data; the field's type decides later what the text means."""
    key, equals, text = override.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*", key):
        raise ConfigError(f"'{override}'", "not a setting", expected="key=value", do="Example: algo.expectile=0.8")
    *parents, last = key.split(".")
    owner = data
    for number, part in enumerate(parents):
        child = owner.get(part)
        if isinstance(child, str) and part == "algo":
            child = {"name": child}
        if child is None:
            child = {}
        if not isinstance(child, dict):
            above = ".".join(parents[: number + 1])
            raise ConfigError(
                key, f"'{above}' is not a group of settings", got=child, do=f"Change it whole: {above}=…."
            )
        owner[part] = dict(child)
        owner = owner[part]
    for other in {"updates": ["env_steps"], "env_steps": ["updates"]}.get(key, []):
        data.pop(other, None)  # two words for one thing: the last counts
    value = parse_yaml(text, key) if text else ""
    owner[last] = _merged(owner.get(last), value)
    if parents[:1] in (["data"], ["datasets"]):
        _one_origin(owner, last)
    elif isinstance(value, dict) and key == "data":
        for origin in ORIGINS:
            if value.get(origin):
                _one_origin(owner[last], origin)


def _merged(under: Any, value: Any) -> Any:
    """A group given whole changes what it names; one of another algorithm, or of another kind, replaces it."""
    named = isinstance(value, dict) and not value.keys() & {"name", "kind"}
    if named and isinstance(under, str) and under.isidentifier():
        under = {"name": under}  # `algo: iql`, and not `data_share: 0.5`
    if not isinstance(under, dict) or not isinstance(value, dict):
        return value
    for word in ("name", "kind"):
        if word in value and word in under and str(value[word]) != str(under[word]):
            return value
    return {**under, **{key: _merged(under.get(key), inner) for key, inner in value.items()}}


def _one_origin(data: dict[str, Any], given: str) -> None:
    """Data comes from one place: the one that was given last."""
    if given in ORIGINS and data.get(given):
        for other in (*(origin for origin in ORIGINS if origin != given), "fingerprint"):
            data.pop(other, None)

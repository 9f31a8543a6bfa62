"""What a Minari dataset says of itself in `metadata.json`: words and numbers, none of which is acted upon."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.core.errors import DataError, UnderstudyError
from understudy.core.files import read_json
from understudy.data.episode import COLUMN_NAME
from understudy.data.formats.minari.frames import LOSSY
from understudy.data.formats.minari.spaces import Action, Leaf, read_action_space, read_observation_space
from understudy.data.recording import environment_name

METADATA_LIMIT = 16 << 20
WORDS = ("author", "algorithm_name", "code_permalink", "description", "minari_version", "dataset_id")
SCORES = ("ref_min_score", "ref_max_score")
LARGEST_SCORE = 1e30


@dataclass(frozen=True)
class Description:
    """Metadata, checked."""

    format: str
    episodes: int
    leaves: Mapping[str, Leaf]
    """By observation group."""
    action: Action
    env: str
    facts: Mapping[str, Any]
    notes: tuple[str, ...]
    mask: str = ""
    """The info that holds legal actions, if one is to be read."""
    extra: tuple[str, ...] = ()
    """Infos that are further columns; only datasets we wrote say so."""
    unknown_finals: frozenset[int] = frozenset()
    """Episodes whose last observation is a stand-in; only datasets we wrote say so."""


def read_description(path: Path, where: str) -> Description:
    try:
        if path.stat().st_size > METADATA_LIMIT:
            raise DataError(where, "its metadata.json is too large", expected=f"at most {METADATA_LIMIT:,} bytes")
        data = read_json(path)
    except OSError as error:
        raise DataError(where, f"its metadata.json cannot be read ({error.strerror})") from error
    except UnderstudyError as error:
        raise DataError(where, f"its metadata.json is not readable ({error})") from error
    for key in ("observation_space", "action_space"):
        if key not in data:
            raise DataError(
                where,
                f"its metadata has no {key}",
                do="Only the environment would know it, and a file's environment is never made. Update the dataset "
                "with Minari.",
            )
    leaves = read_observation_space(data["observation_space"], where)
    action = read_action_space(data["action_space"], where)
    texts = [name for name, leaf in leaves.items() if leaf.kind == "text"]
    notes = [f"Observation '{name}' is text and left out." for name in texts]
    kept = {name: leaf for name, leaf in leaves.items() if leaf.kind != "text"}
    if not kept:
        raise DataError(where, "has no observation we can read", got="text only")
    if data.get("data_format") == "arrow" and data.get("jpeg_encoding", True) and _has_images(kept):
        notes.append(LOSSY)
    if action.space is None:
        notes.append("The action space has no finite bounds: give them, or an environment.")
    if action.start:
        notes.append(f"Actions are counted from {action.start} in the file and from 0 here.")
    ours = data.get("understudy", {})
    return Description(
        str(data.get("data_format", "hdf5"))[:40],
        _count(data.get("total_episodes"), where),
        kept,
        action,
        _env(data, notes),
        _facts(data),
        tuple(notes),
        **_own(ours, where),
    )


def _has_images(leaves: Mapping[str, Leaf]) -> bool:
    return any(leaf.image for leaf in leaves.values())


def _count(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
        raise DataError(where, "its metadata does not say how many episodes there are", got=f"{value!r:.60}")
    return value


def _env(data: Mapping[str, Any], notes: list[str]) -> str:
    """The environment's id, as a word; its entry point is never looked at."""
    try:
        spec = json.loads(data["env_spec"]) if isinstance(data.get("env_spec"), str) else {}
        word = spec.get("id", "") or data.get("understudy", {}).get("env", "")
    except (ValueError, AttributeError, RecursionError):
        notes.append("Its env_spec is not readable and ignored.")
        return ""
    return environment_name(word)


def _facts(data: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {key: _words(data[key]) for key in WORDS if key in data}
    for key in SCORES:
        value = data.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST_SCORE:
            facts[key] = float(value)
    return facts


def _words(value: object) -> str:
    """Text fit to be shown on one line."""
    listed = [item for item in value if isinstance(item, str)] if isinstance(value, list) else [str(value)]
    return re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in ", ".join(sorted(listed)))).strip()[:500]


def _own(ours: object, where: str) -> dict[str, Any]:
    """What `write_minari` adds: which infos are columns, and which final observations are stand-ins."""
    if not isinstance(ours, dict):
        raise DataError(where, "its metadata is not readable", got=f"understudy: {ours!r:.40}")
    mask, extra, unknown = ours.get("mask", ""), ours.get("extra", []), ours.get("unknown_finals", [])
    named = isinstance(extra, list) and all(isinstance(name, str) and COLUMN_NAME.fullmatch(name) for name in extra)
    numbered = isinstance(unknown, list) and all(type(number) is int for number in unknown)
    if not (named and numbered and mask in ("", "action_mask")):
        raise DataError(where, "its metadata is not readable", got="an odd 'understudy' entry")
    return {"mask": mask, "extra": tuple(extra), "unknown_finals": frozenset(unknown)}

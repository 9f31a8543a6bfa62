"""Where a run lies if nobody says: runs/<config>/<environment and data, where they are not the config's>/<seed>."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from understudy.run.config import RunConfig


def place_of(given: Mapping[str, Any], config: "RunConfig") -> str:
    """The environment and the data in a run's path, as far as the config that was named did not say them."""
    parts = []
    if config.env is not None and config.env.id != _said(given, "env").get("id"):
        parts.append(config.env.id)
    if config.data is not None and config.data.path and config.data.path != _said(given, "data").get("path"):
        path = Path(config.data.path)
        parts.append(path.stem if path.suffix and not path.is_dir() else path.name)
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(parts)).strip(".-")


def _said(given: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    found = given.get(group)
    return found if isinstance(found, dict) else {}

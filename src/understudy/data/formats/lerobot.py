"""LeRobot datasets: a folder with `meta/info.json` and Parquet files under `data/`, version 2 (a file per episode) and
version 3 (many episodes per file).

`observation.state` is the group `state`, any other `observation.…` vector a group of that name, `action` the action,
`next.reward` the reward where there is one. Every episode ends as cut off: `next.done` marks the last frame, whatever
the reason. Videos and encoded images are not decoded.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.core.errors import DataError, UnderstudyError
from understudy.core.files import read_json
from understudy.data.formats.column_map import ColumnMap, ColumnPlan, Part, plan_columns
from understudy.data.formats.flat import flat_recording
from understudy.data.formats.parquet_file import read_parquet
from understudy.data.recording import Recording

INFO = Path("meta", "info.json")
INFO_LIMIT = 4 << 20
LISTED = ("video", "image")
KNOWN = ("v2.", "v3.")
FILES = re.compile(r"(episode_\d+|file-\d+)\.parquet")


def is_lerobot(path: Path) -> bool:
    return (path / INFO).is_file() and (path / "data").is_dir()


def open_lerobot(path: Path, columns: ColumnMap = "") -> Recording:
    """The recording in a folder; `columns` overrules what its features are called."""
    where = f"dataset '{path}'"
    version, features, frames = _info(path, where)
    files = _files(path, where)
    pictures = sorted(name for name, kind in features.items() if kind in LISTED)

    def choose(names: list[str]) -> ColumnPlan:
        vectors = [name for name in names if name not in pictures]
        return plan_columns(columns, vectors, where) if columns else _plan(vectors, where)

    plan, arrays = read_parquet(files, choose, where)
    recording = flat_recording(plan.arrange(arrays, where), path.name, where, notes=plan.notes)
    if frames is not None and frames != recording.steps:
        raise DataError(
            where, "has another number of frames than meta/info.json tells", got=recording.steps, expected=frames
        )
    notes = recording.notes
    if pictures:
        notes = (*notes, f"Images and videos are not decoded: {', '.join(pictures)[:300]}.")
    return Recording(
        recording.name,
        recording.steps,
        recording.play,
        layout=f"lerobot {version}",
        notes=notes,
        facts=recording.facts,
    )


def _info(path: Path, where: str) -> tuple[str, dict[str, str], int | None]:
    """Version, kind of each feature, and number of frames."""
    card = path / INFO
    try:
        if card.is_symlink() or card.stat().st_size > INFO_LIMIT:
            raise DataError(where, "meta/info.json is refused", expected="a small file of its own")
        info: Mapping[str, Any] = read_json(card)
    except (OSError, UnderstudyError) as error:
        raise DataError(where, f"its meta/info.json is not readable ({error})") from error
    version, told, frames = info.get("codebase_version"), info.get("features", {}), info.get("total_frames")
    if not isinstance(version, str) or not version.startswith(KNOWN) or len(version) > 20:
        raise DataError(where, "unknown version of LeRobot", got=f"{version!r:.40}", expected="v2.x or v3.x")
    if not isinstance(told, Mapping):
        raise DataError(where, "its meta/info.json tells no features", got=f"{told!r:.40}")
    kinds = {
        str(name): str(feature["dtype"])
        for name, feature in told.items()
        if isinstance(feature, Mapping) and isinstance(feature.get("dtype"), str)
    }
    return version, kinds, frames if type(frames) is int else None


def _files(path: Path, where: str) -> list[Path]:
    """All of `data/`, in order; the folder's own, and nothing that a template of a stranger's names."""
    files = sorted(file for file in (path / "data").glob("chunk-*/*.parquet") if FILES.fullmatch(file.name))
    for file in files:
        if file.is_symlink() or file.parent.is_symlink():
            raise DataError(where, "refused: a link to another place", got=file.name)
    if not files:
        raise DataError(where, "has no Parquet files under data/", do="Was the download cut off?")
    return files


def _plan(names: list[str], where: str) -> ColumnPlan:
    observed = {name: _group(name) for name in names if name.startswith("observation.")}
    if not observed or "action" not in names or "episode_index" not in names:
        raise DataError(
            where,
            "lacks what a LeRobot dataset has",
            got=", ".join(names)[:200],
            expected="observation.…, action and episode_index",
            do="Say which column is what with columns.",
        )
    single = list(observed.values()) == ["state"]
    parts = {("observations" if single else f"observations/{group}"): (Part(name),) for name, group in observed.items()}
    parts |= {"actions": (Part("action"),), "episode_id": (Part("episode_index"),)}
    if "next.reward" in names:
        parts["rewards"] = (Part("next.reward"),)
    return ColumnPlan(parts, ())


def _group(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name.removeprefix("observation."))

"""Datasets as Minari folders, which `minari.load_dataset` opens: HDF5, lossless, a group per episode."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from understudy.core.drafts import new_folder
from understudy.core.errors import DataError
from understudy.core.files import write_bytes, write_new
from understudy.core.spec import ActionSpace, Discrete, Group, Spec, recordable
from understudy.core.wording import counted
from understudy.data.dataset import Dataset
from understudy.data.episode import COLUMN_NAME, Array, Episode
from understudy.data.episode_cuts import drop_unknown_finals
from understudy.data.formats.hdf5_draft import new_hdf5_file
from understudy.data.formats.minari.reader import MAIN_FILE, check_minari_id, minari_root
from understudy.data.formats.minari.spaces import IMAGE_SIDE

NAMESPACE_FILE = "namespace_metadata.json"
LAYOUT_VERSION = "0.5.0"
LOSSLESS_VERSION = "0.5.4"
"""The first Minari that reads images that are not JPEG."""

UnknownFinals = Literal["refuse", "drop"]


def write_minari(
    dataset: Dataset,
    dataset_id: str,
    root: Path | None = None,
    *,
    env: str = "",
    unknown_finals: UnknownFinals = "refuse",
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write `dataset` under `root` (Minari's own folder, if not given); it appears whole or not at all.

    Minari keeps n+1 observations. An episode whose final observation is unknown cannot have them: with
    `unknown_finals="drop"` its last step is left out, unless the world ended there (then the successor is never used).
    `facts` go into the metadata: author, algorithm_name, code_permalink, description, ref_min_score, ref_max_score.
    """
    where = f"dataset '{dataset_id}'"
    folder = (root or minari_root()) / check_minari_id(dataset_id)
    if folder.exists():
        raise DataError(where, f"already exists under '{root or minari_root()}'", do="Choose another name or version.")
    _check_names(dataset, where)
    _check_finals(dataset, unknown_finals, where)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _name_spaces(folder.parent, root or minari_root())
    with new_folder(folder) as draft:
        (draft / "data").mkdir()
        counts = _write_episodes(dataset, draft / "data" / MAIN_FILE, where)
        size = (draft / "data" / MAIN_FILE).stat().st_size
        metadata = _metadata(dataset, dataset_id, env or dataset.env, counts, size) | dict(facts or {})
        write_new(draft / "data" / "metadata.json", json.dumps(metadata).encode())
    return folder


def _check_names(dataset: Dataset, where: str) -> None:
    for name in (*dataset.extra, *dataset.spec.observation):
        if not COLUMN_NAME.fullmatch(name) or name == "action_mask":
            raise DataError(where, "has a column Minari cannot name", got=repr(name), expected="letters, digits and _")


def _check_finals(dataset: Dataset, choice: UnknownFinals, where: str) -> None:
    index = dataset.index
    lost = int((~index.final_known & ~index.terminated).sum())
    if lost and choice == "refuse":
        raise DataError(
            where,
            f"{counted(lost, 'episode')} without a final observation, which Minari needs",
            do='To leave out the last step of each, give unknown_finals="drop", or the command --drop-unknown-finals.',
        )


def _name_spaces(folder: Path, root: Path) -> None:
    """Minari knows a folder of datasets by a file in it."""
    while folder != root and folder.is_relative_to(root):
        if not (folder / NAMESPACE_FILE).exists():
            write_bytes(folder / NAMESPACE_FILE, b"{}\n")
        folder = folder.parent


def _write_episodes(dataset: Dataset, path: Path, where: str) -> list[tuple[int, bool]]:
    """Every episode with a step left; the steps of each, and whether its final observation is known."""
    counts: list[tuple[int, bool]] = []
    with new_hdf5_file(path, where) as (file, sink):
        for episode in drop_unknown_finals(dataset.recording().episodes()):
            group = file.create_group(f"episode_{len(counts)}")
            group.attrs["id"] = len(counts)
            group.attrs["total_steps"] = len(episode)
            group.create_group("infos")  # empty or not, Minari shows no episode without it
            for name, values in _arrays(episode, single=list(dataset.spec.observation) == ["state"]).items():
                group.create_dataset(name, data=values)
            counts.append((len(episode), episode.final_known))
            sink.tell_trouble()
    if not counts:
        raise DataError(where, "has no step left to write")
    return counts


def _arrays(episode: Episode, *, single: bool) -> dict[str, Array]:
    """Datasets of one episode by their place in its group."""
    steps = len(episode)
    ended, cut = np.zeros(steps, bool), np.zeros(steps, bool)
    ended[-1], cut[-1] = episode.terminated, episode.truncated
    arrays: dict[str, Array] = {"actions": episode.actions, "rewards": episode.rewards}
    arrays |= {"terminations": ended, "truncations": cut}
    for name, values in episode.observations.items():
        arrays["observations" if single else f"observations/{name}"] = _padded(values, steps)
    if episode.mask is not None:
        arrays["infos/action_mask"] = _padded(episode.mask, steps)
    for name, values in episode.extra.items():
        # Minari's first info is that of the reset; the info of a step follows it.
        arrays[f"infos/{name}"] = np.concatenate([np.zeros_like(values[:1]), values])
    return arrays


def _padded(values: Array, steps: int) -> Array:
    """n+1 rows; an unknown final one repeats the last, and the metadata says so."""
    return values if len(values) == steps + 1 else np.concatenate([values, values[-1:]])


def _metadata(dataset: Dataset, dataset_id: str, env: str, counts: list[tuple[int, bool]], size: int) -> dict[str, Any]:
    images = any(_is_image(group) for group in dataset.spec.observation.values())
    metadata = {
        "dataset_id": dataset_id,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "minari_version": LOSSLESS_VERSION if images else LAYOUT_VERSION,
        "total_episodes": len(counts),
        "total_steps": sum(steps for steps, _ in counts),
        "dataset_size": round(size / 1e6, 1),
        "observation_space": json.dumps(_observation_json(dataset.spec)),
        "action_space": json.dumps(_action_json(dataset.spec.action)),
        "understudy": {
            "env": env,
            "mask": "" if dataset.mask is None else "action_mask",
            "extra": sorted(dataset.extra),
            "unknown_finals": [number for number, (_, known) in enumerate(counts) if not known],
        },
    }
    spec = _env_spec(env)
    return {**metadata, "env_spec": spec} if spec else metadata


def _env_spec(env: str) -> str:
    """How Gymnasium describes a registered environment; nothing is imported or made to find out."""
    import gymnasium

    if env not in gymnasium.registry:
        return ""
    try:
        return gymnasium.registry[env].to_json()
    except (TypeError, ValueError):
        return ""


def _observation_json(spec: Spec) -> dict[str, Any]:
    if list(spec.observation) == ["state"]:
        return _box_json(spec.observation["state"])
    return {"type": "Dict", "subspaces": {name: _box_json(group) for name, group in spec.observation.items()}}


def _box_json(group: Group) -> dict[str, Any]:
    bytes_only = group.dtype == "uint8"
    low, high = (0, 255) if bytes_only else (-np.inf, np.inf)
    bounds = {side: np.full(group.shape, bound).tolist() for side, bound in (("low", low), ("high", high))}
    return {"type": "Box", "dtype": group.dtype, "shape": list(group.shape), **bounds}


def _is_image(group: Group) -> bool:
    return group.dtype == "uint8" and len(group.shape) in {2, 3} and min(group.shape[:2]) >= IMAGE_SIDE


def _action_json(accepted: ActionSpace) -> dict[str, Any]:
    space = recordable(accepted)
    if isinstance(space, Discrete):
        return {"type": "Discrete", "dtype": "int64", "start": 0, "n": space.count}
    bounds = {"low": list(space.low), "high": list(space.high)}
    return {"type": "Box", "dtype": space.dtype, "shape": [space.size], **bounds}

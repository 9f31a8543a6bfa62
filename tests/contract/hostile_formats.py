"""Every format in which strangers' files are read: how a sound one is made, how it is read, and what guards it.

A new reader of files adds itself to FORMATS, and every attack of `test_hostile_files.py` runs on it. An attack that
means nothing to it is named in `without`, with the reason.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

import understudy as us
from hdf5_makers import flat_columns, write_columns
from minari_makers import make_minari
from motion_makers import straight_walk, write_clip
from understudy.core.files import read_sealed, seal, sha256_file
from understudy.core.spec import Box
from understudy.core.state import capture
from understudy.data.dataset import Dataset
from understudy.data.episode import Array
from understudy.data.formats.d4rl import open_d4rl
from understudy.data.formats.lerobot import open_lerobot
from understudy.data.formats.minari.reader import open_minari
from understudy.data.formats.npz import open_npz
from understudy.data.formats.packed import write_packed
from understudy.data.formats.readers import open_recording
from understudy.data.motions import MotionSettings, load_motions
from understudy.data.motions.loading import pack_motions
from understudy.data.stores.journal import open_unfinished
from understudy.data.stores.npy import read_array, write_column
from understudy.data.stores.recorder import Recorder
from understudy.data.stores.store import open_store, write_store
from understudy.run.checkpoint import load_checkpoint
from understudy.run.config import read_resolved
from understudy.run.policies import load_policy
from understudy.tools.ope.kept import Kept, digest, keep
from understudy.tools.tuning.plan import Plan
from worlds import random_dataset, random_episodes, tiny_config

BOX = Box((-1.0, -1.0), (1.0, 1.0))
TERABYTE = 1 << 40
Spoil = Callable[[Path], object]
Card = dict[str, Any]


@dataclass(frozen=True)
class Format:
    make: Callable[[Path], Path]
    """A sound file or folder inside a new folder."""
    read: Callable[[Path], str]
    """All of it; equal words mean equal content."""
    cards: tuple[str, ...] = ()
    """Files of JSON: `*/metadata.json`."""
    sealed: bool = False
    """Cards carry a seal, and tell the digest of every other file."""
    same: bool = True
    """Damage that passes changes nothing: there are digests or checksums. Otherwise a number may be another."""
    whole: bool = True
    """Cut short anywhere, it is refused."""
    remains: tuple[str, ...] = ()
    """Contents that damage may leave: what can be read of a recording that was broken off."""
    links: str = "followed"
    """Or `refused`: files that are links to sound ones elsewhere."""
    numbers: Callable[[Path], Iterator[tuple[str, Callable[[float], None]]]] | None = None
    """By name, what puts a number into each column or tensor, under seals that fit."""
    claims: Mapping[str, Spoil] = field(default_factory=dict)
    """Ways of the format to claim more than there is, or what cannot be."""
    names: Callable[[Path, str], object] | None = None
    """Gives something inside the file a name that is a path."""
    without: Mapping[str, str] = field(default_factory=dict)
    """Attacks that do not apply, and why."""
    optional: tuple[str, ...] = ()
    """What a card may lack."""
    lists: bool = False
    """Errors are lists of settings that are wrong, a line for each; who reads the file names it."""
    spare: Mapping[str, str] = field(default_factory=dict)
    """Files that may be missing or broken without harm, and why."""

    @property
    def guarded(self) -> bool:
        """Every byte is under a digest, and nothing is read when one differs."""
        return self.sealed and not self.remains

    def files(self, path: Path) -> list[Path]:
        """All that is read, the cards last."""
        if path.is_file():
            return [path]
        found = [one for one in sorted(path.rglob("*")) if one.is_file() and one.name not in self.spare]
        return sorted(found, key=lambda one: self.is_card(one, path))

    def is_card(self, file: Path, path: Path) -> bool:
        return file != path and any(file.relative_to(path).match(card) for card in self.cards)

    def rewrite(self, card: Path, content: Card) -> None:
        card.write_bytes(seal(content) if self.sealed else json.dumps(content).encode())

    def content(self, card: Path) -> Card:
        told: Card = read_sealed(card) if self.sealed else json.loads(card.read_text())
        return told


def digest_of(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


# Policies and checkpoints.


def run_of(algorithm: str, folder: Path) -> Path:
    """One run for all formats that need one."""
    run = folder.parent / f"run-of-{algorithm}"
    if not run.exists():
        us.train(tiny_config(algorithm, run, updates=2, eval_every=2, save_every=2, eval_episodes=1))
    return run


def policy_of(algorithm: str) -> Callable[[Path], Path]:
    return lambda folder: run_of(algorithm, folder) / "policy" / "final"


def read_policy(path: Path) -> str:
    policy = load_policy(path)
    numbers = {name: leaf.tolist() for name, leaf in capture(policy).items() if isinstance(leaf, Tensor)}
    return digest_of(numbers, policy.spec.to_json())


def read_checkpoint(path: Path) -> str:
    checkpoint = load_checkpoint(path.parent, 2)
    return digest_of(sorted((name, str(value)) for name, value in checkpoint.state.items()))


def reseal(file: Path, card: Path) -> None:
    told = read_sealed(card)
    told["sha256"][file.name] = sha256_file(file)
    card.write_bytes(seal(told))


def tensor_numbers(tensors: str, card: str) -> Callable[[Path], Iterator[tuple[str, Callable[[float], None]]]]:
    def numbers(path: Path) -> Iterator[tuple[str, Callable[[float], None]]]:
        for name, values in load_file(path / tensors).items():
            if values.is_floating_point():

                def put(value: float, name: str = name) -> None:
                    others = load_file(path / tensors)
                    others[name].view(-1)[-1] = value
                    save_file(others, path / tensors)
                    reseal(path / tensors, path / card)

                yield name, put

    return numbers


def tensor_claims(tensors: str, card: str) -> dict[str, Spoil]:
    def with_content(content: bytes) -> Spoil:
        def spoil(path: Path) -> None:
            (path / tensors).write_bytes(content)
            reseal(path / tensors, path / card)

        return spoil

    huge = json.dumps({"w": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, TERABYTE]}}).encode()
    negative = json.dumps({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}).encode()
    return {
        "a tensor of a terabyte": with_content(len(huge).to_bytes(8, "little") + huge),
        "a header of a terabyte": with_content(TERABYTE.to_bytes(8, "little") + b"{}"),
        "a header that is none": with_content((4).to_bytes(8, "little") + b"[[[["),
        "a tensor of no size": with_content(len(negative).to_bytes(8, "little") + negative + bytes(4)),
    }


# Stores and recordings.


def read_store(path: Path) -> str:
    return open_store(path).fingerprint


def with_column(path: Path, name: str, values: Array) -> None:
    """Another column, with a manifest that says so and is sealed."""
    manifest = read_sealed(path / "manifest.json")
    (path / f"{name}.npy").unlink()
    facts = write_column(path / f"{name}.npy", values, [values])
    manifest["columns"][name] = {"dtype": facts.dtype, "shape": list(facts.shape), "sha256": facts.sha256}
    (path / "manifest.json").write_bytes(seal(manifest))


def store_numbers(path: Path) -> Iterator[tuple[str, Callable[[float], None]]]:
    for name, column in open_store(path).columns().items():
        if column.dtype.kind == "f":

            def put(value: float, name: str = name, column: Array = column.copy()) -> None:  # noqa: B008
                column.reshape(len(column), -1)[-1, -1] = value
                with_column(path, name, column)

            yield name, put


def told_column(name: str, **facts: object) -> Spoil:
    def spoil(path: Path) -> None:
        manifest = read_sealed(path / "manifest.json")
        manifest["columns"][name].update(facts)
        (path / "manifest.json").write_bytes(seal(manifest))

    return spoil


def named_store(path: Path, name: str) -> None:
    manifest = read_sealed(path / "manifest.json")
    for part in ("spec", "columns"):
        text = json.dumps(manifest[part]).replace('"state"', json.dumps(name))
        manifest[part] = json.loads(text.replace("observation.state", f"observation.{json.dumps(name)[1:-1]}"))
    (path / "manifest.json").write_bytes(seal(manifest))


STORE_CLAIMS: dict[str, Spoil] = {
    **{
        f"a shape {shape}"[:40]: told_column("reward", shape=shape)
        for shape in ([10**15], [10**9, 10**9], [-1], [2**63, 0])
    },
    "a number of many digits": told_column("reward", shape=[10**4200] * 14),
    "objects": told_column("reward", dtype="object"),
    "lengths that add up in 64 bits": lambda path: with_column(path, "lengths", np.array([2**62] * 4 + [9, 1])),
    "negative lengths": lambda path: with_column(path, "lengths", np.array([-5, 15])),
}


def make_recording(folder: Path) -> Path:
    recorder = Recorder(folder / "recording", BOX)
    for episode in random_episodes(2, steps=4):
        recorder.add(episode)
    recorder.close()
    return folder / "recording"


def read_recording(path: Path) -> str:
    return open_unfinished(path).fingerprint


def first_episodes() -> tuple[str, ...]:
    """What is read of it when only its first episodes are whole."""
    return tuple(Dataset.from_episodes(random_episodes(2, steps=4)[:count], BOX).fingerprint for count in (1, 2))


def told_rows(name: str, dtype: str, row: object) -> Spoil:
    def spoil(path: Path) -> None:
        card = read_sealed(path / "recording.json")
        card["rows"][name] = [dtype, row]
        (path / "recording.json").write_bytes(seal(card))

    return spoil


RECORDING_CLAIMS = {
    "rows of no size": told_rows("reward", "float32", [-1]),
    "rows of many sizes": told_rows("reward", "float32", [1] * 70),
    "rows beyond any memory": told_rows("reward", "float32", [2**62, 4]),
    "rows of many digits": told_rows("reward", "float32", [10**4200] * 14),
    "rows of objects": told_rows("reward", "object", []),
}


# Recordings of others.


def make_npz(packed: bool) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (np.savez_compressed if packed else np.savez)(folder / "x.npz", allow_pickle=False, **flat_columns())
        return folder / "x.npz"

    return make


def make_packed(folder: Path) -> Path:
    write_packed(random_dataset(count=3, steps=5), folder / "x.npz")
    return folder / "x.npz"


def packed_numbers(path: Path) -> Iterator[tuple[str, Callable[[float], None]]]:
    for name in ("observation.state", "action", "reward"):

        def put(value: float, name: str = name) -> None:
            with np.load(path, allow_pickle=False) as file:
                columns = {part: file[part] for part in file.files}
            columns[name].reshape(len(columns[name]), -1)[-1, -1] = value
            np.savez(path, allow_pickle=False, **columns)

        yield name, put


def with_packed(**changes: Array) -> Spoil:
    def spoil(path: Path) -> None:
        with np.load(path, allow_pickle=False) as file:
            columns = {part: file[part] for part in file.files}
        np.savez(path, allow_pickle=False, **{**columns, **changes})

    return spoil


def of_a_later_format(path: Path) -> None:
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
    with_packed(about=np.array(json.dumps({**about, "format": about["format"] + 1})))(path)


def read_npz(path: Path) -> str:
    return Dataset.from_episodes(open_npz(path).episodes(), BOX, name=path.name).fingerprint


def read_d4rl(path: Path) -> str:
    return Dataset.from_episodes(open_d4rl(path).episodes(), BOX, name=path.name).fingerprint


def column_numbers(write: Callable[[Path, dict[str, Array]], object]) -> Any:
    def numbers(path: Path) -> Iterator[tuple[str, Callable[[float], None]]]:
        for name in ("observations", "actions", "rewards"):

            def put(value: float, name: str = name) -> None:
                columns = flat_columns()
                columns[name].reshape(len(columns[name]), -1)[-1, -1] = value
                write(path, columns)

            yield name, put

    return numbers


def npy_bytes(header: str, data: bytes = bytes(64)) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


HEADERS = {
    "64 GiB": "{'descr': '<f4', 'fortran_order': False, 'shape': (17179869184,)}",
    "more than any memory": "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 2)}",
    "rows without numbers": "{'descr': '<f4', 'fortran_order': False, 'shape': (17179869184, 0)}",
    "a negative shape": "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
    "records with objects": "{'descr': [('a', '<f4'), ('b', '|O')], 'fortran_order': False, 'shape': (2,)}",
    "no such type": "{'descr': 'no such type', 'fortran_order': False, 'shape': (2,)}",
    "deep brackets": f"{{'descr': '<f4', 'fortran_order': False, 'shape': {'(' * 900}{')' * 900}}}",
    "long numbers": "9" * 5000,
    "many signs": "-" * 9000 + "1",
    "nothing": "{}",
    "open brackets": "((((",
    "a call": "__import__('os').mkdir('marker')",
}


def zip_claims() -> Iterator[tuple[str, Spoil]]:
    def with_header(header: str) -> Spoil:
        def spoil(path: Path) -> None:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("observations.npy", npy_bytes(header))

        return spoil

    yield from ((name, with_header(header)) for name, header in HEADERS.items())


def named_member(path: Path, name: str) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (16,)}"
        archive.writestr(zipfile.ZipInfo(name), npy_bytes(header, bytes(64)))


def with_observations(shape: tuple[int, ...], **settings: Any) -> Spoil:
    def spoil(path: Path) -> None:
        with h5py.File(path, "a") as file:
            del file["observations"]
            file.create_dataset("observations", shape, "f4", **settings)

    return spoil


def make_npy(folder: Path) -> Path:
    np.save(folder / "x.npy", np.arange(24.0).reshape(6, 4))
    return folder / "x.npy"


def read_npy(path: Path) -> str:
    array = read_array(path)
    return digest_of(array.dtype.str, array.shape, array.tobytes())


def npy_claims() -> Iterator[tuple[str, Spoil]]:
    def with_header(header: str) -> Spoil:
        return lambda path: path.write_bytes(npy_bytes(header))

    yield from ((name, with_header(header)) for name, header in HEADERS.items())


def make_minari_of(storage: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MINARI_DATASETS_PATH", str(folder))
            make_minari("Pendulum-v1", "x-v0", episodes=2, steps=6, data_format=storage)
        return folder / "x-v0" / "data"

    return make


def read_minari(path: Path) -> str:
    return Dataset.from_episodes(open_minari(path).episodes(), Box((-2.0,), (2.0,))).fingerprint


def retold(**changes: object) -> Spoil:
    def spoil(path: Path) -> None:
        card = path / "metadata.json"
        card.write_text(json.dumps({**json.loads(card.read_text()), **changes}))

    return spoil


SPACE = '{"type": "Box", "dtype": "float32", "shape": [3], "low": [0, 0, 0], "high": [1, 1, 1]}'
MINARI_CLAIMS = {
    "a shape of no size": retold(observation_space=SPACE.replace("[3]", "[-3]")),
    "a shape without end": retold(observation_space=SPACE.replace("[3]", "[9999999999]")),
    "an infinite shape": retold(observation_space=SPACE.replace("[3]", "[1e999]")),
    "too many choices": retold(observation_space='{"type": "Discrete", "n": 1000000000000}'),
    "a space of spaces": retold(observation_space='{"type": "Dict", "subspaces": ' * 40 + SPACE + "}" * 40),
    "too many episodes": retold(total_episodes=10**12),
    "more episodes than there are": retold(total_episodes=2_000_000_000),
}


def named_minari(path: Path, name: str) -> None:
    retold(data_format=name)(path)


# Tables, and the formats of other libraries.


def read_any(path: Path) -> str:
    return Dataset.from_episodes(open_recording(path).episodes(), BOX, name=path.name).fingerprint


def table_of(columns: dict[str, Array]) -> dict[str, Array]:
    """One number to a column."""
    table: dict[str, Array] = {}
    for name, values in columns.items():
        parts = values.reshape(len(values), -1)
        table |= {f"{name}_{n}" if parts.shape[1] > 1 else name: parts[:, n] for n in range(parts.shape[1])}
    return table


def write_csv(path: Path, columns: dict[str, Array]) -> None:
    table = table_of(columns)
    rows = [
        ",".join(table),
        *(",".join(repr(float(cell)) for cell in row) for row in zip(*table.values(), strict=True)),
    ]
    path.write_text("\n".join(rows) + "\n")


def make_csv(folder: Path) -> Path:
    write_csv(folder / "x.csv", flat_columns())
    return folder / "x.csv"


def write_parquet(path: Path, columns: dict[str, Array]) -> None:
    pq.write_table(pa.table(table_of(columns)), path)


def make_parquet(folder: Path) -> Path:
    write_parquet(folder / "x.parquet", flat_columns())
    return folder / "x.parquet"


def many_equal_rows(path: Path) -> None:
    """Ten million equal rows take some kilobytes."""
    row = pa.table({name: pa.array(np.zeros(1 << 20, np.float32)) for name in ("obs", "action", "done")})
    with pq.ParquetWriter(path, row.schema, compression="zstd") as writer:
        for _ in range(10):
            writer.write_table(row)


def make_lerobot(folder: Path) -> Path:
    path, columns = folder / "robot", flat_columns()
    (path / "data" / "chunk-000").mkdir(parents=True)
    (path / "meta").mkdir()
    table: dict[str, Any] = {"observation.state": list(columns["observations"]), "action": list(columns["actions"])}
    rows = len(columns["actions"])
    table |= {"episode_index": np.arange(rows) // 4, "next.reward": columns["rewards"].reshape(-1)}
    pq.write_table(pa.table(table), path / "data" / "chunk-000" / "file-000.parquet")
    info = {"codebase_version": "v3.0", "total_frames": rows, "features": {"action": {"dtype": "float32"}}}
    (path / "meta" / "info.json").write_text(json.dumps(info))
    return path


def read_lerobot(path: Path) -> str:
    return Dataset.from_episodes(open_lerobot(path).episodes(), BOX, name=path.name).fingerprint


def told_info(**changes: object) -> Spoil:
    def spoil(path: Path) -> None:
        card = path / "meta" / "info.json"
        card.write_text(json.dumps({**json.loads(card.read_text()), **changes}))

    return spoil


def make_d3rlpy(folder: Path) -> Path:
    with h5py.File(folder / "x.h5", "w") as file:
        file["num_episodes"] = 2
        for number, episode in enumerate(random_episodes(2, steps=4)):
            file[f"observations_{number}"] = next(iter(episode.observations.values()))[:4]
            file[f"actions_{number}"], file[f"rewards_{number}"] = episode.actions, episode.rewards[:, None]
            file[f"terminated_{number}"] = episode.terminated
        file["version"] = "2.1"
    return folder / "x.h5"


def make_robomimic(folder: Path) -> Path:
    with h5py.File(folder / "x.hdf5", "w") as file:
        for number in range(2):
            demo = file.create_group(f"data/demo_{number}")
            demo["actions"], demo["rewards"] = np.zeros((4, 2)), np.arange(4.0)
            demo["dones"] = np.array([0, 0, 0, 1])
            demo["obs/a"] = demo["next_obs/a"] = np.ones((4, 2))
    return folder / "x.hdf5"


def told_dataset(name: str, value: object) -> Spoil:
    def spoil(path: Path) -> None:
        with h5py.File(path, "a") as file:
            del file[name]
            file[name] = value

    return spoil


# Motions.


def make_motion_npz(folder: Path) -> Path:
    return write_clip(folder / "x.npz", straight_walk(12))


def read_motions(path: Path) -> str:
    return load_motions(MotionSettings(path=str(path), step=None if path.is_dir() else 1 / 60)).fingerprint


def told_clip(**changes: object) -> Spoil:
    return lambda path: write_clip(path, straight_walk(12), **changes)


def clip_numbers(path: Path) -> Iterator[tuple[str, Callable[[float], None]]]:
    for name in ("dof_positions", "body_positions", "body_rotations", "fps"):

        def put(value: float, name: str = name) -> None:
            clip = straight_walk(12)
            clip[name].reshape(-1)[-1] = value
            write_clip(path, clip)

        yield name, put


def frames_of(rows: object, **others: object) -> Spoil:
    def spoil(path: Path) -> None:
        path.write_text(json.dumps({"Loop": "none", **others, "Frames": rows}))

    return spoil


FRAME = [0.1, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, *[0.1] * 12]


def make_deepmimic(folder: Path) -> Path:
    frames_of([[*FRAME[:1], 0.1 * number, *FRAME[2:]] for number in range(6)])(folder / "x.txt")
    return folder / "x.txt"


def frame_numbers(path: Path) -> Iterator[tuple[str, Callable[[float], None]]]:
    for place in (0, 1, 4, 9):

        def put(value: float, place: int = place) -> None:
            frames = json.loads(path.read_text())["Frames"]
            frames[2][place] = value
            frames_of(frames)(path)

        yield f"number {place}", put


DEEPMIMIC_CLAIMS: dict[str, Spoil] = {
    "deep brackets": lambda path: path.write_text('{"Frames": ' + "[" * 100_000),
    "a number of many digits": lambda path: path.write_text('{"Frames": [[' + "9" * 5000 + "]]}"),
    "a number beyond any": frames_of([[*FRAME[:-1], 10**400]] * 3),
    "frames that are no lists": frames_of([1, 2, 3]),
    "frames of different widths": frames_of([FRAME, FRAME[:-1]]),
    "text in a frame": frames_of([[*FRAME[:-1], "1.0"]] * 3),
    "a frame": frames_of([FRAME]),
    "no frames": frames_of([]),
    "frames by name": frames_of({"0": FRAME}),
    "time that stands still": frames_of([FRAME, [0.0, *FRAME[1:]], FRAME]),
    "another loop": frames_of([FRAME] * 3, Loop={"wrap": 1}),
    "a rotation of no size": frames_of([[*FRAME[:4], 0.0, *FRAME[5:]]] * 3),
    "an unknown body": frames_of([FRAME[:-1]] * 3),
}


def write_clip_table(path: Path, columns: dict[str, Array]) -> None:
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(repr(float(cell)) for cell in row) for row in rows)]))


def clip_table(frames: int = 6) -> dict[str, Array]:
    return {name: np.arange(frames) / 10 + place for place, name in enumerate(("time", "hip", "knee", "root_x"))} | {
        "root_y": np.zeros(frames),
        "root_z": np.ones(frames),
    }


def make_clip_table(folder: Path) -> Path:
    write_clip_table(folder / "x.csv", clip_table())
    return folder / "x.csv"


def table_numbers(path: Path) -> Iterator[tuple[str, Callable[[float], None]]]:
    for name in ("time", "hip", "root_x"):

        def put(value: float, name: str = name) -> None:
            columns = clip_table()
            columns[name][-1] = value
            write_clip_table(path, columns)

        yield name, put


def make_packed_motions(folder: Path) -> Path:
    write_clip(folder / "walk.npz", straight_walk(12))
    pack_motions(MotionSettings(path=str(folder / "walk.npz"), step=1 / 60), folder / "packed")
    return folder / "packed"


def told_motions(change: Callable[[dict[str, Any]], object]) -> Spoil:
    def spoil(path: Path) -> None:
        told = read_sealed(path / "motions.json")
        change(told)
        (path / "motions.json").write_bytes(seal(told))

    return spoil


def motion_numbers(path: Path) -> Iterator[tuple[str, Callable[[float], None]]]:
    def put(value: float) -> None:
        rows = np.load(path / "frames.npy")
        rows[3, 2] = value
        (path / "frames.npy").unlink()
        facts = write_column(path / "frames.npy", rows, [rows])
        told_motions(lambda told: told.update(sha256=facts.sha256))(path)

    yield "frames", put


MOTION_CLAIMS: dict[str, Spoil] = {
    "clips beyond any memory": told_motions(lambda told: told["clips"][0].update(frames=1 << 39)),
    "clips of many digits": told_motions(lambda told: told["clips"][0].update(frames=10**4200)),
    "clips of no length": told_motions(lambda told: told["clips"][0].update(frames=0)),
    "clips that add up from below": told_motions(
        lambda told: told["clips"].extend([{**told["clips"][0], "name": "a", "frames": -5}])
    ),
    "no clips": told_motions(lambda told: told["clips"].clear()),
    "clips of one name": told_motions(lambda told: told["clips"].append(told["clips"][0])),
    "a loop that is none": told_motions(lambda told: told["clips"][0].update(loop="yes")),
    "a shift of one number": told_motions(lambda told: told["clips"][0].update(shift=[1.0])),
    "a shift without end": told_motions(lambda told: told["clips"][0].update(shift=[0.0, "1e999", 0.0])),
    "no step": told_motions(lambda told: told.update(step=0.0)),
    "a kind of its own": told_motions(lambda told: told["channels"][0].update(kind="object")),
    "rotations of no size": told_motions(lambda told: told["channels"][0].update(kind="rotation")),
    "components of one name": told_motions(lambda told: told["channels"][0].update(components=["a"] * 5)),
    "channels without end": told_motions(lambda told: told["channels"][0].update(components=["a"] * 200_000)),
    "channels of one name": told_motions(lambda told: told["channels"].append(told["channels"][0])),
}


# Settings.


def read_config(path: Path) -> str:
    return digest_of(read_resolved(path).model_dump_json())


def make_plan(folder: Path) -> Path:
    """What a search is, beside nothing else."""
    space = {"algo.learning_rate": {"low": 1e-4, "high": 1e-2}}
    Plan.make(tiny_config("bc", folder / "run"), space, {}).write(folder)
    return folder


def read_plan(path: Path) -> str:
    plan = Plan.read(path)
    return digest_of(plan.base.model_dump_json(), sorted(plan.dimensions), plan.search_seeds())


def told_plan(**facts: object) -> Spoil:
    def spoil(path: Path) -> None:
        content = read_sealed(path / "plan.json")
        content.pop("seal", None)
        (path / "plan.json").write_bytes(seal({**content, **facts}))

    return spoil


PLAN_CLAIMS: dict[str, Spoil] = {
    "runs without end": told_plan(seeds=1 << 40),
    "no run at all": told_plan(seeds=0),
    "evaluations that nobody makes": told_plan(last=1 << 40),
    "a range without numbers": told_plan(space={"algo.learning_rate": {"low": "x", "high": "y"}}),
    "a setting that is none": told_plan(space={"algo.nothing": ["1", "2"]}),
    "words that are none": told_plan(words=["algo"]),
}


# What critics said of a candidate.


def make_kept(folder: Path) -> Path:
    (folder / "kept").mkdir()
    keep(folder / "kept" / "judged.json", digest({"candidate": "it"}), [0.5, -1.25, 3.0], 3.0)
    return folder / "kept"


def read_kept(path: Path) -> str:
    kept = Kept.open(path / "judged.json", digest({"candidate": "it"}), 3)
    return digest_of(kept.about, kept.starts, kept.largest)


def told_kept(**facts: object) -> Spoil:
    def spoil(path: Path) -> None:
        content = read_sealed(path / "judged.json")
        content.pop("seal", None)
        (path / "judged.json").write_bytes(seal({**content, **facts}))

    return spoil


KEPT_CLAIMS: dict[str, Spoil] = {
    "of other settings": told_kept(about=digest({"candidate": "another"})),
    "of other episodes": told_kept(starts=[0.5, -1.25]),
    "of no episode": told_kept(starts=[]),
    "of a hundred thousand episodes": told_kept(starts=[0.0] * 100_000),
    "values above the largest": told_kept(starts=[0.5, -1.25, 1e308]),
}


def aliases(path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path.write_text("\n".join(lines))


def told_setting(name: str, value: object) -> Spoil:
    def spoil(path: Path) -> None:
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), name: value}))

    return spoil


CONFIG_CLAIMS: dict[str, Spoil] = {
    "aliases of aliases": aliases,
    "a number of many digits": lambda path: path.write_text(f"seed: {'9' * 5000}\n"),
    "deep brackets": lambda path: path.write_text("[" * 100_000),
    "a class to make": lambda path: path.write_text("!!python/object/apply:os.mkdir [marker]"),
    "no settings": lambda path: path.write_text("7"),
    "no algorithm": told_setting("algo", None),
    "infinite updates": told_setting("updates", float("inf")),
}

NO_CARD = "it has no file of JSON"
NO_NAMES = "nothing in it names a file"
ONE_FILE: dict[str, str] = {"cards": NO_CARD, "card_text": NO_CARD, "mutated_cards": NO_CARD}
SAME_FILES = "its files are opened by the same lines as those of the format before it; what is in them is another"
BYTES = ("no_files", "truncated", "lengthened", "flipped", "damaged", "card_text")
TENSOR_POLICY = tensor_claims("policy.safetensors", "policy.json")

FORMATS: dict[str, Format] = {
    **{
        f"policy of {algorithm}": Format(
            policy_of(algorithm),
            read_policy,
            cards=("policy.json",),
            sealed=True,
            optional=("kind",),
            numbers=tensor_numbers("policy.safetensors", "policy.json"),
            claims=TENSOR_POLICY,
            without={"path_names": NO_NAMES, **without},
        )
        for algorithm, without in (("bc", {}), ("ppo", dict.fromkeys(BYTES, SAME_FILES)))
    },
    "checkpoint": Format(
        lambda folder: run_of("bc", folder) / "checkpoints" / "000000002",
        read_checkpoint,
        cards=("manifest.json",),
        sealed=True,
        optional=("kind",),
        numbers=tensor_numbers("state.safetensors", "manifest.json"),
        claims={
            key: value
            for key, value in tensor_claims("state.safetensors", "manifest.json").items()
            if key != "no tensors"
        },
        without={"path_names": NO_NAMES},
    ),
    "store": Format(
        lambda folder: write_store(random_dataset(2, 5), folder / "store"),
        read_store,
        cards=("manifest.json",),
        sealed=True,
        optional=("env", "recipe", "fingerprint", "kind"),
        numbers=store_numbers,
        claims=STORE_CLAIMS,
        names=named_store,
    ),
    "recording": Format(
        make_recording,
        read_recording,
        cards=("recording.json",),
        sealed=True,
        remains=first_episodes(),
        optional=("kind",),
        claims=RECORDING_CLAIMS,
        names=lambda path, name: told_rows(name, "uint8", [0])(path),
        without={"numbers_not_finite": "its columns are checked when they become a store, by a checksum until then"},
        spare={".lock": "it holds nothing"},
    ),
    **{
        f"npz{' packed' if packed else ''}": Format(
            make_npz(packed),
            read_npz,
            numbers=column_numbers(lambda path, columns: np.savez(path, allow_pickle=False, **columns)),
            claims=dict(zip_claims()),
            names=named_member,
            without={**ONE_FILE, **without},
        )
        for packed, without in ((False, {}), (True, dict.fromkeys(("no_files", "lengthened"), SAME_FILES)))
    },
    "packed store": Format(
        make_packed,
        read_npz,
        numbers=packed_numbers,
        claims={
            **dict(zip_claims()),
            "episodes longer than the rows": with_packed(lengths=np.array([5, 5, 1 << 62])),
            "episodes of no length": with_packed(lengths=np.array([5, 5, 0])),
            "a length alone": with_packed(lengths=np.array(15)),
            "other kinds of flags": with_packed(terminated=np.zeros(3)),
            "rows of another shape": with_packed(action=np.zeros((15, 3), np.float32)),
            "a column nobody knows": with_packed(other=np.zeros(15, np.float32)),
            "a spec of something else": with_packed(
                about=np.array('{"format": 1, "layout": "packed store", "spec": [1]}')
            ),
            "a later format": of_a_later_format,
        },
        names=named_member,
        without={**ONE_FILE, **dict.fromkeys(("no_files", "lengthened"), SAME_FILES)},
    ),
    "npy": Format(
        make_npy,
        read_npy,
        same=False,
        claims=dict(npy_claims()),
        without={
            **ONE_FILE,
            "path_names": NO_NAMES,
            "numbers_not_finite": "it is any array; who takes it looks",
        },
    ),
    "hdf5": Format(
        lambda folder: write_columns(folder / "x.hdf5", flat_columns()),
        read_d4rl,
        same=False,
        numbers=column_numbers(write_columns),
        claims={
            "64 GiB that nobody wrote": with_observations(((64 << 30) // 12, 3), chunks=(1 << 16, 3)),
            "64 GiB in one piece": with_observations(((64 << 30) // 12, 3)),
            "rows never written": with_observations((15, 3)),
        },
        without={**ONE_FILE, "path_names": "a name with a slash is a group inside the file, by HDF5 itself"},
    ),
    **{
        f"minari {storage}": Format(
            make_minari_of(storage),
            read_minari,
            cards=("metadata.json", "*/metadata.json"),
            same=False,
            whole=storage == "hdf5",
            links="refused",
            claims=MINARI_CLAIMS,
            names=named_minari,
            without={"numbers_not_finite": "its episodes are checked as those of every recording are (hdf5, npz)"},
        )
        for storage in ("hdf5", "arrow")
    },
    "csv": Format(
        make_csv,
        read_any,
        same=False,
        whole=False,
        numbers=column_numbers(write_csv),
        claims={
            "a line without end": lambda path: path.write_text("observations,actions\n" + "1" * (3 << 20)),
            "a cell of letters": lambda path: path.write_text(f"observations,actions,done\n{'x' * 100_000},1,1\n"),
            "columns without end": lambda path: path.write_text("," * 900_000 + "\n" + "1," * 500_000),
        },
        without={**ONE_FILE, "path_names": NO_NAMES},
    ),
    "parquet": Format(
        make_parquet,
        read_any,
        same=False,
        numbers=column_numbers(write_parquet),
        claims={
            "rows without end": many_equal_rows,
            "text": lambda path: pq.write_table(pa.table({"obs": ["a"], "action": [1.0], "done": [True]}), path),
        },
        without={**ONE_FILE, "path_names": NO_NAMES},
    ),
    "lerobot": Format(
        make_lerobot,
        read_lerobot,
        cards=("meta/info.json",),
        same=False,
        links="refused",
        claims={"no such version": told_info(codebase_version="v9.0"), "frames": told_info(total_frames=10**12)},
        names=lambda path, name: told_info(codebase_version=name)(path),
        without={"numbers_not_finite": "its rows are read as those of every Parquet file are"},
    ),
    "d3rlpy": Format(
        make_d3rlpy,
        read_any,
        same=False,
        claims={
            "episodes without end": told_dataset("num_episodes", 10**12),
            "minus one episode": told_dataset("num_episodes", -1),
            "no flag": told_dataset("terminated_0", 7.0),
        },
        without={
            **ONE_FILE,
            "path_names": "a name with a slash is a group inside the file, by HDF5 itself",
            "numbers_not_finite": "its episodes are checked as those of every recording are (hdf5, npz)",
        },
    ),
    "robomimic": Format(
        make_robomimic,
        read_any,
        same=False,
        claims={
            "no flag": told_dataset("data/demo_0/dones", np.full(4, 7)),
            "other rows": told_dataset("data/demo_0/obs/a", np.zeros((3, 2))),
            "a single number": told_dataset("data/demo_0/actions", 1.0),
        },
        without={
            **ONE_FILE,
            "path_names": "a name with a slash is a group inside the file, by HDF5 itself",
            "numbers_not_finite": "its episodes are checked as those of every recording are (hdf5, npz)",
        },
    ),
    "motion npz": Format(
        make_motion_npz,
        read_motions,
        numbers=clip_numbers,
        claims={
            **dict(zip_claims()),
            "no frames per second": told_clip(fps=np.array(0.0)),
            "frames per second by name": told_clip(fps=np.array("60")),
            "names that are numbers": told_clip(dof_names=np.arange(5)),
            "names without end": told_clip(dof_names=np.array(["x" * 5000, *"abcd"])),
            "fewer names than joints": told_clip(dof_names=np.array(["a"])),
            "a frame alone": told_clip(dof_positions=np.zeros(5)),
            "frames without joints": told_clip(dof_positions=np.zeros((12, 0))),
            "bodies of four axes": told_clip(body_positions=np.zeros((12, 3, 4))),
            "rotations of no size": told_clip(body_rotations=np.zeros((12, 3, 4))),
            "text for numbers": told_clip(dof_positions=np.full((12, 5), "1")),
        },
        names=named_member,
        without={**ONE_FILE, **dict.fromkeys(("no_files", "lengthened"), SAME_FILES)},
    ),
    "deepmimic": Format(
        make_deepmimic,
        read_motions,
        same=False,
        numbers=frame_numbers,
        claims=DEEPMIMIC_CLAIMS,
        without={**ONE_FILE, "path_names": NO_NAMES},
    ),
    "motion csv": Format(
        make_clip_table,
        read_motions,
        same=False,
        whole=False,
        numbers=table_numbers,
        claims={
            "a line without end": lambda path: path.write_text("time,hip\n" + "1" * (3 << 20)),
            "columns without end": lambda path: path.write_text("," * 900_000 + "\n" + "1," * 500_000),
            "half a root": lambda path: path.write_text("time,root_x,hip\n0,0,0\n1,1,1\n"),
            "no joints": lambda path: path.write_text("time,frame\n0,0\n1,1\n"),
            "a frame alone": lambda path: path.write_text("time,hip\n0,0\n"),
        },
        without={**ONE_FILE, "path_names": NO_NAMES},
    ),
    "packed motions": Format(
        make_packed_motions,
        read_motions,
        cards=("motions.json",),
        sealed=True,
        optional=("kind", "recipe"),
        numbers=motion_numbers,
        claims=MOTION_CLAIMS,
        without={"path_names": NO_NAMES},
    ),
    "plan of a search": Format(
        make_plan,
        read_plan,
        cards=("plan.json",),
        sealed=True,
        claims=PLAN_CLAIMS,
        without={
            "path_names": "every path in it is a person's own",
            "numbers_not_finite": "a setting that must be finite says so itself",
        },
    ),
    "judgement that is kept": Format(
        make_kept,
        read_kept,
        cards=("judged.json",),
        sealed=True,
        claims=KEPT_CLAIMS,
        without={
            "path_names": NO_NAMES,
            "numbers_not_finite": "what is sealed has no such numbers: whoever seals refuses them",
        },
    ),
    "config": Format(
        lambda folder: run_of("bc", folder) / "config.yaml",
        read_config,
        same=False,
        whole=False,
        lists=True,
        claims=CONFIG_CLAIMS,
        without={
            **ONE_FILE,
            "path_names": "every path in it is a person's own",
            "numbers_not_finite": "a setting that must be finite says so itself (infinite updates, among its claims)",
        },
    ),
}


def trap(marker: Path) -> Iterator[tuple[str, bytes]]:
    """What would make a folder if it were unpickled, alone, in an array and in a file of torch's kind."""
    import pickle

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            import os

            return os.mkdir, (str(marker),)

    yield "a pickle", pickle.dumps(Trap())
    array, archive = io.BytesIO(), io.BytesIO()
    np.save(array, np.array([Trap()] * 8, object), allow_pickle=True)
    yield "an array of objects", array.getvalue()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Trap()))
        file.writestr("observations.npy", array.getvalue())
    yield "an archive", archive.getvalue()

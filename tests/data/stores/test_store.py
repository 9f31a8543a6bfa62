"""The native store: exact, sealed, whole or absent, and never written through."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from understudy.core.errors import DataError
from understudy.core.files import read_sealed, seal
from understudy.core.protocols import Demand
from understudy.core.spec import Box, Discrete
from understudy.data.dataset import DERIVED, Dataset
from understudy.data.episode import Episode
from understudy.data.formats.npz_writer import write_npz
from understudy.data.stores import store
from understudy.data.stores.npy import write_column
from understudy.data.stores.store import MANIFEST, FileRows, is_store, open_store, write_store
from worlds import random_dataset, random_episodes

COLUMN_NAMES = ["observation.state", "action", "reward", "lengths", "terminated", "truncated", "final_known"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_store(random_dataset(), tmp_path / "store", {"made": "by hand"})


def test_round_trip_is_exact(tmp_path: Path) -> None:
    image = np.arange(21 * 4, dtype=np.uint8).reshape(21, 2, 2)
    episodes = [
        Episode({**e.observations, "image": image}, e.actions, e.rewards, i % 2 == 0, i % 2 == 1)
        for i, e in enumerate(random_episodes())
    ]
    dataset = Dataset.from_episodes(episodes, Box((-1.0, -2.0), (1.0, 3.0), "float64"))
    opened = open_store(write_store(dataset, tmp_path / "a" / "b"))
    assert opened.spec == dataset.spec
    for (name, column), (other, loaded) in zip(dataset.columns().items(), opened.columns().items(), strict=True):
        assert name == other
        assert column.dtype == loaded.dtype
        np.testing.assert_array_equal(column, loaded)


def test_the_fingerprint_is_that_of_the_content(path: Path) -> None:
    opened = open_store(path)
    assert opened.fingerprint == random_dataset().fingerprint
    del opened.__dict__["fingerprint"]  # computed again from the mapped columns
    assert opened.fingerprint == random_dataset().fingerprint


def test_writing_twice_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    again = write_store(open_store(path), tmp_path / "again", {"made": "by hand"})
    assert {f.name: f.read_bytes() for f in path.iterdir()} == {f.name: f.read_bytes() for f in again.iterdir()}


def test_the_recipe_is_kept(path: Path) -> None:
    assert read_sealed(path / MANIFEST)["recipe"] == {"made": "by hand"}


@pytest.mark.parametrize("name", COLUMN_NAMES)
def test_any_flipped_bit_names_its_column(path: Path, name: str) -> None:
    file = path / f"{name}.npy"
    whole = bytearray(file.read_bytes())
    for place in {0, 5, 60, 127, 128, len(whole) // 2, len(whole) - 1}:
        whole[place] ^= 1 << place % 8
        file.write_bytes(whole)
        with pytest.raises(DataError, match=f"column '{name}': was changed or damaged"):
            open_store(path)
        whole[place] ^= 1 << place % 8


def test_every_byte_of_a_tiny_store_is_guarded(tmp_path: Path) -> None:
    tiny = write_store(random_dataset(count=1, steps=1, state=1, action=1), tmp_path / "tiny")
    for file in tiny.iterdir():
        whole = bytearray(file.read_bytes())
        for place in range(0, len(whole), 5):
            whole[place] ^= 0x10
            file.write_bytes(whole)
            with pytest.raises(DataError):
                open_store(tiny)
            whole[place] ^= 0x10
        file.write_bytes(whole)
    open_store(tiny)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def _lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def _to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("harm", [Path.unlink, _empty, _cut, _lengthen, _to_folder])
@pytest.mark.parametrize("name", ["action", "lengths"])
def test_a_harmed_column_is_named(path: Path, harm: Callable[[Path], None], name: str) -> None:
    harm(path / f"{name}.npy")
    with pytest.raises(DataError, match=f"^dataset '{path}', column '{name}': "):
        open_store(path)


def test_a_stray_column_is_named(path: Path) -> None:
    shutil.copy(path / "action.npy", path / "next_action.npy")
    with pytest.raises(DataError, match="column 'next_action': is not described by the manifest"):
        open_store(path)


def forge(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A manifest with a fitting seal, as a hostile writer would make it."""
    manifest = read_sealed(path / MANIFEST)
    change(manifest)
    (path / MANIFEST).write_bytes(seal(manifest))


def test_a_shape_beyond_any_memory_is_refused(path: Path) -> None:
    sound = read_sealed(path / MANIFEST)
    for shape in ([10**4200] * 14, [-1], [2**63, 0]):
        sound["columns"]["reward"]["shape"] = shape
        (path / MANIFEST).write_bytes(seal(sound))
        with pytest.raises(DataError, match="column 'reward'"):
            open_store(path)


@pytest.mark.parametrize("name", ["../secret", "a/b", "..", "", "a\\b", "/etc/passwd", "a\x00b", "state.npy"])
def test_a_manifest_cannot_name_another_place(path: Path, name: str) -> None:
    def rename(manifest: dict[str, object]) -> None:
        for part in ("spec", "columns"):
            text = json.dumps(manifest[part]).replace('"state"', json.dumps(name))
            manifest[part] = json.loads(text.replace("observation.state", f"observation.{json.dumps(name)[1:-1]}"))

    np.save(path.parent / "secret.npy", np.zeros((126, 3), np.float32))
    forge(path, rename)
    with pytest.raises(DataError, match="a column cannot be a file"):
        open_store(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 99),
        ("format", None),
        ("spec", None),
        ("spec", {}),
        ("columns", None),
        ("columns", [1]),
        ("columns", {}),
    ],
)
def test_a_forged_manifest_is_refused(path: Path, key: str, value: object) -> None:
    forge(path, lambda manifest: manifest.update({key: value}))
    with pytest.raises(DataError, match=f"^dataset '{path}"):
        open_store(path)


def replace_column(path: Path, name: str, values: np.typing.NDArray[Any]) -> None:
    """Another column, with a manifest that says so and is sealed."""

    def tell(manifest: dict[str, Any]) -> None:
        (path / f"{name}.npy").unlink()
        facts = write_column(path / f"{name}.npy", values, [values])
        manifest["columns"][name] = {"dtype": facts.dtype, "shape": list(facts.shape), "sha256": facts.sha256}

    forge(path, tell)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["reward", "action", "observation.state"])
def test_numbers_that_no_recorder_lets_in_are_found(path: Path, name: str, value: float, monkeypatch: Any) -> None:
    """A seal says that nothing changed since; who sealed it may not have looked."""
    column = random_dataset().columns()[name].copy()
    column.reshape(len(column), -1)[77, -1] = value
    replace_column(path, name, column)
    monkeypatch.setattr("understudy.data.stores.npy.PIECE", 256)  # more than one piece
    with pytest.raises(DataError, match=f"column '{name}', row 77.*: not finite: got {value}"):
        open_store(path)
    damaged = bytearray((path / f"{name}.npy").read_bytes())
    damaged[-1] ^= 1
    (path / f"{name}.npy").write_bytes(damaged)
    with pytest.raises(DataError, match="sha256 differs"):
        open_store(path)


def test_actions_outside_their_space_are_found(path: Path, tmp_path: Path) -> None:
    actions = random_dataset().columns()["action"].copy()
    actions[5] = 7.0
    replace_column(path, "action", actions)
    with pytest.raises(DataError, match="column 'action': 1 of 120 actions lie outside the action space"):
        open_store(path)
    steps = np.ones(4)
    episode = Episode({"state": np.ones((5, 1))}, np.array([0, 1, 2, 0]), steps, True, False)
    other = write_store(Dataset.from_episodes([episode], Discrete(3)), tmp_path / "discrete")
    for wrong in (-1, 3):
        replace_column(other, "action", np.array([0, 1, wrong, 0]))
        with pytest.raises(DataError, match=f"column 'action', row 2: no such action: got {wrong}, expected 0 to 2"):
            open_store(other)


@pytest.mark.parametrize(
    "lengths",
    [
        [-20, 140, 0, 0, 0, 0],
        [0, 120, 0, 0, 0, 0],
        [20, 20, 20, 20, 20, 21],
        [120],
        [2**62, 2**62, 2**62, 2**62, 119, 1],
    ],
)
def test_forged_lengths_are_refused(path: Path, lengths: list[int]) -> None:
    """The last ones add up to 120 in 64 bits."""
    replace_column(path, "lengths", np.array(lengths))
    with pytest.raises(DataError, match="column"):
        open_store(path)


def test_a_store_of_no_episodes_is_refused(path: Path) -> None:
    for name, column in random_dataset().columns().items():
        replace_column(path, name, column[:0])
    with pytest.raises(DataError, match="column 'lengths': does not describe episodes"):
        open_store(path)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("observation.state", "bool"), ("observation.state", "int64"), ("reward", "uint8"), ("action", "int32")],
)
def test_other_kinds_of_numbers_than_we_write_are_refused(path: Path, name: str, dtype: str) -> None:
    replace_column(path, name, random_dataset().columns()[name].astype(dtype))
    with pytest.raises(DataError, match=f"column '{name}': wrong kind of numbers: got {dtype}"):
        open_store(path)


@pytest.mark.parametrize("shape", [[], [120] + [1] * 70, [-1], ["x"], [10**40], 7])
@pytest.mark.parametrize("dtype", ["float32", "object", "V8"])
def test_a_column_that_cannot_be_is_refused(path: Path, shape: object, dtype: str) -> None:
    forge(path, lambda manifest: manifest["columns"]["reward"].update(shape=shape, dtype=dtype))
    with pytest.raises(DataError, match=f"^dataset '{path}'"):
        open_store(path)


def test_a_deeply_nested_manifest_is_refused(path: Path) -> None:
    text = (path / MANIFEST).read_text().replace('"made": "by hand"', f'"made": {"[" * 5000}{"]" * 5000}')
    (path / MANIFEST).write_text(text)
    with pytest.raises(DataError, match="not a readable store"):
        open_store(path)


def test_a_forged_shape_is_refused(path: Path) -> None:
    np.save(path / "action.npy", np.zeros((120, 3), np.float32))
    with pytest.raises(DataError, match="column 'action': was changed or damaged"):
        open_store(path, verify=False)


def test_an_object_column_runs_no_code(path: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "marker"),)

    np.save(path / "reward.npy", np.array([Trap()], object), allow_pickle=True)
    with pytest.raises(DataError, match="column 'reward'"):
        open_store(path, verify=False)
    assert not (tmp_path / "marker").exists()


def test_what_exists_is_not_overwritten(path: Path) -> None:
    before = (path / MANIFEST).read_bytes()
    with pytest.raises(DataError, match="already exists"):
        write_store(random_dataset(seed=1), path)
    assert (path / MANIFEST).read_bytes() == before


def test_group_names_that_are_no_file_names_are_refused(tmp_path: Path) -> None:
    episode = random_episodes(1)[0]
    odd = Episode({"../a": episode.observations["state"]}, episode.actions, episode.rewards, True, False)
    with pytest.raises(DataError, match="a column cannot be a file"):
        write_store(Dataset.from_episodes([odd], Box((-1.0, -1.0), (1.0, 1.0))), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_writer_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_store(random_dataset(), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("files", range(9))
def test_a_killed_writer_leaves_nothing_that_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """SIGKILL at each fsync of seven columns, the manifest and the folder: nothing of the final name is there."""
    target = tmp_path / "store"
    dataset = random_dataset()
    child = os.fork()
    if child == 0:
        fsync, left = os.fsync, files

        def dying(handle: int) -> None:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
            left -= 1
            fsync(handle)

        monkeypatch.setattr(os, "fsync", dying)
        write_store(dataset, target)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert not target.exists()
    assert not any(is_store(folder) for folder in tmp_path.iterdir() if not folder.name.startswith("."))
    assert open_store(write_store(dataset, target)).fingerprint == dataset.fingerprint


def test_writing_to_a_tensor_never_reaches_the_disk(path: Path) -> None:
    opened = open_store(path)
    opened.actions.zero_()
    opened.observations["state"].fill_(7.0)
    opened.rewards.add_(1.0)
    del opened
    assert open_store(path).fingerprint == random_dataset().fingerprint


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("kept", [0, 1000, 1 << 20])
def test_a_large_store_reads_the_same_rows(
    path: Path, monkeypatch: pytest.MonkeyPatch, horizon: int, kept: int
) -> None:
    """Read row by row, with none, one or all of the columns kept in memory."""
    small = open_store(path)
    monkeypatch.setattr(store, "RESIDENT_BUDGET", 0)
    monkeypatch.setattr(store, "KEPT_BYTES", kept)
    large = open_store(path)
    assert isinstance(large._pager, FileRows)
    assert small._pager is None
    added = large.with_extra("priority", torch.arange(large.steps)).rows(torch.tensor([7]), Demand(("priority",)))
    assert added.extra["priority"].tolist() == [7]
    rows = torch.randperm(large.steps)
    demand = Demand(DERIVED, horizon, 0.9)
    one, other = small.rows(rows, demand), large.rows(rows, demand)
    assert torch.equal(one.obs["state"], other.obs["state"])
    assert torch.equal(one.next_obs["state"], other.next_obs["state"])
    assert torch.equal(one.action, other.action)
    assert torch.equal(one.reward, other.reward)
    assert torch.equal(one.terminated, other.terminated)
    assert all(torch.equal(one.extra[name], other.extra[name]) for name in DERIVED)
    assert torch.equal(large.moments()["state"].std, small.moments()["state"].std)
    np.testing.assert_array_equal(large.returns(), small.returns())


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_a_store_that_shrinks_under_our_feet_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(store, "RESIDENT_BUDGET", 0)
    monkeypatch.setattr(store, "KEPT_BYTES", kept)
    large = open_store(path)
    os.truncate(path / "action.npy", 200)
    with pytest.raises(DataError, match="column 'action': became shorter while it was read"):
        large.rows(torch.arange(100), Demand())


def resident_file_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssFile:")).split()[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_large_store_is_played_and_written_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long episodes, of which a thousand do not fit."""
    monkeypatch.setattr(store, "RESIDENT_BUDGET", 1 << 20)
    monkeypatch.setattr("understudy.data.dataset.CHUNK_BYTES", 1 << 22)
    monkeypatch.setattr("understudy.data.formats.npz_writer.BLOCK_ROWS", 1 << 12)
    dataset = open_store(write_store(random_dataset(count=100, steps=1000, state=100), tmp_path / "large"))
    before, grown, steps = resident_file_bytes(), 0, 0
    for episode in dataset.recording().episodes():
        steps += len(episode.observations["state"].copy())
        grown = max(grown, resident_file_bytes() - before)
    write_npz(dataset, tmp_path / "large.npz")
    assert steps == 100_100
    assert max(grown, resident_file_bytes() - before) < 12e6


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_large_store_stays_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "RESIDENT_BUDGET", 1 << 20)
    monkeypatch.setattr(store, "KEPT_BYTES", 0)
    size = random_dataset(count=100, steps=1000, state=100).nbytes  # about 40 MB
    path = write_store(random_dataset(count=100, steps=1000, state=100), tmp_path / "large")
    before = resident_file_bytes()
    dataset = open_store(path)
    grown = 0
    dataset.moments()
    for seed in range(50):
        dataset.rows(torch.randint(dataset.steps, (256,), generator=torch.Generator().manual_seed(seed)), Demand())
        grown = max(grown, resident_file_bytes() - before)
    dataset.returns()
    write_store(dataset, tmp_path / "copy")
    grown = max(grown, resident_file_bytes() - before)
    assert size > 35e6
    assert grown < 12e6

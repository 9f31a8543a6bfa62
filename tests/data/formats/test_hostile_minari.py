"""Minari folders that name code, point elsewhere, or lie: refused with one sentence, and nothing runs."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdf5_makers import ESCAPED, PASSED, REFUSED, in_child
from minari_makers import Nested, make_from, make_minari
from understudy.core.errors import DataError
from understudy.data.formats.minari.metadata import read_description
from understudy.data.formats.minari.reader import open_minari


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in each storage."""
    root = tmp_path_factory.mktemp("minari")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(root))
        for storage in ("hdf5", "arrow"):
            make_minari("Pendulum-v1", f"{storage}-v0", episodes=2, steps=6, data_format=storage)
            make_from(Nested(), f"nested-{storage}-v0", episodes=2, data_format=storage)
    return root


@pytest.fixture(params=["hdf5", "arrow"])
def folder(request: pytest.FixtureRequest, originals: Path, tmp_path: Path) -> Path:
    return shutil.copytree(originals / f"{request.param}-v0", tmp_path / "x-v0") / "data"


def play(folder: Path) -> int:
    return sum(len(episode) for episode in open_minari(folder).episodes())


def refuse(folder: Path, match: str) -> None:
    with pytest.raises(DataError, match=match) as caught:
        play(folder)
    assert "\n" not in str(caught.value)


def retold(folder: Path, **changes: Any) -> None:
    path = folder / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_an_entry_point_is_never_imported(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    spec = json.loads(json.loads((folder / "metadata.json").read_text())["env_spec"])
    spec |= {"entry_point": "subprocess:Popen", "kwargs": {"args": ["touch", str(marker)]}, "id": "Evil-v0"}
    retold(folder, env_spec=json.dumps(spec), eval_env_spec=json.dumps(spec), requirements=["evil"])
    recording = open_minari(folder)
    assert sum(len(episode) for episode in recording.episodes()) == 12
    assert recording.env == "Evil-v0"
    assert not marker.exists()


def test_without_spaces_the_environment_is_not_asked(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    metadata = json.loads((folder / "metadata.json").read_text())
    del metadata["observation_space"]
    spec = json.loads(metadata["env_spec"])
    spec |= {"entry_point": "subprocess:Popen", "kwargs": {"args": ["touch", str(marker)]}}
    (folder / "metadata.json").write_text(json.dumps({**metadata, "env_spec": json.dumps(spec)}))
    refuse(folder, "its metadata has no observation_space")
    assert not marker.exists()


BOX = '{"type": "Box", "dtype": "float32", "shape": [3], "low": [0, 0, 0], "high": [1, 1, 1]}'


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"observation_space": "not json"}, "observation_space: not a space"),
        ({"observation_space": "[" * 100_000}, "observation_space: not a space"),
        (
            {"observation_space": '{"type": "Dict", "subspaces": ' * 40 + BOX + "}" * 40},
            "observation_space: not a space",
        ),
        ({"observation_space": '{"type": "os.system", "shape": []}'}, "cannot be read: got os.system"),
        ({"observation_space": BOX.replace("[3]", "[1e999]")}, "not a space"),
        ({"observation_space": BOX.replace("[3]", "[-3]")}, "not a space"),
        ({"observation_space": BOX.replace("[3]", "[9999999999]")}, "not a space"),
        ({"observation_space": BOX.replace("[3]", "[4]")}, "wrong shape"),
        ({"observation_space": '{"type": "Discrete", "n": 1000000000000}'}, "a choice of too many"),
        ({"observation_space": '{"type": "Dict", "subspaces": {}}'}, "no observation we can read"),
        ({"action_space": BOX.replace("float32", "O").replace("[3]", "[1]")}, "action_space: cannot be read"),
        ({"action_space": BOX.replace("[3]", "[2]")}, "bounds do not fit"),
        ({"action_space": '{"type": "Discrete", "n": 0}'}, "has no actions"),
        ({"data_format": "pickle"}, "a format we do not read: got pickle"),
        ({"data_format": "../../x"}, "a format we do not read"),
        ({"total_episodes": 10**12}, "how many episodes"),
        ({"total_episodes": "2"}, "how many episodes"),
        ({"total_episodes": 2_000_000_000}, "cut off"),
        ({"understudy": {"extra": ["../x"]}}, "odd 'understudy' entry"),
        ({"understudy": []}, "metadata is not readable"),
        ({"understudy": {"mask": ["action_mask"]}}, "odd 'understudy' entry"),
        ({"action_space": f'{{"type": "Discrete", "n": 3, "start": {10**30}}}'}, "action_space: not a space"),
        ({"observation_space": f'{{"type": "Discrete", "n": 3, "start": {-(10**30)}}}'}, "observation_space: not a"),
    ],
)
def test_metadata_that_lies(folder: Path, changes: dict[str, Any], match: str) -> None:
    retold(folder, **changes)
    refuse(folder, match)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"{" * 5000, b'{"a": ' + b"9" * 5000 + b"}"])
def test_metadata_that_is_none(folder: Path, content: bytes) -> None:
    (folder / "metadata.json").write_bytes(content)
    refuse(folder, "metadata.json is not readable")


def test_endless_metadata_is_not_read(folder: Path) -> None:
    with (folder / "metadata.json").open("r+b") as file:
        file.truncate(10 << 30)
    refuse(folder, "metadata.json is too large")


def test_links_out_of_the_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    for path in (folder / "main_data.hdf5", folder / "0", folder / "0" / "metadata.json", folder / "metadata.json"):
        if path.exists():
            path.rename(moved)
            path.symlink_to(moved)
            refuse(folder, "a link to another place")
            path.unlink()
            moved.rename(path)
    assert play(folder) == 12


def test_a_score_beyond_any_float_is_left_out(folder: Path) -> None:
    retold(folder, ref_min_score=10**400, ref_max_score=7)
    assert {key: value for key, value in open_minari(folder).facts.items() if key.startswith("ref")} == {
        "ref_max_score": 7.0
    }


def test_words_to_show_are_tame(folder: Path) -> None:
    retold(folder, author=["a\x1b[31m\n" * 900], description={"x": 1}, ref_min_score="1", ref_max_score=float("nan"))
    recording = open_minari(folder)
    assert len(recording.facts["author"]) <= 500
    assert recording.facts["author"].isprintable()
    assert not {"ref_min_score", "ref_max_score"} & recording.facts.keys()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.__setitem__("episode_1", h5py.ExternalLink("other.hdf5", "/")),
        lambda file: file.__setitem__("episode_1", h5py.SoftLink("/episode_0")),
        lambda file: file.create_group("episode_1").create_dataset("rewards", (1 << 33,), "f8"),
        lambda file: file.create_group("episode_1").create_dataset("rewards", data=["x"]),
        lambda file: file.create_dataset("episode_1", data=[1.0]),
        lambda file: file.create_group("episode_1"),
    ],
    ids=["external", "soft", "bomb", "text", "no group", "empty"],
)
def test_spoilt_episodes(originals: Path, tmp_path: Path, spoil: Callable[[h5py.File], None]) -> None:
    folder = shutil.copytree(originals / "hdf5-v0", tmp_path / "x-v0") / "data"
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_1"]
        spoil(file)
    code, _ = in_child(lambda: play(folder), memory=600 << 20)
    assert code == REFUSED


def write_arrow(path: Path, batch: Any, **options: Any) -> None:
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer,
    ):
        writer.write_batch(batch)


def arrow_columns(rows: int = 7) -> dict[str, Any]:
    seen = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * 3, np.float32)), 3)
    acts = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows, np.float32)), 1)
    flags = pa.array(np.zeros(rows, bool))
    rewards = pa.array(np.zeros(rows))
    return {"observations": seen, "actions": acts, "rewards": rewards, "terminations": flags, "truncations": flags}


class Evil(pa.ExtensionType):  # type: ignore[misc]
    """A type that would rebuild itself from what the file says."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), "evil")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"payload"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> "Evil":
        return cls()


def arrow_folder(originals: Path, tmp_path: Path) -> Path:
    folder = shutil.copytree(originals / "arrow-v0", tmp_path / "x-v0") / "data"
    next(folder.glob("0/*.arrow")).unlink()
    return folder


def test_plain_arrow_as_the_others(originals: Path, tmp_path: Path) -> None:
    folder = arrow_folder(originals, tmp_path)
    write_arrow(folder / "0" / "part-0.arrow", pa.RecordBatch.from_pydict(arrow_columns()))
    assert play(folder) == 12


@pytest.mark.parametrize(
    ("changes", "options", "match"),
    [
        ({}, {"compression": "zstd"}, "compressed Arrow data"),
        ({}, {"compression": "lz4"}, "compressed Arrow data"),
        ({"rewards": pa.ExtensionArray.from_storage(Evil(), pa.array(np.zeros(7)))}, {}, "refused: got"),
        ({"rewards": pa.array(["x"] * 7).dictionary_encode()}, {}, "refused: got"),
        ({"rewards": pa.array(["x"] * 7)}, {}, "rewards: refused: got string"),
        ({"rewards": pa.array([None, *[1.0] * 6])}, {}, "plain numbers without gaps"),
        ({"observations": pa.array(np.zeros(7))}, {}, "wrong shape"),
        ({"truncations": pa.array(np.full(7, 3))}, {}, "not a flag"),
    ],
    ids=["zstd", "lz4", "extension", "dictionary", "text", "gap", "shape", "flag"],
)
def test_odd_arrow(originals: Path, tmp_path: Path, changes: Any, options: Any, match: str) -> None:
    folder = arrow_folder(originals, tmp_path)
    batch = pa.RecordBatch.from_pydict({**arrow_columns(), **changes})
    write_arrow(folder / "0" / "part-0.arrow", batch, **options)
    refuse(folder, match)


def test_arrow_of_another_length_than_told(originals: Path, tmp_path: Path) -> None:
    folder = arrow_folder(originals, tmp_path)
    write_arrow(folder / "0" / "part-0.arrow", pa.RecordBatch.from_pydict(arrow_columns(rows=9)))
    refuse(folder, "another length than its metadata tells: got 8, expected 6")


def test_a_registered_extension_is_refused_too(originals: Path, tmp_path: Path) -> None:
    folder = arrow_folder(originals, tmp_path)
    odd = {"rewards": pa.ExtensionArray.from_storage(Evil(), pa.array(np.zeros(7)))}
    write_arrow(folder / "0" / "part-0.arrow", pa.RecordBatch.from_pydict({**arrow_columns(), **odd}))
    pa.register_extension_type(Evil())
    try:
        refuse(folder, "refused: got")
    finally:
        pa.unregister_extension_type("evil")


def test_a_name_that_is_no_text(originals: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(originals / "arrow-v0", tmp_path / "x-v0") / "data"
    path = next(folder.glob("0/*.arrow"))
    path.write_bytes(path.read_bytes().replace(b"rewards", b"rew\xe8rds"))
    refuse(folder, "not readable as Arrow")


def test_several_batches_are_one_episode(originals: Path, tmp_path: Path) -> None:
    folder = arrow_folder(originals, tmp_path)
    batch = pa.RecordBatch.from_pydict(arrow_columns())
    with pa.OSFile(str(folder / "0" / "part-0.arrow"), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_table(pa.Table.from_batches([batch]), max_chunksize=3)
    assert play(folder) == 12


def test_an_arrow_bomb_needs_no_memory(originals: Path, tmp_path: Path) -> None:
    folder = arrow_folder(originals, tmp_path)
    batch = pa.RecordBatch.from_pydict(arrow_columns(rows=20_000_000))
    write_arrow(folder / "0" / "part-0.arrow", batch, compression="zstd")
    before = in_child(lambda: None)[1]
    code, used = in_child(lambda: play(folder), memory=1 << 30)
    assert code == REFUSED
    assert used - before < 150_000


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_only_our_error_escapes_damage(
    originals: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any file of a dataset, damaged at random; in a child, so that a crash of a C library would be seen."""
    name = data.draw(st.sampled_from(["hdf5-v0", "arrow-v0", "nested-hdf5-v0", "nested-arrow-v0"]))
    seed = data.draw(st.integers(0, 2**32 - 1))
    folder = tmp_path_factory.mktemp("fuzz")
    shutil.copytree(originals / name / "data", folder, dirs_exist_ok=True)
    files = sorted(path for path in folder.rglob("*") if path.is_file())

    def damage_and_play() -> None:
        rng = np.random.default_rng(seed)
        for _ in range(15):
            path = files[rng.integers(len(files))]
            whole = path.read_bytes()
            content = bytearray(whole)
            for place in rng.integers(0, len(content), rng.integers(1, 8)):
                content[place] = rng.integers(0, 256)
            path.write_bytes(content[: rng.integers(0, len(content))] if rng.random() < 0.1 else content)
            try:
                play(folder)
            except DataError:
                continue
            finally:
                path.write_bytes(whole)

    code, _ = in_child(damage_and_play, memory=4 << 30)
    assert code == PASSED, "another error escaped" if code == ESCAPED else f"ended with {code}"


WORDS = ["shape", "n", "nvec", "subspaces", "low", "high", "dtype", "start", "x"]
KINDS = ["Box", "Discrete", "Dict", "MultiBinary", "MultiDiscrete", "Text"]
JUNK = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(WORDS), JUNK | st.lists(JUNK, max_size=3)), st.sampled_from(KINDS))
def test_any_metadata_is_told_in_our_words(tmp_path_factory: pytest.TempPathFactory, junk: Any, kind: str) -> None:
    path = tmp_path_factory.getbasetemp() / "metadata.json"
    space = json.dumps({**junk, "type": kind})
    told = {"observation_space": space, "action_space": space, "total_episodes": 1, "author": junk}
    path.write_text(json.dumps(told))
    with suppress(DataError):
        read_description(path, "x")

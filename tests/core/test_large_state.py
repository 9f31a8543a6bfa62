"""A ring of rows that is captured without a copy and goes back exactly, however often it wrapped."""

import gc
import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from allocations import most_allocated, tensor_bytes
from understudy.core.errors import CheckpointError, ConfigError
from understudy.core.large_state import CapturedRows, LargeState, StoredRows
from understudy.core.segments import Rows, SegmentFolder
from understudy.core.state import State, capture, check_fits, place_large_state, restore

ROW = {"obs": torch.zeros(2), "action": torch.zeros((), dtype=torch.int64), "done": torch.zeros((), dtype=torch.bool)}


def rows(numbers: list[int]) -> Rows:
    """A row that tells its number in every column."""
    told = torch.tensor(numbers, dtype=torch.int64)
    return {"obs": torch.stack([told, -told], dim=-1).float(), "action": told, "done": told % 3 == 0}


def ring(capacity: int = 10, segment_rows: int = 4, folder: Path | None = None, memory: int = 0) -> LargeState:
    state = LargeState(ROW, capacity, segment_rows=segment_rows, memory=memory)
    if folder is not None:
        place_large_state({"rows": state}, folder)
    return state


def files(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.safetensors")}


def held(state: LargeState) -> list[int]:
    """The numbers of the rows that are there, oldest first; every column agrees."""
    slots = torch.arange(max(0, state.written - state.capacity), state.written) % state.capacity
    found = state.gather(slots)
    expected = rows([int(number) for number in found["action"]])
    assert all(torch.equal(found[name], expected[name]) for name in ROW)
    assert len(state) == len(slots)
    return [int(number) for number in found["action"]]


@pytest.mark.parametrize(
    ("capacity", "segment_rows", "memory"), [(10, 4, 0), (12, 4, 0), (7, 7, 1), (5, 1, 0), (9, 2, 1)]
)
def test_any_moment_comes_back_after_anything(capacity: int, segment_rows: int, memory: int, tmp_path: Path) -> None:
    """Against a list of numbers: appends of all sizes, moments kept and returned to, in memory and from disk."""
    chance = random.Random(capacity)
    live = ring(capacity, segment_rows, tmp_path / "a" / "segments", memory)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    model: list[int] = []
    moments: list[tuple[CapturedRows | StoredRows, list[int]]] = [(live.capture(), [])]
    fresh = 0
    for _ in range(150):
        deed = chance.random()
        if deed < 0.6:
            size = chance.choice([0, 1, 2, 3, 5, 2 * capacity + 1])
            live.append(rows(list(range(fresh, fresh + size))))
            model, fresh = [*model, *range(fresh, fresh + size)], fresh + size
        elif deed < 0.8:
            captured = live.capture()
            moments.append((captured if deed < 0.7 else captured.keep(tmp_path / "b" / "segments"), model))
        else:
            moment, model = chance.choice(moments)
            if deed > 0.95:  # another one takes over
                live = ring(capacity, segment_rows, tmp_path / "a" / "segments")
            assert live.refusal(moment) == ""
            live.restore(moment)
        assert held(live) == model[-capacity:]
    assert any(isinstance(moment, StoredRows) and moment.written > capacity for moment, _ in moments)


def test_captures_are_equal_if_every_row_is() -> None:
    """Whether a block is in a file yet, or was longer in another life, makes no difference."""
    one, other = ring(), ring()
    one.append(rows(list(range(6))))
    moment = one.capture()
    one.append(rows([6, 7, 8]))
    for number in range(6):
        other.append(rows([number]))
    assert moment == other.capture()
    other.append(rows([99]))
    assert moment != other.capture()
    one.restore(moment)
    one.append(rows([7]))
    assert one.capture() != other.capture()
    assert moment != one.capture()


def test_a_capture_copies_nothing_and_a_rewind_reads_what_was_overwritten(tmp_path: Path) -> None:
    """A million rows of 32 bytes, which have wrapped."""
    count, part = 1_000_000, 250_000
    row = {"obs": torch.zeros(6), "action": torch.zeros(1), "reward": torch.zeros(())}
    state = LargeState(row, count, segment_rows=50_000)
    place_large_state([state], tmp_path / "segments")

    def add(start: int) -> None:
        numbers = torch.arange(start, start + part, dtype=torch.float32)
        state.append({"obs": numbers[:, None].expand(-1, 6), "action": -numbers[:, None], "reward": numbers})

    for start in range(0, count + 2 * part, part):
        add(start)
    before = state.columns["reward"].clone()
    moments: list[State] = []
    assert tensor_bytes(lambda: moments.append(capture([state]))) == 0
    assert most_allocated(lambda: capture([state])) < 20_000
    add(count + 2 * part)
    kept = capture([state])
    assert not torch.equal(before, state.columns["reward"])
    (then,) = moments[0].values()
    assert isinstance(then, CapturedRows)
    for segment in then.segments[part // 50_000 :]:  # what was not overwritten is not read
        (tmp_path / "segments" / f"{segment.sha256}.safetensors").unlink()
    restore([state], moments[0], "then")
    assert torch.equal(before, state.columns["reward"])
    assert torch.equal(before, -state.columns["action"][:, 0])
    assert torch.equal(before[:, None].expand(-1, 6), state.columns["obs"])
    restore([state], kept, "later")
    assert float(state.columns["reward"].max()) == count + 3 * part - 1


def test_a_checkpoint_writes_what_is_new(tmp_path: Path) -> None:
    state = ring(capacity=100, segment_rows=10, folder=tmp_path / "segments")
    state.append(rows(list(range(95))))
    assert len(files(tmp_path / "segments")) == 9
    first = state.capture().keep(tmp_path / "segments")
    assert files(tmp_path / "segments") == set(first.segments)
    assert state.capture().keep(tmp_path / "segments") == first
    written = {path: path.stat().st_ino for path in (tmp_path / "segments").iterdir()}
    state.append(rows(list(range(95, 112))))
    second = state.capture().keep(tmp_path / "segments")
    assert [path.stat().st_ino for path in written] == list(written.values())
    assert len(set(second.segments) - set(first.segments)) == 3  # two that became full, and two rows


def test_rows_of_no_run_leave_nothing_behind() -> None:
    state = ring()
    state.append(rows(list(range(30))))
    assert state.folder is not None
    folder, moment = state.folder.path, state.capture()
    state.append(rows([30]))
    assert len(files(folder)) == 3  # seven were full; those that nobody has a use for are gone
    heir = ring()
    heir.restore(moment)
    del state, moment
    gc.collect()
    assert held(heir) == list(range(20, 30))
    heir.append(rows([1]))
    assert len(files(folder)) == 3
    del heir
    gc.collect()
    assert not folder.exists()


def test_a_segment_stays_while_it_is_named_or_held(tmp_path: Path) -> None:
    folder = tmp_path / "segments"
    state = ring(capacity=8, segment_rows=4, folder=folder)
    state.append(rows(list(range(8))))
    named = set(state.capture().keep(folder).segments)
    state.append(rows(list(range(8, 16))))
    guard = state.capture()
    assert len(files(folder)) == 4, "nobody said yet what checkpoints name"
    guard.name(folder, named)
    state.append(rows(list(range(16, 20))))
    assert len(files(folder)) == 5
    state.append(rows(list(range(20, 28))))
    held_now = {segment.sha256 for segment in (*guard.segments, *state.capture().segments)}
    assert files(folder) == named | held_now
    state.restore(guard)
    assert held(state) == list(range(8, 16))
    del guard
    state.append(rows(list(range(16, 24))))
    state.append(rows(list(range(24, 28))))
    assert files(folder) == named | {segment.sha256 for segment in state.capture().segments}


def stored(tmp_path: Path) -> StoredRows:
    state = ring(folder=tmp_path / "segments")
    state.append(rows(list(range(23))))
    return state.capture().keep(tmp_path / "segments")


def replace(kept: StoredRows, **changes: object) -> StoredRows:
    facts = {
        "layout": kept.layout,
        "written": kept.written,
        "segments": kept.segments,
        "folder": kept.folder,
        **changes,
    }
    return StoredRows(**facts)  # type: ignore[arg-type]


def test_what_is_not_what_was_written_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    kept = stored(tmp_path)
    live = ring()
    live.append(rows([1, 2, 3]))
    before = capture([live])
    folder = SegmentFolder(tmp_path / "segments")
    other = folder.write({name: column[:3] for name, column in rows([1, 2, 3]).items()})
    wide = folder.write({**rows([1, 2, 3, 4]), "obs": torch.zeros(4, 3)})
    many = folder.write({name: torch.cat([column] * 9999) for name, column in rows([1, 2, 3, 4]).items()})
    text = folder.write_content(b"no tensors")
    cases = {
        "lists 3 segments after 25 rows": replace(kept, written=25),
        "lists 3 segments after -4 rows": replace(kept, written=-4),
        f"lists 3 segments after {2**62 + 1:,} rows": replace(kept, written=2**62 + 1),
        f"segment {other[:12]}…: holds other rows than the 4 that are due": replace(
            kept, segments=(other, *kept.segments[1:])
        ),
        f"segment {wide[:12]}…: holds other rows": replace(kept, segments=(wide, *kept.segments[1:])),
        f"segment {many[:12]}…: missing or damaged (Larger than": replace(kept, segments=(many, *kept.segments[1:])),
        f"segment {text[:12]}…: not readable": replace(kept, segments=(text, *kept.segments[1:])),
        f"segment {'0' * 12}…: missing or damaged (No such file": replace(
            kept, segments=("0" * 64, *kept.segments[1:])
        ),
        "0 is 9 rows in the file and 10 rows in segments of 4": replace(kept, layout="9 rows"),
    }
    for told, wrong in cases.items():
        with pytest.raises(CheckpointError) as caught:
            restore([live], {"0": wrong}, "checkpoint 'x'")
        assert told in str(caught.value)
        assert "Nothing was changed" in str(caught.value)
        assert capture([live]) == before
    restore([live], {"0": kept}, "checkpoint 'x'")
    assert held(live) == list(range(13, 23))


def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    kept = stored(tmp_path)
    file = kept.folder.file(kept.segments[1])
    whole = file.read_bytes()
    for place in range(0, len(whole), 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match="damaged: its sha256 differs"):
            kept.check()
        assert "damaged: its sha256 differs" in ring().refusal(kept)
    for length in (0, 1, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="damaged"):
            kept.check()
    file.unlink()
    (tmp_path / "elsewhere").write_bytes(whole)
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"segment .{12}…: is a link\."):
        kept.check()
    assert ring().refusal(kept) == f"cannot be restored (segment {kept.segments[1][:12]}…: is a link)"


def test_the_inventory_holds_it_as_one_leaf() -> None:
    owner = {"rows": ring(), "priorities": torch.ones(10)}
    assert set(capture(owner)) == {"rows", "priorities"}
    with pytest.raises(CheckpointError, match=r"rows is torch.float32 \[1\] in the file and 10 rows in segments of 4"):
        check_fits(owner, {**capture(owner), "rows": torch.ones(1)}, "here")
    with pytest.raises(CheckpointError, match="rows is 12 rows in segments of 4"):
        check_fits(owner, {**capture(owner), "rows": ring(12).capture()}, "here")


def test_rows_of_another_kind_are_refused() -> None:
    good = rows([1, 2])
    wrong: list[dict[str, Tensor]] = [
        {"obs": good["obs"]},
        {**good, "more": good["done"]},
        {**good, "obs": good["obs"].double()},
        {**good, "obs": good["obs"][:1]},
        {},
    ]
    state = ring()
    for case in wrong:
        with pytest.raises(TypeError, match="rows of another kind"):
            state.append(case)
    assert state.written == 0
    with pytest.raises(ConfigError, match="capacity: there is no room for a row"):
        ring(capacity=0)


def test_large_rings_lie_in_a_file_without_a_name(tmp_path: Path) -> None:
    state = ring(folder=tmp_path / "segments", memory=10 * 17 - 1)
    state.append(rows([1, 2, 3]))
    assert held(state) == [1, 2, 3]
    assert state.columns["obs"].is_contiguous()
    assert list((tmp_path / "segments").iterdir()) == []
    with pytest.raises(ConfigError, match=r"no room on the disk for .* PB of rows"):
        LargeState(ROW, 10**17).append(rows([1]))


def test_segments_are_of_a_size_that_suits_disks_and_lists() -> None:
    assert LargeState(ROW, 10**6).segment_rows == (4 << 20) // 17
    assert LargeState({"image": torch.zeros(84, 84, 4, dtype=torch.uint8)}, 10**6).segment_rows == 148
    assert LargeState({"image": torch.zeros(3, 512, 512)}, 10**6).segment_rows == 123
    assert LargeState(ROW, 3).segment_rows == 3

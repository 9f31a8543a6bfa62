"""CSV and Parquet: a table with a map of columns, alone or many in a folder; what is wrong is told with its place."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.core.errors import DataError
from understudy.core.spec import Box, Discrete
from understudy.data.dataset import Dataset
from understudy.data.formats import table_rows
from understudy.data.formats.readers import check_origin, open_recording, read_observations
from understudy.run.loading import load_dataset

BOX = Box((0.0,), (10.0,))
WORDS = "obs=temp,humidity,action=valve,reward=r,episode=day"


def logs(rows: int = 9) -> pd.DataFrame:
    """Three days of three rows, as a heating might log them."""
    rng = np.random.default_rng(0)
    day = np.repeat(["2024-01-02", "2024-01-03", "2024-01-04"], rows // 3)
    return pd.DataFrame(
        {
            "time": [f"{i:02d}:00" for i in range(rows)],
            "temp": rng.normal(20, 3, rows),
            "humidity": rng.normal(50, 3, rows),
            "valve": rng.uniform(0, 10, rows),
            "r": rng.normal(size=rows),
            "day": day,
        }
    )


WRITERS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "x.csv": lambda table, path: table.to_csv(path, index=False),
    "y.csv": lambda table, path: table.to_csv(path, sep=";", quoting=1),
    "x.tsv": lambda table, path: table.to_csv(path, sep="\t", index=False),
    "x.parquet": lambda table, path: table.to_parquet(path),
}


def test_a_table_is_the_same_in_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = logs()
    expected = load_dataset(table, columns=WORDS, action_space=BOX)
    assert expected.index.lengths.tolist() == [3, 3, 3]
    assert expected.observations["state"][:3].numpy() == pytest.approx(table[["temp", "humidity"]].to_numpy()[:3])
    assert not expected.index.final_known.any()
    for memory in (1 << 26, 0):  # all in memory, all in a temporary file
        monkeypatch.setattr(table_rows, "MEMORY", memory)
        for name, write in WRITERS.items():
            write(table, tmp_path / name)
            dataset = load_dataset(tmp_path / name, columns=WORDS, action_space=BOX)
            assert dataset.fingerprint == expected.fingerprint, (name, memory)
            assert "Not read:" in " ".join(open_recording(tmp_path / name, columns=WORDS).notes)


def test_a_folder_of_files_is_one_dataset(tmp_path: Path) -> None:
    table = logs()
    whole = load_dataset(table, columns=WORDS, action_space=BOX)
    for folder, name in (("csv", "day{}.csv"), ("parquet", "day{}.parquet")):
        (tmp_path / folder).mkdir()
        for number, (_, part) in zip((1, 2, 10), table.groupby("day"), strict=True):
            path = tmp_path / folder / name.format(number)
            part.to_csv(path, index=False) if folder == "csv" else part.to_parquet(path)
        words = WORDS.replace(",episode=day", "")  # nothing marks an end: each file is an episode
        joined = load_dataset(tmp_path / folder, columns=words, action_space=BOX)
        assert joined.fingerprint == whole.fingerprint
    recording = open_recording(tmp_path / "csv", columns=words)
    assert (recording.layout, recording.steps) == ("3 files, flat", 9)
    assert "the last step of each episode has no successor" in " ".join(recording.notes)
    (tmp_path / "csv" / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="files of several kinds: got csv, parquet"):
        open_recording(tmp_path / "csv", columns=words)
    (tmp_path / "csv" / "x.parquet").unlink()
    (tmp_path / "csv" / "day3.csv").write_text("temp,humidity,valve,reward\n1,2,3,4\n")
    with pytest.raises(DataError, match=r"some files have rewards and some have none: got none in day1.csv"):
        open_recording(tmp_path / "csv", columns="obs=temp,humidity,action=valve")
    with pytest.raises(DataError, match=r"day3.csv.*no column 'r'"):
        open_recording(tmp_path / "csv", columns=words)


def test_whole_numbers_are_choices_and_words_are_flags(tmp_path: Path) -> None:
    text = "obs_0,obs_1,action,reward,done\n1,2,0,0.5,False\n3,4,2,1,true\n5,6,1,0,no\n7,8,0,0,yes\n"
    (tmp_path / "x.csv").write_text(text)
    dataset = load_dataset(tmp_path / "x.csv")
    assert dataset.spec.action == Discrete(3)
    assert dataset.actions.tolist() == [0, 2, 1, 0]
    assert dataset.index.lengths.tolist() == [2, 2]
    assert dataset.observations["state"][:2].tolist() == [[1, 2], [3, 4]]
    said = " ".join(open_recording(tmp_path / "x.csv").notes)
    assert "Read off the columns' names: observations = obs_0, obs_1; actions = action" in said
    assert "does not say whether the world ended" in said
    (tmp_path / "y.csv").write_text(text.replace(",2,1,true", ",2.0,1,true"))
    assert open_recording(tmp_path / "y.csv").episodes().__next__().actions.dtype == np.float64


def test_the_plainest_header_is_understood(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("episode,obs,action,reward\n" + "".join(f"{i // 3},{i},0.5,1\n" for i in range(6)))
    assert [len(episode) for episode in open_recording(tmp_path / "x.csv").episodes()] == [3, 3]


def test_gaps_are_left_to_the_transform(tmp_path: Path) -> None:
    from understudy.data.transforms import Transforms

    table = logs()
    table.loc[4, "temp"] = np.nan
    for name, write in WRITERS.items():
        write(table, tmp_path / name)
        with pytest.raises(DataError, match=r"episode 1, observation 'state', row 1, column 0: not finite"):
            load_dataset(tmp_path / name, columns=WORDS, action_space=BOX)
        dropped = load_dataset(
            tmp_path / name, columns=WORDS, action_space=BOX, transforms=Transforms(not_finite="drop")
        )
        assert dropped.episodes == 2


def test_vectors_in_parquet_cells(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"state": [[1.0, 2.0], [3.0, 4.0]], "action": [[0.5], [0.25]], "reward": [1.0, 2.0], "done": [False, True]}
    )
    table.to_parquet(tmp_path / "x.parquet")
    dataset = load_dataset(tmp_path / "x.parquet", action_space=BOX)
    assert dataset.observations["state"][:2].tolist() == [[1, 2], [3, 4]]
    assert load_dataset(table, action_space=BOX).fingerprint == dataset.fingerprint
    split = load_dataset(tmp_path / "x.parquet", columns="obs.a=state[0],obs.b=state[1:]", action_space=BOX)
    assert split.observations["b"][:2].tolist() == [[2], [4]]
    ragged = pd.DataFrame({**table, "state": [[1.0, 2.0], [3.0]]})
    ragged.to_parquet(tmp_path / "y.parquet")
    with pytest.raises(DataError, match=r"y.parquet', column 'state': not vectors of one length"):
        load_dataset(tmp_path / "y.parquet", action_space=BOX)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "x.csv', line 1: no names of columns"),
        ("1,2,3\n4,5,6\n", "x.csv', line 1: no names of columns: got '1, 2, 3'. Add a header line."),
        ("obs,action,obs\n1,2,3\n", "two columns have the same name: got 'obs'"),
        ("obs,action,done\n", "has no rows"),
        ("obs,action,done\n1,2,0\n1,2\n", "line 3: another number of cells than the header: got 2, expected 3"),
        ("obs,action,done\n1,2,0\n\n1,up,1\n", "column 'action', line 4: not a number: got 'up', expected a number"),
        ("obs;action;done\n1,5;2;0\n", "column 'obs', line 2: not a number: got '1,5', expected a number. Decimal"),
        ("obs,action\n1,2\n", "has no episode boundary"),
        ("temp,action\n1,2\n", "no column is known to be the observations: got temp, action"),
        ("obs,action,done\n1,2,3\n", "dones, row 0: not a flag: got 3"),
        ("obs,action,reward_,done\n1,2,3,1\n", ""),
        ('obs,action,done\n1,"2,0\n', "not readable as CSV"),
        ("obs,action,done\n1,2,0\n" + "1" * 200 + ",2,1\n", "not finite"),
        ("obs,action,done\n" + "x" * (1 << 20), "line 2: longer than 1,048,576 characters"),
        ("obs,action,done\n\0,1,2\n", "x.csv"),
    ],
)
def test_what_is_wrong_in_a_csv_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    if not told:
        assert not open_recording(tmp_path / "x.csv").has_rewards
        return
    with pytest.raises(DataError) as caught:
        Dataset.from_episodes(open_recording(tmp_path / "x.csv").episodes(), BOX, name=str(tmp_path / "x.csv"))
    assert told in str(caught.value)


@pytest.mark.parametrize(("rows", "width"), [(30_000, 40), (600, 2_000)])
def test_a_large_csv_takes_little_memory(tmp_path: Path, rows: int, width: int) -> None:
    """A long one, and a wide one."""
    from processes import say_in_a_bounded_fork

    with (tmp_path / "x.csv").open("w") as file:
        file.write(",".join([*(f"obs_{i}" for i in range(width)), "action", "done"]) + "\n")
        line = ",".join(["0.123456789"] * (width + 1))
        for row in range(rows):
            file.write(f"{line},{int(row % 300 == 299)}\n")

    def say() -> str:
        import resource

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        table_rows.MEMORY = 1 << 20
        count = sum(len(episode) for episode in open_recording(tmp_path / "x.csv").episodes())
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return f"{count} {grown < 80_000} {grown}"

    assert say_in_a_bounded_fork(say, 1 << 30, 60).startswith(f"{rows} True")


def test_a_cost_is_a_reward_with_the_other_sign(tmp_path: Path) -> None:
    table = logs()
    table["cost"], table["level"], table["-odd"] = -table["r"], np.arange(9, dtype=np.uint8), table["r"]
    expected = load_dataset(table, columns=WORDS, action_space=BOX).fingerprint
    table.to_csv(tmp_path / "x.csv", index=False)
    for origin in (table, tmp_path / "x.csv", {str(name): np.array(table[name].tolist()) for name in table}):
        for reward in ("-cost", "- cost", "-odd"):  # a column's own name comes first
            dataset = load_dataset(origin, columns=WORDS.replace("=r,", f"={reward},"), action_space=BOX)
            assert dataset.fingerprint == expected, reward
    levels = load_dataset(table, columns=WORDS.replace("=r,", "=-level,"), action_space=BOX)
    assert levels.returns().tolist() == [-3, -12, -21], "whole numbers without a sign have one now"
    for words, told in (
        ("reward=-cst", "no column 'cst'. Did you mean 'cost'"),
        ("reward=,extra=-r", "no column '-r'"),
    ):
        with pytest.raises(DataError, match=told):
            load_dataset(table, columns=WORDS.replace("reward=r", words), action_space=BOX)


def test_observations_of_a_table_are_found_by_name(tmp_path: Path) -> None:
    table = logs()
    for name, write in WRITERS.items():
        write(table[["humidity", "time", "temp"]], tmp_path / name)
        seen = read_observations(tmp_path / name, WORDS)  # no actions, no rewards, another order
        assert isinstance(seen, dict)
        np.testing.assert_allclose(seen["observations"], table[["temp", "humidity"]].to_numpy())
    groups = read_observations(tmp_path / "x.csv", "obs.inside=temp,obs.air=humidity,mask=temp,humidity")
    assert {name: np.shape(values) for name, values in groups.items()} == {  # type: ignore[union-attr]
        "inside": (9, 1),
        "air": (9, 1),
        "action_mask": (9, 2),
    }
    for words, told in (("obs=temp,humdity", "Did you mean 'humidity'"), ("", "known to be the observations: got hum")):
        with pytest.raises(DataError, match=rf"observations '.*x.csv'.*{told}"):
            read_observations(tmp_path / "x.csv", words)


def test_a_header_is_looked_at_before_any_row(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("temp,valve\nnot,read\n")
    logs().to_parquet(tmp_path / "y.parquet")
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "1.csv").write_text("temp,valve\nnot,read\n")
    for name in ("x.csv", "days", "y.parquet"):
        check_origin(str(tmp_path / name), "obs=temp,action=valve")
        with pytest.raises(DataError, match="Did you mean 'valve'"):
            check_origin(str(tmp_path / name), "obs=temp,action=valv")

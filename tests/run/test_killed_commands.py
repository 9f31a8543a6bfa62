"""A death before every change of files of a command that writes; the same command then succeeds and leaves no trace.

Or it says that its target already exists, where the dead one had written all of it.
"""

import hashlib
import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults import Faults
from folders import fast_folder
from forks import Child, forks
from small import SHORT, short_config

AT_ONCE = 4
Command = Callable[[Path, Path], list[str | Path]]
"""What to say, given a folder of things to read and an empty one to write to."""
COMMANDS: dict[str, Command] = {
    "collect": lambda given, empty: ["collect", given / "run.yaml", "--out", empty / "data"],
    "roll out": lambda given, empty: [
        *("collect", SHORT, "-p", given / "run", "-p", "random:2", "-n", "3", "--num-envs", "2", "--out"),
        empty / "data.npz",
    ],
    "to a store": lambda given, empty: ["dataset", "convert", given / "data", empty / "new"],
    "to npz": lambda given, empty: ["dataset", "convert", given / "data", empty / "new.npz"],
    "to hdf5": lambda given, empty: ["dataset", "convert", given / "data", empty / "new.hdf5"],
    "to minari": lambda given, empty: ["dataset", "convert", given / "data", empty / "root", "--minari", "a/b/c-v0"],
    "corrupt": lambda given, empty: [
        *("dataset", "corrupt", given / "new.npz", empty / "wrong.npz", "kind=reward_flip", "share=0.5")
    ],
    "export": lambda given, empty: ["export", given / "run", "--format", "torchscript", "--out", empty / "policy"],
    "export to onnx": lambda given, empty: ["export", given / "run", "--out", empty / "policy"],
}


def start(words: list[str | Path], **faults: int) -> Child:
    plan: Faults = {"no_plots": True}
    if "die_at" in faults:
        plan["die_at"] = faults["die_at"]
    return forks().start(*words, "--quiet", **plan)


def run(words: list[str | Path]) -> None:
    ending = start(words).wait()
    assert ending.code == 0, ending.err


def content(folder: Path) -> dict[str, str]:
    """Every file and folder below, hidden ones too."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in folder.rglob("*")
    }


@pytest.fixture(scope="module")
def given() -> Iterator[Path]:
    """A run and its data, as a store and as a file."""
    with fast_folder() as folder:
        config = short_config(folder, "bc", updates=2, eval_every=2, save_every=2)
        run(["train", config])
        run(["collect", config, "--out", folder / "data"])
        run(["dataset", "convert", folder / "data", folder / "new.npz"])
        yield folder


def die_everywhere(given: Path, command: Command, *, begin: int = 1) -> int:
    """From the `begin`-th change on; how many there are."""
    with fast_folder() as folder:
        (folder / "whole").mkdir()
        run(command(given, folder / "whole"))
        whole = content(folder / "whole")
        for first in itertools.count(begin, AT_ONCE):
            numbers = range(first, first + AT_ONCE)
            places = {number: folder / str(number) for number in numbers}
            for place in places.values():
                place.mkdir()
            lives = {number: start(command(given, place), die_at=number) for number, place in places.items()}
            codes = {number: life.wait().code for number, life in lives.items()}
            assert set(codes.values()) <= {0, -signal.SIGKILL}
            dead = {number: places[number] for number, code in codes.items() if code}
            again = {number: start(command(given, place)) for number, place in dead.items()}
            for number, life in again.items():
                ending = life.wait()
                assert ending.code == 0 or "already exists" in ending.err, f"death at change {number}: {ending}"
                assert content(dead[number]) == whole, f"death at change {number}"
            if len(dead) < AT_ONCE:
                return first + len(dead) - 1
    raise AssertionError("counting never ends")


@pytest.mark.parametrize(
    ("name", "begin"), [("collect", 1), ("roll out", 40), ("to npz", 49), ("to minari", 49), ("export", 1)]
)
def test_a_death_before_every_change(given: Path, name: str, begin: int) -> None:
    """Those of the first stretch of a conversion, a store in a draft, are the slow test's."""
    assert die_everywhere(given, COMMANDS[name], begin=begin) > begin + 10


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_death_before_every_change_of_every_command(given: Path, name: str) -> None:
    assert die_everywhere(given, COMMANDS[name]) > 10

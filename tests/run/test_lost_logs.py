"""Logs and policies that were lost or damaged behind a run's back: it says so, remembers it, and comes to its end."""

import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forks import finish, forks
from small import content, short_config
from watchdog import ending_of

import understudy as us
from understudy.core.errors import RunError
from understudy.core.files import read_sealed, seal
from understudy.run.checkpoint import list_checkpoints

LOGS = ("metrics.jsonl", "eval.jsonl")
KEPT = ("checkpoints/000000012/state.safetensors", "policy/best/policy.json", "policy/best/policy.safetensors")
"""What no damaged log may change. The best policy is the first that was evaluated, and none that comes later."""


@dataclass(frozen=True)
class World:
    folder: Path
    whole: dict[str, str]
    result: dict[str, Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A run that was stopped at update 10 of 12, and its uninterrupted twin, whose best evaluation is its first."""
    folder = tmp_path_factory.mktemp("lost")
    finish(short_config(folder, name="whole"), folder / "whole", no_plots=True)
    forks().run("train", short_config(folder, name="stopped"), stop_at=10)
    evaluations = us.Run(folder / "whole").evaluations()
    assert max(evaluations, key=lambda line: float(line["eval/return_mean"]))["updates"] == 3
    return World(folder, content(folder / "whole"), us.Run(folder / "whole").result)


@pytest.fixture
def run(world: World, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.folder / "stopped", tmp_path / "run"))


def resumed(run: Path) -> str:
    """What is said to be lost in a run that comes to its end all the same; in its result, too."""
    ending = forks().run("resume", run, no_plots=True)
    assert ending.code == 0, ending.err
    told = [line.removeprefix("lost: ") for line in ending.err.splitlines() if line.startswith("lost: ")]
    assert told == [*us.Run(run).result.get("lost", [])] * 2, "at the beginning and at the end"
    return "\n".join(told[: len(told) // 2])


def lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines(keepends=True)


def delete(log: Path) -> None:
    log.unlink()


def empty(log: Path) -> None:
    log.write_bytes(b"")


def cut_in_the_middle(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: len(log.read_bytes()) // 2])


def break_a_line(log: Path) -> None:
    first, second, *rest = lines(log)
    log.write_bytes(b"".join([first, second.replace(b'"updates"', b'"updates'), *rest]))


def forget_a_name(log: Path) -> None:
    """Lines that are JSON, but not what a log holds."""
    log.write_bytes(log.read_bytes().replace(b'"updates"', b'"upd4tes"').replace(b"eval/", b"evam/"))


def change_a_digit(log: Path) -> None:
    first, *rest = lines(log)
    place = first.rindex(b".") + 1
    digit = b"1" if first[place : place + 1] != b"1" else b"2"
    log.write_bytes(b"".join([first[:place] + digit + first[place + 1 :], *rest]))


def swap_two_lines(log: Path) -> None:
    first, second, *rest = lines(log)
    log.write_bytes(b"".join([second, first, *rest]))


ALL_OF_IT = "missing or empty: lost {all} of its {all} lines up to update 10"
PART_OF_IT = "nobody can vouch for the others; what was there is kept as "
CHANGED = "damaged: its {all} lines up to update 10 can be read, but not all are what was written"
DAMAGES: dict[Callable[[Path], None], str] = {
    delete: ALL_OF_IT,
    empty: ALL_OF_IT,
    cut_in_the_middle: PART_OF_IT,
    break_a_line: "damaged: lost 1 of its {all} lines up to update 10 (not readable: 2); " + PART_OF_IT,
    forget_a_name: "damaged: lost {all} of its {all} lines up to update 10 (not readable: 1, 2, 3",
    change_a_digit: CHANGED,
    swap_two_lines: CHANGED,
}


@pytest.mark.parametrize("log", LOGS)
def test_what_is_lost_is_told_and_the_run_ends(log: str, world: World, tmp_path: Path) -> None:
    other = next(name for name in LOGS if name != log)
    for damage, sentence in DAMAGES.items():
        run = Path(shutil.copytree(world.folder / "stopped", tmp_path / damage.__name__))
        before = lines(run / log)
        damage(run / log)
        damaged = (run / log).read_bytes() if (run / log).exists() else b""
        told = resumed(run)
        assert told.startswith(f"{log}: "), damage
        assert sentence.format(all=len(before)) in told, damage
        aside = [path.read_bytes() for path in run.glob("*.damaged-*")]
        assert aside == ([damaged] if "what was there is kept" in told else []), damage
        assert aside or (run / log).read_bytes().startswith(damaged), "nothing that was there is dropped silently"
        assert {name: content(run)[name] for name in (*KEPT, other)} == {
            name: world.whole[name] for name in (*KEPT, other)
        }, damage
        assert us.Run(run).result == {**world.result, "lost": told.split("\n")}, damage
        assert us.Run(run).metrics()[-1]["updates"] == us.Run(run).evaluations()[-1]["updates"] == 12


def test_no_flipped_bit_passes(world: World, tmp_path: Path) -> None:
    chance = random.Random(5)
    for number in range(8):
        run = Path(shutil.copytree(world.folder / "stopped", tmp_path / str(number)))
        log = run / LOGS[number % 2]
        written = bytearray(log.read_bytes())
        place = chance.randrange(len(written))
        written[place] ^= 1 << chance.randrange(8)
        log.write_bytes(written)
        assert resumed(run).startswith(f"{log.name}: damaged: "), (log, place)


def test_a_quiet_run_tells_it_at_its_end(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    ending = forks().run("resume", run, "--quiet", no_plots=True)
    sentence = "metrics.jsonl: missing or empty: lost 5 of its 5 lines up to update 10"
    assert (ending.code, ending.err) == (0, f"lost: {sentence}\n")


def test_what_was_lost_once_is_remembered_and_set_aside_once(run: Path) -> None:
    """The first resume is killed right after it mended the log, the second saves and is stopped, the third ends."""
    break_a_line(run / "metrics.jsonl")
    child = forks().start("resume", run, stop_at=1, stop_signal=signal.SIGKILL)
    assert child.wait().code == -signal.SIGKILL
    assert list_checkpoints(run / "checkpoints")[-1] == 10
    assert forks().run("resume", run, stop_at=1).code == 128 + signal.SIGTERM
    ending = forks().run("resume", run, no_plots=True)
    assert ending.code == 0
    assert [path.name for path in run.glob("*.damaged-*")] == ["metrics.damaged-1.jsonl"]
    assert all(sentence.startswith("metrics.jsonl: damaged: ") for sentence in us.Run(run).result["lost"])
    assert ending.err.count("lost: ") == len(us.Run(run).result["lost"]), "only at the end: nothing new was lost"


def test_a_run_that_lost_its_last_evaluation_is_evaluated_again(world: World, tmp_path: Path) -> None:
    run = Path(shutil.copytree(world.folder / "whole", tmp_path / "run"))
    (run / "result.json").unlink()
    (run / "eval.jsonl").unlink()
    told = resumed(run)
    assert told == "eval.jsonl: missing or empty: lost 4 of its 4 lines up to update 12"
    assert us.Run(run).result == {**world.result, "lost": [told]}
    assert lines(run / "eval.jsonl") == lines(world.folder / "whole" / "eval.jsonl")[-1:]


def delete_best(run: Path) -> None:
    shutil.rmtree(run / "policy" / "best")


def damage_best(run: Path) -> None:
    file = run / "policy" / "best" / "policy.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"!")


def replace_best(run: Path) -> None:
    """Another policy of the same kind, whole in itself, that says it is of the same update."""
    card = read_sealed(run / "policy" / "best" / "policy.json")
    tensors = (run.parent / "other" / "policy" / "final" / "policy.safetensors").read_bytes()
    other = read_sealed(run.parent / "other" / "policy" / "final" / "policy.json")
    (run / "policy" / "best" / "policy.safetensors").write_bytes(tensors)
    (run / "policy" / "best" / "policy.json").write_bytes(seal({**card, "sha256": other["sha256"]}))


def test_another_policy_than_the_best_is_told(world: World, run: Path, tmp_path: Path) -> None:
    shutil.copytree(world.folder / "whole", tmp_path / "other")
    known = "the best up to update 10 was that of update 3, return"
    for damage in (delete_best, damage_best, replace_best):
        damaged = Path(shutil.copytree(run, tmp_path / damage.__name__))
        damage(damaged)
        told = resumed(damaged)
        assert told.startswith("policy/best: "), damage
        assert known in told, damage
        assert us.Run(damaged).result["best_return_mean"] == world.result["best_return_mean"]


def test_a_best_policy_that_comes_again_is_no_loss(world: World, run: Path) -> None:
    """Evaluated after the checkpoint, then killed: the policy on disk is newer than what the checkpoint knows."""
    card = read_sealed(run / "policy" / "best" / "policy.json")
    newer = {**card, "facts": {**card["facts"], "updates": 12}}
    (run / "policy" / "best" / "policy.json").write_bytes(seal(newer))
    assert resumed(run) == ""


def test_a_policy_that_was_about_to_be_replaced_is_brought_back(world: World, run: Path) -> None:
    """A death between giving up the old one and publishing the new."""
    (run / "policy" / "best").rename(run / "policy" / ".best.4711.old")
    shutil.copytree(run / "policy" / ".best.4711.old", run / "policy" / ".best.draft")
    assert resumed(run) == ""
    assert content(run) == world.whole


@pytest.mark.parametrize(
    ("log", "damage", "reason"),
    [
        ("metrics.jsonl", delete, "No such file or directory"),
        ("eval.jsonl", delete, "No such file or directory"),
        ("timing.jsonl", delete, "No such file or directory"),
        ("metrics.jsonl", empty, "Changed by another process"),
    ],
)
def test_a_log_that_is_lost_during_a_run_stops_it_saved(
    log: str, damage: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    config = short_config(tmp_path, updates=10**9, eval_every=20, save_every=10**9)
    child = forks().start("train", config, "--quiet")
    file = tmp_path / "run" / log
    deadline = time.monotonic() + 60
    while not (file.exists() and file.stat().st_size > 0):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    damage(file)
    ending = ending_of(child)
    assert ending.code == 1
    (saved,) = list_checkpoints(tmp_path / "run" / "checkpoints")
    assert ending.err == (
        f"run '{tmp_path / 'run'}': '{file}' cannot be written any more ({reason}). "
        f"Saved at update {saved:,}: make room or mend the folder, then resume.\n"
    )
    again = forks().run("resume", tmp_path / "run", stop_at=2)
    assert again.code == 128 + signal.SIGTERM
    assert (f"lost: {log}: " in again.err) == (log in LOGS)
    assert file.exists()


def test_a_damaged_log_of_timings_ends_nothing(run: Path, world: World) -> None:
    break_a_line(run / "timing.jsonl")
    assert resumed(run).startswith("timing.jsonl: damaged: lines that cannot be read: 2; what was there is kept as ")
    assert {name: content(run)[name] for name in LOGS} == {name: world.whole[name] for name in LOGS}


def test_a_damaged_log_of_a_finished_run_is_named(world: World, tmp_path: Path) -> None:
    run = Path(shutil.copytree(world.folder / "whole", tmp_path / "run"))
    for log in LOGS:
        break_a_line(run / log)
    for log, read in (("metrics.jsonl", us.Run(run).metrics), ("eval.jsonl", us.Run(run).evaluations)):
        with pytest.raises(RunError, match=rf"{log}, line 2: not readable: the file is damaged"):
            read()
    assert "eval.jsonl, line 2: not readable" in forks().run("export", run, "--format", "torchscript").err


def test_a_history_of_another_shape_is_refused(run: Path) -> None:
    for updates in list_checkpoints(run / "checkpoints"):
        file = run / "checkpoints" / f"{updates:09d}" / "manifest.json"
        manifest = read_sealed(file)
        manifest["facts"]["history"] = {"logs": {"metrics.jsonl": "all of it"}, "best": 7}
        file.write_bytes(seal({name: value for name, value in manifest.items() if name != "seal"}))
    before = json.loads((run / "meta.json").read_text()), (run / "metrics.jsonl").read_bytes()
    ending = forks().run("resume", run)
    assert ending.code != 0
    assert f"checkpoint '{run / 'checkpoints' / '000000010'}'" in ending.err
    assert "Unexpected" not in ending.err
    assert (json.loads((run / "meta.json").read_text()), (run / "metrics.jsonl").read_bytes()) == before

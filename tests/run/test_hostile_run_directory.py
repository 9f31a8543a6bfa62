"""A run directory that somebody else has had in their hands: whatever lies in it, every command ends with a sentence.

Every file and folder of a run is replaced in turn: by links, by a FIFO, by nothing, by noise, by a file that claims a
terabyte, by declarations of things too large to build, sealed anew where a seal is asked for. Then every command that
takes a run is given it.
"""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from folders import fast_folder
from forks import Ending, finish, forks
from small import content, short_config

from understudy.core.files import seal, sha256_file

SECONDS = 60.0
"""No command on so small a run takes a tenth of it."""
MEMORY = 1 << 30
TERABYTE = 1 << 40
MANY_DIGITS = "9" * 5000
CARDS = ("policy.json", "manifest.json")
SEALED_WITH = {"policy.safetensors": "policy.json", "state.safetensors": "manifest.json"}

Spoil = Callable[[Path], None]


@dataclass(frozen=True)
class World:
    folder: Path
    run: Path
    """Stopped in its second stage, so that there are checkpoints, policies, logs, and a finished stage."""
    whole: dict[str, str]
    """What the same run holds that was never stopped."""
    outside: Path
    """What no command on the run may touch."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with fast_folder() as folder:
        stages = [{"algo": {"name": "bc", "actor": {"hidden": [8]}}, "updates": 4, "save_every": 4}]
        finish(short_config(folder, name="whole", stages=stages), folder / "whole", no_plots=True)
        stopped = forks().run("train", short_config(folder, name="run", stages=stages), "--quiet", stop_at=13)
        assert stopped.code == 128 + 15, stopped.err
        short_config(folder, name="heir")
        np.save(folder / "obs.npy", np.zeros((2, 3), np.float32))
        shutil.copytree(folder / "run", folder / "sound", symlinks=True)
        yield World(folder, folder / "run", content(folder / "whole"), folder / "outside")


def by_nothing(place: Path, world: World) -> None:
    remove(place)


def by_a_link(place: Path, world: World) -> None:
    """To a copy of what lay there, so that nothing but its being a link gives it away."""
    place.rename(world.outside / place.name)
    place.symlink_to(world.outside / place.name)


def by_a_link_to_nowhere(place: Path, world: World) -> None:
    remove(place)
    place.symlink_to(world.outside / "new")


def by_a_device(place: Path, world: World) -> None:
    remove(place)
    place.symlink_to("/dev/zero")


def by_a_fifo(place: Path, world: World) -> None:
    remove(place)
    os.mkfifo(place)


def by_noise(place: Path, world: World) -> None:
    size = place.stat().st_size if place.is_file() else 100
    remove(place)
    place.write_bytes(random.Random(size).randbytes(size))


def by_a_terabyte(place: Path, world: World) -> None:
    remove(place)
    with place.open("wb") as file:
        file.truncate(TERABYTE)


def by_the_other_kind(place: Path, world: World) -> None:
    """A folder where a file belongs, a file where a folder does."""
    was_folder = place.is_dir()
    remove(place)
    if was_folder:
        place.touch()
    else:
        place.mkdir()


REPLACEMENTS = (
    by_nothing,
    by_a_link,
    by_a_link_to_nowhere,
    by_a_device,
    by_a_fifo,
    by_noise,
    by_a_terabyte,
    by_the_other_kind,
)


def declarations(place: Path) -> Iterator[tuple[str, Spoil]]:
    """Ways in which a file may claim more than there is, in the words of its own format."""
    if place.name in CARDS:
        yield from ((f"{place.name}: {words}", _declare(words, value)) for words, value in _bombs())
        yield "nested deeply", lambda path: _write(path, "[" * 100_000)
        yield "a number of many digits", lambda path: _write(path, f'{{"format": {MANY_DIGITS}}}')
    elif place.suffix == ".safetensors":
        yield "a tensor of a terabyte", _huge_tensor
        yield "a header of a terabyte", lambda path: _sealed(path, (1 << 40).to_bytes(8, "little") + b"{}")
    elif place.suffix == ".yaml":
        for words, value in _settings_bombs():
            yield f"{words}={value}", _set(words, value)
        yield "aliases", lambda path: _write(path, _alias_bomb())
        yield "many digits", lambda path: _write(path, path.read_text().replace("seed: ", f"seed: {MANY_DIGITS}", 1))
    elif place.suffix in (".json", ".jsonl"):
        yield "nested deeply", lambda path: _write(path, "[" * 100_000 + "\n")
        yield "many digits", lambda path: _write(path, f'{{"updates": {MANY_DIGITS}}}\n')
        yield "infinite", lambda path: _write(path, '{"updates": 1e999}\n')
        yield "null", lambda path: _write(path, "null\n")


def _bombs() -> Iterator[tuple[str, Any]]:
    """Paths inside a card, wherever it has them, and what they claim."""
    yield "settings.hidden", [100_000, 100_000]
    yield "settings.hidden", [1] * 200_000
    yield "settings.hidden", [-1]
    yield "settings.hidden", None
    yield "spec.observation.state.shape", [10**9]
    yield "spec.observation.state.shape", [-3]
    yield "spec.action", {"discrete": 10**9}
    yield "spec.action", {"multi_discrete": [10**6] * 1000}
    yield "spec", None
    yield "settings", []
    yield "facts", None
    yield "facts", []
    yield "sha256", None
    yield "sha256", []
    yield "format", [1]


def _settings_bombs() -> Iterator[tuple[str, Any]]:
    yield "algo.actor.hidden", [100_000, 100_000]
    yield "algo.critic.hidden", [100_000, 100_000]
    yield "algo.critic.hidden", [1] * 200_000
    yield "algo.critic.members", 10**7
    yield "source.batch_size", 10**12
    yield "eval_episodes", 10**9
    yield "threads", 100_000
    yield "updates", 10**15
    yield "log_every", 0
    yield "data", None
    yield "out", "/dev/null/x"


def _declare(words: str, value: Any) -> Spoil:
    """Set a fact of a card, or of the card inside a manifest, and seal it anew."""

    def spoil(path: Path) -> None:
        card = json.loads(path.read_text())
        owners = [card, *(part for part in _dicts(card) if words.split(".", maxsplit=1)[0] in part)]
        first, *rest = words.split(".")
        for owner in [one for one in owners if first in one]:
            place, names = owner, [first, *rest]
            while len(names) > 1 and isinstance(place.get(names[0]), dict):
                place = place[names.pop(0)]
            if len(names) == 1:
                place[names[0]] = value
        card.pop("seal", None)
        path.write_bytes(seal(card))

    return spoil


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from _dicts(part)


def _set(words: str, value: Any) -> Spoil:
    def spoil(path: Path) -> None:
        settings = yaml.safe_load(path.read_text())
        *folders, last = words.split(".")
        place = settings
        for name in folders:
            place = place[name] if isinstance(place.get(name), dict) else place.setdefault(name, {})
        place[last] = value
        _write(path, yaml.safe_dump(settings))

    return spoil


def _alias_bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines)


def _huge_tensor(path: Path) -> None:
    header = json.dumps({"weight": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, TERABYTE]}}).encode()
    _sealed(path, len(header).to_bytes(8, "little") + header)


def _sealed(path: Path, content: bytes) -> None:
    """Write a tensor file, and let the card beside it vouch for it."""
    path.write_bytes(content)
    card = path.with_name(SEALED_WITH[path.name])
    facts = json.loads(card.read_text())
    facts.pop("seal")
    facts["sha256"][path.name] = sha256_file(path)
    card.write_bytes(seal(facts))


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()


def commands(world: World) -> list[list[str]]:
    """Every command that is given a run, those that write into it last."""
    run, folder = str(world.run), world.folder
    made = folder / "made"
    return [
        ["evaluate", run, "--episodes", "2", "--quiet"],
        ["evaluate", run, "--episodes", "2", "--quiet", "--checkpoint", "best"],
        ["predict", run, "--obs", str(folder / "obs.npy"), "--out", str(made / "actions.npy")],
        ["export", run, "--format", "torchscript", "--out", str(made / "export"), "--quiet"],
        ["runs", run],
        ["plot", run, "--metric", "loss/actor", "--out", str(made / "plot.png")],
        ["train", str(folder / "heir.yaml"), f"init_from={run}", f"out={made / 'heir'}", "updates=2", "--quiet"],
        ["train", str(folder / "run.yaml"), "--quiet"],
        ["resume", run, "--quiet"],
        ["resume", run, "--quiet"],
    ]


def places(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob("*"))


def tree(folder: Path) -> dict[str, str]:
    """What lies in a folder, by name and content; links are what they point to in words."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = f"link {path.readlink()}"
        elif path.is_file():
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[str(path)] = "folder"
    return found


def fresh(world: World) -> None:
    """The run as it was, and nothing else lying about."""
    for path in (world.run, world.outside, world.folder / "made"):
        remove(path)
    shutil.copytree(world.folder / "sound", world.run, symlinks=True)
    for path in (world.outside, world.folder / "made"):
        path.mkdir()
    (world.outside / "precious.txt").write_text("not yours")


def faults_of(ending: Ending) -> list[str]:
    """What is wrong with the way a command ended."""
    said = ending.out + ending.err
    found = [word for word in ("Traceback", "Unexpected", "Error:") if word in said]
    if ending.code not in (0, 1, 2):
        found.append(f"exit code {ending.code}")
    if ending.code and not ending.err.strip():
        found.append("no word")
    if len(ending.err) > 3000:
        found.append(f"{len(ending.err)} letters")
    if ending.memory > MEMORY:
        found.append(f"{ending.memory >> 20} MB")
    return found


def attack(world: World, case: str, spoil: Callable[[], None]) -> list[str]:
    """Everything that went wrong when all commands were run on one spoiled directory."""
    fresh(world)
    spoil()
    outside = tree(world.outside)
    wrong = []
    for words in commands(world):
        ending = forks().start(*words, no_plots=True, address_space=8 << 30).wait(SECONDS)
        found = faults_of(ending)
        if tree(world.outside) != outside:
            found.append("touched what lies outside")
            outside = tree(world.outside)
        if found:
            wrong.append(f"{case}: {' '.join(words[:1])}: {', '.join(found)}: {ending.err[-300:].strip()}")
    if (world.run / "result.json").is_file() and not (world.run / "result.json").is_symlink() and ending.code == 0:
        state = {name for name in world.whole if name.startswith("checkpoints/0")}
        here = content(world.run)
        wrong += [f"{case}: ended well with another {name}" for name in state if here[name] != world.whole[name]]
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_every_file_and_folder_replaced(world: World, replacement: Callable[[Path, World], None]) -> None:
    wrong = []
    for name in places(world.folder / "sound"):
        wrong += attack(world, f"{name} {replacement.__name__}", lambda name=name: replacement(world.run / name, world))  # type: ignore[misc]
    assert not wrong, "\n".join([f"{len(wrong)} faults", *wrong])


@pytest.mark.slow
def test_every_file_that_claims_too_much(world: World) -> None:
    wrong = []
    for name in places(world.folder / "sound"):
        for what, spoil in declarations(world.folder / "sound" / name):
            wrong += attack(world, f"{name}, {what}", lambda name=name, spoil=spoil: spoil(world.run / name))  # type: ignore[misc]
    assert not wrong, "\n".join([f"{len(wrong)} faults", *wrong])


def test_a_sound_run_is_served_by_every_command(world: World) -> None:
    """The attack would prove nothing if the commands were refused anyway."""
    fresh(world)
    codes = [forks().run(*words, no_plots=True).code for words in commands(world)]
    assert codes == [0, 0, 0, 0, 0, 0, 0, 1, 0, 1]
    assert content(world.run) == world.whole

"""Strangers' files: the same attacks on every format that is read.

Whatever is done to a sound file, its reader answers with a sentence of ours that names it, or with the same content as
before; in bounded memory, at once, and no code runs. `hostile_formats.py` says how each format is made and read, and
which attacks do not apply to it; what only one format can be attacked with stands in its own tests.
"""

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hostile_formats import FORMATS, TERABYTE, Format, trap
from hypothesis import given

from plain_data import FEW, NOTHING, mutations, owner_of, places
from processes import say_in_a_bounded_fork
from understudy.core.errors import UnderstudyError

ROOM, SECONDS, LONGEST = 512 << 20, 60, 5
REFUSED = "refused: "
CUTS, FLIPS, DAMAGES = 32, 16, 10
"""Of each file; the edges come on top."""
MANY = 8
"""Values of a card that are all made wrong in turn; of a larger card so many, spread over it."""


@dataclass(frozen=True)
class Case:
    """One way to spoil the copy of a sound file."""

    name: str
    spoil: Callable[[], object]
    must_refuse: bool = True
    """Otherwise it may be read, and then gives what the sound one does, where something guards that."""
    file: Path | None = None
    """The only one that is spoilt; absent: it may be any."""


Attack = Callable[[Format, Path], Iterator[Case]]


def short(file: Path, path: Path) -> str:
    return file.name if file == path else str(file.relative_to(path))


def no_files(form: Format, path: Path) -> Iterator[Case]:
    """In place of each file: nothing, a folder, a pipe, a device without end, a dead link, noise, a terabyte."""

    def replaced(file: Path, put: Callable[[], object]) -> Callable[[], object]:
        def spoil() -> None:
            file.unlink()
            put()

        return spoil

    def terabyte(file: Path) -> None:
        with file.open("wb") as content:
            content.truncate(TERABYTE)

    for file in form.files(path):
        noise = random.Random(0).randbytes(file.stat().st_size)
        ways: dict[str, Callable[[], object]] = {
            "nothing": lambda: None,
            "a folder": file.mkdir,
            "a pipe": lambda file=file: os.mkfifo(file),  # type: ignore[misc]
            "a device": lambda file=file: file.symlink_to("/dev/zero"),  # type: ignore[misc]
            "a dead link": lambda file=file: file.symlink_to("nowhere"),  # type: ignore[misc]
            "an empty file": file.touch,
            "noise": lambda file=file, noise=noise: file.write_bytes(noise),  # type: ignore[misc]
            "a terabyte": lambda file=file: terabyte(file),  # type: ignore[misc]
        }
        for name, put in ways.items():
            yield Case(f"{short(file, path)}: {name}", replaced(file, put), not form.remains, file)


def truncated(form: Format, path: Path) -> Iterator[Case]:
    for file in form.files(path):
        whole = file.read_bytes()
        sizes = {
            1,
            7,
            8,
            9,
            len(whole) // 2,
            len(whole) - 2,
            len(whole) - 1,
            *range(0, len(whole), -(-len(whole) // CUTS)),
        }
        for size in sorted(size for size in sizes if 0 <= size < len(whole)):
            spoil = lambda file=file, cut=whole[:size]: file.write_bytes(cut)  # noqa: E731
            yield Case(
                f"{short(file, path)}: {size} of {len(whole)} bytes", spoil, form.whole and not form.remains, file
            )


def lengthened(form: Format, path: Path) -> Iterator[Case]:
    for file in form.files(path):
        whole = file.read_bytes()
        for more in (b"\0", b"\n", bytes(4096)):
            spoil = lambda file=file, longer=whole + more: file.write_bytes(longer)  # noqa: E731
            yield Case(f"{short(file, path)}: {len(more)} bytes more", spoil, form.guarded, file)


def flipped(form: Format, path: Path) -> Iterator[Case]:
    """Edges of each file, and places all over it; where there are digests, no byte is without one."""
    for file in form.files(path):
        whole = file.read_bytes()
        spots = {*range(min(16, len(whole))), len(whole) - 1, *range(0, len(whole), max(1, len(whole) // FLIPS))}
        for place in sorted(spots):
            other = whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :]
            spoil = lambda file=file, other=other: file.write_bytes(other)  # noqa: E731
            yield Case(f"{short(file, path)}: byte {place}", spoil, form.guarded, file)


def damaged(form: Format, path: Path) -> Iterator[Case]:
    """Several bytes at once, and sometimes the end is missing."""
    rng, files = random.Random(1), form.files(path)
    for number in range(DAMAGES * len(files)):
        file = files[number % len(files)]
        content = bytearray(file.read_bytes())
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        cut = bytes(content[: rng.randrange(len(content))] if rng.random() < 0.1 else content)
        spoil = lambda file=file, cut=cut: file.write_bytes(cut)  # noqa: E731
        yield Case(f"{short(file, path)}: damage {number}", spoil, False, file)


def cards(form: Format, path: Path) -> Iterator[Case]:
    """Every value of a card replaced by what it cannot be, and every name of its own taken away; sealed anew."""
    for file in (one for one in form.files(path) if form.is_card(one, path)):
        sound = form.content(file)
        known = list(places(sound))
        for at in known[:: -(-len(known) // MANY)]:
            for value in NOTHING:
                other = deepcopy(sound)
                owner_of(other, at)[at[-1]] = value
                spoil = lambda file=file, other=other: form.rewrite(file, other)  # noqa: E731
                yield Case(f"{short(file, path)}: {at} is {value!r:.20}", spoil, False, file)
        for name in sound:
            less = {key: value for key, value in sound.items() if key != name}
            gone = lambda file=file, less=less: form.rewrite(file, less)  # noqa: E731
            yield Case(f"{short(file, path)}: without {name}", gone, form.sealed and name not in form.optional, file)
        more = {**sound, "somebody's own": {"x": [1]}}
        yield Case(f"{short(file, path)}: more", lambda file=file, more=more: form.rewrite(file, more), False)  # type: ignore[misc]


def card_text(form: Format, path: Path) -> Iterator[Case]:
    """What is no JSON object, or one that Python's parser dies of."""
    texts = {
        "nested deeply": b"[" * 100_000,
        "nested deeply in objects": b'{"a":' * 100_000,
        "a number of many digits": b'{"format": ' + b"9" * 5000 + b"}",
        "infinite": b'{"format": 1e999}',
        "not a number": b'{"format": NaN, "seal": "x"}',
        "null": b"null",
        "a list": b"[]",
        "an empty object": b"{}",
        "no text": b"\xff\xfe\x00",
        "spaces": b" " * 10_000,
    }
    for file in (one for one in form.files(path) if form.is_card(one, path)):
        for name, text in texts.items():
            yield Case(f"{short(file, path)}: {name}", lambda file=file, text=text: file.write_bytes(text))  # type: ignore[misc]


def numbers_not_finite(form: Format, path: Path) -> Iterator[Case]:
    assert form.numbers is not None
    columns = list(form.numbers(path))
    for number, (name, put) in enumerate(columns[:: -(-len(columns) // MANY)]):
        value = (float("nan"), float("inf"), -float("inf"))[number % 3]
        yield Case(f"{name} has {value}", lambda put=put, value=value: put(value))  # type: ignore[misc]


def claims(form: Format, path: Path) -> Iterator[Case]:
    for name, spoil in form.claims.items():
        yield Case(name, lambda spoil=spoil: spoil(path))  # type: ignore[misc]


def path_names(form: Format, path: Path) -> Iterator[Case]:
    """Nothing outside is read or written, whatever something inside is called."""
    assert form.names is not None
    for name in ("../secret", "a/../../secret", "/secret", "..\\secret", "C:\\secret", "..", "a/b"):
        # In an archive, a folder of its own is no way out.
        yield Case(repr(name), lambda name=name: form.names(path, name), name != "a/b" or path.is_dir())  # type: ignore[misc]


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        no_files,
        truncated,
        lengthened,
        flipped,
        damaged,
        cards,
        card_text,
        numbers_not_finite,
        claims,
        path_names,
    )
}
PAIRS = [(name, attack) for name, form in FORMATS.items() for attack in ATTACKS if attack not in form.without]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A sound file or folder of each format, made when it is first asked for."""
    made: dict[str, Path] = {}

    def original(name: str) -> Path:
        if name not in made:
            made[name] = FORMATS[name].make(tmp_path_factory.mktemp("sound"))
        return made[name]

    return original


def answer(form: Format, path: Path) -> str:
    """What a reader says: the content in its words, or an error of ours. Another one escapes."""
    try:
        return form.read(path)
    except UnderstudyError as error:
        return f"{REFUSED}{error}"


def restore(original: Path, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    copy(original, path)


def copy(original: Path, path: Path) -> Path:
    return Path(shutil.copytree(original, path) if original.is_dir() else shutil.copy(original, path))


class TooLong(BaseException):
    """No answer came; not an OSError, which readers make a sentence of."""


def _too_long(number: int, frame: object) -> None:
    raise TooLong(f"no answer after {LONGEST} seconds")


def answers(form: Format, original: Path, path: Path, cases: list[Case]) -> list[str]:
    """The reader's answer to each, in a fork with little room and time; a crash of a library in C would be seen."""

    def ask() -> str:
        signal.signal(signal.SIGALRM, _too_long)
        said = []
        for case in cases:
            signal.alarm(LONGEST)  # to wait for a pipe takes no time of a core
            try:
                case.spoil()
                said.append(answer(form, path))
            except BaseException as error:
                error.add_note(f"case: {case.name}")
                raise
            spoilt = path if case.file is None else case.file
            restore(original if spoilt == path else original / spoilt.relative_to(path), spoilt)
        return json.dumps(said)

    told: list[str] = json.loads(say_in_a_bounded_fork(ask, ROOM, SECONDS))
    return told


@pytest.mark.parametrize(("name", "attack"), PAIRS)
def test_whatever_is_done_to_a_file(
    originals: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, attack: str
) -> None:
    form, original = FORMATS[name], originals(name)
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    (tmp_path / "secret").write_text("mine")
    path = copy(original, tmp_path / "inner" / original.name)
    sound = answer(form, path)
    assert not sound.startswith(REFUSED), sound
    cases = list(ATTACKS[attack](form, path))
    assert cases
    allowed = {sound, *form.remains}
    said = answers(form, original, path, cases)
    for case, told in zip(cases, said, strict=True):
        if told.startswith(REFUSED):
            assert "\n" not in told or form.lists, (case.name, told[:300])
            assert len(told) < 5000, (case.name, told[:300])
            assert path.name in told or form.lists, (case.name, told)
        else:
            assert not case.must_refuse, f"{case.name}: was read"
            assert told in allowed or not form.same or attack in ("cards",), f"{case.name}: read as something else"
    assert {one.name for one in tmp_path.iterdir()} == {"inner", "secret"}
    assert (tmp_path / "secret").read_text() == "mine"
    assert not (tmp_path / "inner" / "marker").exists()


def has_cards(name: str) -> bool:
    return "mutated_cards" not in FORMATS[name].without


def only_ours(form: Format, path: Path, file: Path) -> None:
    sound = form.content(file)

    @FEW
    @given(mutations(sound))
    def say(card: dict[str, Any]) -> None:
        form.rewrite(file, card)
        answer(form, path)

    say()
    form.rewrite(file, sound)


@pytest.mark.parametrize("name", [name for name in FORMATS if has_cards(name)])
def test_whatever_a_card_says_only_our_error_escapes(
    originals: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    form, original = FORMATS[name], originals(name)
    path = copy(original, tmp_path / original.name)
    for file in (one for one in form.files(path) if form.is_card(one, path)):
        only_ours(form, path, file)


@pytest.mark.parametrize("name", FORMATS)
def test_no_file_runs_code(originals: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    form, original, marker = FORMATS[name], originals(name), tmp_path / "marker"
    path = copy(original, tmp_path / original.name)
    for file in form.files(path):
        whole = file.read_bytes()
        for what, content in trap(marker):
            file.write_bytes(content)
            told = answer(form, path)
            assert told.startswith(REFUSED) or told in form.remains, f"{short(file, path)} is {what}: {told}"
            assert not marker.exists()
        file.write_bytes(whole)


@pytest.mark.parametrize("name", FORMATS)
def test_links_to_sound_files(originals: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    """A cache that holds every file once has links; a dataset of somebody else's may not point out of its folder."""
    form, original = FORMATS[name], originals(name)
    path = copy(original, tmp_path / original.name)
    sound = answer(form, path)
    for number, file in enumerate(form.files(path)):
        file.rename(tmp_path / f"elsewhere{number}")
        file.symlink_to(tmp_path / f"elsewhere{number}")
        told = answer(form, path)
        assert told == sound if form.links == "followed" else told.startswith(REFUSED), (file, told)
        if form.links == "refused":
            file.unlink()
            (tmp_path / f"elsewhere{number}").rename(file)
    assert answer(form, path) == sound


def test_what_does_not_apply_has_a_reason() -> None:
    known = {*ATTACKS, "mutated_cards"}
    for name, form in FORMATS.items():
        assert set(form.without) <= known, name
        assert all(len(reason) > 10 for reason in (*form.without.values(), *form.spare.values())), name
        assert (form.numbers is None) == ("numbers_not_finite" in form.without), name
        assert (form.names is None) == ("path_names" in form.without), name
        assert bool(form.cards) != ("cards" in form.without), name

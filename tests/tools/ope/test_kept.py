"""What is kept between calls: whatever is damaged, swapped or of something else is made anew, never believed."""

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judged_policies import boxes, constant

import understudy as us
from understudy.core.errors import CheckpointError, ConfigError
from understudy.core.files import read_sealed, seal
from understudy.run.progress import Reporter
from understudy.tools.ope.kept import Kept, check_folder, digest, keep, place
from understudy.tools.ope.resamples import Resample

SHORT: dict[str, Any] = {"updates": 3, "seeds": 1, "hidden": (8,), "gamma": 0.5, "progress": False}


class Heard(Reporter):  # type: ignore[misc]
    """What was said."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.words: list[str] = []

    def say(self, text: str) -> None:
        self.words.append(text)


def judged(out: Path, action: float = 0.5, episodes: int = 0, **words: Any) -> tuple[float, list[str]]:
    """The value of one policy, and what was said of files."""
    heard = Heard()
    policy = constant(boxes().spec, action)
    ranking = us.evaluate_offline(policy, boxes(seed=episodes), out=out, **{**SHORT, "reporter": heard, **words})
    return ranking.best.estimate.value, heard.words


def resealed(**facts: Any) -> Callable[[Path], None]:
    """Changed by somebody who knows how to seal."""

    def spoil(file: Path) -> None:
        content = read_sealed(file)
        content.pop("seal", None)
        file.write_bytes(seal({**content, **facts}))

    return spoil


def huge(file: Path) -> None:
    with file.open("wb") as content:
        content.truncate(1 << 40)


def other_number(file: Path) -> None:
    file.write_text(file.read_text().replace("1", "2"))


def replaced(put: Callable[[Path], object]) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        file.unlink()
        put(file)

    return spoil


SPOILT: dict[str, Callable[[Path], None]] = {
    "cut short": lambda file: os.truncate(file, 100),
    "empty": lambda file: os.truncate(file, 0),
    "another number": other_number,
    "a terabyte": huge,
    "values above the largest": resealed(starts=[1e300] * 30),
    "fewer episodes": resealed(starts=[0.0] * 3),
    "no numbers": resealed(starts=[]),
    "words": resealed(starts=["1"] * 30),
    "about something else": resealed(about="0" * 64),
    "of another format": resealed(format=1),
    "a dead link": replaced(lambda file: file.symlink_to("nowhere")),
    "a device": replaced(lambda file: file.symlink_to("/dev/zero")),
    "a pipe": replaced(os.mkfifo),
}


def test_whatever_was_done_to_a_file_it_is_not_believed(tmp_path: Path) -> None:
    out = tmp_path / "kept"
    value, said = judged(out)
    (file,) = out.iterdir()
    sound = file.read_bytes()
    assert said == []
    for name, spoil in SPOILT.items():
        spoil(file)
        again, said = judged(out)
        assert again == value, name
        assert file.read_bytes() == sound, f"{name}: made anew"
        assert not file.is_symlink()
        assert name.startswith("a ") or (len(said) == 1 and str(file) in said[0]), (name, said)
        assert judged(out) == (value, []), f"{name}: and kept"


def test_files_that_were_swapped_are_not_believed(tmp_path: Path) -> None:
    """Of another candidate, of other settings and of other data: each is sound, and lies under another's name."""
    value, _ = judged(tmp_path / "mine")
    (mine,) = (tmp_path / "mine").iterdir()
    others: dict[str, dict[str, Any]] = {
        "candidate": {"action": -0.5},
        "data": {"episodes": 1},
        "gamma": {"gamma": 0.6},
        "width": {"hidden": (9,)},
    }
    for name, words in others.items():
        judged(tmp_path / name, **words)
        (theirs,) = (tmp_path / name).iterdir()
        assert theirs.name != mine.name, name
        shutil.copy(theirs, mine)
        again, said = judged(tmp_path / "mine")
        assert again == value, name
        assert "is about something else" in said[0]
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / mine.name
    mine.rename(moved)
    mine.symlink_to(moved)
    assert judged(tmp_path / "mine") == (value, []), "a link to the sound file is the sound file"


def test_what_is_kept_of_another_resample_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another seed; and of this seed, where it comes to draw other episodes than it did."""
    out = tmp_path / "both"
    both, _ = judged(out, seeds=2)
    first, second = sorted(out.iterdir())
    sound = first.read_bytes(), second.read_bytes()
    first.write_bytes(sound[1])
    second.write_bytes(sound[0])
    again, said = judged(out, seeds=2)
    assert again == both
    assert len([told for told in said if "is about something else" in told]) == 2
    assert (first.read_bytes(), second.read_bytes()) == sound
    monkeypatch.setattr(Resample, "drawn", lambda index, seed: Resample.whole(index))
    fresh, _ = judged(tmp_path / "fresh", seeds=2)
    assert judged(out, seeds=2) == (fresh, [])
    assert fresh != both
    assert len(list(out.iterdir())) == 4


def test_many_episodes_fit(tmp_path: Path) -> None:
    """Three hundred thousand starts of the longest numbers there are."""
    starts = (np.random.default_rng(0).standard_normal(300_000) * -1e-300).tolist()
    about = digest({"x": 1})
    path = place(tmp_path, about)
    keep(path, about, starts, 1.0)
    assert path.stat().st_size > 8 << 20
    assert Kept.open(path, about, len(starts)).starts == starts
    with pytest.raises(CheckpointError, match="Larger than"):
        Kept.open(path, about, 30)
    keep(tmp_path / "diverged.json", about, [float("nan")], float("nan"))
    assert not (tmp_path / "diverged.json").exists()


def test_a_folder_that_keeps_nothing_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({}))
    for out in (tmp_path / "file", tmp_path / "file" / "inside", Path("/proc/kept")):
        with pytest.raises(ConfigError, match=r"out: cannot keep anything .*Name another folder"):
            judged(out, updates=10**9)


def test_several_may_look_at_a_folder_at_once(tmp_path: Path) -> None:
    """And none mistakes another's look for a folder that keeps nothing."""
    with ThreadPoolExecutor(8) as looking:
        list(looking.map(check_folder, [tmp_path / "out"] * 100))
    assert not list((tmp_path / "out").iterdir())

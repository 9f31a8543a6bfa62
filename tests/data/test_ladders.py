"""Ladders on disk: levels by name, wherever a dataset is asked for; files are compared before they are read."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import understudy as us
from understudy.core.errors import DataError, UnderstudyError
from understudy.core.files import sha256_file, write_json
from understudy.data.dataset import Dataset
from understudy.data.formats.packed import write_packed
from understudy.data.formats.readers import check_origin, open_recording
from understudy.data.ladders import CARD, LEVELS, find_level, shipped_ladders
from understudy.run.build import settled_data
from understudy.run.config import parse_config
from understudy.run.loading import resolve_dataset
from worlds import random_dataset


def level(dataset: Dataset, **parts: str) -> dict[str, object]:
    returns = dataset.returns()
    return {
        "steps": dataset.steps,
        "episodes": dataset.episodes,
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "fingerprint": dataset.fingerprint,
        "made_by": "chance",
        "parts": [{"file": f"{name}.npz", "sha256": sha256} for name, sha256 in parts.items()],
    }


@pytest.fixture
def ladder(tmp_path: Path) -> Path:
    """Two levels in files, and a third of both of them."""
    folder = tmp_path / "mine"
    low, high = random_dataset(count=2, seed=1), random_dataset(count=3, seed=2)
    write_packed(low, folder / "medium.npz")
    write_packed(high, folder / "expert.npz")
    digests = {name: sha256_file(folder / f"{name}.npz") for name in ("medium", "expert")}
    both = Dataset.from_episodes([*low.recording().episodes(), *high.recording().episodes()], low.spec.action)
    levels = {
        "medium": level(low, medium=digests["medium"]),
        "medium-expert": level(both, **digests),
        "expert": level(high, expert=digests["expert"]),
    }
    card = {"format": 1, "env": "Own-v0", "reference": [0.0, 10.0], "origin": "a made-up run", "levels": levels}
    write_json(folder / CARD, card)
    return folder


def test_levels_are_datasets_by_name(ladder: Path) -> None:
    card = json.loads((ladder / CARD).read_text())
    for name, facts in card["levels"].items():
        dataset = us.load_dataset(f"{ladder}/{name}")
        assert dataset.fingerprint == facts["fingerprint"]
        assert (dataset.steps, dataset.episodes) == (facts["steps"], facts["episodes"])
        assert dataset.env == "Own-v0"
        check_origin(f"{ladder}/{name}")


def test_a_run_learns_from_a_level_wherever_it_is_resumed(ladder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ladder.parent)
    settings = {"algo": {"name": "bc"}, "data": {"path": "mine/medium"}}
    settled = settled_data(parse_config(settings))
    assert settled.logged.path == str(ladder / "medium")
    dataset = resolve_dataset(settled.logged, None)
    assert dataset.train.steps + (dataset.validation.steps if dataset.validation else 0) == 40


def test_scores_are_of_the_ladder_s_own_scale(ladder: Path) -> None:
    found = find_level(f"{ladder}/medium")
    assert found is not None
    facts = found[0].level("medium")
    assert found[0].score(facts) == pytest.approx(10 * facts.return_mean)
    card = json.loads((ladder / CARD).read_text())
    write_json(ladder / CARD, {**card, "reference": ""})
    unscaled = find_level(f"{ladder}/medium")
    assert unscaled is not None
    assert unscaled[0].score(facts) is None


def test_mistakes_are_told(ladder: Path) -> None:
    for words, told in {
        f"{ladder}/medum": "has no level 'medum'. Did you mean 'medium'?",
        f"{ladder}": "is several datasets. Say which: .*mine/",
        "hopping/medium": "no such file.*understudy dataset list",
    }.items():
        with pytest.raises(DataError, match=told):
            us.load_dataset(words)


def test_changed_files_are_not_read(ladder: Path) -> None:
    content = bytearray((ladder / "expert.npz").read_bytes())
    content[200] ^= 1
    (ladder / "expert.npz").write_bytes(content)
    us.load_dataset(f"{ladder}/medium")
    for name in ("expert", "medium-expert"):
        with pytest.raises(DataError, match=r"its file 'expert\.npz' was changed or damaged"):
            open_recording(f"{ladder}/{name}")
    (ladder / "expert.npz").unlink()
    with pytest.raises(DataError, match=r"its file 'expert\.npz' is missing"):
        open_recording(f"{ladder}/expert")


def test_a_card_that_says_something_else_is_refused(ladder: Path) -> None:
    card = json.loads((ladder / CARD).read_text())
    medium, others = card["levels"]["medium"], {"levels": {"medium": {**card["levels"]["medium"], "steps": 7}}}
    outside = [{"file": name, "sha256": medium["fingerprint"]} for name in ("..", "../medium.npz", "a" * 300)]
    changes: list[dict[str, Any]] = [
        {"format": 2},
        {"levels": 3},
        {"levels": {"medium": {}}},
        {"reference": [1.0]},
        others,
        *({"levels": {"medium": {**medium, "parts": [part]}}} for part in outside),
    ]
    for change in changes:
        write_json(ladder / CARD, {**card, **change})
        with pytest.raises(UnderstudyError, match="mine"):
            us.load_dataset(f"{ladder}/medium")
    (ladder / CARD).write_text("[" * 100_000)
    with pytest.raises(DataError, match="not readable"):
        us.load_dataset(f"{ladder}/medium")


def test_shipped_ladders_are_whole() -> None:
    """Every level of every one that comes with the library is what its card says; all of them are small."""
    assert "hopper-ladder" in shipped_ladders()
    for name, ladder in shipped_ladders().items():
        assert sum(file.stat().st_size for file in ladder.path.iterdir()) < 5_000_000
        assert tuple(ladder.levels) == LEVELS
        means = [facts.return_mean for facts in ladder.levels.values()]
        assert means == sorted(means)
        for title, facts in ladder.levels.items():
            dataset = us.load_dataset(f"{name}/{title}")
            assert dataset.fingerprint == facts.fingerprint
            assert dataset.returns().mean() == pytest.approx(facts.return_mean)
            assert dataset.env == ladder.facts.env
    with pytest.raises(DataError, match="Did you mean 'hopper-ladder/medium'"):
        us.load_dataset("hoper-ladder/medium")


def test_package_data_has_all_of_them() -> None:
    """What an installation brings along is what the project says of it."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    package = Path(us.__file__).parent
    patterns = project["tool"]["setuptools"]["package-data"]["understudy"]
    packed = {file for pattern in patterns for file in package.glob(pattern)}
    for ladder in shipped_ladders().values():
        assert set(ladder.path.iterdir()) <= packed

"""What lies in a run directory, when it was written, and that the clock is kept out of the rest."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from event_files import scalars
from forks import finish, forks
from small import content, short_config

from understudy.data.recipes import Recipe
from understudy.run.loading import make_dataset

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("directory")
    for name in ("run", "twin"):
        finish(short_config(folder, name=name, tensorboard=True), folder / name)
    return folder


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_everything_is_there(folder: Path) -> None:
    names = {str(path.relative_to(folder / "run")) for path in (folder / "run").rglob("*") if path.is_file()}
    events = {name for name in names if name.startswith("tensorboard/events.out.tfevents")}
    states = {f"checkpoints/{n:09d}/{file}" for n in (4, 8, 12) for file in ("manifest.json", "state.safetensors")}
    policies = {f"policy/{n}/{file}" for n in ("final", "best") for file in ("policy.json", "policy.safetensors")}
    logs = {"metrics.jsonl", "eval.jsonl", "timing.jsonl"}
    facts = {"config.yaml", "meta.json", "result.json", ".lock", "checkpoints/latest"}
    assert len(events) == 1
    assert names == events | states | policies | logs | facts | {"plots/eval_returns.png", "plots/losses.png"}


def test_result_is_written_last(folder: Path) -> None:
    written = {path: path.stat().st_mtime_ns for path in (folder / "run").rglob("*") if path.is_file()}
    assert max(written, key=lambda path: written[path]).name == "result.json"
    result = json.loads((folder / "run" / "result.json").read_text())
    last = lines(folder / "run" / "eval.jsonl")[-1]
    assert {name: result[name] for name in last} == last
    assert result["updates"] == 12


def test_the_config_is_complete_and_sealed(folder: Path) -> None:
    config = yaml.safe_load((folder / "run" / "config.yaml").read_text())
    assert config["keep_checkpoints"] == 5
    assert config["algo"]["expectile"] == 0.7
    dataset = make_dataset(Recipe.parse(config["data"]["recipe"]))
    assert config["data"]["fingerprint"] == dataset.fingerprint


def test_meta_says_where_the_run_came_from(folder: Path) -> None:
    meta = json.loads((folder / "run" / "meta.json").read_text())
    config = yaml.safe_load((folder / "run" / "config.yaml").read_text())
    assert {"python", "understudy", "torch", "numpy", "gymnasium"} <= meta["versions"].keys()
    assert meta["argv"] == ["understudy", "train", str(folder / "run.yaml"), "--quiet"]
    assert meta["dataset"]["fingerprint"] == config["data"]["fingerprint"]
    assert meta["dataset"]["episodes"] == 4
    assert meta["host"]
    assert "git" in meta


def test_logs_are_on_their_beats(folder: Path) -> None:
    assert [line["updates"] for line in lines(folder / "run" / "metrics.jsonl")] == [2, 4, 6, 8, 10, 12]
    evaluations = lines(folder / "run" / "eval.jsonl")
    assert [line["updates"] for line in evaluations] == [3, 6, 9, 12]
    assert all(len(line["returns"]) == len(line["lengths"]) == 2 for line in evaluations)
    assert all(line["lengths"] == [10, 10] for line in evaluations)
    assert (folder / "run" / "checkpoints" / "latest").read_text() == "000000012\n"


def test_two_runs_differ_only_in_what_the_clock_decides(folder: Path) -> None:
    assert content(folder / "run") == content(folder / "twin")
    timing = lines(folder / "run" / "timing.jsonl")
    logs = {"updates", "seconds", "updates_per_second", "collection_seconds", "learning_seconds"}
    evaluations = {"updates", "seconds", "evaluation_seconds"}
    assert sorted(map(sorted, timing)) == sorted(map(sorted, [logs] * 6 + [evaluations] * 4))
    assert (folder / "run" / "timing.jsonl").read_bytes() != (folder / "twin" / "timing.jsonl").read_bytes()


def test_plots_are_pictures(folder: Path) -> None:
    for name in ("eval_returns.png", "losses.png"):
        picture = (folder / "run" / "plots" / name).read_bytes()
        assert picture.startswith(PNG)
        assert len(picture) > 10_000


def test_tensorboard_shows_every_logged_number(folder: Path) -> None:
    shown = scalars(folder / "run" / "tensorboard")
    logged = lines(folder / "run" / "metrics.jsonl") + lines(folder / "run" / "eval.jsonl")
    tags = {tag for line in logged for tag in line if "/" in tag}
    assert {tag for tag in shown if not tag.startswith("speed/")} == tags
    for tag in tags:
        expected = [(line["updates"], line[tag]) for line in logged if tag in line]
        assert [step for step, _ in shown[tag]] == [step for step, _ in expected]
        assert [value for _, value in shown[tag]] == pytest.approx([value for _, value in expected], rel=1e-6)


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    finish(short_config(tmp_path, save_every=1, keep_checkpoints=3), tmp_path / "run", no_plots=True)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["000000010", "000000011", "000000012", "latest"]


def test_a_path_with_spaces_and_letters_of_the_world(tmp_path: Path) -> None:
    folder = tmp_path / "läufe und 走行"
    config = short_config(folder)
    forks().run("train", config, stop_at=3)
    finish(config, folder / "run", no_plots=True)

"""Levels of a run: its own evaluations say which checkpoints are medium, expert or a replay."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from small import SHORT, short_settings

from understudy import Recipe, load_policy, make_dataset, resume, train
from understudy.core.errors import CheckpointError, DataError
from understudy.core.files import read_json
from understudy.core.state import capture
from understudy.data.recipes import RunPolicy
from understudy.run.config import parse_config, read_resolved
from understudy.run.dataset_tiers import level_checkpoints, medium_checkpoint, resolve_recipe
from understudy.run.rundir import RunDir

RETURNS = {2: -100.0, 4: -90.0, 6: -68.0, 8: -10.0, 10: 0.0, 12: -5.0}
"""A third of the way from -100 to 0 is -66.7."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("levels") / "run"
    beats = {"eval_every": 2, "save_every": 2, "keep_checkpoints": 100, "eval_episodes": 1}
    return train(parse_config(short_settings("bc", out, **beats))).path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run of twelve updates with an evaluation and a checkpoint at each second one, and the returns above."""
    copy = shutil.copytree(trained, tmp_path / "run")
    write_returns(copy, RETURNS)
    return copy


def write_returns(run: Path, returns: dict[int, float]) -> None:
    lines = [json.dumps({"updates": updates, "eval/return_mean": value}) for updates, value in returns.items()]
    (run / "eval.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def forget(run: Path, *numbers: int) -> None:
    for number in numbers:
        shutil.rmtree(run / "checkpoints" / f"{number:09d}")


def recipe(run: Path, *checkpoints: str, episodes: int = 6, **settings: Any) -> Recipe:
    behaviours = [{"policy": "run", "run": str(run), "checkpoint": name, **settings} for name in checkpoints]
    return Recipe.parse({"env": SHORT, "episodes": episodes, "behaviours": behaviours})


def numbers(recipe: Recipe) -> list[str]:
    return [behaviour.checkpoint for behaviour in recipe.behaviours if isinstance(behaviour, RunPolicy)]


def test_levels_follow_the_evaluations(run: Path) -> None:
    assert level_checkpoints(run, "last") == [12]
    assert level_checkpoints(run, "medium") == [6]
    assert level_checkpoints(run, "medium-replay") == [2, 4, 6]
    assert level_checkpoints(run, "full-replay") == [2, 4, 6, 8, 10, 12]


def test_expert_is_the_policy_of_the_best_evaluation(trained: Path) -> None:
    lines = [json.loads(line) for line in (trained / "eval.jsonl").read_text(encoding="utf-8").splitlines()]
    best = max(lines, key=lambda line: line["eval/return_mean"])
    assert level_checkpoints(trained, "expert") == level_checkpoints(trained, "best") == [best["updates"]]


def test_of_two_equally_near_the_earlier_is_medium(run: Path) -> None:
    write_returns(run, {2: 0.0, 4: 40.0, 6: 20.0, 8: 90.0})
    assert level_checkpoints(run, "medium") == [4]


def test_a_medium_is_better_than_a_beginner(run: Path) -> None:
    write_returns(run, {2: -90.0, 4: 10.0, 6: 60.0, 8: 0.0})
    assert level_checkpoints(run, "medium") == [8]
    write_returns(run, {2: -90.0, 4: 15.0, 6: 60.0})
    with pytest.raises(CheckpointError, match=r"not near enough: got 15 at update 4, expected a return of about -40"):
        level_checkpoints(run, "medium")
    write_returns(run, {2: -90.0, 4: -40.0, 6: 20.0, 8: 60.0})
    assert level_checkpoints(run, "medium") == [4]
    assert medium_checkpoint(RunDir(run), -30.0) == 6  # where chance earns more than a beginner: a third from there
    with pytest.raises(CheckpointError, match=r"no evaluation beats chance: got 60\.0, expected above 70"):
        medium_checkpoint(RunDir(run), 70.0)


def test_a_medium_that_was_not_kept_is_not_replaced_by_a_better_one(run: Path) -> None:
    forget(run, 2, 4, 6)
    with pytest.raises(CheckpointError, match=r"no medium: .* got -10 at update 8, .* -66\.6667.*keep_checkpoints="):
        level_checkpoints(run, "medium-replay")


def test_a_run_that_never_improved_has_no_medium(run: Path) -> None:
    write_returns(run, {2: 3.0, 4: 1.0, 6: 3.0})
    with pytest.raises(
        CheckpointError, match=r"no medium: none of 3 evaluations beats the first\..*resume .* updates=N"
    ):
        level_checkpoints(run, "medium")
    write_returns(run, {})
    with pytest.raises(CheckpointError, match="no medium: none of 0 evaluations"):
        level_checkpoints(run, "medium")


def test_checkpoints_that_were_not_evaluated_are_not_medium(run: Path) -> None:
    write_returns(run, {3: 0.0, 5: 30.0, 7: 90.0})
    with pytest.raises(CheckpointError, match=r"no checkpoint was kept where it was evaluated.*save_every"):
        level_checkpoints(run, "medium")


def test_a_replay_of_nothing_is_told(run: Path) -> None:
    forget(run, *RETURNS)
    with pytest.raises(CheckpointError, match="has no checkpoints yet"):
        level_checkpoints(run, "full-replay")


def test_a_policy_folder_has_no_history(run: Path) -> None:
    assert level_checkpoints(run / "policy" / "final", "last") == [12]
    with pytest.raises(CheckpointError, match="has no history for 'medium'"):
        level_checkpoints(run / "policy" / "final", "medium")


def test_a_replay_gives_every_checkpoint_the_same_share(run: Path) -> None:
    resolved = resolve_recipe(recipe(run, "medium-replay", "expert", episodes=14))
    assert numbers(resolved)[:3] == ["2", "4", "6"]
    assert resolved.counts() == [3, 2, 2, 7]
    assert make_dataset(resolved).episodes == 14


@pytest.mark.parametrize(
    ("episodes", "expected"),
    [(1, ["2"]), (2, ["2", "12"]), (3, ["2", "6", "12"]), (6, ["2", "4", "6", "8", "10", "12"])],
)
def test_few_episodes_are_spread_over_the_whole_history(run: Path, episodes: int, expected: list[str]) -> None:
    resolved = resolve_recipe(recipe(run, "full-replay", episodes=episodes))
    assert numbers(resolved) == expected
    assert resolved.counts() == [1] * len(expected)


def test_resolving_twice_is_resolving_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    once = resolve_recipe(recipe(Path("run"), "medium-replay", "expert", "last", "4"))
    assert resolve_recipe(once) == once
    assert {behaviour.run for behaviour in once.behaviours if isinstance(behaviour, RunPolicy)} == {str(run)}
    assert resolve_recipe(Recipe.parse(once.model_dump(mode="json"))) == once


def test_levels_play_what_their_numbers_play(run: Path) -> None:
    by_level, by_number = make_dataset(recipe(run, "medium")), make_dataset(recipe(run, "6"))
    assert by_level.fingerprint == by_number.fingerprint
    assert by_level.fingerprint != make_dataset(recipe(run, "12")).fingerprint


def test_a_later_checkpoint_changes_a_level_and_no_resolved_recipe(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    words = recipe(run, "last", episodes=1)
    resolved = resolve_recipe(words)
    before = make_dataset(resolved).fingerprint
    assert before == make_dataset(words).fingerprint
    resume(run, updates=14)
    assert make_dataset(resolved).fingerprint == before
    assert make_dataset(words).fingerprint != before


def test_a_run_writes_down_the_numbers_it_learned_from(run: Path, tmp_path: Path) -> None:
    words = recipe(run, "medium-replay", "expert", episodes=4).model_dump(mode="json")
    learned = train(parse_config(short_settings("bc", tmp_path / "next", data={"recipe": words})))
    stored = read_resolved(learned.path / "config.yaml").logged
    assert stored.recipe == resolve_recipe(Recipe.parse(words))
    assert stored.recipe is not None
    assert make_dataset(stored.recipe).fingerprint == stored.fingerprint


def test_the_best_policy_answers_to_its_number_after_its_checkpoint_is_gone(run: Path) -> None:
    number = level_checkpoints(run, "best")[0]
    kept = capture(load_policy(run, number))
    forget(run, number)
    alone = capture(load_policy(run, number))
    assert kept.keys() == alone.keys()
    assert all(torch.equal(torch.as_tensor(kept[name]), torch.as_tensor(alone[name])) for name in kept)
    with pytest.raises(CheckpointError, match=r"no such checkpoint. There are: "):
        load_policy(run, 99)


def test_a_policy_folder_answers_to_its_own_number_only(run: Path) -> None:
    folder = run / "policy" / "final"
    assert read_json(folder / "policy.json")["facts"]["updates"] == 12
    load_policy(folder, 12)
    with pytest.raises(CheckpointError, match="of another update: got 12, expected 11"):
        load_policy(folder, 11)


def test_a_policy_of_another_world_is_refused(run: Path) -> None:
    words = recipe(run, "4").model_copy(update={"env": "MountainCarContinuous-v0"})
    with pytest.raises(DataError, match=r"its policy does not fit environment 'MountainCarContinuous-v0': got .*state"):
        make_dataset(words)

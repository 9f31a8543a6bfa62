"""dataset corrupt as a shell sees it: what it writes in every format, what it remembers, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import complaint, config_file, understudy

from understudy.data.corruption import COLUMN, Corruption, corrupt, corruptions_in
from understudy.data.formats.readers import open_recording
from understudy.data.stores.store import open_store, store_recipe, write_store
from understudy.tools.dataset.conversion import convert_file, corrupt_file
from worlds import random_choices, random_dataset, real_data

FLIP = ("kind=reward_flip", "share=0.25", "seed=3")


def store(path: Path) -> Path:
    return write_store(random_dataset(), path, {"made": "by hand"})


@pytest.mark.parametrize("words", [("store",), ("flat.npz",), ("flat.hdf5",), ("minari", "--minari", "mine/x-v0")])
def test_every_format_holds_the_same(tmp_path: Path, words: tuple[str, ...]) -> None:
    source = store(tmp_path / "source")
    spoken = understudy("dataset", "corrupt", source, tmp_path / "out" / words[0], *FLIP, *words[1:])
    assert spoken.code == 0, spoken
    assert "Corrupted on purpose: reward_flip, strength 1, 30 of 120 rows (share 0.25, seed 3), from " in spoken.out
    assert "corrupting source: 120/120 steps" in spoken.err
    path = tmp_path / "out" / words[0]
    episodes = list(open_recording(path / "mine" / "x-v0" if len(words) > 1 else path).episodes())
    expected = list(corrupt(open_store(source), "reward_flip", share=0.25, seed=3).episodes())
    for got, wanted in zip(episodes, expected, strict=True):
        np.testing.assert_array_equal(got.rewards, wanted.rewards)
        np.testing.assert_array_equal(got.actions, wanted.actions)
        np.testing.assert_array_equal(got.observations["state"], wanted.observations["state"])
        np.testing.assert_array_equal(got.extra[COLUMN], wanted.extra[COLUMN])
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == [words[0]]


@pytest.mark.parametrize("kind", ["reward_flip", "dynamics_shuffle"])
def test_any_source_gives_the_same(tmp_path: Path, kind: str) -> None:
    source = store(tmp_path / "source")
    corruption = Corruption.parse({"kind": kind, "share": 0.25})
    expected, _ = corrupt_file(str(source), tmp_path / "expected", corruption)
    for name in ("flat.npz", "flat.hdf5"):
        convert_file(str(source), tmp_path / name)
        done, _ = corrupt_file(str(tmp_path / name), tmp_path / f"from_{name[-3:]}", corruption)
        assert done.fingerprint == expected.fingerprint
        (told,) = corruptions_in(store_recipe(done.path))
        assert told.original == open_store(source).fingerprint
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".")]


def test_a_store_remembers_and_inspect_shows_it(tmp_path: Path) -> None:
    source = store(tmp_path / "source")
    assert understudy("dataset", "corrupt", source, tmp_path / "once", *FLIP, "--quiet").out == ""
    more = ("kind=action_noise", "share=0.1", "strength=0.5")
    assert understudy("dataset", "corrupt", tmp_path / "once", tmp_path / "twice", *more).code == 0
    recipe = store_recipe(tmp_path / "twice")
    assert recipe["made"] == "by hand"
    first, second = corruptions_in(recipe)
    assert (first.kind, first.share, first.seed, first.rows) == ("reward_flip", 0.25, 3, 30)
    assert first.original == open_store(source).fingerprint
    assert (second.kind, second.strength, second.rows) == ("action_noise", 0.5, 12)
    assert second.original == open_store(tmp_path / "once").fingerprint
    shown = understudy("dataset", "inspect", tmp_path / "twice").out
    assert "Corrupted on purpose: reward_flip" in shown
    assert "Corrupted on purpose: action_noise" in shown
    assert "extra.corrupted" in shown
    seen = json.loads(understudy("dataset", "inspect", tmp_path / "twice", "--json").out)
    assert len(seen["notes"]) == 2
    assert understudy("dataset", "convert", tmp_path / "twice", tmp_path / "copy").code == 0
    assert corruptions_in(store_recipe(tmp_path / "copy")) == [first, second]


def test_a_run_knows_what_it_learned_from(tmp_path: Path) -> None:
    config = config_file(tmp_path / "x.yaml", tmp_path / "unused")
    assert understudy("collect", config, "--out", tmp_path / "data", "--quiet").code == 0
    assert understudy("dataset", "corrupt", tmp_path / "data", tmp_path / "wrong", *FLIP, "--quiet").code == 0
    changes = {"data": {"path": str(tmp_path / "wrong")}, "eval_every": 20, "eval_episodes": 1}
    spoken = understudy("train", config_file(tmp_path / "y.yaml", tmp_path / "run", "bc", **changes), "--quiet")
    assert spoken.code == 0, spoken
    (told,) = corruptions_in(json.loads((tmp_path / "run" / "meta.json").read_text())["dataset"])
    assert (told.kind, told.rows, told.original) == ("reward_flip", 100, open_store(tmp_path / "data").fingerprint)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("kind=reward", "share=0.1"), 2, "kind: wrong value: got 'reward', expected 'reward_noise'"),
        (("kind=reward_flip", "share=0"), 2, "share: wrong value: got 0, expected greater than 0"),
        (("kind=reward_flip", "share=1.5"), 2, "share: wrong value: got 1.5, expected less than or equal to 1"),
        (("kind=reward_flip", "share=x"), 2, "share: wrong value: got 'x'"),
        (("share=0.1",), 2, "kind: is required"),
        (("reward_flip",), 2, "'reward_flip': not a setting: expected key=value"),
        (("kind=action_replace", "share=0.1", "strength=1"), 2, "action_replace has no strength"),
        (("kind=reward_flip", "share=0.1", "time_limit=5"), 2, "time_limit: is a transform. Mend the data first"),
        (("kind=action_noise", "share=0.1"), 1, "action_noise is Gaussian, for continuous actions: got one of 4"),
    ],
)
def test_mistakes_are_told_and_leave_nothing(tmp_path: Path, words: tuple[str, ...], code: int, sentence: str) -> None:
    source = write_store(random_choices(), tmp_path / "source")
    assert sentence in complaint("dataset", "corrupt", source, tmp_path / "out", *words, code=code)
    assert [entry.name for entry in tmp_path.iterdir()] == ["source"]


def test_a_target_that_exists_and_a_source_that_does_not(tmp_path: Path) -> None:
    source = store(tmp_path / "source")
    (tmp_path / "flat.npz").write_bytes(b"mine")
    for target in ("source", "flat.npz"):
        told = complaint("dataset", "corrupt", source, tmp_path / target, *FLIP, code=1)
        assert told.startswith(f"{tmp_path / target}: already exists.")
    assert (tmp_path / "flat.npz").read_bytes() == b"mine"
    assert "unknown format" in complaint("dataset", "corrupt", source, tmp_path / "x.csv", *FLIP, code=2)
    assert "no such file" in complaint("dataset", "corrupt", tmp_path / "none", tmp_path / "x", *FLIP, code=1)


def test_a_failure_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    """Noise beyond float32 is found while rows are written."""
    source = store(tmp_path / "source")
    convert_file(str(source), tmp_path / "flat.npz")
    for name in ("source", "flat.npz"):
        words = ("kind=reward_noise", "share=0.5", "strength=1.0e+300")
        told = complaint("dataset", "corrupt", tmp_path / name, tmp_path / "out", *words, "--quiet", code=1)
        assert f"dataset '{tmp_path / name}', episode 0, rewards, row" in told
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["flat.npz", "source"]


def test_a_real_file_needs_only_its_environment(tmp_path: Path) -> None:
    source = real_data("pendulum_medium.npz")
    words = ("kind=reward_attack", "share=0.1", "--env", "Pendulum-v1", "--quiet")
    assert understudy("dataset", "corrupt", source, tmp_path / "wrong", *words).code == 0
    assert understudy("dataset", "convert", source, tmp_path / "clean", "--env", "Pendulum-v1", "--quiet").code == 0
    wrong, clean = open_store(tmp_path / "wrong"), open_store(tmp_path / "clean")
    (told,) = corruptions_in(store_recipe(tmp_path / "wrong"))
    assert told.original == clean.fingerprint
    assert wrong.env == "Pendulum-v1"
    chosen = wrong.extra[COLUMN]
    assert int(chosen.sum()) == round(0.1 * clean.steps)
    assert (wrong.rewards[~chosen] == clean.rewards[~chosen]).all()
    assert clean.rewards[chosen].min() >= clean.rewards[~chosen].max()

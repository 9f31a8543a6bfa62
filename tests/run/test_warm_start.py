"""A run that starts from another run's policy: exactly that policy, its normaliser included, or a clear refusal."""

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forks import finish, forks
from rich.console import Console
from small import content, short_config, short_settings, write_settings

import understudy as us
from learners import differences
from understudy.core.errors import CheckpointError
from understudy.core.state import capture
from understudy.run.build import build_learner
from understudy.run.config import parse_config
from understudy.run.policy_file import save_policy
from understudy.run.progress import SILENT, Reporter
from understudy.run.warm_start import take_over
from worlds import pendulum_recipe, tiny_config

OBSERVATIONS = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> us.Run:
    return us.train(tiny_config("bc", tmp_path_factory.mktemp("runs") / "bc"))


def heir(out: Path, **changes: Any) -> us.RunConfig:
    return tiny_config("iql", out, **changes)


def test_it_starts_as_the_other_ended(cloned: us.Run, tmp_path: Path) -> None:
    """On other data, whose normaliser would be another one."""
    recipe = pendulum_recipe(seed=99).model_dump(mode="json")
    learner = build_learner(heir(tmp_path, data={"recipe": recipe}))
    before = us.predict(learner.policy, OBSERVATIONS)
    take_over(learner.algorithm, tiny_config("iql", tmp_path), str(cloned.path), "", SILENT)
    np.testing.assert_array_equal(us.predict(learner.policy, OBSERVATIONS), cloned.predict(OBSERVATIONS))
    assert not np.array_equal(before, cloned.predict(OBSERVATIONS))


def test_a_whole_run_inherits_and_goes_on(cloned: us.Run, tmp_path: Path) -> None:
    run = us.train(heir(tmp_path / "iql", init_from=str(cloned.path)))
    plain = us.train(heir(tmp_path / "plain"))
    assert run.result["updates"] == 60
    assert not np.array_equal(run.predict(OBSERVATIONS), plain.predict(OBSERVATIONS))
    assert run.config.init_from == str(cloned.path)


def test_resuming_needs_no_ancestor(cloned: us.Run, tmp_path: Path) -> None:
    """A constant learning rate, so that the shorter run is the beginning of the longer one."""
    algo = {
        "name": "iql",
        "actor_optimizer": {"schedule": "constant"},
        "actor": {"hidden": [16, 16]},
        "critic": {"hidden": [16, 16]},
    }
    save_policy(us.load_policy(cloned.path), tmp_path / "policy", {})
    whole = us.train(heir(tmp_path / "whole", init_from=str(tmp_path / "policy"), algo=algo))
    us.train(heir(tmp_path / "parts", init_from=str(tmp_path / "policy"), algo=algo, updates=40))
    shutil.rmtree(tmp_path / "policy")
    parts = us.resume(tmp_path / "parts", updates=60)
    assert differences(capture(whole.policy()), capture(parts.policy())) == []


@pytest.fixture(scope="module")
def ancestors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two policies of one shape."""
    folder = tmp_path_factory.mktemp("ancestors")
    actor = short_settings("iql", folder)["algo"]["actor"]
    for seed in (1, 2):
        settings = short_settings("bc", folder / str(seed), seed=seed, updates=4, algo={"name": "bc", "actor": actor})
        finish(write_settings(folder / f"{seed}.yaml", settings), folder / str(seed), no_plots=True)
    return folder / "1" / "policy" / "final", folder / "2" / "policy" / "final"


@pytest.mark.parametrize("stages", [[], [{"algo": {"name": "bc"}, "updates": 4}]], ids=["alone", "with a stage"])
def test_killed_before_the_first_save_it_goes_on_from_the_same_ancestor(
    ancestors: tuple[Path, Path], tmp_path: Path, stages: list[dict[str, Any]]
) -> None:
    """Whenever it is killed: from the moment its config is there, it starts from that policy or not at all."""
    origin, run = tmp_path / "origin", tmp_path / "run"
    config = short_config(tmp_path, init_from=str(origin), stages=stages)
    whole = short_config(tmp_path, name="whole", init_from=str(origin), stages=stages)
    shutil.copytree(ancestors[0], origin)
    finish(whole, tmp_path / "whole", no_plots=True)
    born = 0
    for moment in range(1, 40):
        shutil.rmtree(run, ignore_errors=True)
        assert forks().run("train", config, die_at=moment).code == -signal.SIGKILL
        born += (run / "config.yaml").exists()
        if born not in (1, 2, 6):  # without meta.json, with half of it, with all
            continue
        shutil.rmtree(origin)
        shutil.copytree(ancestors[1], origin)
        ending = forks().run("resume", run)
        assert ending.code == 1
        assert f"init_from '{origin}': holds another policy than this run was started from: got " in ending.err
        shutil.rmtree(origin)
        shutil.copytree(ancestors[0], origin)
        if born == 6:
            break
    finish(config, run, no_plots=True)
    assert content(run) == content(tmp_path / "whole")


@pytest.mark.usefixtures("no_plots")
def test_a_config_that_names_its_ancestor_takes_no_other(ancestors: tuple[Path, Path], tmp_path: Path) -> None:
    first = us.train(parse_config(short_settings("iql", tmp_path / "first", init_from=str(ancestors[0]))))
    again = first.config.model_copy(update={"out": str(tmp_path / "again"), "init_from": str(ancestors[1])})
    with pytest.raises(CheckpointError, match=r"another policy than this run was started from: got .*, expected "):
        us.train(again)
    copy = shutil.copytree(ancestors[0], tmp_path / "copy")
    us.train(again.model_copy(update={"init_from": str(copy)}))
    assert content(tmp_path / "first") == content(tmp_path / "again")


def test_what_was_taken_over_is_told(cloned: us.Run, tmp_path: Path) -> None:
    console = Console(record=True, width=500)
    learner = build_learner(heir(tmp_path))
    take_over(learner.algorithm, tiny_config("iql", tmp_path), str(cloned.path), "", Reporter(console=console))
    assert "taken over: policy (" in console.export_text()


@pytest.mark.parametrize(
    ("actor", "told"),
    [
        ({"hidden": [8, 8]}, r"\(hidden\): got hidden \[16, 16\], expected hidden \[8, 8\]"),
        (
            {"hidden": [16, 16], "distribution": "tanh_gaussian"},
            r"\(distribution\): got distribution tanh_mean",
        ),
        ({"hidden": [16, 16], "activation": "tanh"}, r"\(activation\): got activation relu, expected activation tanh"),
    ],
)
def test_another_shape_is_refused(cloned: us.Run, tmp_path: Path, actor: dict[str, Any], told: str) -> None:
    learner = build_learner(heir(tmp_path, algo={"name": "iql", "actor": actor}))
    before = capture(learner.algorithm)
    with pytest.raises(CheckpointError, match=told):
        take_over(learner.algorithm, tiny_config("iql", tmp_path), str(cloned.path), "", SILENT)
    assert differences(before, capture(learner.algorithm)) == []


def test_a_policy_of_another_world_is_refused(cloned: us.Run, tmp_path: Path) -> None:
    recipe = {"env": "MountainCarContinuous-v0", "episodes": 1, "behaviours": [{"policy": "random"}]}
    learner = build_learner(heir(tmp_path, data={"recipe": recipe}, env={"id": "MountainCarContinuous-v0"}))
    with pytest.raises(CheckpointError, match="is a policy of something else"):
        take_over(learner.algorithm, tiny_config("iql", tmp_path), str(cloned.path), "", SILENT)


def test_no_such_run(tmp_path: Path) -> None:
    with pytest.raises(us.UnderstudyError, match="nowhere"):
        us.train(heir(tmp_path / "x", init_from=str(tmp_path / "nowhere")))

"""A run that starts from another run's policy: exactly that policy, its normaliser included, or a clear refusal."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import understudy as us
from learners import differences, offline_learner
from understudy.core.errors import CheckpointError
from understudy.core.state import capture
from understudy.run.inherit import inherit_policy
from understudy.run.policy_file import save_policy
from understudy.run.progress import SILENT, Reporter
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
    learner = offline_learner(heir(tmp_path, data={"recipe": recipe}))
    before = us.predict(learner.policy, OBSERVATIONS)
    inherit_policy(learner.algorithm, str(cloned.path), SILENT)
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
    algo = {"name": "iql", "actor_schedule": "constant", "actor": {"hidden": [16, 16]}, "critic": {"hidden": [16, 16]}}
    save_policy(us.load_policy(cloned.path), tmp_path / "policy", {})
    whole = us.train(heir(tmp_path / "whole", init_from=str(tmp_path / "policy"), algo=algo))
    us.train(heir(tmp_path / "parts", init_from=str(tmp_path / "policy"), algo=algo, steps=40))
    shutil.rmtree(tmp_path / "policy")
    parts = us.resume(tmp_path / "parts", steps=60)
    assert differences(capture(whole.policy()), capture(parts.policy())) == []


def test_what_was_taken_over_is_told(cloned: us.Run, tmp_path: Path) -> None:
    console = Console(record=True, width=500)
    learner = offline_learner(heir(tmp_path))
    inherit_policy(learner.algorithm, str(cloned.path), Reporter(console=console))
    assert "tensors taken over" in console.export_text()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"algo": {"name": "iql", "actor": {"hidden": [8, 8]}}}, "its network has another shape"),
        ({"algo": {"name": "iql", "actor": {"hidden": [16, 16], "head": "squashed"}}}, "another shape"),
    ],
)
def test_another_shape_is_refused(cloned: us.Run, tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    learner = offline_learner(heir(tmp_path, **changes))
    before = capture(learner.algorithm)
    with pytest.raises(CheckpointError, match=told):
        inherit_policy(learner.algorithm, str(cloned.path), SILENT)
    assert differences(before, capture(learner.algorithm)) == []


def test_a_policy_of_another_world_is_refused(cloned: us.Run, tmp_path: Path) -> None:
    recipe = {"env": "MountainCarContinuous-v0", "episodes": 1, "behaviours": [{"policy": "random"}]}
    learner = offline_learner(heir(tmp_path, data={"recipe": recipe}, env={"id": "MountainCarContinuous-v0"}))
    with pytest.raises(CheckpointError, match="is a policy of something else"):
        inherit_policy(learner.algorithm, str(cloned.path), SILENT)


def test_no_such_run(tmp_path: Path) -> None:
    with pytest.raises(us.UnderstudyError, match="nowhere"):
        us.train(heir(tmp_path / "x", init_from=str(tmp_path / "nowhere")))

"""Tensors of a checkpoint can be changed: into a new run that works like any, or in place where that is asked for."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

import understudy as us
from understudy.core.errors import CheckpointError, ConfigError, RunError
from understudy.core.files import read_json, sha256_file
from understudy.run.checkpoint import load_checkpoint
from understudy.run.policies import find_checkpoint
from understudy.run.rundir import RunDir
from understudy.tools.checkpoint_edits import checkpoint_tensors
from worlds import tiny_config

pytestmark = pytest.mark.usefixtures("no_plots")

LAYER = "algorithm.policy.trunk.0.weight"
LAST = "algorithm.policy.trunk.1.bias"


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> us.Run:
    return us.train(tiny_config("bc", tmp_path_factory.mktemp("runs") / "a", seed=1), progress=False)


@pytest.fixture
def own(tmp_path: Path) -> us.Run:
    return us.train(tiny_config("bc", tmp_path / "own"), progress=False)


def files(run: Path) -> dict[str, str]:
    found = (path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(run)): sha256_file(path) for path in found}


def tensors(run: us.Run) -> dict[str, torch.Tensor]:
    return checkpoint_tensors(find_checkpoint(RunDir.open(run.path), "last"))


def halve(named: dict[str, torch.Tensor]) -> None:
    named[LAYER] *= 0.5
    named[LAST] = torch.full_like(named[LAST], 0.25)


def test_a_new_run_has_the_change_and_the_old_one_is_as_it_was(learned: us.Run, tmp_path: Path) -> None:
    before, was = files(learned.path), tensors(learned)
    run = us.edit_checkpoint(learned, halve, out=tmp_path / "new" / "run")
    assert files(learned.path) == before
    now = tensors(run)
    changed = [name for name in was if not torch.equal(was[name], now[name])]
    assert changed == [LAYER, LAST]
    assert torch.equal(now[LAYER], was[LAYER] / 2)
    (edit,) = read_json(run.path / "meta.json")["edits"]
    assert (edit["changed"], edit["of"]) == (changed, str(learned.path / "checkpoints" / edit["of"][-9:]))
    assert edit["sha256"] == before[f"checkpoints/{edit['of'][-9:]}/state.safetensors"]
    assert run.result["stopped"] == "killed"
    again = us.resume(run.path, updates=run.result["updates"] + 2, progress=False)
    assert again.result["updates"] == learned.result["updates"] + 2
    assert us.edit_checkpoint(again, halve, out=tmp_path / "third").path.is_dir()


def test_in_place_it_is_replaced_with_the_final_policy(own: us.Run) -> None:
    best = files(own.path / "policy" / "best")
    us.edit_checkpoint(own, halve, in_place=True)
    path = find_checkpoint(RunDir.open(own.path), "last").path
    assert load_checkpoint(path.parent, int(path.name)).facts["edits"][0]["changed"] == [LAYER, LAST]
    final, last = us.load_policy(own.path / "policy" / "final"), own.policy()
    assert isinstance(final, us.Actor)
    assert isinstance(last, us.Actor)
    for mine, theirs in zip(final.state_dict().values(), last.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)
    assert files(own.path / "policy" / "best") == best
    assert not [path for path in own.path.rglob(".*") if path.name != ".lock"]


def put(name: str, value: Any) -> Callable[[dict[str, torch.Tensor]], object]:
    return lambda named: named.update({name: value})


REFUSED: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "shape": (put(LAYER, torch.zeros(3)), r"trunk\.0\.weight: has another shape: got \[3\].*init_mismatch"),
    "unknown": (put(LAYER + "s", torch.zeros(3)), r"no tensor 'algorithm\.policy\.trunk\.0\.weights'\. Did you mean"),
    "gone": (lambda named: named.pop(LAYER), "is gone"),
    "kind": (put(LAST, torch.zeros(16, dtype=torch.int64)), "another kind of numbers: got torch.int64"),
    "nan": (lambda named: named[LAYER].fill_(torch.nan), "would not be finite any more"),
    "nothing": (lambda named: None, "nothing would be changed"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_may_not_stand_there_is_refused_and_nothing_is_written(learned: us.Run, tmp_path: Path, what: str) -> None:
    change, sentence = REFUSED[what]
    before = files(learned.path)
    for place in ({"out": tmp_path / "new"}, {"in_place": True}):
        with pytest.raises(CheckpointError, match=sentence):
            us.edit_checkpoint(learned, change, **place)
    assert files(learned.path) == before
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_what_was(learned: us.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(learned.path)

    def full(path: Path, content: bytes) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("understudy.run.checkpoint.write_new", full)
    for place in ({"out": tmp_path / "new"}, {"in_place": True}):
        with pytest.raises(CheckpointError, match="could not be written"):
            us.edit_checkpoint(learned, halve, **place)
    assert files(learned.path) == before
    assert not list(tmp_path.iterdir())


def test_a_place_must_be_said_and_be_free(learned: us.Run) -> None:
    with pytest.raises(ConfigError, match=r"no place for what comes out\. Give out=<a new folder>"):
        us.edit_checkpoint(learned, halve)
    with pytest.raises(RunError, match="already holds a finished run"):
        us.edit_checkpoint(learned, halve, out=learned.path)


def test_large_state_goes_along(tmp_path: Path) -> None:
    source = {"kind": "replay", "batch_size": 4, "buffer_size": 16, "learning_starts": 20, "utd_ratio": 0.2}
    run = us.train(tiny_config("sac", tmp_path / "a", source=source, data=None, updates=4), progress=False)
    new = us.edit_checkpoint(run, lambda named: named[LAYER].mul_(0.5), out=tmp_path / "b")
    assert list((new.path / "checkpoints" / "segments").iterdir())
    assert us.resume(new.path, updates=run.result["updates"] + 2, progress=False).result["updates"] > 2

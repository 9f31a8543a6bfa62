"""`understudy checkpoint` lists tensors, changes them in a new run, and asks before it does so in place."""

from pathlib import Path

import pytest
import torch
from command_line import complaint, understudy

import understudy as us
from understudy.core.files import sha256_file
from understudy.run.policies import find_checkpoint
from understudy.run.rundir import RunDir
from understudy.tools.checkpoint_edits import checkpoint_tensors
from worlds import tiny_config

pytestmark = pytest.mark.usefixtures("no_plots")

LAYER = "algorithm.policy.trunk.0.weight"
LAST = "algorithm.policy.trunk.1.bias"


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return checkpoint_tensors(find_checkpoint(RunDir.open(path), "last"))


def files(run: Path) -> dict[str, str]:
    found = (path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(run)): sha256_file(path) for path in found}


def test_the_command_lists_changes_and_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, learned = (us.train(tiny_config("bc", tmp_path / str(seed), seed=seed), progress=False) for seed in (0, 1))
    listed = understudy("checkpoint", own.path).out
    assert LAYER in listed
    assert "mean" in listed
    was, theirs = tensors(own.path), tensors(learned.path)
    spoken = understudy(
        *("checkpoint", own.path, "--out", tmp_path / "new"),
        *("--set", f"{LAST}=0.5", "--scale", f"{LAYER}=2", "--take", f"algorithm.policy.trunk.*.weight={learned.path}"),
    )
    assert spoken.code == 0, spoken
    assert f"changed {LAYER}\n" in spoken.out
    now = tensors(tmp_path / "new")
    assert torch.equal(now[LAYER], 2 * theirs[LAYER])
    assert bool((now[LAST] == 0.5).all())
    assert torch.equal(now["algorithm.policy.trunk.0.bias"], was["algorithm.policy.trunk.0.bias"])
    before = files(own.path)
    monkeypatch.setattr("typer.confirm", lambda *words, **options: False)
    words = ("checkpoint", own.path, "--set", f"{LAST}=0.5", "--in-place")
    assert "not confirmed; nothing was changed" in complaint(*words, code=2)
    assert files(own.path) == before
    assert understudy(*words, "--yes").code == 0
    assert bool((tensors(own.path)[LAST] == 0.5).all())
    for wrong, sentence in (
        (("--set", "policy=1", "--out", "x"), "--set policy: no tensor has such a name."),
        (("--set", f"{LAST}=nan", "--out", "x"), "not a number: got 'nan'"),
        (("--set", LAST, "--out", "x"), "not a change: got"),
        (("--out", "x"), "nothing to change. Give --set, --scale or --take."),
        (("--set", f"{LAST}=1"), "no place for what comes out"),
    ):
        assert sentence in complaint("checkpoint", own.path, *wrong, code=2)

"""A run goes on only as what it was: same settings, same data, same versions, or a refusal that says why."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forks import Ending, finish, forks
from small import SHORT, content, short_config

from understudy.core.files import seal
from understudy.run.checkpoint import list_checkpoints


def stopped(folder: Path, updates: int = 5, **changes: Any) -> Path:
    forks().run("train", short_config(folder, **changes), stop_at=updates)
    return folder / "run"


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def refusal(run: Path, *words: str) -> str:
    """The one line with which resume refuses; nothing in the directory may have changed."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    ending: Ending = forks().run("resume", run, "--quiet", *words)
    assert ending.code != 0
    assert len(ending.err.splitlines()) == 1, ending.err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"} == before
    return ending.err


EDITS = {
    "recipe seed": ("seed: 7\n", "seed: 8\n"),
    "fingerprint": ("fingerprint: ", "fingerprint: 00"),
    "algorithm": ("expectile: 0.7", "expectile: 0.8"),
    "batch": ("batch_size: 8", "batch_size: 9"),
    "beat": ("log_every: 2", "log_every: 3"),
    "threads": ("threads: 1", "threads: 2"),
}


@pytest.mark.parametrize("change", EDITS)
def test_an_edited_config_is_refused(change: str, tmp_path: Path) -> None:
    run = stopped(tmp_path)
    edit(run / "config.yaml", *EDITS[change])
    assert "was written with other settings than config.yaml holds now. Restore config.yaml." in refusal(run)


@pytest.mark.parametrize("change", EDITS)
def test_an_edited_config_is_refused_before_the_first_save_too(change: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    forks().run("train", short_config(tmp_path), die_at=20)
    assert (run / "config.yaml").exists()
    assert list_checkpoints(run / "checkpoints") == []
    edit(run / "config.yaml", *EDITS[change])
    assert "was written with other settings than config.yaml holds now" in refusal(run)


def test_a_config_that_is_no_config_any_more(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    edit(run / "config.yaml", "steps: 12", "stps: 12")
    assert refusal(run) == "stps: no such setting. Did you mean 'steps'?\n"


def write_recording(path: Path, reward: float) -> None:
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1, 1, (20, 3)).astype(np.float32)
    np.savez(
        path,
        observations=observations,
        actions=rng.uniform(-1, 1, (20, 1)).astype(np.float32),
        rewards=np.full(20, reward, np.float32),
        terminals=np.zeros(20, bool),
        timeouts=np.arange(1, 21) % 10 == 0,
    )


def test_other_data_under_the_same_name_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    write_recording(data, 1.0)
    run = stopped(tmp_path, data={"path": str(data)}, env={"id": SHORT})
    write_recording(data, 1.5)
    message = refusal(run)
    assert message.startswith(f"data.fingerprint: '{data}' holds other content than this run was started with: got ")
    assert "Nothing was changed." in message
    write_recording(data, 1.0)
    finish(tmp_path / "run.yaml", run, no_plots=True)


def pretend_version(run: Path, package: str, version: str) -> None:
    """Rewrite and reseal the newest manifest as another version of a package would have written it."""
    file = run / "checkpoints" / f"{list_checkpoints(run / 'checkpoints')[-1]:09d}" / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["seal"]
    manifest["facts"]["versions"][package] = version
    file.write_bytes(seal(manifest))


def test_other_versions_need_consent(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    pretend_version(run, "torch", "1.0.0")
    message = refusal(run)
    assert "was written with other versions (torch 1.0.0 → " in message
    assert "understudy resume --accept-versions." in message
    accepted = forks().run("resume", run, "--accept-versions", no_plots=True)
    assert accepted.code == 0, accepted.err
    assert "accepted other versions: torch 1.0.0 → " in accepted.err
    finish(short_config(tmp_path, name="whole"), tmp_path / "whole", no_plots=True)
    assert content(run) == content(tmp_path / "whole")


def test_only_steps_can_change_on_resume(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    assert refusal(run, "seed=1") == "seed: cannot change on resume. Only steps=N can; start a new run for the rest.\n"
    assert refusal(run, "steps=many") == "steps: wrong value: got 'many', expected a whole number.\n"

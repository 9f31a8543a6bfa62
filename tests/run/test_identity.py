"""A run goes on only as what it was: same settings, same data, same versions, or a refusal that says why."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
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
    "recipe seed": ("seed: 7\n", "seed: 8\n", "data.recipe.seed is 8 in config.yaml and 7"),
    "algorithm": ("expectile: 0.7", "expectile: 0.8", "algo.expectile is 0.8 in config.yaml and 0.7"),
    "layers": ("- 8\n", "- 9\n", "algo.actor.hidden is [9] in config.yaml and [8]"),
    "batch": ("batch_size: 8", "batch_size: 9", "source.batch_size is 9 in config.yaml and 8"),
    "beat": ("log_every: 2", "log_every: 3", "log_every is 3 in config.yaml and 2"),
    "threads": ("threads: 1", "threads: 2", "threads is 2 in config.yaml and 1"),
    "fingerprint": ("fingerprint: ", "fingerprint: 00", 'data.fingerprint is "00'),
}
"""What was there, what is there now, and how the difference is told."""


def refuses_edits(run: Path, where: str, holder: str) -> None:
    """One by one, and all of them at once."""
    original = (run / "config.yaml").read_text()
    told = f"{where}: was written with other settings than config.yaml holds now: "
    for old, new, difference in EDITS.values():
        edit(run / "config.yaml", old, new)
        message = refusal(run)
        assert message.startswith(told)
        assert difference in message
        assert message.endswith(f" in {holder}. Restore config.yaml.\n")
        (run / "config.yaml").write_text(original)
    for old, new, _ in EDITS.values():
        edit(run / "config.yaml", old, new)
    message = refusal(run)
    assert all(difference in message for _, _, difference in EDITS.values())
    (run / "config.yaml").write_text(original)


def test_an_edited_config_is_refused_and_every_difference_told(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    refuses_edits(run, f"checkpoint '{run / 'checkpoints' / '000000005'}'", "the checkpoint")
    finish(tmp_path / "run.yaml", run, no_plots=True)


def test_an_edited_config_is_refused_before_the_first_save_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    forks().run("train", short_config(tmp_path), die_at=20)
    assert (run / "config.yaml").exists()
    assert list_checkpoints(run / "checkpoints") == []
    refuses_edits(run, f"run '{run}'", "meta.json")
    finish(tmp_path / "run.yaml", run, no_plots=True)


def test_what_decides_no_byte_may_be_edited(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    edit(run / "config.yaml", "keep_checkpoints: 5", "keep_checkpoints: 2")
    edit(run / "config.yaml", f"out: {run}", "out: elsewhere")
    finish(tmp_path / "run.yaml", run, no_plots=True)
    assert list_checkpoints(run / "checkpoints") == [8, 12]


def refuses_steps(run: Path, old: int, new: int, told: str) -> None:
    """Edited by hand; the sentence says how to do it."""
    original = (run / "config.yaml").read_text()
    edit(run / "config.yaml", f"\nupdates: {old}\n", f"\nupdates: {new}\n")
    assert refusal(run) == (
        f"run '{run}': config.yaml was edited by hand: {told}. "
        f"Restore config.yaml; to change updates: understudy resume {run} updates={new}\n"
    )
    (run / "config.yaml").write_text(original)


def test_steps_edited_by_hand_are_noticed(tmp_path: Path) -> None:
    """After a save, before the first, before meta.json was written, and after another number was agreed on."""
    run = stopped(tmp_path)
    refuses_steps(run, 12, 20, "updates is 20 in config.yaml and 12 in the checkpoint")
    newborn = tmp_path / "newborn"
    forks().run("train", short_config(tmp_path, name="newborn"), die_at=20)
    refuses_steps(newborn, 12, 20, "updates is 20 in config.yaml and 12 in meta.json")
    (newborn / "meta.json").unlink()
    refuses_steps(newborn, 12, 20, "the seal in its first line does not fit")
    finish(tmp_path / "newborn.yaml", newborn, no_plots=True)
    forks().run("resume", run, "updates=16", stop_at=1, stop_signal=signal.SIGKILL)
    refuses_steps(run, 16, 12, "the seal in its first line does not fit")
    refuses_steps(run, 16, 20, "updates is 20 in config.yaml and 12 in the checkpoint")
    edit(run / "config.yaml", "\nupdates: 16\n", "\nupdates: 20\n")
    assert forks().run("resume", run, "updates=20", no_plots=True).code == 0
    assert json.loads((run / "result.json").read_text())["updates"] == 20


def test_a_finished_run_with_edited_steps_goes_on_as_told(tmp_path: Path) -> None:
    """What the edit meant is what the command does, with the same bytes as without the edit."""
    edited, asked = tmp_path / "edited", tmp_path / "asked"
    for run in (edited, asked):
        finish(short_config(tmp_path, name=run.name), run, no_plots=True)
    edit(edited / "config.yaml", "\nupdates: 12\n", "\nupdates: 16\n")
    assert refusal(edited).startswith(f"run '{edited}': is finished. To train on, give more: understudy resume ")
    for run in (edited, asked):
        assert forks().run("resume", run, "updates=16", no_plots=True).code == 0
    assert content(edited) == content(asked)


def test_more_steps_that_were_asked_for_survive_a_kill(tmp_path: Path) -> None:
    """Whenever it comes, a plain resume then goes on without a question, to the old end or the new one."""
    whole = tmp_path / "whole"
    finish(short_config(tmp_path, name="whole"), whole, no_plots=True)
    ends = set()
    for moment in (3, 12, 14):  # the new number is in config.yaml from the twelfth file operation on
        run = tmp_path / str(moment)
        shutil.copytree(whole, run)
        assert forks().run("resume", run, "updates=20", die_at=moment).code == -signal.SIGKILL
        if not (run / "result.json").exists():
            finish(tmp_path / "whole.yaml", run, no_plots=True)
        ends.add(json.loads((run / "result.json").read_text())["updates"])
        assert forks().run("resume", run, "updates=24", no_plots=True).code == 0
        assert json.loads((run / "result.json").read_text())["updates"] == 24
    assert ends == {12, 20}


def test_a_config_that_is_no_config_any_more(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    edit(run / "config.yaml", "updates: 12", "updats: 12")
    assert refusal(run) == "updats: no such setting. Did you mean 'updates'?\n"


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


def test_other_versions_need_consent_before_the_first_save_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    forks().run("train", short_config(tmp_path), die_at=20)
    meta = json.loads((run / "meta.json").read_text())
    meta["versions"]["torch"] = "1.0.0"
    (run / "meta.json").write_text(json.dumps(meta))
    assert f"run '{run}': was written with other versions (torch 1.0.0 → " in refusal(run)
    assert forks().run("resume", run, "--accept-versions", no_plots=True).code == 0


def test_consent_holds_for_stages(tmp_path: Path) -> None:
    config = short_config(tmp_path, stages=[{"algo": {"name": "bc"}, "updates": 8}])
    forks().run("train", config, stop_at=3)
    pretend_version(tmp_path / "run" / "stages" / "1-bc", "torch", "1.0.0")
    assert "was written with other versions (torch 1.0.0 → " in refusal(tmp_path / "run")
    assert forks().run("resume", tmp_path / "run", "--accept-versions", no_plots=True).code == 0


def test_a_checkpoint_that_does_not_say_what_it_is_of_is_passed_over(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    file = run / "checkpoints" / "000000005" / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["seal"], manifest["facts"]["settings"]
    file.write_bytes(seal(manifest))
    ending = forks().run("resume", run, no_plots=True)
    assert ending.code == 0, ending.err
    assert f"passed over: checkpoint '{file.parent}', facts of manifest.json" in ending.err


def test_only_steps_can_change_on_resume(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    told = "seed: cannot change on resume. Only updates=N or env_steps=N can; start a new run for the rest.\n"
    assert refusal(run, "seed=1") == told
    assert refusal(run, "updates=many") == "updates: wrong value: got 'many', expected a whole number.\n"

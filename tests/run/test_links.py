"""A run writes inside its directory and nowhere else, and nothing that lies there makes a command wait for ever."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from forks import finish, forks
from small import content, short_config
from watchdog import ending_of

import understudy as us
from understudy.core.errors import RunError

STAGE = {"algo": "bc", "updates": 4, "save_every": 2}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a stage before it, stopped at update 9 of 12."""
    folder = tmp_path_factory.mktemp("links")
    config = short_config(folder, tensorboard=True, stages=[STAGE])
    ending = forks().run("train", config, stop_at=13, no_plots=True)
    assert "stopped and saved at update 9" in ending.err
    return folder / "run"


@pytest.fixture(scope="module")
def whole(stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the run comes to when nobody meddles with it."""
    run = tmp_path_factory.mktemp("whole") / "run"
    shutil.copytree(stopped, run)
    finish(stopped.with_suffix(".yaml"), run, no_plots=True)
    return content(run)


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def everything(folder: Path) -> dict[str, bytes]:
    """Names and content of all that lies in a folder; of a pipe, nothing."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        for path in sorted(folder.rglob("*"))
    }


def written_names(run: Path) -> Iterator[str]:
    """All that this run wrote and all that it will still write, but what lies in numbered checkpoints."""
    for path in sorted(run.rglob("*")):
        if not any(part.isdecimal() for part in path.relative_to(run).parts):
            yield str(path.relative_to(run))
    yield from ("result.json", "plots", "policy/final", "wandb", "wandb.json", "export")


def test_a_link_in_place_of_anything_is_refused_before_anything_changes(stopped: Path, tmp_path: Path) -> None:
    names = list(written_names(stopped))
    assert {"metrics.jsonl", "policy", "checkpoints", "tensorboard", "stages", ".lock", "checkpoints/latest"} < set(
        names
    )
    for number, name in enumerate(names):
        run, outside = tmp_path / f"run{number}", tmp_path / f"outside{number}"
        shutil.copytree(stopped, run)
        outside.mkdir()
        if (run / name).exists():
            (run / name).rename(outside / "it")
        (run / name).symlink_to(outside / "it")  # a dead link where nothing was
        before = everything(run), everything(outside)
        with pytest.raises(RunError) as refused:
            us.resume(run)
        assert str(refused.value).startswith(f"run '{run}': '{name}' is a link, and what is written to it"), name
        assert (everything(run), everything(outside)) == before, name
        shutil.rmtree(run)


def test_pipes_and_sockets_are_refused(stopped: Path, tmp_path: Path) -> None:
    for number, name in enumerate(["metrics.jsonl", "meta.json", ".lock", "checkpoints/latest", "policy", "notes"]):
        run = tmp_path / f"run{number}"
        shutil.copytree(stopped, run)
        if (run / name).exists():
            (run / name).rename(tmp_path / f"old{number}")
        if number % 2:
            socket.socket(socket.AF_UNIX).bind(str(run / name))
        else:
            os.mkfifo(run / name)
        ending = ending_of(forks().start("resume", run))
        assert ending.code == 1
        assert ending.err == (
            f"run '{run}': '{name}' is a pipe, a socket or a device, and no run writes to those. "
            "Put a file or folder of the run's own there, or remove it; nothing was changed.\n"
        )


def test_links_among_drafts_and_checkpoints_are_replaced_and_never_followed(
    run: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(run / "checkpoints" / "000000009", outside / "folder")
    (outside / "file").write_bytes(b"mine")
    before = everything(outside)
    for name in ("checkpoints/000000012", "checkpoints/.000000012.draft", "policy/.best.draft", "policy/.final.draft"):
        (run / name).symlink_to(outside / "folder")
    for name in (".config.yaml.1.tmp", ".result.json.1.tmp", "checkpoints/.latest.1.tmp", "policy/.best.1.old"):
        (run / name).symlink_to(outside / "file")
    finish(tmp_path / "unused", run, no_plots=True)
    assert everything(outside) == before
    assert content(run) == whole
    assert [path for path in run.rglob("*") if path.is_symlink()] == []


def test_files_that_have_another_name_elsewhere_keep_their_content_there(
    run: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    """A backup made of hard links stays what it was."""
    shutil.copytree(run, tmp_path / "backup", copy_function=os.link)
    before = everything(tmp_path / "backup")
    finish(tmp_path / "unused", run, no_plots=True)
    assert everything(tmp_path / "backup") == before
    assert content(run) == whole


def test_a_run_may_be_named_by_a_link_and_wandb_may_have_its_own(
    run: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    (run / "wandb" / "run-1").mkdir(parents=True)
    (run / "wandb" / "latest-run").symlink_to("run-1")
    (tmp_path / "named").symlink_to(run)
    finish(tmp_path / "unused", tmp_path / "named", no_plots=True)
    assert content(run) == whole
    assert (run / "wandb" / "latest-run").is_symlink()


def test_an_export_does_not_leave_the_run(run: Path, tmp_path: Path) -> None:
    us.export_policy(run, "torchscript", out=tmp_path / "other")
    before = everything(tmp_path / "other")
    (run / "export").symlink_to(tmp_path / "other")
    with pytest.raises(RunError, match="'export' is a link"):
        us.export_policy(run, "torchscript", 4)
    assert everything(tmp_path / "other") == before


READERS = (
    ("checkpoints/000000009/manifest.json", "last"),
    ("checkpoints/000000009/state.safetensors", "9"),
    ("policy/best/policy.json", "best"),
    ("policy/best/policy.safetensors", "best"),
    ("config.yaml", "last"),
)


def test_no_reader_waits_for_a_pipe_or_reads_a_device(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "obs.npy", np.zeros(3, dtype=np.float32))
    commands: list[list[str | Path]] = [["evaluate", run], ["predict", run, "--obs", tmp_path / "obs.npy"]]
    for number, (name, checkpoint) in enumerate(READERS):
        (run / name).rename(tmp_path / "real")
        for put in (os.mkfifo, lambda path: Path(path).symlink_to("/dev/zero")):
            put(run / name)
            words = [*commands[number % 2], "-c", checkpoint]
            ending = ending_of(forks().start(*words))
            assert ending.code == 1, (name, ending)
            assert ending.err.startswith(("run ", "checkpoint ", "policy ")), (name, ending.err)
            assert ending.err.count("\n") == 1
            (run / name).unlink()
        (tmp_path / "real").rename(run / name)
        assert ending_of(forks().start(*words)).code == 0
    (run / "eval.jsonl").unlink()
    os.mkfifo(run / "eval.jsonl")
    ending = ending_of(forks().start("export", run, "--format", "torchscript", "--out", tmp_path / "exported"))
    assert (ending.code, ending.err) == (1, f"{run / 'eval.jsonl'}: Not a regular file.\n")

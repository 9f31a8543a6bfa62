"""Logs after a crash: what is torn behind the last checkpoint is cut."""

from pathlib import Path

import pytest
from event_files import scalars
from forks import finish, forks
from small import content, short_config

from understudy.run.rundir import RunDir
from understudy.run.sinks import Sinks

TAILS = {
    "half a line": b'{"updates": 6, "loss/ac',
    "zeros of a power cut": b"\0" * 300 + b"\n" + b'{"updates": 8, "loss/actor": 1}\n',
    "a line of another kind": b"[1, 2]\n",
    "not text": b"\xff\xfe\n",
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A run that was stopped at update 5, with the config of its uninterrupted twin beside it."""
    config = short_config(tmp_path)
    forks().run("train", config, stop_at=5)
    return config


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("log", ["metrics.jsonl", "eval.jsonl"])
def test_what_lies_behind_the_checkpoint_is_cut(tail: str, log: str, config: Path, tmp_path: Path) -> None:
    with (tmp_path / "run" / log).open("ab") as file:
        file.write(TAILS[tail])
    finish(config, tmp_path / "run", no_plots=True)
    finish(short_config(tmp_path, name="whole"), tmp_path / "whole", no_plots=True)
    assert content(tmp_path / "run") == content(tmp_path / "whole")


def test_a_sync_puts_every_number_on_disk(tmp_path: Path) -> None:
    """A checkpoint that follows counts on them: whoever dies right after it logs none of them again."""
    sinks = Sinks(RunDir(tmp_path), 0, tensorboard=True)
    for updates in range(1, 101):
        sinks.log(updates, {"loss/actor": 1.0, "loss/critic": 2.0})
    sinks.sync()
    assert [step for step, _ in scalars(tmp_path / "tensorboard")["loss/critic"]] == list(range(1, 101))
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 100
    sinks.close()

"""Large state in runs: killed at any moment, rewound across a wrap, damaged, and never copied."""

import gc
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import Faults
from folders import fast_folder
from forks import forks
from ring_job import FACTS, Job, RingLearner
from small import content, short_settings
from wrapped_source import WrappedSource

import understudy as us
from allocations import tensor_bytes
from understudy.core.batch import Transitions
from understudy.core.errors import CheckpointError
from understudy.core.files import read_json, seal
from understudy.core.large_state import LargeState
from understudy.core.protocols import Policy
from understudy.core.state import capture, place_large_state, restore
from understudy.run import preflight, session
from understudy.run.build import build_learner
from understudy.run.checkpoint import SEGMENTS, list_checkpoints, load_checkpoint, newest_checkpoint, save_checkpoint
from understudy.run.config import parse_config
from understudy.run.guard import Guard

MILLION: dict[str, Any] = {"capacity": 1_000_000, "segment_rows": 100_000, "added": 130_000, "updates": 12}
"""More than one and a half times around a million rows of 16 bytes."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with fast_folder() as found:
        yield found


def check_deaths(folder: Path, ways: list[Faults]) -> int:
    """How many runs died that ended, after one more process, as one that nothing happened to."""
    whole = Job(folder / "whole")
    whole.run()
    died = 0
    for number, fault in enumerate(ways):
        job = replace(whole, folder=folder / str(number))
        died += forks().run(*job.words, **fault).code == -signal.SIGKILL
        again = forks().run(*job.words)
        assert again.code == 0, again.err
        assert job.content() == whole.content(), fault
        assert job.segments() == job.listed(), "nothing is left that no checkpoint lists"
        shutil.rmtree(job.folder)
    return died


def test_a_death_at_a_file_operation_changes_nothing(folder: Path) -> None:
    """Among them: between two segments, between segments and their checkpoint, while old ones are removed."""
    ways: list[Faults] = [{"die_at": moment} for moment in range(1, 320, 17)]
    ways += [{"torn_at": moment} for moment in range(1, 60, 13)]
    assert len(ways) - 6 <= check_deaths(folder, ways) < len(ways), "to the last operation of a run, and beyond"


@pytest.mark.slow
def test_a_death_at_any_file_operation_changes_nothing(folder: Path) -> None:
    ways: list[Faults] = [{"die_at": moment} for moment in range(1, 320)]
    ways += [{"torn_at": moment} for moment in range(1, 60)]
    assert check_deaths(folder, ways) < len(ways)


def test_a_million_rows_survive_kills(folder: Path) -> None:
    whole, job = Job(folder / "whole", **MILLION), Job(folder / "killed", **MILLION)
    start = time.monotonic()
    assert forks().run(*whole.words).code == 0
    seconds = time.monotonic() - start
    kills = 0
    for share in (0.3, 0.5, 0.6):
        child = forks().start(*job.words)
        time.sleep(share * seconds)
        child.kill(signal.SIGKILL)
        kills += child.wait().code == -signal.SIGKILL
    assert kills > 1
    assert forks().run(*job.words).code == 0
    assert job.content() == whole.content()


def test_a_check_and_a_log_copy_none_of_a_million_rows_and_a_checkpoint_writes_what_is_new(folder: Path) -> None:
    learner = Job(folder, **MILLION).learner()
    place_large_state(learner, folder / SEGMENTS)
    for _ in range(10):
        metrics = learner.update()
    assert learner.rows.written > learner.rows.capacity
    guard = Guard.over(learner, 10)
    plain = Guard.over([learner.weight, learner.priorities, learner.rng], 10)
    ordinary, whole = (tensor_bytes(partial(each.check, 10, metrics)) for each in (plain, guard))
    assert whole == ordinary > 0
    save_checkpoint(folder, 10, capture(learner), FACTS, keep=2)
    before = {path: path.stat().st_mtime_ns for path in (folder / SEGMENTS).iterdir()}
    learner.update()
    save_checkpoint(folder, 11, capture(learner), FACTS, keep=2)
    after = {path: path.stat() for path in (folder / SEGMENTS).iterdir()}
    assert before.items() <= {path: facts.st_mtime_ns for path, facts in after.items()}.items()
    new = sum(facts.st_size for path, facts in after.items() if path not in before)
    assert new < (learner.added + learner.rows.segment_rows) * learner.rows.row_bytes + 1000


@pytest.mark.parametrize("exact", [True, False])
def test_a_rewind_across_a_wrap_is_exact(exact: bool, folder: Path) -> None:
    """The last check was more than three times around ago, and its rows are in files only."""
    job, guilty, until = Job(folder), 20, 25
    learner = RingLearner.build(job.capacity, job.segment_rows, job.added, poisoned=guilty * job.added - 1)
    place_large_state(learner, folder / SEGMENTS)
    straight = job.learner()
    for _ in range(guilty - 1 if exact else 5):
        straight.update()
    for _ in range(5):
        learner.update()
    guard = Guard.over(learner, 5)
    for _ in range(5, until):
        metrics = learner.update()
    assert not guard.check(until, metrics)
    updates, error = guard.rewind(learner.update if exact else None, until, ["loss"])
    assert updates == (guilty - 1 if exact else 5)
    assert str(error).startswith(f"update {guilty}: " if exact else f"updates 6 to {until}: ")
    assert capture(learner)["rows"] == capture(straight)["rows"]
    assert torch.equal(learner.weight, straight.weight)
    assert torch.equal(learner.priorities, straight.priorities)
    learner.update()
    straight.update()
    assert (capture(learner)["rows"] == capture(straight)["rows"]) is not exact  # but for the poisoned row


def test_segments_go_with_the_last_checkpoint_that_lists_them(folder: Path) -> None:
    job = Job(folder, updates=8)
    job.run()
    first, second = ({*job.listed([updates])} for updates in (4, 8))
    assert first - second
    job.run(12)
    assert not (first - second) & job.segments()
    assert second <= job.segments()
    assert job.segments() == job.listed()
    (job.checkpoints / "000000008" / "manifest.json").write_text("{}")
    orphan = job.checkpoints / SEGMENTS / f"{'0' * 64}.safetensors"
    orphan.touch()
    save_checkpoint(job.checkpoints, 12, load_checkpoint(job.checkpoints, 12).state, FACTS, keep=2)
    assert second <= job.segments(), "who cannot say what he lists loses nothing"
    assert orphan.exists()
    job.run(16)
    assert job.segments() == job.listed()


def damaged(job: Job, harm: str) -> str:
    """What is said of a checkpoint that an older one replaces, after some harm to its large state."""
    newest, older = list_checkpoints(job.checkpoints)[::-1]
    own = sorted(job.listed([newest]) - job.listed([older]))[0]
    file = job.checkpoints / SEGMENTS / f"{own}.safetensors"
    manifest = job.checkpoints / f"{newest:09d}" / "manifest.json"
    content = read_json(manifest)
    listed = content["large"]["rows"]["segments"]
    if harm == "flipped":
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    elif harm == "short":
        file.write_bytes(file.read_bytes()[:-1])
    elif harm == "missing":
        file.unlink()
    elif harm == "link":
        file.rename(job.folder / "elsewhere")
        file.symlink_to(job.folder / "elsewhere")
    elif harm == "pipe":
        file.unlink()
        os.mkfifo(file)
    else:
        listed[0] = {"parent": "../x", "absolute": "/etc/passwd", "number": 7}[harm]
        content.pop("seal")
        manifest.write_bytes(seal(content))
    found, broken = newest_checkpoint(job.checkpoints)
    assert found is not None
    assert found.updates == older
    learner = job.learner()
    restore(learner, found.state, "checkpoint")
    assert learner.rows.written == older * job.added
    (sentence,) = broken
    return sentence.replace(own[:12], "…").removeprefix(f"checkpoint '{job.checkpoints / f'{newest:09d}'}'")


def test_damage_and_malice_are_told_and_an_older_checkpoint_is_taken(folder: Path) -> None:
    whole = Job(folder / "whole", updates=8)
    whole.run()
    told = {}
    for harm in ("flipped", "short", "missing", "link", "pipe", "parent", "absolute", "number"):
        shutil.copytree(whole.folder, folder / harm)
        told[harm] = damaged(replace(whole, folder=folder / harm), harm)
    named = ", manifest.json: damaged or incomplete (large.rows.segments.0: "
    assert told.pop("parent").startswith(named)
    assert told.pop("absolute").startswith(named)
    assert told.pop("number").startswith(named)
    assert told == {
        "flipped": ": rows: segment ……: damaged: its sha256 differs.",
        "short": ": rows: segment ……: damaged: its sha256 differs.",
        "missing": ": rows: segment ……: missing or damaged (No such file or directory).",
        "link": ": rows: segment ……: is a link.",
        "pipe": ": rows: segment ……: missing or damaged (Not a regular file).",
    }


def test_a_policy_is_read_without_large_state(folder: Path) -> None:
    job = Job(folder, updates=8)
    job.run()
    shutil.rmtree(job.checkpoints / SEGMENTS)
    found, broken = newest_checkpoint(job.checkpoints, large=False)
    assert (found is not None, broken) == (True, [])
    assert newest_checkpoint(job.checkpoints)[0] is None
    with pytest.raises(CheckpointError, match=r"rows cannot be restored \(segment .*: missing or damaged"):
        restore(job.learner(), load_checkpoint(job.checkpoints, 8).state, "checkpoint")


@dataclass
class Remembered(WrappedSource):
    """A source whose batches are drawn from all that another one gave lately."""

    rows: LargeState
    rng: torch.Generator

    def next(self, policy: Policy) -> Transitions:
        data = self.inner.next(policy)
        (group,) = data.obs
        given = {"obs": data.obs[group], "next_obs": data.next_obs[group], "action": data.action}
        self.rows.append({**given, "reward": data.reward, "terminated": data.terminated})
        found = self.rows.gather(torch.randint(len(self.rows), data.reward.shape, generator=self.rng))
        obs, next_obs = {group: found["obs"]}, {group: found["next_obs"]}
        return Transitions(obs, found["action"], found["reward"], next_obs, found["terminated"], data.extra)


def test_a_run_with_large_state_resumes_to_the_bit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An algorithm of the house, its loop and its session, and a ring that wraps twice."""

    def build(*args: Any, **options: Any) -> Any:
        learner: Any = build_learner(*args, **options)
        row = {"obs": torch.zeros(3), "next_obs": torch.zeros(3), "action": torch.zeros(1), "reward": torch.zeros(())}
        rows = LargeState({**row, "terminated": torch.zeros((), dtype=torch.bool)}, 90, segment_rows=20)
        learner.source = Remembered(learner.source, rows, torch.Generator().manual_seed(1))
        return learner

    for module in (session, preflight):
        monkeypatch.setattr(module, "build_learner", build)
    settings = {"updates": 30, "eval_every": 5, "keep_checkpoints": 2}
    whole, half = (parse_config(short_settings("iql", folder / name, **settings)) for name in ("whole", "half"))
    us.train(whole)
    us.train(half, callbacks=[lambda updates, evaluation: updates == 15])
    assert list_checkpoints(folder / "half" / "checkpoints")[-1] == 15
    gc.collect()  # files of what somebody still holds are kept
    us.resume(folder / "half")
    assert content(folder / "half") == content(folder / "whole")
    names = [{path.name for path in (folder / name / "checkpoints" / SEGMENTS).iterdir()} for name in ("half", "whole")]
    assert names[0] == names[1]
    assert len(names[0]) == 7  # ninety rows in five segments, two more that only the checkpoint before lists
    (folder / "whole" / "checkpoints" / SEGMENTS / names[0].pop()).unlink()
    assert us.load_policy(folder / "whole") is not None

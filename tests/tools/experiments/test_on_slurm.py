"""Arrays of Slurm: an sbatch and a scontrol of our own do what the real ones would with the script and its words."""

import json
import math
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from short_runs import config_text, run_content, small_suite

from understudy.cli.program import run
from understudy.core.errors import ConfigError, RunError
from understudy.core.lock import lock_folder, release
from understudy.run.checkpoint import list_checkpoints
from understudy.run.rundir import RunDir
from understudy.tools.experiments import on_slurm
from understudy.tools.experiments.on_slurm import minutes_of, options_from, submit, write_array
from understudy.tools.experiments.slurm_element import element
from understudy.tools.experiments.work import Outcome, train_or_resume

ODD = 'it\'s "odd" $HOME `x` %a; rm é漢'
"""A folder's name that a shell and Slurm would both read something into."""
SBATCH = """#!/bin/bash
[ "$1" = --parsable ] || exit 2
script="${@: -1}"
grep -q '^#SBATCH --partition=gpu$' "$script" || { echo "invalid partition" >&2; exit 1; }
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")
[ "$last" -lt 1001 ] || { echo "Batch job submission failed: Invalid job array specification" >&2; exit 1; }
bash -n "$script" || exit 1
echo "$*" >> "$(dirname "$0")/submitted"
cp "$script" "$(dirname "$0")/spooled"
echo "$((4710 + $(wc -l < "$(dirname "$0")/submitted")));cluster"
"""
SCONTROL = """#!/bin/bash
echo "$*" >> "$(dirname "$0")/requeued"
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its commands, in the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scontrol", SCONTROL)):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def begun(script: Path, number: int) -> subprocess.Popen[bytes]:
    """An element of the array, as Slurm starts it: processes of their own."""
    source = str(Path(on_slurm.__file__).parents[3])
    words = {"SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": str(number), "PYTHONPATH": source}
    return subprocess.Popen(["bash", "-u", str(script)], env={**os.environ, **words}, start_new_session=True)


def wait_for_checkpoint(run: Path, after: int = -1) -> None:
    until = time.monotonic() + 60
    while max(list_checkpoints(run / "checkpoints"), default=-1) <= after:
        assert time.monotonic() < until, f"nothing was saved in {run}"
        time.sleep(0.005)


@pytest.mark.slow
def test_elements_that_are_signalled_save_requeue_themselves_and_end_with_the_same_results(
    cluster: Path, tmp_path: Path
) -> None:
    config = config_text(updates=3000, eval_every=1500)
    assert Outcome.from_json(train_or_resume(str(tmp_path / "whole"), config)) == Outcome("finished")
    runs = tmp_path / ODD / "runs"
    array = write_array([(str(tmp_path / "whole"), config), (str(runs), config)], tmp_path / ODD, {"partition": "gpu"})
    assert (array.runs, submit(array)) == (2, "4711")
    spooled = cluster / "spooled"  # Slurm runs a copy, wherever it likes

    first = begun(spooled, 1)
    wait_for_checkpoint(runs)
    first.send_signal(signal.SIGUSR1)  # to the shell alone, as --signal=B: has it, before its time is up
    assert first.wait(60) == 0
    assert (cluster / "requeued").read_text(encoding="utf-8") == "requeue 4711_1\n"
    assert not RunDir(runs).finished
    log = array.script.with_name("1.log")
    assert log.read_text(encoding="utf-8").count("stopped. ") == 1

    second = begun(spooled, 1)
    wait_for_checkpoint(runs, list_checkpoints(runs / "checkpoints")[-1])
    os.killpg(second.pid, signal.SIGTERM)  # to all there is, as scancel has it
    assert second.wait(60) == 143
    assert log.read_text(encoding="utf-8").count("stopped and saved") == 2
    assert not RunDir(runs).finished

    assert begun(spooled, 1).wait(120) == 0
    assert (cluster / "requeued").read_text(encoding="utf-8").count("\n") == 1  # who is cancelled does not come again
    assert run_content(runs) == run_content(tmp_path / "whole")


def test_what_sbatch_reads_is_plain_and_complete(tmp_path: Path) -> None:
    work = [(f"run {number}", config_text(threads=2)) for number in range(12)]
    script = write_array(work, tmp_path / ODD, {"partition": "gpu", "exclusive": ""}, jobs=4).script
    words = re.findall(r"^#SBATCH (.*)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert words == [
        "--requeue",
        "--job-name=understudy",
        "--array=0-11%4",
        "--signal=B:USR1@120",
        "--output=/dev/null",
        "--open-mode=append",
        "--cpus-per-task=2",
        "--partition=gpu",
        "--exclusive",
    ]
    assert write_array(work[:3], tmp_path / ODD, {}).script != script  # which may still be in the queue
    by_hand = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    assert by_hand.returncode != 0
    assert "SLURM_ARRAY_TASK_ID: is said by Slurm: give this script to sbatch" in by_hand.stderr


def test_more_runs_than_an_array_may_have_are_several_that_follow_each_other(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lot = write_array([(f"run {number}", "threads: 1") for number in range(1002)], tmp_path, {"partition": "gpu"})
    with pytest.raises(RunError, match="Invalid job array specification"):
        submit(lot)
    monkeypatch.setattr(on_slurm, "LARGEST_ARRAY", 4)
    suite = tmp_path / "tiny.yaml"
    suite.write_text(json.dumps(small_suite()), encoding="utf-8")
    words = ["bench", str(suite), "--out", str(tmp_path / "out"), "--on", "slurm", "--slurm", "partition=gpu"]
    assert run(words) == 0
    assert "submitted as job 4711, 4712. " in capsys.readouterr().out
    scripts = [line.split("--parsable ")[1] for line in (cluster / "submitted").read_text().splitlines()]
    lists = [Path(script).with_name("runs.jsonl").read_text().splitlines() for script in scripts]
    assert [len(lines) for lines in lists] == [4, 2]
    assert len({line for lines in lists for line in lines}) == 6
    assert run([*words, "--jobs", "2"]) == 0  # no more than two at once, of both together
    sent = (cluster / "submitted").read_text().splitlines()[2:]
    assert ["--dependency=afterany:4713" in line for line in sent] == [False, True]


def test_options_that_are_wrong_or_ours_are_told_before_anything_is_written(tmp_path: Path) -> None:
    assert options_from(["partition=gpu", "--gres=gpu:a100:1", "exclusive"]) == {
        "partition": "gpu",
        "gres": "gpu:a100:1",
        "exclusive": "",
    }
    for word, told in (
        ("array=0-3", "--slurm array: is said by the script itself"),
        ("Partition=gpu", "--slurm Partition: no option of sbatch"),
        ("comment=a\n#SBATCH --wrap=x", "--slurm comment: holds letters that no option needs"),
        ("time=5", "--slurm time: leaves no time to learn: got 5, expected more than 5 minutes"),
        ("time=04:59", "--slurm time: leaves no time to learn"),
    ):
        with pytest.raises(ConfigError, match=re.escape(told)):
            write_array([("run", config_text())], tmp_path, options_from([word]))
    assert not list(tmp_path.iterdir())
    write_array([("run", config_text())], tmp_path, options_from(["constraint=a100|(v100&big)", "time=0"]))
    times = {"90": 90, "5:30": 5.5, "02:30:00": 150, "1-0": 1440, "1-01:30": 1530, "1-00:00:30": 1440.5, "0": 0}
    assert {time: minutes_of(time) for time in times} == times
    assert minutes_of("UNLIMITED") == math.inf


def test_an_sbatch_that_refuses_or_is_not_there_is_told_in_a_sentence(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = write_array([("run", config_text())], tmp_path, {})
    with pytest.raises(RunError, match=r"sbatch refused the array \(invalid partition\)"):
        submit(array)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match=r"there is no sbatch on this machine\. On a machine that has it: sbatch "):
        submit(array)


def test_what_cannot_succeed_is_not_requeued_and_what_crashes_is_thrice_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = write_array([(str(tmp_path / "run"), "- 1")], tmp_path, {}).script.with_name("runs.jsonl")
    code, told = element(listing, "0")
    assert code == 1
    assert "not a config" in told
    for number in ("1", "-1", ""):
        assert element(listing, number) == (1, f"no run has the number '{number}': {listing} has 0 to 0")
    (tmp_path / "file").touch()
    (tmp_path / "run").symlink_to("nowhere/at/all")  # which no run can lie in
    for _ in range(2):  # sent again, it may have been mended
        crashing = write_array([(str(tmp_path / "run"), config_text())], tmp_path, {}).script.with_name("runs.jsonl")
        assert [element(crashing, "0")[0] for _ in range(3)] == [75, 75, 1]


def test_who_finds_a_run_locked_leaves_it_alone_unless_the_lock_is_one_of_a_node_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    listing = write_array([(str(directory), config_text())], tmp_path, {}).script.with_name("runs.jsonl")
    lock = lock_folder(directory, RunError, "run", "")
    code, told = element(listing, "0")
    assert (code, ": busy. " in told) == (0, True)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    threading.Timer(0.5, lambda: release(lock)).start()
    code, told = element(listing, "0")
    assert (code, ": finished." in told) == (0, True)


def test_a_suite_is_written_for_slurm_without_what_is_finished(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "tiny.yaml"
    suite.write_text(json.dumps(small_suite()), encoding="utf-8")
    words = ["bench", str(suite), "--out", str(tmp_path / "out"), "--on", "slurm"]
    assert run([*words, "--slurm", "partition=gpu", "--dry-run"]) == 0
    told = capsys.readouterr().out
    script = next((tmp_path / "out").rglob("array.sh"))
    assert told.startswith(f"6 runs in {script}: sbatch ")
    assert not (cluster / "spooled").exists()
    lines = script.with_name("runs.jsonl").read_text(encoding="utf-8").splitlines()
    line = json.loads(lines[0])
    assert Outcome.from_json(train_or_resume(line["directory"], line["config"])) == Outcome("finished")

    assert run([*words, "--slurm", "partition=gpu"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("5 runs in ")
    assert "submitted as job 4711" in told
    for wrong in (["--on", "here", "--dry-run"], ["--on", "rey"], ["--until-decided"]):
        assert run([*words, *wrong]) == 2
    told = capsys.readouterr().err
    assert "--dry-run: is for --on slurm: got --on here." in told
    assert "Did you mean 'ray'?" in told
    assert "--until-decided: looks at results between groups" in told

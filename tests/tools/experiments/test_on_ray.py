"""Work on Ray: a real local cluster, whose workers are killed."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from short_runs import config_text, run_content, small_suite

from understudy.core.errors import ConfigError, MissingPackageError, RunError
from understudy.run.suites import Suite
from understudy.tools.experiments.experiment import Experiment
from understudy.tools.experiments.on_ray import RayLauncher, check_answers, resources, work
from understudy.tools.experiments.work import Outcome, train_or_resume

pytest.importorskip("ray", reason="the extra `ray` is not installed")


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayLauncher]:
    """One core: one task at a time. It is our own, whatever cluster there may be besides."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    ours = Path(__file__).parents[3] / "src"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ours), os.environ.get("PYTHONPATH", "")]))
    with closing(RayLauncher(cores=1)) as launcher:
        yield launcher


def ended(launcher: RayLauncher, handle: int, seconds: float = 120.0) -> Outcome:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := launcher.poll(0.2):
            assert list(found) == [handle]
            return found[handle]
    raise AssertionError("nothing ended")


def working_process() -> int:
    """The process of Ray that works on our task: the raylet is our child, and workers are its."""
    below = [os.getpid()]
    for process in below:
        below += [
            int(word)
            for tasks in Path(f"/proc/{process}/task").glob("*/children")
            for word in tasks.read_text().split()
        ]
    return next(one for one in below if Path(f"/proc/{one}/cmdline").read_bytes().startswith(b"ray::work"))


def wait_for(path: Path) -> None:
    until = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < until, f"{path} never came"
        time.sleep(0.01)


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_nothing_and_one_that_is_told_to_stop_saves(
    launcher: RayLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    config = config_text(updates=3000, eval_every=1500)
    assert Outcome.from_json(train_or_resume(str(tmp_path / "whole"), config)) == Outcome("finished")
    monkeypatch.chdir(tmp_path)

    handle = launcher.submit("run", config)  # relative: as we mean it, wherever Ray's workers are
    wait_for(tmp_path / "run" / "checkpoints" / "latest")
    os.kill(working_process(), signal.SIGKILL)
    killed = ended(launcher, handle)
    assert (killed.outcome, killed.retry) == ("failed", True)
    assert "worker died" in killed.reason

    reached = sorted((tmp_path / "run" / "checkpoints").glob("0*"))[-1]
    handle = launcher.submit("run", config)
    wait_for(reached.with_name(f"{int(reached.name) + 100:09d}"))
    launcher.cancel(handle)
    stopped = ended(launcher, handle)
    assert (stopped.outcome, stopped.retry) == ("stopped", True)
    assert "saved at update" in stopped.reason

    assert ended(launcher, launcher.submit("run", config)) == Outcome("finished")
    assert run_content(tmp_path / "run") == run_content(tmp_path / "whole")
    assert {number: signal.getsignal(number) for number in handlers} == handlers


@pytest.mark.slow
def test_a_suite_whose_worker_is_killed_ends_as_it_would_have_here(launcher: RayLauncher, tmp_path: Path) -> None:
    suite = Suite.model_validate({**small_suite(), "seeds": 1})
    here = Experiment(suite, methods=["BC", "IQL, τ 0.9"], out=tmp_path / "here").run(1, progress=False)
    there = Experiment(suite, methods=["BC", "IQL, τ 0.9"], out=tmp_path / "there")

    def kill_once() -> None:
        while not list((tmp_path / "there").rglob("latest")):
            time.sleep(0.005)
        os.kill(working_process(), signal.SIGKILL)

    killer = threading.Thread(target=kill_once)
    killer.start()
    there.run(launcher.room(1), progress=False, launcher=launcher)
    killer.join()
    assert "worker died" in (tmp_path / "there" / "bench.jsonl").read_text(encoding="utf-8")
    assert len(here.plan.runs) == 2
    for mine, theirs in zip(here.plan.runs, there.plan.runs, strict=True):
        assert run_content(mine.directory) == run_content(theirs.directory)
    assert str(here.verdict()) == str(there.verdict())


@pytest.mark.slow
def test_what_fails_on_ray_says_why(launcher: RayLauncher, tmp_path: Path) -> None:
    check_answers(__import__("ray").get_runtime_context().gcs_address)
    handle = launcher.submit(str(tmp_path / "run"), config_text().replace("batch_size:", "batch_sise:"))
    failed = ended(launcher, handle)
    assert (failed.outcome, failed.retry) == ("failed", False)
    assert "no such setting" in failed.reason
    for asked, told in (({"device": "cuda"}, "1 core and a GPU"), ({"threads": 5}, "5 cores")):
        failed = ended(launcher, launcher.submit(str(tmp_path / "run"), config_text(**asked)), 20.0)
        assert failed == Outcome("failed", f"no machine of the cluster has {told}")  # it would wait for one for ever


def test_an_address_where_nobody_answers_is_told_at_once() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        with pytest.raises(RunError, match=r"--on ray: no cluster answers at '127\.0\.0\.1:") as told:
            RayLauncher(f"127.0.0.1:{taken.getsockname()[1]}")
    assert "ray start --head" in str(told.value)
    for wrong in ("nowhere", "host:", ":6379", "host:port"):
        with pytest.raises(ConfigError, match="expected host:port or auto"):
            check_answers(wrong)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "timed out"),
        (b"", "it hung up"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "whoever listens there is not Ray"),
    ],
)
def test_an_address_where_somebody_listens_who_is_not_ray_is_told_in_time(
    answer: bytes | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself would try for minutes."""
    monkeypatch.setattr("understudy.tools.experiments.on_ray.ANSWER_SECONDS", 0.5)

    def reply() -> None:
        line, _ = listening.accept()
        with line:
            line.recv(1024)
            if answer is None:
                done.wait(10)
            else:
                line.sendall(answer)

    done = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = threading.Thread(target=reply)
        server.start()
        before = time.monotonic()
        with pytest.raises(RunError, match=rf"no cluster answers at '127\.0\.0\.1:\d+' \({told}\)"):
            RayLauncher(f"127.0.0.1:{listening.getsockname()[1]}")
        assert time.monotonic() - before < 5
        done.set()
        server.join()


def test_a_machine_without_our_folder_says_so(tmp_path: Path) -> None:
    failed = Outcome.from_json(work(str(tmp_path / "nowhere"), "run", ""))
    assert (failed.outcome, failed.retry) == ("failed", False)
    assert "all machines need one file system" in failed.reason


def test_a_run_takes_the_cores_of_its_threads_and_a_gpu_where_it_runs_on_one() -> None:
    assert resources(config_text(threads=3)) == {"num_cpus": 3, "num_gpus": 0}
    assert resources("device: cuda:1\nthreads: 2") == {"num_cpus": 2, "num_gpus": 1}


def test_without_ray_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'understudy-rl\[ray\]'"):
        RayLauncher()

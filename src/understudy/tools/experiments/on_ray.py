"""Work on a Ray cluster: an existing one by its address, or one of this machine that ends with its owner.

A task is the work of `work.train_or_resume` and nothing else: three strings go there (the folder to be in, the run's
directory, its config), one comes back. Ray itself retries nothing; what dies is the manager's to begin again, on
whichever machine, from the last checkpoint. So all machines need the same file system, and the same installation.
Others who hand out work in this way (a search) give a task of their own.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from understudy.core.errors import ConfigError, MissingPackageError, RunError
from understudy.core.stopping import SIGNALS, listen
from understudy.core.wording import counted
from understudy.run.yaml_text import parse_yaml
from understudy.tools.experiments.work import FAILED, STOPPED, Outcome, train_or_resume

HERE = "local"
STORE_BYTES = 80 << 20
"""Of Ray's object store: what it holds are a few sentences."""
ANSWER_SECONDS = 10.0
"""How long a cluster may take to answer."""
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What whoever speaks gRPC says first, and answers at once with a frame of its settings."""
FRAME_HEAD, FRAME_KIND, SETTINGS_FRAME = 9, 3, 4
"""Bytes of a frame's head, which of them is its kind, and the kind."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_LOG_TO_DRIVER_EVENT_LEVEL": "FATAL"}
"""Ray tells nobody of its use, and not every death of a worker: the manager does that."""

Task = Callable[[str, str, str], str]
"""A folder to be in and two words, which say what is to be done; an `Outcome` in JSON."""


def work(folder: str, directory: str, config: str) -> str:
    """What a worker of Ray does."""
    return refused(folder) or train_or_resume(directory, config)


def refused(folder: str) -> str:
    """Go to a folder, so that paths mean what they do to whoever asked; if it is not there, that is the outcome."""
    try:
        os.chdir(folder)
    except OSError as error:
        reason = f"'{folder}' is not on {socket.gethostname()} ({error.strerror}): all machines need one file system"
        return Outcome(FAILED, reason).to_json()
    return ""


def resources(config: str) -> dict[str, int]:
    """What a run asks of a machine."""
    settings = parse_yaml(config, "config")
    assert isinstance(settings, dict)
    gpu = str(settings.get("device", "cpu")).startswith("cuda")
    return {"num_cpus": int(settings.get("threads", 1)), "num_gpus": int(gpu)}


def has(machine: Mapping[str, float], asked: Mapping[str, int]) -> bool:
    """Whether it could take a run, once it has nothing else to do; Ray would wait for one that can, without a word."""
    return all(machine.get(name, 0) >= asked[f"num_{name.lower()}s"] for name in ("CPU", "GPU"))


@final
class RayLauncher:
    """Tasks of Ray, each with as many cores as its run has threads, and a GPU where it runs on one."""

    def __init__(
        self,
        address: str = HERE,
        cores: int | None = None,
        *,
        task: Task = work,
        needs: Callable[[str], dict[str, int]] = resources,
    ) -> None:
        self._where, self._task, self._needs = (address, cores), task, needs
        self._ray = connected(*self._where)
        self._handles = 0
        self._running: dict[Any, int] = {}
        self._refused: dict[int, Outcome] = {}
        self._cancelled: set[int] = set()

    def submit(self, directory: str, config: str) -> int:
        if not self._ray.is_initialized():  # closed, and used again
            self._ray = connected(*self._where)
        self._handles += 1
        asked = self._needs(config)
        if not any(node["Alive"] and has(node["Resources"], asked) for node in self._ray.nodes()):
            what = f"no machine of the cluster has {counted(asked['num_cpus'], 'core')}"
            self._refused[self._handles] = Outcome(FAILED, what + " and a GPU" * asked["num_gpus"])
            return self._handles
        task = self._ray.remote(max_retries=0, **asked)(self._task)
        self._running[task.remote(str(Path.cwd()), directory, config)] = self._handles
        return self._handles

    def room(self, threads: int) -> int:
        """How many runs of so many threads the cluster has cores for."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)) // threads)

    def poll(self, seconds: float) -> Mapping[int, Outcome]:
        running, refused, self._refused = list(self._running), self._refused, {}
        if refused or not running:
            return refused
        ended, _ = self._ray.wait(running, num_returns=1, timeout=seconds)
        if ended:
            ended, _ = self._ray.wait(running, num_returns=len(running), timeout=0)
        return dict(self._ended(task) for task in ended)

    def cancel(self, handle: int) -> None:
        """As Ctrl-C would, in the process that works on it."""
        for task, number in self._running.items():
            if number == handle:
                self._cancelled.add(handle)
                self._ray.cancel(task)

    def close(self) -> None:
        for task in self._running:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(task, force=True)
        self._running.clear()
        self._ray.shutdown()

    def _ended(self, task: Any) -> tuple[int, Outcome]:
        handle = self._running.pop(task)
        try:
            return handle, Outcome.from_json(self._ray.get(task))
        except self._ray.exceptions.RayError as error:
            reason = " ".join(str(error).split("\n")[0].split()) or type(error).__name__
            return handle, Outcome(STOPPED if handle in self._cancelled else FAILED, reason, retry=True)


def connected(address: str, cores: int | None) -> Any:
    """Ray, connected with the cluster at `address` (host:port, ray://host:port or auto), or with one of our own."""
    os.environ.update(QUIET)
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError("--on ray", "needs ray", do="pip install 'understudy-rl[ray]'.") from error
    if address != HERE:
        check_answers(address)
    mine = {"address": HERE, "num_cpus": cores, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    where = mine if address == HERE else {"address": address}
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        ray.init(**where, log_to_driver=False, configure_logging=False)
    except Exception as error:  # Ray raises whatever comes to hand, a bare Exception where a machine is too busy
        ray.shutdown()
        what, do = (
            f"no cluster answers at '{address}'",
            "Start one with `ray start --head`; for one that asks for a token set RAY_AUTH_MODE=token.",
        )
        if address == HERE:
            what, do = "no cluster could be started on this machine", "Try again when it is less busy."
        raise RunError("--on ray", f"{what} ({str(error).strip().split(chr(10))[0]})", do=do) from error
    finally:
        listen(handlers)  # Ray has its own, which would end us before anything is saved
    return ray


def check_answers(address: str) -> None:
    """Somebody answers there: Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError("--on ray", "no address of a cluster", got=f"'{address}'", expected="host:port or auto")
    try:
        _greet(host.strip("[]"), int(port), time.monotonic() + ANSWER_SECONDS)
    except (OSError, OverflowError) as error:
        raise RunError(
            "--on ray",
            f"no cluster answers at '{address}' ({error})",
            do="Start one with `ray start --head --port=6379`, or leave the address out.",
        ) from error


def _greet(host: str, port: int, until: float) -> None:
    """An error unless somebody listens who speaks as Ray does."""
    with socket.create_connection((host, port), ANSWER_SECONDS) as line:
        if os.environ.get("RAY_USE_TLS", "0") == "1":
            return  # they would whisper
        line.sendall(GREETING)
        answer = b""
        while len(answer) < FRAME_HEAD:
            line.settimeout(max(until - time.monotonic(), 0.01))
            if not (some := line.recv(FRAME_HEAD - len(answer))):
                raise ConnectionError("it hung up")
            answer += some
        if answer[FRAME_KIND] != SETTINGS_FRAME:
            raise ConnectionError("whoever listens there is not Ray")

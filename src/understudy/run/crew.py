"""One run in several processes, started by torchrun: the first one leads, the others do as it says.

The first process is a run as any other: it reads the config, writes the run directory, evaluates, draws and prints. The
others hold the same learner, with a share of every batch (`core.ranks`), and know nothing of files:

    BEGIN     the config and the state to begin with: build a learner      CLOSE     let go of it
    UPDATE    one update, in which gradients are averaged                  REPORT    compare states, average metrics
    PAUSE     wait without a limit: the first one saves, or evaluates      END       the command is over

Orders are taken together, with a word of those who were told to stop; then a process that died or hangs is noticed by
all. While the first is at something else, the others wait at torchrun's store instead, for as long as it takes.
"""

import atexit
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import final

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from understudy.core.errors import ConfigError, RunError, UnderstudyError
from understudy.core.protocols import Metrics
from understudy.core.ranks import ALL, LostProcessError, Share, process_share, reached
from understudy.core.state import Leaf, State, capture
from understudy.core.stopping import StopSignal
from understudy.run.compiler import drops
from understudy.run.config import RunConfig
from understudy.run.learner import Learner
from understudy.run.strangers import strangers_of

BEGIN, CLOSE, UPDATE, REPORT, PAUSE, END = range(1, 7)
PATIENCE = "UNDERSTUDY_PATIENCE"
"""The environment variable that says for how many seconds a process may keep the others waiting within an update."""
PATIENCE_SECONDS, LONGEST_PATIENCE = 600.0, 86_400
SHORTEST_NAP, LONGEST_NAP = 0.0005, 0.05
"""Seconds between two looks of whoever waits at the store."""
LAST_SECONDS = 10.0
"""How long the first process waits for the others to have heard that all is over."""
GRACE_SECONDS = 20.0
"""How long a process that was told to stop waits for the first one to say so: torchrun kills after 30."""


def check_shared(config: RunConfig, share: Share) -> None:
    """What several processes would learn is what one would."""
    if share.size == 1:
        return
    size, rows = share.size, config.source.model_dump().get("batch_size", 0)
    where = f"torchrun with {size} processes"
    if not config.source_needs.slices:
        what = f"source.kind={config.source_kind} cannot be shared: it gives no slices of a fixed dataset's batches"
        raise ConfigError(where, what, expected="source.kind=offline", do="Start it as one process.")
    if strangers_of(config) or not config.needs.slices:
        what = f"{config.algorithm} with these settings cannot be shared: slices would not teach it what a batch does"
        raise ConfigError(where, what, do="Start it as one process. docs/clusters.md lists what can be shared.")
    if drops(config.algo.model_dump()):
        raise ConfigError(where, "dropout would not be that of one process", do="Leave it out, or use one process.")
    if config.compile is True:
        raise ConfigError("compile", f"is for one process, and there are {size}", got=True, expected=False)
    if rows % size:
        expected = f"a multiple of {size}"
        raise ConfigError("source.batch_size", f"cannot be shared by {size} processes", got=rows, expected=expected)
    if config.device not in {"cpu", "cuda"}:
        what, do = f"is one for {size} processes", "Each takes the one that torchrun gives it."
        raise ConfigError("device", what, got=config.device, expected="cuda", do=do)


def patience_seconds(text: str) -> timedelta:
    """How long a process may keep the others waiting; the usual time if nothing is said."""
    try:
        seconds = float(text or PATIENCE_SECONDS)
    except ValueError:
        seconds = 0.0
    if not 1.0 <= seconds <= LONGEST_PATIENCE:
        raise ConfigError(PATIENCE, "no number of seconds", got=repr(text), expected=f"1 to {LONGEST_PATIENCE:,}")
    return timedelta(seconds=seconds)


@final
class Line:
    """What the processes of a run speak through."""

    def __init__(self, share: Share) -> None:
        from torch import distributed
        from torch.distributed.distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        patience = patience_seconds(os.environ.get(PATIENCE, ""))
        try:
            store, rank, size = next(iter(rendezvous("env://", timeout=patience)))
            self.store = PrefixStore("understudy", store)
            self._meet(rank, size, patience.total_seconds())
            distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=patience)
        except (RuntimeError, ValueError) as error:
            reason = str(error).strip().split("\n")[0].rstrip(".")
            told = f"process {share.rank} of {share.size} cannot find the others ({reason})"
            raise RunError("torchrun", told, do="RANK and WORLD_SIZE are set: start it with torchrun.") from error
        self.share = share
        self.said = self.begun = self.ended = 0
        """Pauses that have ended, learners that were begun, and commands."""

    def _meet(self, rank: int, size: int, seconds: float) -> None:
        """All have come. What torch does next waits for them, too, but hears no signals meanwhile. Who is missing may
        have been refused a setting."""
        self.tell(f"here/{rank}", "")
        for other in range(size):
            self.heard(f"here/{other}", until(seconds))

    def order(self, order: int, told: Sequence[int]) -> tuple[int, int]:
        """What the first process says, and the signal that one of them was told by; all come here together."""
        words = torch.tensor([order, *(told[:1] or [0])])
        reached(lambda: torch.distributed.all_reduce(words, torch.distributed.ReduceOp.MAX))
        return int(words[0]), int(words[1])

    def tell(self, key: str, words: str) -> None:
        reached(lambda: self.store.set(key, words))

    def heard(self, key: str, looked: Callable[[], None]) -> str:
        """What somebody tells, however long that takes; `looked` is called now and then."""
        nap = SHORTEST_NAP
        while not reached(lambda: self.store.check([key])):  # its own `wait` hears no signals
            looked()
            time.sleep(nap)
            nap = min(2.0 * nap, LONGEST_NAP)
        return reached(lambda: self.store.get(key)).decode()

    def broadcast(self, content: bytes) -> bytes:
        """The first process's."""
        length = torch.tensor(len(content))
        reached(lambda: torch.distributed.broadcast(length, 0))
        letters = torch.frombuffer(bytearray(content or bytes(int(length))), dtype=torch.uint8)
        reached(lambda: torch.distributed.broadcast(letters, 0))
        return letters.numpy().tobytes()

    def agreed(self, metrics: Metrics, learner: Learner) -> Metrics:
        """The metrics of whole batches, once all are found to be in the same state."""
        mine = state_digest(capture(learner))
        same = torch.tensor(int(self.broadcast(mine) == mine))
        reached(lambda: torch.distributed.all_reduce(same, torch.distributed.ReduceOp.MIN))
        if not same:
            raise RunError(
                "torchrun",
                "the processes of this run are no longer in the same state: their machines do not compute alike",
                do="What was saved before is whole: go on with one process, or on machines of one kind.",
            )
        values = torch.stack([value.detach().double().reshape(()).cpu() for value in metrics.values()])
        reached(lambda: torch.distributed.all_reduce(values))
        return dict(zip(metrics, (values / self.share.size).unbind(), strict=True))


@cache
def line_of_process() -> Line:
    """One for all commands of this process."""
    line = Line(process_share())
    atexit.register(torch.distributed.destroy_process_group)
    return line


def state_digest(state: State) -> bytes:
    """sha256 of all of it."""
    digest = hashlib.sha256()
    for path, leaf in sorted(state.items()):
        digest.update(path.encode())
        digest.update(
            leaf.reshape(-1).view(torch.uint8).numpy().data if isinstance(leaf, Tensor) else repr(leaf).encode()
        )
    return digest.digest()


def state_bytes(state: State) -> tuple[bytes, dict[str, Leaf]]:
    """Its tensors as safetensors, and the rest."""
    tensors = {path: leaf for path, leaf in sorted(state.items()) if isinstance(leaf, Tensor)}
    return save_tensors(tensors), {path: leaf for path, leaf in state.items() if path not in tensors}


def bytes_state(tensors: bytes, others: dict[str, Leaf]) -> State:
    return {**load_tensors(tensors), **others}


@final
@dataclass(eq=False)
class Crew:
    """The processes of a command, as the first one leads them. In one process there is nobody to lead."""

    lines: tuple[Line, ...] = ()
    paused: bool = True
    """The others wait at the store."""
    broken: bool = False
    """Something went wrong in what all take part in: the others hear no order any more."""
    run: str = ""
    """The directory of the run, once it is finished."""

    @property
    def share(self) -> Share:
        return self.lines[0].share if self.lines else ALL

    @contextmanager
    def led(self, config: RunConfig, learner: Learner, heed: Callable[[], None]) -> Iterator[None]:
        """Inside, the others have the same learner in the same state; `heed` is called while they get ready."""
        for line in self.lines:
            self._order(line, BEGIN)
            with self._taking_part():
                tensors, others = state_bytes(capture(learner))
                line.broadcast(json.dumps({"config": config.model_dump(mode="json"), "state": others}).encode())
                line.broadcast(tensors)
            for rank in range(1, line.share.size):
                if trouble := line.heard(f"ready/{line.begun}/{rank}", heed):
                    self.broken = True
                    raise RunError(f"process {rank} of this run", "could not begin", do=trouble)
            line.begun += 1
        yield
        for line in self.lines:
            self._order(line, CLOSE)

    @contextmanager
    def update(self, stop: list[int]) -> Iterator[None]:
        """Inside, all make one update; what another process was told to stop by is put on the list."""
        for line in self.lines:
            number = self._order(line, UPDATE)
            stop.extend([number] if number and not stop else ())
        with self._taking_part():
            yield

    def agreed(self, metrics: Metrics, learner: Learner) -> Metrics:
        """The metrics of whole batches, once all are found to be in the same state."""
        for line in self.lines:
            self._order(line, REPORT)
            with self._taking_part():
                return line.agreed(metrics, learner)
        return metrics

    def pause(self) -> None:
        """The first is at something else for a while."""
        for line in () if self.paused else self.lines:
            self._order(line, PAUSE)
            self.paused = True

    def end(self, code: int) -> None:
        """The others end as the first does."""
        for line in self.lines:
            with suppress(LostProcessError):  # who is gone has ended
                if not self.broken:
                    self._order(line, END)
                    line.broadcast(json.dumps({"code": code, "run": self.run}).encode())
                    for rank in range(1, line.share.size):
                        line.heard(f"bye/{line.ended}/{rank}", until(LAST_SECONDS))
            line.ended += 1

    def _order(self, line: Line, order: int) -> int:
        """The signal by which another process was told to stop, or 0."""
        with self._taking_part():
            if self.paused:
                line.tell(f"go/{line.said}", "go")
                line.said += 1
                self.paused = False
            return line.order(order, ())[1]

    @contextmanager
    def _taking_part(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.broken = True
            raise


ALONE = Crew()


@contextmanager
def crew_of_process() -> Iterator[Crew]:
    """Whoever this process leads for one command: nobody, unless torchrun started several."""
    if process_share().size == 1:
        yield ALONE
        return
    crew, code = Crew((line_of_process(),)), 0
    try:
        yield crew
    except BaseException as error:
        code = exit_code(error)
        raise
    finally:
        crew.end(code)


def until(seconds: float) -> Callable[[], None]:
    """To be called while one waits, but not for longer than this."""
    last = time.monotonic() + seconds

    def looked() -> None:
        if time.monotonic() > last:
            raise LostProcessError("torchrun", "another process of this run does not answer")

    return looked


def exit_code(error: BaseException) -> int:
    if isinstance(error, StopSignal):
        return 128 + error.number
    return error.exit_code if isinstance(error, UnderstudyError) else 1

"""The whole update as one graph of native code: gradients, optimisers and targets fused by torch.compile.

A quarter to a third faster than eager on a CPU, after half a minute of compiling. It needs a C++ compiler, and its
last bits differ from eager's, so it is a setting of the run (`compile`) and part of its identity: what `auto` stands
for is decided once, when the run starts.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, TypeVar

import torch

from understudy.algorithms import algorithm_names
from understudy.core.batch import Transitions
from understudy.core.errors import ConfigError
from understudy.core.protocols import Algorithm, TakingTurns, Update
from understudy.core.stopping import stoppable
from understudy.run.config import RunConfig

Told = TypeVar("Told")
COMPILERS = ("g++", "clang++", "c++")
PROCESSES = Path("/proc")
LAST_SECONDS = 1.0
"""For compilers that were told to end to remove what they wrote half of."""
REPAYING_UPDATES = 50_000
"""From so many planned updates on, `auto` compiles. A compiled update of IQL (batch 256, networks 256-256, two AVX2
cores) takes 5.8 ms and an eager one a third more, 0.65 against 0.87 of JAX's speed side by side: so half a minute is
repaid after 16,000 updates. Those of smaller networks save less each, and it takes a few times as many."""


def settle_compile(config: RunConfig, say: Callable[[str], None], processes: int = 1) -> RunConfig:
    """The config with `auto` decided, for the run and for its stages; what is worth knowing of the run's is said."""
    stages = tuple(settle_compile(stage, lambda line: None, processes) for stage in config.stages)
    chosen = config.compile
    if chosen == "auto" and processes > 1:
        chosen = False
    if chosen == "auto":
        chosen, line = decide_compile(config.updates, _obstacle(config), found=find_compiler())
        if line:
            say(line)
    return config.model_copy(update={"compile": chosen, "stages": stages})


def decide_compile(updates: int, obstacle: str | None, *, found: bool) -> tuple[bool, str]:
    """Whether to compile, and a line about it; none where nobody would have expected it.

    `obstacle`: why this update cannot be compiled, empty if it can, None if there is nothing to be said of it.
    """
    if obstacle is None or updates < REPAYING_UPDATES:
        return False, ""
    if obstacle:
        return False, f"compile: off, {obstacle}"
    if not found:
        return False, "compile: off, no C++ compiler found; with g++ or clang++ updates take a quarter less time"
    return True, f"compile: on, {updates:,} updates repay the half minute it takes (compile=false: off)"


def _obstacle(config: RunConfig) -> str | None:
    if not (config.needs.compiles and config.source_needs.compiles):
        return None
    if config.device != "cpu":
        return f"it is tested on cpu, not on {config.device} (compile=true: on)"
    if drops(config.algo.model_dump()):
        return "dropout cannot be compiled"
    if not algorithm_names()[config.algorithm].startswith("understudy."):
        return f"{config.algorithm} is of another package (compile=true: on)"
    return ""


def drops(settings: Any) -> bool:
    """Whether dropout is asked for anywhere in an algorithm's settings."""
    if isinstance(settings, dict):
        return bool(settings.get("dropout")) or any(map(drops, settings.values()))
    return isinstance(settings, (list, tuple)) and any(map(drops, settings))


def find_compiler() -> bool:
    return bool(os.environ.get("CXX")) or any(shutil.which(name) for name in COMPILERS)


def compile_update(
    algorithm: Algorithm[Any], device: torch.device, say: Callable[[str], None] = lambda line: None
) -> Callable[[Any], Update]:
    """Its `update`, compiled at its first call; what cannot be compiled is told before any parameter moves."""
    if not find_compiler():
        raise ConfigError("compile", "no C++ compiler found", do="Install g++ or clang++, or use compile=false.")
    try:
        torch._dynamo.config.trace_autograd_ops = True
    except AttributeError as error:
        raise ConfigError("compile", f"torch {torch.__version__} is too old for it", do="Use compile=false.") from error
    if isinstance(algorithm, TakingTurns):
        return _by_turns(algorithm, device, say)
    return _compiled(algorithm.update, device, say)


def _by_turns(
    algorithm: TakingTurns, device: torch.device, say: Callable[[str], None]
) -> Callable[[Transitions], Update]:
    """Each kind of update is a graph of its own, compiled when it is first due."""
    graphs: dict[str, Callable[[Transitions], Update]] = {}

    def step(data: Transitions) -> Update:
        due = algorithm.turn()
        if due.__name__ not in graphs:
            graphs[due.__name__] = _compiled(due, device, say)
        return graphs[due.__name__](data)

    return step


def _compiled(method: Callable[[Any], Told], device: torch.device, say: Callable[[str], None]) -> Callable[[Any], Told]:
    options: dict[str, str | int | bool | Callable[..., object]] = {"guard_filter_fn": _no_guards}
    if device.type == "cpu":
        options["cpp_wrapper"] = True
    compiled = torch.compile(_of_its_own(method), fullgraph=True, options=options)
    fresh = True

    def step(data: Any) -> Told:
        nonlocal fresh
        if fresh:
            say("compiling, about half a minute")
            with _compiling():
                told = first(data)
            fresh = False
            return told
        return compiled(data)

    def first(data: Any) -> Told:
        try:
            return compiled(data)
        except (torch._dynamo.exc.TorchDynamoException, torch._inductor.exc.InductorError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ConfigError("compile", f"this run cannot be compiled ({reason})", do="Use compile=false.") from error

    return step


@contextmanager
def _compiling() -> Iterator[None]:
    """Half a minute in which nothing moves yet: a signal need not wait for its end, and ends the compilers, too."""
    before = set(_descendants())

    def end_compilers() -> None:
        # The innermost first: a compiler removes the half of a file whose writer has died, or torch would take it for
        # a whole one the next time.
        started = [process for process in reversed(_descendants()) if process not in before]
        for process in started:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        until = time.monotonic() + LAST_SECONDS
        while time.monotonic() < until and any(_runs(process) for process in started):
            time.sleep(0.01)

    with stoppable("compile", at_once=end_compilers):
        yield


def _descendants() -> list[int]:
    """Processes that this one started, and those they started, parents first; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for entry in PROCESSES.glob("[0-9]*"):
        if words := _status(int(entry.name)):
            children.setdefault(int(words[1]), []).append(int(entry.name))
    found = [os.getpid()]
    for process in found:
        found += children.get(process, [])
    return found[1:]


def _runs(process: int) -> bool:
    return _status(process)[:1] not in ([], ["Z"])


def _status(process: int) -> list[str]:
    """What /proc/…/stat says behind the name: state, parent and more; empty for a process that is gone."""
    try:
        return (PROCESSES / str(process) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _no_guards(guards: Sequence[object]) -> list[bool]:
    """Nothing to check again at every call: a run's shapes, settings and modules never change."""
    return [False] * len(guards)


def _of_its_own(method: Callable[[Any], Told]) -> Callable[[Any], Told]:
    """The same method with its own code object: compiled code is remembered by it, and is this run's alone."""
    assert isinstance(method, MethodType)
    function = method.__func__
    twin = FunctionType(function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__)
    return MethodType(twin, method.__self__)

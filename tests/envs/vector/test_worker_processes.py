"""Environments shared out over processes: the same steps to the bit, and no process that stays behind."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from test_step_timeout import LONG, SECONDS, Sleeper
from test_vector_envs import Faulty
from torch import Tensor

from processes import all_gone, children
from understudy.core.errors import CheckpointError, ConfigError, RunError, UnderstudyError
from understudy.core.spec import ACTION_MASK
from understudy.envs.gym import Env, make_env
from understudy.envs.vector.contract import Step, environment_seeds
from understudy.envs.vector.local import LocalVectorEnv
from understudy.envs.vector.step_timeout import TimedVectorEnv
from vector_cases import BATTLE, CARTPOLE, PENDULUM, action_table

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are counted in /proc")
COUNT = 5
CHEETAH = "UnderstudyTestShortCheetah-v0"


@pytest.fixture(autouse=True)
def nobody_stays() -> Iterator[None]:
    """Whatever a test does, the processes of its worlds are gone afterwards, and waited for."""
    before = set(children())
    yield
    if not set(children()) <= before:
        gc.collect()
    assert set(children()) <= before


def one_and(workers: int, name: str, count: int = COUNT, **options: Any) -> tuple[LocalVectorEnv, LocalVectorEnv]:
    return LocalVectorEnv(name, count, **options), LocalVectorEnv(name, count, workers=workers, **options)


def close(*worlds: LocalVectorEnv) -> None:
    for world in worlds:
        world.close()


def check_same(step: Step, other: Step) -> None:
    for mine, theirs in ((step.obs, other.obs), (step.final_obs, other.final_obs), (step.extras, other.extras)):
        assert list(mine) == list(theirs)
        assert all(_equal(mine[name], theirs[name]) for name in mine)
    for part in ("reward", "terminated", "truncated", "valid"):
        assert _equal(getattr(step, part), getattr(other, part)), part


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.numpy().tobytes() == other.numpy().tobytes()


def check_steps(
    one: LocalVectorEnv, other: LocalVectorEnv, steps: int, seed: int = 0, mask: Tensor | None = None
) -> int:
    """Random legal play in both; gives how many episodes ended."""
    table = action_table(one.spec.action, one.count, steps, seed)
    rng, ends = torch.Generator().manual_seed(seed), 0
    for k in range(steps):
        action = table[:, k] if mask is None else torch.multinomial(mask.float(), 1, generator=rng)[:, 0]
        step = one.step(action)
        check_same(step, other.step(action))
        ends += int((step.terminated | step.truncated).sum())
        mask = step.obs.get(ACTION_MASK, mask)
    return ends


@pytest.mark.parametrize(
    ("name", "workers", "options"),
    [
        (CHEETAH, 2, {}),
        (CARTPOLE, 5, {}),
        (PENDULUM, 3, {"stagger_episodes": True}),
        (BATTLE, 2, {}),
        ("UnderstudyWindyPoint-v0", 2, {"extras": ("reward_effort", "nothing")}),
        ("UnderstudyWindyThrusters-v0", 2, {"stagger_episodes": True}),
        ("UnderstudyCartPolePixels-v0", 2, {}),
        ("FrozenLake-v1", 3, {}),
    ],
)
def test_steps_are_the_same_to_the_bit(name: str, workers: int, options: dict[str, Any]) -> None:
    if name == CHEETAH:
        pytest.importorskip("mujoco")
        if name not in gymnasium.registry:
            gymnasium.register(name, gymnasium.spec("HalfCheetah-v5").entry_point, max_episode_steps=40)
    one, other = one_and(workers, name, **options)
    for seed in (3, 4):
        first, second = one.reset(seed), other.reset(seed)
        assert all(_equal(first[group], second[group]) for group in first)
        assert check_steps(one, other, 200, seed, first.get(ACTION_MASK)) > COUNT
    close(one, other)


@pytest.mark.parametrize("name", [CARTPOLE, "UnderstudyWindyPoint-v0"])
def test_a_state_is_the_same_whoever_saved_it(name: str) -> None:
    """Saved by one process and loaded by three, and the other way round; then both go on."""
    one, other = one_and(3, name, stagger_episodes=True)
    assert other.save() == {}
    for there, here in ((one, other), (other, one)):
        there.reset(7)
        here.reset(8)
        for _ in range(9):
            there.step(action_table(one.spec.action, COUNT, 1)[:, 0])
        saved = there.save()
        obs = here.load(saved)
        again = here.save()
        assert list(saved) == list(again)
        assert all(_equal(saved[part], again[part]) for part in saved)
        assert all(_equal(obs[group], saved[f"obs.{group}"]) for group in obs)
        check_steps(one, other, 1)
        later = one.save()
        assert all(_equal(later[part], values) for part, values in other.save().items())
        assert check_steps(one, other, 120) >= COUNT
    fresh = LocalVectorEnv(name, COUNT, workers=2, stagger_episodes=True)
    fresh.load(saved)
    assert all(_equal(saved[part], values) for part, values in fresh.save().items())
    with pytest.raises(CheckpointError, match="cannot be put"):
        fresh.load({name: values[:2] for name, values in saved.items()})
    close(one, other, fresh)


class Teller(gymnasium.Env[Any, Any]):
    """Tells nothing until some step, and keeps the very action it was given."""

    observation_space = gymnasium.spaces.Box(-9, 9, (1,))
    action_space = gymnasium.spaces.Box(-9, 9, (2,))

    def __init__(self, first: int, terms: tuple[str, ...]) -> None:
        self.first, self.terms, self.steps, self.kept = first, terms, 0, np.zeros(2, np.float32)

    def reset(self, **options: Any) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        moved, self.kept = float(np.abs(action - self.kept).sum()), action
        told = {name: float(self.steps) for name in self.terms}
        return np.zeros(1, np.float32), moved, False, False, told if self.steps >= self.first else {}


TELLERS: list[list[tuple[int, tuple[str, ...]]]] = [
    [(4, ("reward_a",)), (9, ("reward_a", "reward_b")), (2, ("reward_b", "reward_a")), (3, ("reward_c",))],
    [(3, ("reward_a",)), (3, ("reward_b",)), (3, ("reward_a", "reward_b")), (1, ("other",))],
    [(2, ("reward_b",)), (2, ("reward_a",)), (2, ("reward_b",)), (2, ("reward_a",))],
]


@pytest.mark.parametrize("tellers", TELLERS)
def test_terms_are_those_of_who_told_first(tellers: list[tuple[int, tuple[str, ...]]]) -> None:
    """Whatever the others tell and whenever they begin, in whichever process they are."""

    def make(workers: int) -> LocalVectorEnv:
        each = iter(tellers)
        return LocalVectorEnv("Teller", 4, workers=workers, make=lambda name: Teller(*next(each)))

    one, other = make(1), make(2)
    one.reset(0)
    other.reset(0)
    check_steps(one, other, 12)
    close(one, other)


def test_who_told_nothing_is_not_a_number() -> None:
    """In the very step in which the first one tells something, and afterwards."""
    each = iter([(3, ("reward_a",)), (9, ("reward_a",)), (2, ("reward_a",)), (9, ("reward_a",))])
    world = LocalVectorEnv("Teller", 4, workers=2, make=lambda name: Teller(*next(each)))
    world.reset(0)
    assert dict(world.step(torch.zeros(4, 2)).extras) == {}
    told = [world.step(torch.zeros(4, 2)).extras["reward_a"].nan_to_num(-1.0).tolist() for _ in range(2)]
    assert told == [[-1.0, -1.0, 2.0, -1.0], [3.0, -1.0, 3.0, -1.0]]
    world.close()


def faulty(fault: str, number: int, workers: int) -> LocalVectorEnv:
    faults = iter([fault if k == number else "" for k in range(4)])
    return LocalVectorEnv("Faulty", 4, workers=workers, make=lambda name: Faulty(next(faults)))


def failure(world: LocalVectorEnv) -> UnderstudyError:
    for _ in range(2):
        world.step(torch.zeros(4, 1))
    with pytest.raises(UnderstudyError) as caught:
        world.step(torch.zeros(4, 1))
    return caught.value


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("fault", ["nan", "shape", "ear", "reward", "raise"])
def test_a_faulty_environment_is_named_as_ever(fault: str, number: int) -> None:
    """The same class and words; and whoever catches it may begin anew, with another seed."""
    one, other = faulty(fault, number, 1), faulty(fault, number, 2)
    told = []
    for world in (one, other):
        world.reset(0)
        told.append(failure(world))
        world.reset(1)
        again = failure(world)
        first, second = (environment_seeds(seed, 4)[number] for seed in (0, 1))
        assert str(again) == str(told[-1]).replace(f"seed {first},", f"seed {second},") != str(told[-1])
    assert type(told[0]) is type(told[1])
    assert str(told[0]) == str(told[1])
    assert f"environment {number} " in str(told[1])
    notes = "".join(getattr(told[1], "__notes__", []))
    assert ("ZeroDivisionError: wheels" in notes) == (fault == "raise" and number == 3), "where it happened over there"
    close(one, other)


def test_what_cannot_be_made_in_another_process_is_told() -> None:
    def make(name: str) -> Env:
        if os.getpid() != here:
            raise ConfigError("env.id", "not here", got=name)
        return make_env(name)

    here = os.getpid()
    with pytest.raises(ConfigError, match=r"^env\.id: not here: got UnderstudyTestPendulum-v0\."):
        LocalVectorEnv(PENDULUM, 4, workers=3, make=make)
    assert children() == []


def test_a_process_that_is_killed_is_told_at_once() -> None:
    world = TimedVectorEnv(LocalVectorEnv(PENDULUM, 4, workers=2), PENDULUM, LONG)
    world.reset(0)
    world.step(torch.zeros(4, 1))
    os.kill(children()[0], signal.SIGKILL)
    began = time.monotonic()
    told = rf"^environment '{PENDULUM}': the process of environments 2 to 3 is gone \(SIGKILL\)\. Was there too little"
    for _ in range(2):
        with pytest.raises(RunError, match=told):
            world.step(torch.zeros(4, 1))
    assert time.monotonic() - began < LONG / 10
    world.close()


class Leaving(Sleeper):
    """Ends its process at its second step."""

    def step(self, action: Any) -> Any:
        if self.last == 1:
            os._exit(7)
        return super().step(action)


def test_a_process_that_ends_itself_is_told_with_its_code() -> None:
    made = iter([Sleeper(), Leaving()])
    world = LocalVectorEnv("Leaving", 2, workers=2, make=lambda name: next(made))
    world.reset(0)
    world.step(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(RunError, match=r"the process of environment 1 is gone \(exit code 7\)\."):
        world.step(torch.zeros(2, dtype=torch.int64))
    world.close()


@pytest.mark.parametrize(("sleepy", "when"), [(0, {"step": 3}), (2, {"step": 3}), (3, {"reset": 1})])
def test_an_environment_that_hangs_is_named_and_its_process_ended(sleepy: int, when: dict[str, int]) -> None:
    made = iter([Sleeper(**when) if number == sleepy else Sleeper() for number in range(4)])
    local = LocalVectorEnv("Sleeper", 4, workers=2, make=lambda name: next(made))
    world = TimedVectorEnv(local, "Sleeper", SECONDS)

    def play() -> None:
        world.reset(0)
        for _ in range(3):
            world.step(torch.zeros(4, dtype=torch.int64))

    began = time.monotonic()
    with pytest.raises(RunError, match=rf"has not answered for 0.5 seconds \(environment {sleepy}\)\."):
        play()
    world.close()
    assert time.monotonic() - began < LONG / 10
    assert children() == []


ORPHANS = """
import ctypes, sys, time
import numpy as np
from gymnasium import spaces
import gymnasium, torch
from understudy.envs.vector.local import LocalVectorEnv

class Busy(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1.0, 1.0, (1,), np.float32), spaces.Discrete(2)
    def __init__(self, number):
        self.number = number
    def reset(self, **options):
        return np.zeros(1, np.float32), {}
    def step(self, action):
        while self.number == 2:
            pass
        if self.number == 3:
            ctypes.PyDLL(None).pause()  # native code that holds the interpreter's lock: no thread runs
        if self.number == 0:
            print("waiting", flush=True)
            time.sleep(60)
        return np.zeros(1, np.float32), 0.0, False, False, {}

made = iter([0, 2, 1])
worlds = [LocalVectorEnv("Busy", 2, workers=2, make=lambda name: Busy(next(made)))]
worlds[0].reset(0)
made = iter([0, 1, 1])
worlds.append(LocalVectorEnv("Busy", 3, workers=3, make=lambda name: Busy(next(made))))
worlds[0].step(torch.zeros(2, dtype=torch.int64))
"""


@pytest.mark.parametrize("busy", [2, 3])
def test_no_process_outlives_the_one_that_started_it(busy: int) -> None:
    """Neither those that wait nor one that is busy for ever, also where one process has several worlds.

    Busy with Python code, or with native code that lets no other thread run, which only Linux can end.
    """
    if busy == 3 and sys.platform != "linux":
        pytest.skip("only Linux kills a process with its parent")
    script = ORPHANS.replace("iter([0, 2, 1])", f"iter([0, {busy}, 1])")
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    started = children(process.pid)
    assert len(started) == 3
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    assert all_gone(started)


def test_a_forgotten_world_ends_its_processes() -> None:
    world = LocalVectorEnv(PENDULUM, 3, workers=3)
    started = children()
    assert len(started) == 2
    del world
    gc.collect()
    assert children() == []


def test_a_fork_of_this_process_does_not_end_them() -> None:
    world = LocalVectorEnv(PENDULUM, 2, workers=2)
    world.reset(0)
    process = os.fork()
    if process == 0:
        world.close()
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0
    world.step(torch.zeros(2, 1))
    world.close()


class Printing(Sleeper):
    def step(self, action: Any) -> Any:
        sys.stdout.write("said\n")
        sys.stdout.flush()
        return super().step(action)


def test_nothing_of_theirs_is_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    sys.stdout.write("before ")
    made = iter([Sleeper(), Printing()])
    world = LocalVectorEnv("Printing", 2, workers=2, make=lambda name: next(made))
    world.reset(0)
    world.step(torch.zeros(2, dtype=torch.int64))
    world.close()
    said = capfd.readouterr()
    assert (said.out, said.err) == ("before ", "said\n")


def test_signals_that_stop_a_run_are_not_for_them() -> None:
    world = LocalVectorEnv(PENDULUM, 4, workers=2)
    world.reset(0)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(children()[0], number)
        world.step(torch.zeros(4, 1))
    world.close()


def test_threads_of_this_process_are_not_missed_there() -> None:
    """A pool of threads does not survive a fork: whoever asks for it would wait for ever."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.ones(600, 600) @ torch.ones(600, 600)
        world = TimedVectorEnv(LocalVectorEnv("Large", 2, workers=2, make=lambda name: Large()), "Large", LONG / 6)
        world.reset(0)
        assert world.step(torch.zeros(2, dtype=torch.int64)).reward.tolist() == [600.0] * 2
        world.close()
    finally:
        torch.set_num_threads(before)


class Large(Sleeper):
    def step(self, action: Any) -> Any:
        seen, _, *others = super().step(action)
        return (seen, float((torch.ones(600, 600) @ torch.ones(600, 600))[0, 0]), *others)


def test_an_interrupted_step_leaves_a_world_that_can_begin_anew() -> None:
    """Ctrl-C while others still step: their late answers are not taken for new ones."""
    one, other = one_and(3, CARTPOLE)
    other.reset(0)
    slow, before = other._mine.step, signal.getsignal(signal.SIGINT)

    def interrupted(wishes: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        slow(wishes)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    other._mine.step = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        other.step(torch.zeros(COUNT, dtype=torch.int64))
    signal.signal(signal.SIGINT, before)
    other._mine.step = slow  # type: ignore[method-assign]
    one.reset(5)
    other.reset(5)
    check_steps(one, other, 40)
    close(one, other)


@pytest.mark.parametrize("workers", [0, 4])
def test_everybody_has_work(workers: int) -> None:
    with pytest.raises(ConfigError, match=rf"workers: not a number of shares: got {workers}, expected 1 to 3"):
        LocalVectorEnv(PENDULUM, 3, workers=workers)


def test_no_fork_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigError, match="cannot fork"):
        LocalVectorEnv(PENDULUM, 3, workers=2)


def test_memory_has_no_name() -> None:
    shared = Path("/dev/shm")
    before = set(shared.iterdir()) if shared.exists() else set()
    world = LocalVectorEnv(PENDULUM, 3, workers=3)
    world.reset(0)
    assert (set(shared.iterdir()) if shared.exists() else set()) <= before
    world.close()

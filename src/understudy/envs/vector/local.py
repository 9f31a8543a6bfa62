"""N environments of Gymnasium's registry on this machine: a plain loop, and nothing else between them and tensors.

Observations are written once, into one buffer per group. Where an episode ends, its final observation is put aside
and the environment starts anew in the same step, so no step is a dummy. With several workers every process loops over
its share of the environments, this one over the first, and all write into the same memory: the steps are the same.
"""

import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import CheckpointError, ConfigError, RunError, UnderstudyError
from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete, Spec
from understudy.envs.checked_env import CheckedEnv, make_checked
from understudy.envs.gym import Env, env_spec, make_env
from understudy.envs.vector.contract import Step, action_array, check_finite, environment_seeds
from understudy.envs.vector.environment_share import BEGIN, LOAD, NAMES, SAVE, STEP, EnvironmentShare, ServingShare
from understudy.envs.vector.step_buffers import NOBODY, WHOLE, StepBuffers, shared_zeros
from understudy.envs.vector.worker_process import WorkerProcess, check_fork, end_all

SIMULATOR = "simulator."
"""What names of saved simulator states begin with."""


@final
class LocalVectorEnv:
    """The vector world that is used unless another is asked for.

    `stagger_episodes` shortens every first episode to a random length, so that environments with a time limit do not
    all end at once for ever after; what is cut short is marked truncated, with its true final observation. `extras`
    names the numbers in `info` to keep: by default those that begin with "reward". `workers` processes share the
    environments; those of the others are made there, by `make`.
    """

    def __init__(
        self,
        name: str,
        count: int,
        *,
        workers: int = 1,
        stagger_episodes: bool = False,
        extras: Sequence[str] | None = None,
        make: Callable[[str], Env] = make_env,
    ) -> None:
        _check_counts(count, workers)
        self._where, self.count = f"environment '{name}'", count
        self._shares = [range(count * place // workers, count * (place + 1) // workers) for place in range(workers)]
        envs = _made(name, make, self._shares[0], self._where)
        first = envs[0].env
        self._spec = env_spec(first, name)
        self._longest = _time_limit(first, name) if stagger_episodes else 0
        allocate = np.zeros if workers == 1 else shared_zeros
        space = first.observation_space
        self._buffers = StepBuffers(
            space, self._spec, count, self._where, extras=extras, shares=workers, allocate=allocate
        )
        self._mine = EnvironmentShare(envs, self._shares[0], 0, self._buffers)
        self._wishes = allocate(*_action_shape(self._spec, count))
        self._others: list[WorkerProcess] = []
        self._end = weakref.finalize(self, end_all, self._others, os.getpid())
        self._running = False
        self._employ(name, make)

    def _employ(self, name: str, make: Callable[[str], Env]) -> None:
        """Start the processes of the other shares, and wait until their environments are made."""
        for place, numbers in enumerate(self._shares[1:], 1):
            start = partial(_serving, name, make, numbers, place, self._buffers, self._wishes)
            self._others.append(WorkerProcess(start, self._where, _called(numbers), self._others))
        try:
            self._answers()
        except BaseException:
            self.close()
            raise

    @property
    def spec(self) -> Spec:
        return self._spec

    def reset(self, seed: int) -> Obs:
        self._settle()
        self._buffers.left[:] = self._lengths(seed)
        seeds = self._buffers.next_seeds() or environment_seeds(seed, self.count)
        self._buffers.log.begin(seeds)
        with self._located():
            self._ask(BEGIN, json.dumps(seeds).encode())
            self._mine.begin(seeds)
            self._answers()
        self._running = True
        check_finite(self._buffers.rows.tensors, self._where, self._buffers.log)
        return self._buffers.rows.tensors

    def seed_episodes(self, seeds: Sequence[int]) -> None:
        """Seeds [N] of the episodes that begin next: at a reset, and where one ends."""
        self._settle()
        self._buffers.seeds[:] = seeds

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Errors in here say what the environment was asked whose turn it was."""
        try:
            yield
        except UnderstudyError as error:
            self._locate(error)
            raise

    def _locate(self, error: UnderstudyError) -> None:
        for number in self.waiting()[:1]:
            self._buffers.log.locate(error, number)

    def _lengths(self, seed: int) -> NDArray[np.int64]:
        """Of first episodes [N]."""
        if not self._longest:
            return np.full(self.count, WHOLE, np.int64)
        return torch.randint(1, self._longest + 1, (self.count,), generator=stream(seed, "spread")).numpy()

    def step(self, action: Tensor) -> Step:
        if not self._running:
            raise RunError(self._where, "stepped before it was reset")
        wishes = action_array(action, self._spec.action, self.count, self._where)
        self._settle()
        self._buffers.clear(wishes)
        try:  # as _located does, in a tenth of the time
            if self._others:
                self._wishes[:] = wishes
                self._ask(STEP)
            self._mine.step(wishes[: self._shares[0].stop])
            answers = self._answers()
        except UnderstudyError as error:
            self._locate(error)
            raise
        if self._buffers.terms.names is None and (self._mine.untold or any(answers)):
            self._agree(answers)
        return self._buffers.step()

    def _agree(self, answers: list[bytes]) -> None:
        """Names of reward terms are those that the first environment told that told anything."""
        proposed = [self._mine.proposed(), *(json.loads(answer) if answer else None for answer in answers)]
        self.keep_extras(next(names for names in proposed if names is not None))

    def keep_extras(self, names: Sequence[str]) -> None:
        """Numbers of `info` to tell from now on, in every share the same."""
        self._buffers.terms.choose(names)
        self._buffers.terms.clear()
        self._ask(NAMES, json.dumps(names).encode())
        self._mine.learn(names)
        self._answers()

    def _settle(self) -> None:
        for worker in self._others:
            worker.settle()

    def _ask(self, letter: bytes, content: bytes = b"") -> None:
        for worker, numbers, place in zip(self._others, self._shares[1:], range(1, len(self._shares)), strict=True):
            self._buffers.asked[place] = numbers.start
            worker.ask(letter, content)

    def _answers(self) -> list[bytes]:
        answers = []
        for place, worker in enumerate(self._others, 1):
            answers.append(worker.answer())
            self._buffers.asked[place] = NOBODY
        return answers

    def save(self) -> dict[str, Tensor]:
        """Where every simulator stands, [N, …] each; empty if these are not environments that can tell it."""
        if not self._running:
            return {}
        self._settle()
        with self._located():
            self._ask(SAVE)
            shares = [self._mine.save(), *map(load, self._answers())]
        if not all(shares):
            return {}
        saved = {f"{SIMULATOR}{name}": torch.cat([share[name] for share in shares]) for name in shares[0]}
        saved |= {f"obs.{name}": values.clone() for name, values in self._buffers.rows.tensors.items()}
        return {**saved, "left": torch.from_numpy(self._buffers.left.copy())}

    def load(self, saved: Mapping[str, Tensor]) -> Obs:
        """Stand where `save` was called, also in another process; everything must fit."""
        if not self._running:
            self.reset(0)  # nothing of it stays, but simulators must have begun before they can be put anywhere
        here = self.save()
        told = {name: (values.shape, values.dtype) for name, values in saved.items()}
        if not here or told != {name: (values.shape, values.dtype) for name, values in here.items()}:
            raise CheckpointError(self._where, "these environments cannot be put where others stood")
        for name, values in self._buffers.rows.tensors.items():
            values.copy_(saved[f"obs.{name}"])
        self._buffers.left[:] = saved["left"].numpy()
        self._buffers.log.begin(None)
        parts = [_rows(saved, numbers) for numbers in self._shares]
        with self._located():
            for worker, part in zip(self._others, parts[1:], strict=True):
                worker.ask(LOAD, save(part))
            self._mine.load(parts[0])
            self._answers()
        return self._buffers.rows.tensors

    def waiting(self) -> list[int]:
        """Who has not answered, while a call lasts."""
        return [int(number) for number in self._buffers.asked if number != NOBODY]

    def close(self) -> None:
        self._end()
        self._mine.close()


def _serving(
    name: str, make: Callable[[str], Env], numbers: range, place: int, buffers: StepBuffers, wishes: NDArray[Any]
) -> ServingShare:
    """A share of the environments, made in the process that asks for it."""
    share = EnvironmentShare(_made(name, make, numbers, buffers.where), numbers, place, buffers)
    return ServingShare(share, wishes[numbers.start : numbers.stop])


def _made(name: str, make: Callable[[str], Env], numbers: range, where: str) -> list[CheckedEnv]:
    return [make_checked(make, name, where, f"environment {number}") for number in numbers]


def _rows(saved: Mapping[str, Tensor], numbers: range) -> dict[str, Tensor]:
    """Simulator states of some environments."""
    return {
        name.removeprefix(SIMULATOR): values[numbers.start : numbers.stop].contiguous()
        for name, values in saved.items()
        if name.startswith(SIMULATOR)
    }


def _called(numbers: range) -> str:
    first, last = numbers[0], numbers[-1]
    return f"environment {first}" if first == last else f"environments {first} to {last}"


def _action_shape(spec: Spec, count: int) -> tuple[tuple[int, ...], str]:
    """Of actions [N, …] as `action_array` gives them, and their dtype."""
    action = spec.action
    shape = (count,) if isinstance(action, Discrete) else (count, action.size)
    return shape, action.dtype if isinstance(action, Box) else "int64"


def _check_counts(count: int, workers: int) -> None:
    if count < 1:
        raise ConfigError("envs", "a vector needs environments", got=count, expected="at least 1")
    if not 1 <= workers <= count:
        raise ConfigError("workers", "not a number of shares", got=workers, expected=f"1 to {count} (environments)")
    if workers > 1:
        check_fork("workers")


def _time_limit(env: Env, name: str) -> int:
    longest = None if env.spec is None else env.spec.max_episode_steps
    if longest is None:
        raise ConfigError(
            f"environment '{name}'", "has no time limit to spread first episodes over", do="Switch spread off."
        )
    return int(longest)

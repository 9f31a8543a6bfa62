"""Some of the environments of a world, stepped in a plain loop; each writes into its rows of the world's buffers.

A share of the world may live in a process of its own: then `ServingShare` answers for it, and the buffers are memory
that both processes see.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, final

import torch
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor

from understudy.envs.checked_env import CheckedEnv
from understudy.envs.failures import raise_failure
from understudy.envs.gym import Env
from understudy.envs.physics.snapshots import can_snapshot, restore_snapshot, snapshot
from understudy.envs.vector.step_buffers import NOBODY, UNSEEDED, WHOLE, StepBuffers, term_names

Answer = TypeVar("Answer")
BEGIN, STEP, NAMES, SAVE, LOAD = b"b", b"s", b"n", b"r", b"w"
"""Letters of messages to a share in another process."""


@final
class EnvironmentShare:
    """The environments `numbers` of a world, of which this is the share number `place`."""

    def __init__(self, envs: Sequence[CheckedEnv], numbers: range, place: int, buffers: StepBuffers) -> None:
        self._envs, self._numbers, self._place = envs, numbers, place
        self._buffers, self._rows, self._terms, self._reward = buffers, buffers.rows, buffers.terms, buffers.reward
        self._asked = memoryview(buffers.asked)  # type: ignore[arg-type]
        self._shortened: set[int] = set()
        self.untold: list[tuple[int, Mapping[str, Any]]] = []
        """What environments told in this step, while nobody knows yet which names to keep."""

    def begin(self, seeds: Sequence[int]) -> None:
        """New episodes, shortened as the buffers say; one seed for each environment of the whole world."""
        for number, env in self._each():
            self._begin(number, env, seeds[number])
        self._note_shortened()

    def step(self, wishes: NDArray[Any]) -> None:
        """One step of each, with its action."""
        self.untold = []
        asked, place = self._asked, self._place
        for number, env, wish in zip(self._numbers, self._envs, wishes, strict=True):
            asked[place] = number
            self._advance(number, env, wish)
        asked[place] = NOBODY

    def _advance(self, number: int, env: CheckedEnv, wish: Any) -> None:
        """One environment's step; where its episode ended, another one begins."""
        raw, reward, terminated, truncated, info = env.step(wish)
        if number in self._shortened:
            truncated = self._cut(number) or truncated
        self._reward[number] = reward
        if info:
            self._note(number, info)
        if not (terminated or truncated):
            self._rows.write(number, raw)
            return
        buffers = self._buffers
        buffers.terminated[number], buffers.truncated[number] = terminated, not terminated
        buffers.finals.write(number, raw)
        self._shortened.discard(number)
        buffers.left[number] = WHOLE
        seed = int(buffers.seeds[number])
        self._begin(number, env, None if seed == UNSEEDED else seed)

    def _cut(self, number: int) -> bool:
        """Whether a shortened first episode is over."""
        self._buffers.left[number] -= 1
        return bool(self._buffers.left[number] == 0)

    def _begin(self, number: int, env: CheckedEnv, seed: int | None) -> None:
        self._rows.write(number, env.reset(seed))

    def _note(self, number: int, info: Mapping[str, Any]) -> None:
        if self._terms.names is None:
            self.untold.append((number, info))
        else:
            self._terms.note(number, info)

    def proposed(self) -> tuple[str, ...] | None:
        """Names of reward terms, if an environment has just told something for the first time."""
        return term_names(self.untold[0][1]) if self.untold else None

    def learn(self, names: Sequence[str]) -> None:
        """The names to keep, in every share the same, from this step on."""
        self._terms.choose(names)
        for number, info in self.untold:
            self._terms.note(number, info)
        self.untold = []

    def save(self) -> dict[str, Tensor]:
        """Where every simulator stands, [n, …] each; empty if these are not environments that can tell it."""
        if not all(can_snapshot(env.env) for env in self._envs):
            return {}
        each = [self._called(env, "told where it stands", snapshot) for _, env in self._each()]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}

    def _each(self) -> Iterator[tuple[int, CheckedEnv]]:
        """Environments with their numbers; whoever waits can see whose turn it is."""
        for number, env in zip(self._numbers, self._envs, strict=True):
            self._asked[self._place] = number
            yield number, env
        self._asked[self._place] = NOBODY

    @staticmethod
    def _called(env: CheckedEnv, doing: str, what: Callable[[Env], Answer]) -> Answer:
        try:
            return what(env.env)
        except BaseException as error:
            raise_failure(env.where, f"{env.label} failed when it {doing}", error, env.env)

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Stand where `save` was called, with as much left of shortened episodes as the buffers say."""
        for number, env in self._each():
            row = number - self._numbers.start
            parts = {name: values[row] for name, values in saved.items()}
            self._called(env, "was put where it stood", partial(restore_snapshot, parts=parts))
        self._note_shortened()

    def _note_shortened(self) -> None:
        left = self._buffers.left
        self._shortened = {number for number in self._numbers if left[number] != WHOLE}

    def close(self) -> None:
        for env in self._envs:
            env.close()


@final
class ServingShare:
    """A share that is asked by messages; actions [N, …] are in memory that the other process writes."""

    def __init__(self, share: EnvironmentShare, wishes: NDArray[Any]) -> None:
        self._share, self._wishes = share, wishes
        self._answers: dict[bytes, Callable[[bytes], bytes]] = {
            BEGIN: self._begin,
            STEP: self._step,
            NAMES: self._learn,
            SAVE: self._save,
            LOAD: self._load,
        }

    def answer(self, letter: bytes, content: bytes) -> bytes:
        return self._answers[letter](content)

    def _begin(self, content: bytes) -> bytes:
        self._share.begin(json.loads(content))
        return b""

    def _step(self, content: bytes) -> bytes:
        self._share.step(self._wishes.copy())  # an environment may keep its action
        proposed = self._share.proposed()
        return b"" if proposed is None else json.dumps(proposed).encode()

    def _learn(self, content: bytes) -> bytes:
        self._share.learn(json.loads(content))
        return b""

    def _save(self, content: bytes) -> bytes:
        return save(self._share.save())

    def _load(self, content: bytes) -> bytes:
        self._share.load(load(content))
        return b""

    def close(self) -> None:
        self._share.close()

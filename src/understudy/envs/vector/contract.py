"""Vectors of environments: what N of them promise when they take one step together.

Every adapter keeps the same promise, whatever its simulator does at the end of an episode. The successor of the last
action is never lost: it is in `Step.final_obs`, while `Step.obs` is what the policy sees next. A simulator that spends
a step on starting anew says so in `Step.valid`. Terminations and truncations are never merged.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import DataError, RunError
from understudy.core.rng import derived_seed, simulator_seed
from understudy.core.spec import ACTION_MASK, ActionSpace, Box, Discrete, Group, Spec
from understudy.envs.call_log import CallLog

REWARD_TERMS = "reward"
"""Numbers in an environment's `info` whose names begin so are kept in `Step.extras` unless others are asked for."""


VECTORS = 2
"""Axes of vectors [N, columns]: a group of more is an image, which may come as float16 where float32 is expected."""


@final
class Block(Mapping[str, Tensor]):
    """Columns [N] by name that are the rows of one tensor [K, N]: whoever keeps them all copies once."""

    def __init__(self, names: tuple[str, ...], rows: Tensor) -> None:
        self.names, self.rows = names, rows

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.names:
            raise KeyError(name)
        return self.rows[self.names.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Step:
    """What N environments did with one action each; every tensor starts with [N].

    The tensors belong to the world and hold until it is stepped or reset again: copy what you keep.
    """

    obs: Obs
    """What the policy sees next: where an episode ended, the first observation of another one, or once more the final
    one if the simulator needs a step to start anew."""
    final_obs: Obs
    """The true successor of the action, equal to `obs` (and often the same object) where no episode ended."""
    reward: Tensor
    """float32, 0 where not valid."""
    terminated: Tensor
    truncated: Tensor
    """Cut short while it could have gone on: False where terminated."""
    valid: Tensor
    """False where the action did nothing: the step only started an episode."""
    extras: Mapping[str, Tensor]
    """Numbers the environment told of this step, such as reward terms [N]; NaN where it told none."""

    def cpu(self) -> "Step":
        """The same in main memory, extras left out; itself where it lies there already."""
        if self.reward.is_cpu:
            return self
        obs, final = ({name: values.cpu() for name, values in group.items()} for group in (self.obs, self.final_obs))
        flags = (self.terminated.cpu(), self.truncated.cpu(), self.valid.cpu())
        return Step(obs, final, self.reward.cpu(), *flags, {})


@runtime_checkable
class VectorEnv(Protocol):
    """N environments of one kind that step together."""

    @property
    def count(self) -> int: ...

    @property
    def spec(self) -> Spec: ...

    def reset(self, seed: int) -> Obs:
        """Start every environment anew; the same seed and the same actions give the same steps. Groups [N, …]."""
        ...

    def step(self, action: Tensor) -> Step:
        """Actions [N, …] in environment units."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Resumable(Protocol):
    """A world that can say where its simulators stand, to the bit, and be put back there."""

    def save(self) -> dict[str, Tensor]:
        """Everything that decides what happens next, by name; empty if these environments cannot tell it."""
        ...

    def load(self, saved: Mapping[str, Tensor]) -> Obs:
        """Stand where `save` was called; gives the observations [N, …] the policy saw there."""
        ...


@runtime_checkable
class PartlyResumable(Resumable, Protocol):
    """A world whose `save` may tell only some of it, such as counters or a curriculum: then new episodes begin."""

    @property
    def exact(self) -> bool: ...


@runtime_checkable
class Staggering(Protocol):
    """A world that can let its first episodes end at different times."""

    def stagger_episodes(self) -> None: ...


@runtime_checkable
class Restartable(Protocol):
    """A world that may be unable to begin anew, whatever `reset` promises: then it serves once."""

    @property
    def restartable(self) -> bool: ...


@runtime_checkable
class SeedsEpisodes(Protocol):
    """A world in which every episode can begin from a seed of its own, whatever was played before it."""

    def seed_episodes(self, seeds: Sequence[int]) -> None:
        """Seeds [N] of the episodes that begin next: at a reset, and where one ends."""


@runtime_checkable
class KeepsExtras(Protocol):
    """A world that can be asked which numbers of its infos `Step.extras` shall hold."""

    def keep_extras(self, names: tuple[str, ...]) -> None: ...


def resumes_exactly(envs: VectorEnv) -> bool:
    """Whether what it saves is everything; that it saves anything is another question."""
    return not isinstance(envs, PartlyResumable) or envs.exact


def environment_seeds(seed: int, count: int) -> list[int]:
    """One seed for each of N environments, the same in every adapter that can seed them singly."""
    return [simulator_seed(derived_seed(seed, "world", number)) for number in range(count)]


def tensor_type(group: Group) -> torch.dtype:
    return torch.uint8 if group.dtype == "uint8" else torch.float32


def action_array(action: Tensor, space: ActionSpace, count: int, where: str) -> NDArray[Any]:
    """Actions [N, …] as an environment wants them: checked, of its dtype, and inside its box."""
    values: NDArray[Any] = action.numpy(force=True)
    check_action(values, space, count, where)
    if not isinstance(space, Box):
        return values.astype(np.int64, copy=False)
    low, high = _bounds(space)
    inside: NDArray[Any] = np.minimum(np.maximum(values.astype(space.dtype, copy=False), low), high)
    return inside


@cache
def _bounds(space: Box) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.asarray(space.low, space.dtype), np.asarray(space.high, space.dtype)


def check_action(values: NDArray[Any], space: ActionSpace, count: int, where: str) -> None:
    """One action for each environment, finite, and one there is."""
    expected = (count,) if isinstance(space, Discrete) else (count, space.size)
    if values.shape != expected:
        raise RunError(where, "actions have the wrong shape", got=values.shape, expected=expected)
    if isinstance(space, Box):
        if finite(values):
            return
        right = np.isfinite(values)
    elif values.dtype.kind not in "iu":
        raise RunError(where, "actions are not whole numbers", got=values.dtype, expected="an integer dtype")
    else:
        right = (values >= 0) & (values < (space.count if isinstance(space, Discrete) else np.asarray(space.counts)))
    if not right.all():
        number = int(np.argmin(right.reshape(count, -1).all(1)))
        got = values[number]
        raise RunError(where, f"no such action, for environment {number}", got=got, expected=space.describe())


def finite(values: NDArray[Any]) -> bool:
    """No NaN and no infinity: so if the sum of squares is finite, which takes a quarter of the time to find out."""
    flat = values.reshape(-1)
    with np.errstate(over="ignore"):  # squares of very large numbers
        return math.isfinite(flat.dot(flat)) or bool(np.isfinite(flat).all())


def all_finite(values: Tensor) -> bool:
    """No NaN and no infinity. Of a few numbers on the CPU, NumPy tells it in a tenth of torch's time."""
    return finite(values.detach().numpy()) if values.is_cpu else bool(values.isfinite().all())


def check_groups(obs: Obs, spec: Spec, count: int, where: str) -> None:
    """Every group of the spec, of its shape and dtype, and the mask where there is one."""
    for name, group in spec.observation.items():
        _check_group(obs, name, (count, *group.shape), tensor_type(group), where)
    if spec.masked:
        assert isinstance(spec.action, Discrete)
        _check_group(obs, ACTION_MASK, (count, spec.action.count), torch.bool, where)


def _check_group(obs: Obs, name: str, shape: tuple[int, ...], dtype: torch.dtype, where: str) -> None:
    if name not in obs:
        raise DataError(where, f"observation group '{name}' is missing", got=sorted(obs))
    got = obs[name]
    half = dtype == torch.float32 and got.dtype == torch.float16 and len(shape) > VECTORS
    if tuple(got.shape) != shape or not (half or got.dtype == dtype):
        raise DataError(
            where,
            f"group '{name}' has another shape or dtype than before",
            got=f"{tuple(got.shape)} {got.dtype}",
            expected=f"{shape} {dtype}",
        )


def check_finite(obs: Obs, where: str, log: CallLog) -> None:
    """No NaN and no infinity in any group; otherwise the group and the environment are named."""
    for name, values in obs.items():
        if values.is_floating_point() and not all_finite(values):
            number = first_true(~values.isfinite().flatten(1).all(1))
            told = f"group '{name}' of environment {number} is not finite"
            raise log.locate(DataError(where, told, got=values[number]), number)


def check_reward(reward: Tensor, count: int, where: str, log: CallLog) -> None:
    """One finite reward for each environment."""
    if tuple(reward.shape) != (count,):
        raise RunError(where, "rewards have the wrong shape", got=tuple(reward.shape), expected=(count,))
    if not all_finite(reward):
        number = first_true(~reward.isfinite())
        told = f"the reward of environment {number} is not finite"
        raise log.locate(RunError(where, told, got=float(reward[number])), number)


def first_true(flags: Tensor) -> int:
    """The number of the first environment where [N] is True."""
    return int(flags.nonzero()[0, 0])

"""Who plays in N environments at once: a policy, chance, a script or a function, with noise or without.

What is drawn in an episode comes from a stream of that episode alone, so it is the same whatever is played before it
and beside it. Only a policy that samples draws for all environments together: what it does depends on where its round
began.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError
from understudy.core.protocols import Carry, Policy
from understudy.core.rng import stream
from understudy.core.spec import ACTION_MASK, ActionSpace, Box, Spec, recordable
from understudy.envs.builtin.controllers import Controller
from understudy.envs.failures import raise_failure
from understudy.nn.actor import Actor, legal_actions
from understudy.nn.small_policy import SmallPolicy, is_small_network

AHEAD = 64
"""Steps whose random numbers are drawn in one call; part of what they are."""
Rows = NDArray[Any]
Act = Callable[..., Any]
"""Observations [N, …] as NumPy, by group if there are several → actions [N, …] in environment units."""


class Player(Protocol):
    """Plays in N environments, each of which begins episodes at its own time."""

    @property
    def repeatable(self) -> bool:
        """What it does in an episode depends on that episode alone, and not on when it is played."""

    def restart(self, seed: int) -> None:
        """All environments begin anew."""

    def begin(self, seeds: Mapping[int, int]) -> None:
        """Some environments begin an episode, each with the episode's seed."""

    def act(self, obs: Obs) -> Rows:
        """What it wants to do [N, …], in environment units."""


@final
class EpisodeDraws:
    """Random numbers [N, width] for every step, of each environment from the stream of its episode."""

    def __init__(self, count: int, draw: Callable[[np.random.Generator, int], Rows]) -> None:
        """`draw` gives so many rows [steps, width]."""
        self._draw, self._all = draw, np.arange(count)
        self._streams = [np.random.Generator(np.random.PCG64(0)) for _ in range(count)]
        first = draw(self._streams[0], AHEAD)
        self._table = np.zeros((count, *first.shape), first.dtype)
        self._place = np.zeros(count, np.int64)

    def begin(self, seeds: Mapping[int, int]) -> None:
        for number, seed in seeds.items():
            self._streams[number] = np.random.Generator(np.random.PCG64(seed))
        self._fill(seeds)

    def next(self) -> Rows:
        rows: Rows = self._table[self._all, self._place]
        self._place += 1
        self._fill(np.flatnonzero(self._place == AHEAD))
        return rows

    def _fill(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._table[number], self._place[number] = self._draw(self._streams[number], AHEAD), 0


def uniform_actions(chances: Rows, space: ActionSpace, obs: Obs) -> Rows:
    """Actions [N, …] from numbers in [0, 1) [N, width]: all that are legal are equally likely."""
    known = recordable(space)
    if isinstance(known, Box):
        low, high = np.asarray(known.low), np.asarray(known.high)
        inside: Rows = low + (high - low) * chances
        return inside
    if ACTION_MASK not in obs:
        return (chances[:, 0] * known.count).astype(np.int64)
    legal = legal_actions(obs).cpu().numpy()
    place = (chances[:, 0] * legal.sum(1)).astype(np.int64)
    chosen: Rows = (legal.cumsum(1) > place[:, None]).argmax(1)
    return chosen


def chances_wide(space: ActionSpace) -> int:
    """How many numbers a uniform action takes."""
    known = recordable(space)
    return known.size if isinstance(known, Box) else 1


@final
class RandomPlayer:
    """Uniform actions, among those that are legal."""

    repeatable = True

    def __init__(self, spec: Spec, count: int) -> None:
        self._space, width = spec.action, chances_wide(spec.action)
        self._draws = EpisodeDraws(count, lambda rng, steps: rng.random((steps, width)))

    def restart(self, seed: int) -> None:
        """Every episode has a stream of its own."""

    def begin(self, seeds: Mapping[int, int]) -> None:
        self._draws.begin(seeds)

    def act(self, obs: Obs) -> Rows:
        return uniform_actions(self._draws.next(), self._space, obs)


@final
class NoisyPlayer:
    """Another player with Gaussian noise, in halves of the action range, and now and then a uniform action."""

    def __init__(self, player: Player, spec: Spec, count: int, noise: float, epsilon: float) -> None:
        self._player, self._space, self._epsilon = player, recordable(spec.action), epsilon
        self._width = chances_wide(self._space)
        self._spread = noise * self._space.half_range if isinstance(self._space, Box) else 0.0
        self._draws = EpisodeDraws(count, self._draw)

    def _draw(self, rng: np.random.Generator, steps: int) -> Rows:
        """Whether to act at random, how, and the noise if not [steps, 1 + 2 · width]."""
        chances = rng.random((steps, 1 + self._width))
        return np.concatenate([chances, rng.standard_normal((steps, self._width))], 1)

    @property
    def repeatable(self) -> bool:
        return self._player.repeatable

    def restart(self, seed: int) -> None:
        self._player.restart(seed)

    def begin(self, seeds: Mapping[int, int]) -> None:
        self._player.begin(seeds)
        self._draws.begin(seeds)

    def act(self, obs: Obs) -> Rows:
        drawn, wishes = self._draws.next(), self._player.act(obs)
        if isinstance(self._space, Box):
            wishes = wishes + self._spread * drawn[:, 1 + self._width :]
        at_random = drawn[:, 0] < self._epsilon
        if at_random.any():
            uniform = uniform_actions(drawn[:, 1 : 1 + self._width], self._space, obs)
            wishes = np.where(at_random.reshape(-1, *[1] * (wishes.ndim - 1)), uniform, wishes)
        return wishes


@final
class PolicyPlayer:
    """A policy, greedy or sampling; it remembers nothing across episodes."""

    def __init__(self, policy: Policy, count: int, *, greedy: bool) -> None:
        self._policy, self._count, self._greedy = policy, count, greedy
        self._carry: Carry = ()
        self._rng = stream(0, "explore")
        self._quick = None
        if greedy and isinstance(policy, Actor) and _is_plain(policy):
            self._quick = _quick(policy, count)

    @property
    def repeatable(self) -> bool:
        return self._greedy

    def restart(self, seed: int) -> None:
        self._rng = stream(seed, "explore")
        self._carry = self._policy.initial(self._count)

    def begin(self, seeds: Mapping[int, int]) -> None:
        if self._carry:
            numbers = list(seeds)
            fresh = self._policy.initial(self._count)
            self._carry = tuple(_put(old, new, numbers) for old, new in zip(self._carry, fresh, strict=True))

    def act(self, obs: Obs) -> Rows:
        if self._quick is not None:
            return self._quick(obs)
        action, self._carry = self._policy.act(obs, self._carry, greedy=self._greedy, rng=self._rng)
        rows: Rows = action.numpy(force=True)
        return rows


def _is_plain(policy: Actor) -> bool:
    """It remembers nothing, is shown no estimates, drops nothing, and is here."""
    return (
        policy.perception.memory is None
        and (policy.estimator is None or policy.estimator.idle)
        and not policy.trunk.drops
        and policy.trunk.flat.is_cpu
    )


def _quick(policy: Actor, count: int) -> Callable[[Obs], Rows]:
    """What the `act` of a policy without memory does when it is greedy, with less around it; last bits differ."""
    small = SmallPolicy(policy, count) if is_small_network(policy, count) else None
    centre, half_range = policy.action_centre.numpy(), policy.action_half_range.numpy()

    def outputs(obs: Obs) -> Tensor:
        if small is not None:
            return torch.from_numpy(small.outputs(obs))
        return policy.trunk.outputs(policy.perception.look(obs))

    @torch.inference_mode()
    def act(obs: Obs) -> Rows:
        legal = legal_actions(obs) if policy.spec.masked else None
        chosen: Rows = policy.distribution.greedy(outputs(obs), legal).numpy()
        return chosen if policy.discrete else centre + half_range * chosen

    return act


def _put(old: Tensor, new: Tensor, numbers: list[int]) -> Tensor:
    """What is remembered [N, …], new in some environments."""
    kept = old.detach().clone()
    kept[numbers] = new.detach()[numbers].to(kept)
    return kept


@final
class ScriptedPlayer:
    """An environment's scripted controller, asked row by row."""

    repeatable = True

    def __init__(self, controller: Controller, skill: float = 1.0) -> None:
        self._controller, self._skill = controller, skill

    def restart(self, seed: int) -> None:
        """It is a pure function."""

    def begin(self, seeds: Mapping[int, int]) -> None:
        """The same."""

    def act(self, obs: Obs) -> Rows:
        groups = {name: values.cpu().numpy() for name, values in obs.items()}
        count = len(next(iter(groups.values())))
        rows = ({name: values[number] for name, values in groups.items()} for number in range(count))
        return np.stack([self._controller(row, self._skill) for row in rows])


@final
class FunctionPlayer:
    """Somebody's function of observations; what it remembers or draws is its own business."""

    repeatable = True

    def __init__(self, act: Act, spec: Spec, count: int, name: str) -> None:
        self._act, self._where = act, f"policy '{name}'"
        self._single = not spec.masked and len(spec.observation) == 1
        space = recordable(spec.action)
        self._shape = (count, space.size) if isinstance(space, Box) else (count,)

    def restart(self, seed: int) -> None:
        """Nobody can tell it."""

    def begin(self, seeds: Mapping[int, int]) -> None:
        """The same."""

    def act(self, obs: Obs) -> Rows:
        groups = {name: values.cpu().numpy().copy() for name, values in obs.items()}
        try:
            answer = self._act(next(iter(groups.values())) if self._single else groups)
            given = answer.numpy(force=True) if isinstance(answer, torch.Tensor) else np.asarray(answer)
        except BaseException as error:
            raise_failure(self._where, "failed when it was asked for actions", error)
        if given.dtype.kind not in "fiub":
            raise ConfigError(self._where, "gives no numbers", got=f"{given.dtype} {list(given.shape)}")
        if given.shape == self._shape:
            return given
        if given.size == np.prod(self._shape) and (self._shape[0] == 1 or given.shape == (*self._shape, 1)):
            return given.reshape(self._shape)
        raise ConfigError(
            self._where,
            "gives actions of another shape",
            got=list(given.shape),
            expected=f"{list(self._shape)}, one for each environment",
            do="It is given a batch. One that takes a row: lambda batch: np.stack([act(row) for row in batch]).",
        )

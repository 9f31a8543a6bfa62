"""An environment that shall follow a reference motion: its reward, its ends and its beginnings are the clip's.

It is a wrapper of one environment and not of a vector of them: where an episode begins and when it fails is decided
inside the simulator, so it works in worker processes, in evaluations and in films alike, and resumes to the bit. What
the reference is at each moment is asked of the motions for many steps at once, and waits in an array.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, final

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, UnderstudyError, did_you_mean
from understudy.core.motion import Motions
from understudy.core.spec import Segments
from understudy.envs.call_log import add_sentence
from understudy.envs.facts import check_step
from understudy.envs.gym import Env, Keys, env_spec, group_places
from understudy.envs.physics.reference_states import Placeable, Placement, Sizes, find_placement
from understudy.envs.tracking import TrackingSettings, clip_phase, squared_angles, squared_distances, tracking_terms

Floats = NDArray[np.float64]
PHASE, REFERENCE, STATE = "phase", "reference", "state"
WHERE = "env.tracking"
AHEAD = 64
"""Steps for which the reference is asked at once."""
TRIES = 100
"""States of the motion that are tried where an environment refuses to begin."""


@final
class Tracked:
    """One segment: where it stands in an observation, and which of a channel's components it is compared with."""

    def __init__(self, name: str, settings: TrackingSettings, env: Env, segments: Segments, motions: Motions) -> None:
        self.settings, self.where = settings.segments[name], f"{WHERE}.segments.{name}"
        self.keys, self.columns, size = _place_of(name, env, segments, self.where)
        own = name if name in motions.channels else name.rpartition(".")[2]
        self.channel = self.settings.channel or own
        self.chosen = _chosen(self, size, env, motions)
        if self.settings.distance == "quaternion" and size % 4:
            raise ConfigError(self.where, "a quaternion has four numbers", got=size, expected="4 for each")

    def of(self, observation: Any) -> Any:
        for key in self.keys:
            observation = observation[key]
        return observation[self.columns]


@final
class TrackedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """`segments` are names of columns, as `env.segments` has them. Its info tells reward terms (`reward_task` and
    `reward_tracking_<name>`) and distances (`tracking_error_<name>`)."""

    def __init__(
        self, env: Env, motions: Motions, settings: TrackingSettings, segments: Segments | None = None
    ) -> None:
        super().__init__(env)
        self._motions, self._settings = motions, settings
        check_step(env, motions)
        self._tracked = [Tracked(name, settings, env, segments or {}, motions) for name in settings.labels.values()]
        self._channels = {one.channel for one in self._tracked}
        self._names = [(f"reward_tracking_{label}", f"tracking_error_{label}") for label in settings.labels]
        wished = [one.settings for one in self._tracked]
        self._weights, self._scales = np.array([one.weight for one in wished]), np.array([one.scale for one in wished])
        self._limits = np.array([np.inf if one.max_error is None else one.max_error for one in wished]) ** 2
        sizes = [len(one.chosen) for one in self._tracked]
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._turns = [place for place, one in enumerate(wished) if one.distance == "quaternion"]
        self._ends = self._starts + sizes
        self._furthest = max(settings.preview, default=0)
        self._placement: Placement | None = None
        if settings.reference_start > 0:
            self._placement = find_placement(env, motions.channels, f"{WHERE}.reference_start")
        self._durations, self._looped = motions.durations.tolist(), motions.looped.tolist()
        self.observation_space, self._plain = _shown_space(env, settings, sum(sizes))
        self._clip = self._first = self._age = 0
        self._rows, self._from = np.zeros((0, sum(sizes))), 0
        """References of some ages of the episode, and the first of these."""

    @property
    def moment(self) -> tuple[str, int]:
        """The clip that is followed, and how many frames into it."""
        return self._motions.clips[self._clip], self._first + self._age

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seen, info = self.env.reset(seed=seed, options=options)
        share, random = self._settings.reference_start, self.env.unwrapped.np_random
        if self._placement is not None and (share == 1 or random.random() < share):
            seen = self._placed(self._placement)
        else:
            self._draw(begins=True)
        return self._shown(seen), info

    def _draw(self, *, begins: bool = False) -> None:
        """Another clip, from its beginning or from any of its frames after which there is another."""
        draws = torch.Generator().manual_seed(int(self.env.unwrapped.np_random.integers(2**62)))
        clip, time = self._motions.draw_moments(1, draws)
        self._clip, self._age = int(clip), 0
        self._first = 0 if begins else min(int(time), int(self._durations[self._clip]) - 1)
        self._rows = self._rows[:0]

    def _placed(self, placement: Placement) -> Any:
        """The first observation at a moment of the motion that the environment agrees to begin in."""
        refused: UnderstudyError | None = None
        for _ in range(TRIES):
            self._draw()
            found = self._ask(tuple(placement.channels))
            try:
                return placement.place({name: values[0] for name, values in found.items()})
            except UnderstudyError as error:
                refused = error
        assert refused is not None
        clip_name, frame = self.moment
        raise add_sentence(refused, f"Clip '{clip_name}', frame {frame}, the last of {TRIES} that were tried.")

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, task, terminated, truncated, info = self.env.step(action)
        self._age += 1
        squares = self._squares(seen)
        terms = tracking_terms(squares, self._weights, self._scales)
        owed = self._settings.task_weight * float(task)
        told = {**info, "reward_task": owed}
        for (term, error), value, square in zip(self._names, terms.tolist(), squares.tolist(), strict=True):
            told[term], told[error] = value, square**0.5
        failed = bool((squares > self._limits).any())
        over = not self._looped[self._clip] and self._first + self._age >= self._durations[self._clip]
        reward = float(terms.sum()) + owed
        return self._shown(seen), reward, bool(terminated) or failed, bool(truncated) or over, told

    def _squares(self, seen: Any) -> Floats:
        """dᵢ² [S] of an observation, at the moment that it is of."""
        there = np.concatenate([one.of(seen) for one in self._tracked], dtype=np.float64)
        reference = self._reference(0)
        squares = squared_distances(there, reference, self._starts)
        for place in self._turns:
            part = slice(self._starts[place], self._ends[place])
            squares[place] = squared_angles(there[part], reference[part])
        return squares

    def _reference(self, ahead: int) -> Floats:
        """What is tracked [K], so many steps from now."""
        if not self._from <= self._age < self._from + len(self._rows) - self._furthest:
            self._ask()
        row: Floats = self._rows[self._age - self._from + ahead]
        return row

    def _ask(self, others: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
        """Keep the references from now on, for as long as the clip lasts and no longer than one asks for at once; gives
        all channels that they are from, and the others."""
        now, count = self._first + self._age, AHEAD + self._furthest
        if not self._looped[self._clip]:
            count = min(count, max(int(self._durations[self._clip]) - now, 0) + 1 + self._furthest)
        time = torch.arange(now, now + count, dtype=torch.float64)
        told = self._motions.at(tuple(sorted({*self._channels, *others})), torch.full((count,), self._clip), time)
        found = {name: values.numpy() for name, values in told.items()}
        parts = [found[one.channel][:, one.chosen] for one in self._tracked]
        self._rows, self._from = np.concatenate(parts, axis=1, dtype=np.float64), self._age
        return found

    def _shown(self, seen: Any) -> Any:
        """The observation with what the policy is told of the motion."""
        if not self._settings.phase and not self._settings.preview:
            return seen
        shown = {STATE: seen} if self._plain else dict(seen)
        if self._settings.phase:
            time, lasts = self._first + self._age, self._durations[self._clip]
            shown[PHASE] = np.array(clip_phase(time, lasts, self._looped[self._clip]), np.float32)
        if self._settings.preview:
            ahead = [self._reference(steps) for steps in self._settings.preview]
            shown[REFERENCE] = np.concatenate(ahead, dtype=np.float32, casting="same_kind")
        return shown

    def tell(self) -> dict[str, NDArray[Any]]:
        """Where in which clip; the environment tells the rest."""
        return {"moment": np.array([self._clip, self._first, self._age])}

    def recall(self, told: Mapping[str, NDArray[Any]]) -> None:
        self._clip, self._first, self._age = told["moment"].tolist()
        self._rows = self._rows[:0]


def _place_of(name: str, env: Env, segments: Segments, where: str) -> tuple[Keys, slice, int]:
    """Keys and columns of a group or a segment of one, and how many columns these are."""
    spec, places = env_spec(env, "it"), group_places(env.observation_space)
    spec = spec.with_segments({one: parts for one, parts in segments.items() if one in spec.observation})
    group, _, segment = name.partition(".")
    known = [*spec.observation, *(f"{one}.{part}" for one, parts in spec.segments.items() for part in parts)]
    if group not in spec.observation or (segment and segment not in spec.segments.get(group, {})):
        raise ConfigError(where, f"the environment gives no '{name}'", do=did_you_mean(name, known))
    shape = spec.observation[group].shape
    if len(shape) != 1 or spec.observation[group].dtype == "uint8":
        raise ConfigError(where, "only a flat group of numbers can be tracked", got=f"{spec.observation[group]}")
    first, last = spec.segments[group][segment] if segment else (0, shape[0])
    return places[group], slice(first, last), last - first


def _chosen(one: Tracked, size: int, env: Env, motions: Motions) -> NDArray[np.intp]:
    """Numbers of a channel's components: those that were named, in the environment's order where that has names."""
    if one.channel not in motions.channels:
        raise ConfigError(
            one.where, f"motions have no channel '{one.channel}'", do=did_you_mean(one.channel, motions.channels)
        )
    names = motions.channels[one.channel]
    for pattern in one.settings.components:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(one.where, f"channel '{one.channel}' has no '{pattern}'", do=did_you_mean(pattern, names))
    wanted = one.settings.components or ("*",)
    chosen = [place for pattern in wanted for place, name in enumerate(names) if fnmatchcase(name, pattern)]
    here = _names_here(env).get(one.channel, size)
    if isinstance(here, tuple) and not one.settings.components and set(here) <= set(names):
        chosen = [names.index(name) for name in here]
    if len(chosen) != size:
        listed = ", ".join(names[place] for place in chosen)
        raise ConfigError(
            one.where,
            f"has {size} columns, and channel '{one.channel}' of the motions has another number of components",
            got=f"{len(chosen)} ({listed})",
            expected=size,
            do="Name some of them (components), or other columns (env.segments).",
        )
    return np.array(chosen, np.intp)


def _names_here(env: Env) -> Sizes:
    """What the environment calls the components of channels, where it begins from them."""
    inner = env.unwrapped
    return inner.reference_channels if isinstance(inner, Placeable) else {}


def _shown_space(env: Env, settings: TrackingSettings, size: int) -> tuple["gymnasium.Space[Any]", bool]:
    """Of observations with what is told of the motion; and whether the environment's own is a group without a name."""
    told = {PHASE: spaces.Box(-1.0, 1.0, (2,), np.float32)} if settings.phase else {}
    if settings.preview:
        told[REFERENCE] = spaces.Box(-np.inf, np.inf, (size * len(settings.preview),), np.float32)
    own = env.observation_space
    plain = not isinstance(own, spaces.Dict)
    if not told:
        return own, plain
    groups: dict[str, gymnasium.Space[Any]] = {STATE: own} if not isinstance(own, spaces.Dict) else dict(own.spaces)
    if both := sorted(told.keys() & groups.keys()):
        raise ConfigError(WHERE, f"the environment has a group '{both[0]}' of its own", do="Switch it off here.")
    return spaces.Dict({**groups, **told}), plain

"""What is changed between a recording and the learner: one chain, always in this order, saved with the run.

Mending (cuts, columns, ends, rewards, actions) works episode by episode: a file of any size can be mended into a store.
Choosing (best, some, held out) looks at every episode's return first. Rewards and observations are transformed for
learning only: returns are always those of the recording, and the observation normaliser is part of the policy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from understudy.core.errors import DataError
from understudy.core.rng import derived_seed
from understudy.core.settings import Settings
from understudy.core.spec import ActionSpace, Box
from understudy.core.wording import counted
from understudy.data.byte_columns import from_bytes
from understudy.data.episode import Array, Episode
from understudy.data.episode_cuts import cut_episodes, finite_pieces, from_step
from understudy.data.recording import Recording
from understudy.data.rewards import RewardPreset

Columns = dict[str, tuple[int, ...]]
Share = Annotated[float, Field(ge=0, lt=1)] | Literal["auto"]
HELD_OUT = 0.1
"""The share of episodes that is held out where a run has no environment and nobody said how many."""
LATE = (
    "late_rewards: the last action of an episode whose reward was never written is left out, and with it the end: such "
    "an episode counts as cut off, not as terminated."
)


class Mending(Settings):
    """What makes a recording fit its environment. A change here changes what the data is."""

    not_finite: Literal["refuse", "drop", "cut"] = "refuse"
    """What to do with episodes that hold NaN or infinity.

    `drop` leaves them out, but for those where only the final observation is so: it counts as unknown. `cut` leaves out
    such rows only: what stands between them are episodes that were cut off.
    """
    episode_steps: Annotated[int, Field(ge=1)] | None = None
    """Episodes that the file joins are cut after so many steps (D4RL version 0 marks no time limits)."""
    decompress: tuple[str, ...] = ()
    """Observation groups that were stored in bytes (`collect --compress`), and are numbers from 0 to 1 again."""
    drop_columns: Columns = Field({})
    """Columns the recording has and the environment has not, per observation group: {state: [-1]}."""
    time_limit: Annotated[int, Field(ge=1)] | None = None
    """Episodes of this length did not terminate, they were stopped: their value goes on."""
    late_rewards: bool = False
    """Each reward stands one row too late (it arrived with the observation)."""
    actions_from: tuple[float, float] | None = None
    """The range actions were recorded in, mapped onto the action space: [-1, 1]."""
    actions: Literal["refuse", "clip"] = "refuse"
    """What to do with actions outside the action space."""

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.actions_from is not None and not self.actions_from[0] < self.actions_from[1]:
            raise ValueError("actions_from: low must be below high")
        return self

    def mends(self) -> bool:
        """There is anything to do."""
        return any(getattr(self, name) != field.default for name, field in Mending.model_fields.items())


class Choosing(Settings):
    """Which whole episodes are learned from."""

    only: Literal["successful", "failed"] | None = None
    """Episodes that succeeded, or those that did not."""
    success_is: Literal["told", "terminated", "truncated"] = "told"
    """What success is: what the environment `told` (columns episode_success, is_success or success), that an episode
    `terminated` (a goal), or that it was `truncated` (at its time limit nobody had fallen)."""
    latest_episodes: Annotated[int, Field(ge=1)] | None = None
    """The last so many of these, in the order in which they were recorded."""
    best_episodes: float = Field(1.0, gt=0, le=1)
    """The share of episodes with the highest returns (0.1 is the data of 10 % BC)."""
    max_episodes: Annotated[int, Field(ge=1)] | None = None
    """At most so many episodes, drawn at random."""
    validation: Share = "auto"
    """The share of episodes held out: not learned from, but measured at every evaluation. `auto`: none with an
    environment; without one a tenth, at least one episode."""
    starting_frame_range: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]] = (0, 1)
    """Every episode begins at a step that is drawn from this range once, the second number not included; the last step
    of an episode that is shorter."""
    choice_seed: int = Field(0, ge=0)
    """Seed of the random choices above."""

    @model_validator(mode="after")
    def _frames(self) -> Self:
        low, high = self.starting_frame_range
        if low >= high:
            raise ValueError(f"starting_frame_range: low must be below high: got [{low}, {high}]")
        return self

    @property
    def starts_later(self) -> bool:
        """Episodes may lose their beginnings."""
        return self.starting_frame_range != (0, 1)

    def chooses(self) -> bool:
        return any(getattr(self, name) != field.default for name, field in Choosing.model_fields.items())


class Transforms(Mending, Choosing):
    """The whole chain."""

    reward: RewardPreset = "none"
    """Transform of rewards for learning; returns are reported raw. `standardize` is (r − mean)/std over all rows."""
    scale_rewards: float = Field(1.0, gt=0)
    """A factor for rewards, after the transform above."""
    shift_rewards: float = 0.0
    """What is added to rewards, after the factor."""
    clip_rewards: tuple[float, float] | None = None
    """Bounds of rewards, after all else: [-1, 1]."""
    normalize_observations: bool = True
    """(s − mean)/(std + 1e-3) with the dataset's statistics, saved with the policy."""
    hide_columns: Columns = Field({})
    """Columns nobody shall see, in data, environment and deployed policy alike, per observation group: {state: [0]}."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.clip_rewards is not None and not self.clip_rewards[0] < self.clip_rewards[1]:
            raise ValueError("clip_rewards: low must be below high")
        return self


@dataclass(frozen=True)
class EpisodeSplit:
    """Numbers of episodes, each sorted."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    starts: NDArray[np.int64]
    """The step at which each episode of the recording begins [E]."""


def mend(recording: Recording, mending: Mending, space: ActionSpace) -> Recording:
    """The same recording, its episodes cut first, then each mended on its way."""
    if not mending.mends():
        return recording

    def play() -> Iterator[Episode]:
        limit, episodes = mending.episode_steps, recording.episodes()
        episodes = episodes if limit is None else cut_episodes(episodes, limit)
        if mending.not_finite == "cut":
            episodes = (piece for episode in episodes for piece in finite_pieces(episode))
        for number, episode in enumerate(episodes):
            if mending.not_finite == "drop":
                episode = without_broken_final(episode)  # noqa: PLW2901
                if not is_finite(episode):
                    continue
            mended = mend_episode(episode, mending, space, f"dataset '{recording.name}', episode {number}")
            if len(mended):
                yield mended

    notes = (*recording.notes, LATE) if mending.late_rewards else recording.notes
    return replace(recording, play=play, notes=notes)


def without_broken_final(episode: Episode) -> Episode:
    """A final observation that is not finite is unknown: the steps before it are as good as any."""
    groups = episode.observations.values()
    if not episode.final_known or all(bool(np.isfinite(np.asarray(group[-1:], np.float32)).all()) for group in groups):
        return episode
    return replace(
        episode,
        observations={name: values[:-1] for name, values in episode.observations.items()},
        mask=None if episode.mask is None else episode.mask[:-1],
        final_known=False,
    )


def is_finite(episode: Episode) -> bool:
    """No NaN and no infinity in observations, actions and rewards, as float32 sees them."""
    columns = (*episode.observations.values(), episode.actions, episode.rewards)
    with np.errstate(over="ignore"):
        return all(bool(np.isfinite(np.asarray(column, np.float32)).all()) for column in columns)


def mend_episode(episode: Episode, mending: Mending, space: ActionSpace, where: str) -> Episode:
    """Columns, then ends, then rewards, then actions."""
    episode = decompress(episode, mending.decompress, where)
    episode = drop_columns(episode, mending.drop_columns, where)
    if mending.time_limit is not None and episode.terminated and len(episode) == mending.time_limit:
        episode = replace(episode, terminated=False, truncated=True)
    if mending.late_rewards:
        episode = realign_rewards(episode)
    if mending.actions_from is not None:
        episode = replace(episode, actions=_map_actions(episode.actions, mending.actions_from, space, where))
    if mending.actions == "clip" and isinstance(space, Box):
        inside = np.clip(episode.actions, space.low, space.high).astype(episode.actions.dtype)
        episode = replace(episode, actions=inside)
    return episode


def decompress(episode: Episode, groups: tuple[str, ...], where: str) -> Episode:
    """Bytes of these groups as numbers from 0 to 1."""
    observations = dict(episode.observations)
    for group in groups:
        if group not in observations:
            raise DataError(where, f"decompress: no group '{group}'", got=sorted(observations), expected="one of these")
        observations[group] = from_bytes(observations[group], f"{where}, decompress '{group}'")
    return replace(episode, observations=observations) if groups else episode


def drop_columns(episode: Episode, columns: Mapping[str, tuple[int, ...]], where: str) -> Episode:
    """Without these columns of these vector groups; negative numbers count from the end."""
    observations = dict(episode.observations)
    for group, numbers in columns.items():
        values = observations.get(group)
        if values is None or values.ndim != 2:
            raise DataError(
                where, f"drop_columns: no vector group '{group}'", got=sorted(observations), expected="one of these"
            )
        observations[group] = np.delete(values, column_numbers(numbers, values.shape[1], where), axis=1)
    return replace(episode, observations=observations)


def column_numbers(numbers: tuple[int, ...], size: int, where: str) -> list[int]:
    for number in numbers:
        if not -size <= number < size:
            raise DataError(where, "no such column", got=number, expected=f"{-size} to {size - 1}")
    return sorted({number % size for number in numbers})


def realign_rewards(episode: Episode) -> Episode:
    """Row i's reward was earned by action i−1.

    Where the recording ends with a row that carries the last reward and no successor, that row is no step and nothing
    is lost. Otherwise the last action's reward was never written: the episode loses that step, and stops before it.
    """
    steps = len(episode) - 1
    ended = not episode.final_known
    return replace(
        episode,
        observations={name: values[: steps + 1] for name, values in episode.observations.items()},
        actions=episode.actions[:steps],
        rewards=episode.rewards[1:],
        terminated=episode.terminated and ended,
        truncated=episode.truncated or not ended,
        final_known=True,
        mask=None if episode.mask is None else episode.mask[: steps + 1],
        extra={name: values[:steps] for name, values in episode.extra.items()},
    )


def _map_actions(actions: Array, recorded: tuple[float, float], space: ActionSpace, where: str) -> Array:
    """[n, A]: the recorded range onto the box, linearly."""
    if not isinstance(space, Box):
        raise DataError(where, "actions_from is for continuous actions", got=space.describe())
    low, high = recorded
    unit = (np.asarray(actions, np.float64) - (low + high) / 2) / ((high - low) / 2)
    mapped = space.centre + space.half_range * (unit[:, None] if unit.ndim == 1 else unit)
    return mapped.astype(np.float64 if actions.dtype == np.float64 else np.float32)


def choose(
    choosing: Choosing,
    returns: NDArray[np.float64],
    where: str,
    *,
    hold_out: bool = False,
    success: NDArray[np.bool_] | None = None,
) -> EpisodeSplit:
    """By success [E] first, then the latest, the best of them, some of these, and those held out; ties go to the
    earlier episode.

    `hold_out`: a tenth is held out, at least one of several, where nothing is said of it.
    """
    numbers = np.arange(len(returns))
    if choosing.only is not None:
        assert success is not None
        numbers = np.flatnonzero(success == (choosing.only == "successful"))
        if not len(numbers):
            raise DataError(where, f"no episode is {choosing.only}", got=f"success_is={choosing.success_is}")
    numbers = numbers if choosing.latest_episodes is None else numbers[-choosing.latest_episodes :]
    best = np.argsort(-returns[numbers], kind="stable")[: max(1, round(choosing.best_episodes * len(numbers)))]
    kept = numbers[best]
    rng = np.random.Generator(np.random.PCG64(derived_seed(choosing.choice_seed, "choose episodes")))
    if choosing.max_episodes is not None and choosing.max_episodes < len(kept):
        kept = rng.permutation(np.sort(kept))[: choosing.max_episodes]
    kept = np.sort(kept)
    share = choosing.validation
    if share == "auto":
        held = min(max(1, round(HELD_OUT * len(kept))), len(kept) - 1) if hold_out else 0
    else:
        held = round(share * len(kept))
    if share != "auto" and share > 0 and not 0 < held < len(kept):
        raise DataError(
            where,
            "too few episodes to hold some out",
            got=f"{counted(len(kept), 'episode')}, validation {share}",
            expected="at least one on each side",
        )
    shuffled = rng.permutation(kept)
    frames = np.random.Generator(np.random.PCG64(derived_seed(choosing.choice_seed, "starting frames")))
    starts = frames.integers(*choosing.starting_frame_range, len(returns))
    return EpisodeSplit(np.sort(shuffled[held:]), np.sort(shuffled[:held]), starts)


def pick(recording: Recording, numbers: NDArray[np.int64], starts: NDArray[np.int64] | None = None) -> Recording:
    """Only these episodes, each from its own step on; `starts` [E] are of all that are recorded."""
    wanted = set(map(int, numbers))

    def play() -> Iterator[Episode]:
        for number, episode in enumerate(recording.episodes()):
            if number in wanted:
                yield episode if starts is None else from_step(episode, int(starts[number]))

    return replace(recording, play=play)


def episode_returns(recording: Recording) -> NDArray[np.float64]:
    """Undiscounted return of every episode [E]."""
    return np.array([np.sum(episode.rewards, dtype=np.float64) for episode in recording.episodes()])

"""Corruption: a known share of a dataset's rows made wrong in a known way, to measure what learners make of it.

Rows are chosen, and everything random about them drawn, from streams of the seed that go by row: how the data is cut
into episodes, blocks or files changes nothing, and the rows of a small share are among those of a larger one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from understudy.core.arguments import as_kind
from understudy.core.errors import DataError
from understudy.core.rng import derived_seed
from understudy.core.settings import Settings
from understudy.core.spec import Box, Discrete, recordable
from understudy.core.wording import counted
from understudy.data.dataset import Dataset
from understudy.data.episode import Array, Episode
from understudy.data.false_successors import donors, with_false_successors
from understudy.data.recording import Recording

Kind = Literal[
    "reward_noise",
    "reward_flip",
    "reward_swap",
    "reward_attack",
    "action_noise",
    "action_replace",
    "dynamics_shuffle",
]
SCALED = ("reward_noise", "reward_flip", "reward_attack", "action_noise")
COLUMN = "corrupted"
"""The further column that tells which rows were chosen."""
ENTRY = "corruptions"
"""Where a store's recipe and a recording's facts tell what was done."""
NO_NEXT_ACTION = (
    "A false successor ends its piece, so no action follows in these rows: what learns from the next action (ReBRAC's "
    "penalty on the critic) leaves them out."
)
Flags = NDArray[np.bool_]


class Corruption(Settings):
    """What is done to how many rows."""

    kind: Kind
    """What becomes wrong, and how."""
    share: float = Field(gt=0, le=1)
    """Of the rows that can be corrupted this way; rounded to whole rows, at least one."""
    strength: Annotated[float, Field(gt=0)] | None = None
    """How wrong, where that can be scaled; 1 if nothing is said."""
    seed: int = Field(0, ge=0)
    """Everything random grows from it."""

    @model_validator(mode="after")
    def _scaled(self) -> Self:
        if self.strength is not None and self.kind not in SCALED:
            raise ValueError(f"{self.kind} has no strength")
        return self

    @property
    def factor(self) -> float:
        return 1.0 if self.strength is None else self.strength

    def generator(self, name: str) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(derived_seed(self.seed, "corrupt", self.kind, name)))


class CorruptionRecord(Corruption):
    """What was done, as a store keeps it."""

    rows: int = Field(ge=1)
    """Rows that were changed."""
    eligible: int = Field(ge=1)
    """Rows that could have been."""
    original: str = Field(pattern="^[0-9a-f]{64}$")
    """Fingerprint of the data before."""

    def sentence(self) -> str:
        scale = f", strength {self.factor:g}" if self.kind in SCALED else ""
        told = f" {NO_NEXT_ACTION}" if self.kind == "dynamics_shuffle" else ""
        return (
            f"Corrupted on purpose: {self.kind}{scale}, {self.rows:,} of {counted(self.eligible, 'row')} "
            f"(share {self.share:g}, seed {self.seed}), from {self.original[:16]}…{told}"
        )


def corrupt(dataset: Dataset, kind: Kind, *, share: float, strength: float | None = None, seed: int = 0) -> Recording:
    """`dataset` with a share of its rows made wrong, as a stream; a further column `corrupted` tells which."""
    as_kind(dataset, Dataset, "corrupt")
    corruption = Corruption.parse({"kind": kind, "share": share, "strength": strength, "seed": seed})
    return corrupted(dataset, corruption)


def corrupted(dataset: Dataset, corruption: Corruption) -> Recording:
    _check(dataset, corruption)
    eligible = eligible_rows(dataset, corruption.kind)
    chosen = choose_rows(dataset, corruption, eligible)
    record = CorruptionRecord(
        **corruption.model_dump(),
        rows=int(chosen.sum()),
        eligible=int(eligible.sum()),
        original=dataset.fingerprint,
    )
    return replace(
        dataset.recording(),
        play=lambda: CHANGES[corruption.kind](dataset, chosen, corruption),
        notes=(record.sentence(),),
        facts={ENTRY: [record.model_dump(mode="json")]},
    )


def corruptions_in(facts: Mapping[str, Any]) -> list[CorruptionRecord]:
    """What a recipe or a recording tells of corruptions, oldest first; what is not of our making is passed over."""
    told = facts.get(ENTRY)
    records = []
    for entry in told if isinstance(told, list) else []:
        try:
            records.append(CorruptionRecord.model_validate(entry))
        except ValidationError:
            continue
    return records


def corruption_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a recipe or of a recording's facts that tells of corruptions; empty if nothing was corrupted."""
    told = [record.model_dump(mode="json") for record in corruptions_in(facts)]
    return {ENTRY: told} if told else {}


def eligible_rows(dataset: Dataset, kind: Kind) -> Flags:
    """[N]: rows in which there is something to make wrong."""
    eligible = np.ones(dataset.steps, bool)
    if kind == "dynamics_shuffle":
        index = dataset.index
        eligible[index.ends - 1] = index.final_known & ~index.terminated
    elif kind == "action_replace" and isinstance(dataset.spec.action, Discrete):
        for rows, episode in _numbered(dataset):
            eligible[rows] = _legal(episode, dataset.spec.action.count).sum(1) > 1
    if not eligible.any():
        raise DataError(f"dataset '{dataset.name}'", f"{kind}: no row can be corrupted this way")
    return eligible


def choose_rows(dataset: Dataset, corruption: Corruption, eligible: Flags) -> Flags:
    """[N]: max(1, round(share × eligible)) rows, at random; an attack takes the highest rewards, ties at random."""
    order = corruption.generator("rows").permutation(np.flatnonzero(eligible))
    if corruption.kind == "reward_attack":
        order = order[np.argsort(-_rewards(dataset)[order], kind="stable")]
    count = max(1, round(corruption.share * len(order)))
    if corruption.kind == "reward_swap" and count < 2:
        raise DataError(
            f"dataset '{dataset.name}'", "reward_swap exchanges the rewards of at least two rows", got=count
        )
    chosen = np.zeros(dataset.steps, bool)
    chosen[order[:count]] = True
    return chosen


def _check(dataset: Dataset, corruption: Corruption) -> None:
    where, kind = f"dataset '{dataset.name}'", corruption.kind
    if kind == "action_noise" and isinstance(dataset.spec.action, Discrete):
        raise DataError(
            where,
            "action_noise is Gaussian, for continuous actions",
            got=dataset.spec.action.describe(),
            do="Use kind=action_replace.",
        )
    if kind.startswith("reward") and dataset.rewards.min() == dataset.rewards.max():
        raise DataError(where, f"every reward is {float(dataset.rewards[0]):g}, and {kind} would change none")
    column = dataset.extra.get(COLUMN)
    if column is not None and column.ndim != 1:
        raise DataError(f"{where}, column '{COLUMN}'", "wrong shape", got=list(column.shape), expected=[len(column)])


def _rewards(dataset: Dataset) -> NDArray[np.float64]:
    return dataset.rewards.cpu().numpy().astype(np.float64)


def _numbered(dataset: Dataset) -> Iterator[tuple[slice, Episode]]:
    """Each episode with the rows it takes."""
    first = 0
    for episode in dataset.recording().episodes():
        yield slice(first, first + len(episode)), episode
        first += len(episode)


def _marked(dataset: Dataset, chosen: Flags) -> Iterator[tuple[slice, Episode]]:
    """With the column that tells which rows are wrong; what was corrupted earlier stays marked."""
    for rows, episode in _numbered(dataset):
        before = episode.extra.get(COLUMN)
        marks = chosen[rows] if before is None else chosen[rows] | (before != 0)
        yield rows, replace(episode, extra={**episode.extra, COLUMN: marks})


def _corrupt_rewards(dataset: Dataset, chosen: Flags, corruption: Corruption) -> Iterator[Episode]:
    rewards = corrupt_rewards(dataset.rewards.cpu().numpy(), chosen, corruption)
    for rows, episode in _marked(dataset, chosen):
        yield replace(episode, rewards=rewards[rows])


def corrupt_rewards(rewards: Array, chosen: Flags, corruption: Corruption) -> Array:
    """[N], in the precision they came in; mean and deviation are those of all rows."""
    changed = rewards.copy()
    if corruption.kind == "reward_swap":
        circle = corruption.generator("order").permutation(np.flatnonzero(chosen))
        changed[circle] = rewards[np.roll(circle, 1)]
        return changed
    wide = rewards.astype(np.float64)
    mean = wide.mean()
    with np.errstate(over="ignore"):  # the recorder refuses what is not finite, with its place
        if corruption.kind == "reward_noise":
            noise = corruption.generator("noise").standard_normal(len(wide))
            wrong = wide + corruption.factor * wide.std() * noise
        else:
            wrong = mean - corruption.factor * (wide - mean)
        changed[chosen] = wrong[chosen].astype(rewards.dtype)
    return changed


def _corrupt_actions(dataset: Dataset, chosen: Flags, corruption: Corruption) -> Iterator[Episode]:
    """The streams go by row whether it is chosen or not, so that a row's noise does not depend on the share."""
    space, rng = recordable(dataset.spec.action), corruption.generator("actions")
    wrong: Array
    for rows, episode in _marked(dataset, chosen):
        if isinstance(space, Discrete):
            wrong = _other_choices(episode, space.count, rng.random(len(episode)))
        elif corruption.kind == "action_noise":
            wrong = _noisy(episode.actions, space, corruption.factor, rng)
        else:
            wrong = space.centre + space.half_range * rng.uniform(-1, 1, episode.actions.shape)
        actions = episode.actions.copy()
        actions[chosen[rows]] = wrong[chosen[rows]].astype(actions.dtype)
        yield replace(episode, actions=actions)


def _noisy(actions: Array, space: Box, factor: float, rng: np.random.Generator) -> Array:
    """[n, A]: Gaussian noise in halves of the action range, cut at the bounds."""
    noise = factor * space.half_range * rng.standard_normal(actions.shape)
    clipped: Array = np.clip(actions.astype(np.float64) + noise, space.low, space.high)
    return clipped


def _other_choices(episode: Episode, count: int, chance: NDArray[np.float64]) -> NDArray[np.int64]:
    """[n]: a legal action other than the one taken, each as likely; `chance` [n] is uniform in [0, 1)."""
    others = _legal(episode, count)
    others[np.arange(len(episode)), episode.actions] = False
    nth = np.floor(chance * others.sum(1))
    found: NDArray[np.int64] = np.argmax(np.cumsum(others, 1) > nth[:, None], 1)
    return found


def _legal(episode: Episode, count: int) -> Flags:
    """[n, K], a copy."""
    return (
        np.ones((len(episode), count), bool) if episode.mask is None else np.array(episode.mask[: len(episode)], bool)
    )


def _shuffle_dynamics(dataset: Dataset, chosen: Flags, corruption: Corruption) -> Iterator[Episode]:
    pool = donors(dataset, corruption.generator("donors"))
    rng = corruption.generator("successors")
    for rows, episode in _marked(dataset, chosen):
        chance = rng.random(len(episode))
        yield from with_false_successors(episode, rows.start, np.flatnonzero(chosen[rows]), pool, chance)


CHANGES: dict[str, Callable[[Dataset, Flags, Corruption], Iterator[Episode]]] = {
    "reward_noise": _corrupt_rewards,
    "reward_flip": _corrupt_rewards,
    "reward_swap": _corrupt_rewards,
    "reward_attack": _corrupt_rewards,
    "action_noise": _corrupt_actions,
    "action_replace": _corrupt_actions,
    "dynamics_shuffle": _shuffle_dynamics,
}

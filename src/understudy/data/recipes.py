"""A recipe: how to make a dataset, in words. The same recipe gives the same bytes."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from understudy.core.errors import did_you_mean, shown
from understudy.core.settings import Settings

COLLECTED = "collect"
"""The kind of a card that says who was rolled out."""
MOST_PLAYERS = 4
LEVELS = ("last", "best", "expert", "medium", "medium-replay", "full-replay")
"""Words for checkpoints of a run; its own evaluations say which they are."""


class RandomPlay(Settings):
    """Uniform random actions."""

    policy: Literal["random"] = "random"
    share: float = Field(1.0, gt=0)
    """Part of the episodes, relative to the other behaviours' shares."""


class Scripted(Settings):
    """The environment's scripted controller, weakened by `skill`."""

    policy: Literal["scripted"] = "scripted"
    share: float = Field(1.0, gt=0)
    """Part of the episodes, relative to the other behaviours' shares."""
    skill: float = Field(1.0, ge=0, le=1)
    """1 is the controller at its best, 0 a helpless one."""
    noise: float = Field(0.0, ge=0)
    """Standard deviation of Gaussian action noise, in halves of the action range."""
    epsilon: float = Field(0.0, ge=0, le=1)
    """Chance of a uniformly random action at each step."""


class RunPolicy(Settings):
    """The policy of an earlier run."""

    policy: Literal["run"] = "run"
    run: str
    """The run's directory."""
    checkpoint: str = "last"
    """A number of updates, or a level: last, best (also: expert), medium, medium-replay, full-replay."""
    share: float = Field(1.0, gt=0)
    """Part of the episodes, relative to the other behaviours' shares."""
    greedy: bool = True
    """Act with the mean action, or sample."""
    noise: float = Field(0.0, ge=0)
    """Standard deviation of Gaussian action noise, in halves of the action range."""
    epsilon: float = Field(0.0, ge=0, le=1)
    """Chance of a uniformly random action at each step."""

    @field_validator("checkpoint")
    @classmethod
    def _known_level(cls, checkpoint: str) -> str:
        if checkpoint not in LEVELS and not (checkpoint.isascii() and checkpoint.isdecimal()):
            raise ValueError(
                f"no level '{checkpoint}', and not a number of updates. {did_you_mean(checkpoint, LEVELS)}"
            )
        return str(int(checkpoint)) if checkpoint.isdecimal() else checkpoint

    def at(self, checkpoints: Sequence[int]) -> tuple["RunPolicy", ...]:
        """This behaviour with its share spread evenly over numbered checkpoints."""
        share = self.share / len(checkpoints)
        return tuple(self.model_copy(update={"checkpoint": str(n), "share": share}) for n in checkpoints)


Behaviour = Annotated[RandomPlay | Scripted | RunPolicy, Field(discriminator="policy")]


class Recipe(Settings):
    """Environment, behaviours with shares, counts and a seed."""

    env: str
    """A registered environment id."""
    episodes: int = Field(100, ge=1)
    """Episodes in all."""
    seed: int = Field(0, ge=0)
    """Everything random in the dataset grows from it."""
    behaviours: tuple[Behaviour, ...] = Field(min_length=1)
    """Who plays, and how often."""

    def with_absolute_runs(self) -> "Recipe":
        """The same recipe, readable from any folder."""
        behaviours = tuple(
            behaviour.model_copy(update={"run": str(Path(behaviour.run).resolve())})
            if isinstance(behaviour, RunPolicy)
            else behaviour
            for behaviour in self.behaviours
        )
        return self.model_copy(update={"behaviours": behaviours})

    def counts(self) -> list[int]:
        """Episodes of each behaviour."""
        return split_by_shares(self.episodes, [behaviour.share for behaviour in self.behaviours])


def collection_notes(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """What a dataset's card says of who played, in sentences; nothing where it says something else."""
    policies = facts.get("policies")
    if facts.get("kind") != COLLECTED or not isinstance(policies, list):
        return ()
    players = [_player_words(one) for one in policies[:MOST_PLAYERS] if isinstance(one, dict)]
    if len(policies) > MOST_PLAYERS:
        players.append(f"{len(policies) - MOST_PLAYERS} more")
    filters = [f"{name.replace('_', ' ')} {facts[name]}" for name in ("only", "min_return") if name in facts]
    told = [f"seed {facts.get('seed')}", f"{facts.get('num_envs')} environments at once", *filters]
    return (shown(f"collected by {'; '.join(players)} ({', '.join(told)})"),)


def _player_words(facts: Mapping[str, Any]) -> str:
    words = [f"{name} {facts[name]}" for name in ("updates", "skill", "noise", "epsilon") if name in facts]
    words += ["sampling"] if facts.get("greedy") is False else []
    words += [f"sha256 {str(facts['sha256'])[:12]}…"] if "sha256" in facts else []
    return f"{facts.get('policy')}" + (f" ({', '.join(words)})" if words else "")


def split_by_shares(total: int, shares: Sequence[float]) -> list[int]:
    """A number in parts: largest remainders, so that they add up exactly."""
    fractions = [Fraction(share) for share in shares]
    exact = [total * share / sum(fractions) for share in fractions]
    counts = [int(part) for part in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts

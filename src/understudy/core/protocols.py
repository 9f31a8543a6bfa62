"""The seam: what a policy, an algorithm and a source promise each other.

data = source.next(algorithm.policy)
update = algorithm.update(data)
source.feedback(update.feedback)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs, Rollout, Sequences, Transitions
from understudy.core.motion import Motions
from understudy.core.spec import ActionSpace, Spec

Metrics = dict[str, Tensor]
"""Flat names (`loss/critic`) to detached scalars; nobody reads them before the log interval."""

Carry = tuple[Tensor, ...]
"""Recurrent state, explicit; empty for policies without memory."""


@runtime_checkable
class Policy(Protocol):
    """Acts in environment units from raw observations."""

    def initial(self, count: int) -> Carry: ...

    def act(
        self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None
    ) -> tuple[Tensor, Carry]: ...


@dataclass(frozen=True)
class ActionSample:
    """Actions that a policy drew for N observations."""

    action: Tensor
    """In policy space [N, …], as its density knows them."""
    env_action: Tensor
    """The same in environment units [N, …], inside what the environment accepts."""
    log_prob: Tensor
    """[N]."""
    carry: Carry
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """What else was drawn, [N, …] each: stored with the action, and shown to whoever evaluates it, beside the
    observations."""


class ExplorationPolicy(Policy, Protocol):
    """A policy that can say how likely what it does was."""

    def draw(self, obs: Obs, carry: Carry, rng: torch.Generator) -> ActionSample: ...


@runtime_checkable
class Recorder(Protocol):
    """Says something of what is seen at every step, such as what a teacher would do; it may remember."""

    def initial(self, count: int) -> Carry: ...

    def record(self, obs: Obs, carry: Carry) -> tuple[Mapping[str, Tensor], Carry]:
        """Facts by name [N, …] of observations [N, …], and what is remembered after them."""


@dataclass(frozen=True)
class Driving:
    """How the next steps are played where not only the policy plays."""

    share: float
    """β: how likely an episode that begins now is driven."""
    policy_weight: float = 1.0
    """What driven rows count in the policy's loss."""
    resample: float = 0.0
    """How likely the policy's memory of an environment begins the next rollout at random."""


@runtime_checkable
class Driver(Recorder, Protocol):
    """A recorder that acts in some episodes instead of the policy that learns."""

    @property
    def streams(self) -> tuple[torch.Generator, ...]:
        """What it draws from: put back where a rollout failed and is played again."""

    def driving(self) -> Driving: ...

    def drive(self, facts: Mapping[str, Tensor]) -> Tensor:
        """Its actions [N, …] in environment units, from what it has just recorded."""


@runtime_checkable
class Recording(Protocol):
    """An algorithm that wants facts recorded while its policy plays."""

    def recorders(self) -> Mapping[str, Recorder]: ...


@dataclass(frozen=True)
class Demand:
    """What an algorithm asks of the rows it is given, beyond (s, a, r, s', terminated)."""

    columns: tuple[str, ...] = ()
    horizon: int = 1
    """n of n-step returns."""
    gamma: float = 0.99
    weighed: bool = False
    """It uses importance weights of rows (column `importance`) where there are any."""
    priorities: bool = False
    """It tells how wrong it was about each row (`PRIORITY`), and heeds what rows count (`SAMPLE_WEIGHT`) where they are
    drawn by that."""
    weights: str = ""
    """Which of `columns` says how much a row counts, if one does: it must be able to."""


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of one observation group, over a dataset's rows."""

    mean: Tensor
    std: Tensor


class Experience(Protocol):
    """A dataset in one of the roles a run has for them (main, demonstrations, motions)."""

    @property
    def spec(self) -> Spec: ...

    @property
    def steps(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    def moments(self) -> Mapping[str, Moments]:
        """What normalisers are made of, by group; empty where the run asks for none."""

    def hidden(self) -> Mapping[str, tuple[int, ...]]:
        """Columns of vector groups that no network of the run sees, by number."""

    def starts(self) -> Tensor:
        """The first step of every episode [E], by number."""

    def rows(self, index: Tensor, demand: Demand) -> Transitions:
        """The steps `index` [B], actions in policy space, rewards as they are learned from."""

    def windows(self, start: Tensor, length: int, demand: Demand) -> Sequences:
        """Stretches of `length` steps from the steps `start` [B] on, none of which leaves its episode."""


MAIN = "main"
"""The role of the dataset that a run is about."""
LEARNER = "learner"
"""Among the policies that an objective is built with: the one that learns, for whoever trains a part of it."""


@dataclass(frozen=True)
class Roles:
    """Names under which somebody reads datasets and asks frozen policies."""

    data: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    plays: bool = False
    """Somebody plays in environments."""
    motions: bool = False
    """Somebody imitates reference motions."""


@dataclass(frozen=True)
class Needs:
    """What an algorithm's settings ask of a run. Nothing has a default that would be guessed from."""

    consumes: type[Transitions] | type[Sequences] | type[Rollout]
    """What `update` takes."""
    actions: tuple[type[ActionSpace], ...]
    """Action spaces that it knows."""
    sources: tuple[str, ...]
    """Kinds of sources it can learn from, by name, the usual one first; others may serve if they yield the same."""
    data: tuple[str, ...] = ()
    """Roles of datasets that it reads itself, beside what its source reads."""
    policies: tuple[str, ...] = ()
    """Roles of frozen policies (teacher, target) that it is given."""
    modules: tuple[str, ...] = ()
    """Names of further modules whose code decides what is learned, such as those of its objectives."""
    compiles: bool = True
    """Whether torch.compile can make one graph of an update."""
    motions: bool = False
    """It imitates reference motions."""
    slices: bool = False
    """Whether its update, each process having a slice of the batch, is that of the whole batch: see core.ranks."""


@dataclass(frozen=True)
class EnvRequest:
    """How a source wants its environments."""

    count: int
    workers: int = 1
    stagger_episodes: bool = False
    step_timeout: float = 60.0
    steps_kept: int = 1
    """Steps of each whose observations are in memory at once."""


@dataclass(frozen=True)
class SourceNeeds:
    """What a source's settings ask of a run."""

    data: tuple[str, ...] = ()
    """Roles of the datasets that it reads."""
    envs: tuple[EnvRequest, ...] = ()
    """The environments that it plays in; none, or one group of them."""
    policies: tuple[str, ...] = ()
    """Roles of frozen policies that act in it."""
    first_steps: int = 0
    """Environment steps before the first update."""
    updates_per_step: Fraction = Fraction(0)
    """Updates for every environment step after them; 0 where nobody plays."""
    updates_at_once: int = 1
    """They come in groups of so many, each after all of its steps."""
    compiles: bool = True
    """Updates from it may be compiled: batches are alike, and statistics of observations stand still."""
    slices: bool = False
    """Of several processes it gives each a slice of the same batch: see core.ranks."""


@dataclass(frozen=True)
class BuildContext:
    """All an algorithm may know when it is built."""

    spec: Spec
    updates: int
    """Updates planned: the horizon of its schedules."""
    seed: int
    device: torch.device
    num_envs: int = 0
    """Environments that step together in its source; 0 where there are none."""
    data: Mapping[str, Experience] = field(default_factory=dict)
    """Datasets by role."""
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """Frozen policies by role; for objectives also `LEARNER`, which is not."""
    rollout_length: int = 0
    """Steps of each environment in one rollout; 0 where there are none."""
    motions: tuple[Motions, ...] = ()
    """Reference motions: one set of clips, or none."""

    @classmethod
    def over(cls, data: Experience, updates: int = 1_000_000, seed: int = 0) -> "BuildContext":
        """For an algorithm that learns from one dataset, outside of a run."""
        return cls(data.spec, updates, seed, data.device, data={MAIN: data})

    @property
    def moments(self) -> Mapping[str, Moments]:
        """Of the main dataset; without one, normalisers begin with nothing."""
        return self.data[MAIN].moments() if MAIN in self.data else {}


NO_FEEDBACK: Mapping[str, Tensor] = {}
PRIORITY = "priority"
"""In an update's feedback: the size of each row's error [B], by which a source may draw rows. Schaul et al. 2016."""


class Update(NamedTuple):
    """What an algorithm says of one update."""

    metrics: Metrics
    feedback: Mapping[str, Tensor] = NO_FEEDBACK
    """What it thinks of the rows it was given, [B] each (`PRIORITY`); for the source."""


Consumed_contra = TypeVar("Consumed_contra", Transitions, Sequences, Rollout, contravariant=True)
Yielded_co = TypeVar("Yielded_co", Transitions, Sequences, Rollout, covariant=True)


class Algorithm(Protocol[Consumed_contra]):
    """Learns, and knows nothing of where data came from."""

    @property
    def policy(self) -> Policy: ...

    @property
    def demand(self) -> Demand: ...

    def networks(self) -> Mapping[str, nn.Module]:
        """Its networks by role: `policy`, `critic`, `value`, …; the target network of a role is `target_<role>`. Those
        of several learners in one are `<learner>.<role>`."""

    def update(self, data: Consumed_contra) -> Update: ...


@runtime_checkable
class Balancing(Protocol):
    """An algorithm that learns weights of its losses beside its networks: SAC's temperature, a Lagrange multiplier."""

    def multipliers(self) -> Mapping[str, Tensor]:
        """Logarithms [] of those that are learned, by role (`temperature`, `lagrange`): handed on as networks are."""


@runtime_checkable
class TakingTurns(Protocol):
    """An algorithm whose updates are of several kinds, such as one that moves its actor at every second only.

    `turn` counts, and returns the method that is due, which may be compiled: a graph cannot ask whose turn it is.
    `update(data)` is `turn()(data)`.
    """

    def turn(self) -> Callable[[Transitions], Update]: ...


@runtime_checkable
class Concerned(Protocol):
    """An algorithm whose settings may not suit the data's rewards [N], and that says so before the first step."""

    def concerns(self, rewards: Tensor) -> list[str]: ...


@runtime_checkable
class Alarming(Protocol):
    """An algorithm that knows of some numbers of a log what they mean."""

    def warning(self, values: Mapping[str, float]) -> str:
        """What is wrong with them, and what to do; empty where nothing is."""


@runtime_checkable
class Measuring(Protocol):
    """An algorithm that knows more than what an update says; it is asked when a line of a log is written."""

    def measure(self) -> Metrics: ...


@runtime_checkable
class Shifting(Protocol):
    """An algorithm that moves its critics' targets, or its critics, away from returns: by a penalty, or by entropy."""

    @property
    def largest_shift(self) -> float:
        """The most, at one step and in units of reward; infinite where nobody can say."""


@runtime_checkable
class Cautioning(Protocol):
    """A source whose settings may not suit the policy that learns, and that says so before the first step."""

    def cautions(self, policy: Policy) -> list[str]: ...


class Source(Protocol[Yielded_co]):
    """Knows how data arrives, and nothing of learning."""

    @property
    def exact(self) -> bool:
        """The same state gives the same bits."""

    def next(self, policy: Policy) -> Yielded_co | None:
        """What is to be learned from next, or None: nothing yet, ask again."""

    def feedback(self, rows: Mapping[str, Tensor]) -> None:
        """What the algorithm said of the rows that `next` gave last."""

    def envs_moved(self) -> None:
        """Somebody else played in its environments: they are put back before the next data."""

    def counters(self) -> Mapping[str, int]:
        """What is counted from the first update on (`env_steps`): part of every line of a log and of an evaluation."""

    def metrics(self) -> Metrics:
        """What else is worth a line in a log, measured when it is written."""

    def describe(self) -> dict[str, Any]:
        """Where experience comes from, for meta.json."""

    def close(self) -> None:
        """Let go of simulators."""

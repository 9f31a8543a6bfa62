"""How data arrives: one file per way; a file here, or an entry point `understudy.sources` of another package, is found.

Such a module offers `Config` (its settings, with a `kind`), `YIELDS` (what `next` gives: Transitions, Sequences or
Rollout, or several of them, as the policy needs), `INTERVALS` (defaults of a run's `updates`, `log_every`, … where they
are others than usual), `needs(config)`, and `build(config, inputs)`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import torch

from understudy.core.batch import Rollout, Sequences, Transitions
from understudy.core.plugins import Plugins
from understudy.core.protocols import MAIN, Algorithm, Demand, Policy, Recorder, Source, SourceNeeds
from understudy.core.ranks import ALL, Share
from understudy.core.settings import Settings
from understudy.core.spec import Spec
from understudy.data.experience import LoggedExperience
from understudy.envs.vector.contract import VectorEnv


@dataclass(frozen=True)
class SourceInputs:
    """All a source may know when it is built."""

    spec: Spec
    seed: int
    device: torch.device
    demand: Demand
    """What the algorithm asks of rows."""
    policy: Policy
    """Who learns: how a memory begins, and what it draws beside its actions."""
    data: Mapping[str, LoggedExperience] = field(default_factory=dict)
    """The datasets that `needs` named, by role."""
    envs: tuple[VectorEnv, ...] = ()
    """The environments that `needs` asked for; the source closes them."""
    recorders: Mapping[str, Recorder] = field(default_factory=dict)
    """Who says something of every step while the policy plays; facts are kept as `extra[name/fact]`."""
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """Frozen policies that `needs` named, by role."""
    env_id: str = ""
    """The registered id of the environments; empty for a caller's own."""
    teacher: "Act | None" = None
    """Whoever was handed over as an object to label what is seen."""
    share: Share = ALL
    """Which rows of a batch are this process's."""

    @classmethod
    def over(cls, data: LoggedExperience, algorithm: Algorithm[Any], seed: int = 0) -> "SourceInputs":
        """For an algorithm that learns from one dataset, outside of a run."""
        return cls(data.spec, seed, data.device, algorithm.demand, algorithm.policy, data={MAIN: data})


Yielded = type[Transitions] | type[Sequences] | type[Rollout]
Act = Callable[..., Any]
"""Observations [N, …] as NumPy, by group if there are several → actions [N, …] in environment units."""


class SourceModule(Protocol):
    __doc__: str | None
    Config: type[Settings]
    YIELDS: Yielded | tuple[Yielded, ...]
    INTERVALS: Mapping[str, int]

    def needs(self, config: Settings) -> SourceNeeds: ...

    def build(
        self, config: Settings, inputs: SourceInputs
    ) -> Source[Transitions] | Source[Sequences] | Source[Rollout]: ...


PLUGINS = Plugins(
    "understudy.sources",
    __name__,
    tuple(__path__),
    "source.kind",
    "source",
    tag="kind",
    calls=(("needs", ("config",)), ("build", ("config", "inputs"))),
)


def source_names() -> dict[str, str]:
    """Kind to the module that holds it."""
    return PLUGINS.names()


def yields(kind: str) -> tuple[Yielded, ...]:
    """What a source of this kind can give."""
    given = find_source(kind).YIELDS
    return given if isinstance(given, tuple) else (given,)


def find_source(kind: str) -> SourceModule:
    """The module of a source, or an error with the closest name."""
    return cast(SourceModule, PLUGINS.find(kind, ("Config", "YIELDS", "INTERVALS", "needs", "build")))

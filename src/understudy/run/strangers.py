"""What other packages do in a run: they draw from a generator that is the run's, and what goes wrong in them is theirs.

Ours draw from named streams. Whoever draws from torch's global generator instead (a default initialisation, a dropout)
is given one of the run's own, which is part of every checkpoint; the caller's stays where it was. Without any module of
another package all of this costs nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, is_dataclass
from typing import Any, NoReturn, final

import torch
from torch import Tensor, nn

from understudy.algorithms import algorithm_names, find_algorithm
from understudy.core.errors import InventoryError, PluginError
from understudy.core.plugins import MEND, authored, blame, of_others
from understudy.core.protocols import Algorithm, BuildContext, Demand, Source, Update
from understudy.core.rng import derived_seed, own_global_generators, stream
from understudy.core.state import Static, capture
from understudy.nn.deployed import Deployed
from understudy.run.config import RunConfig
from understudy.sources import SourceInputs, find_source, source_names

ALGORITHM_OFFERS = ("policy", "demand", "networks", "update")
SOURCE_OFFERS = ("exact", "next", "feedback", "envs_moved", "counters", "metrics", "describe", "close")


@final
@dataclass
class Strangers:
    """The modules of other packages that a run is made of."""

    modules: Static[tuple[str, ...]]
    generator: Tensor
    """Where torch's global generator stands while they are at work."""

    @contextmanager
    def at_work(self) -> Iterator[None]:
        before = torch.get_rng_state()
        torch.set_rng_state(self.generator)
        try:
            with authored(*self.modules):
                yield
        finally:
            self.generator.copy_(torch.get_rng_state())
            torch.set_rng_state(before)

    def check_update(self, update: object) -> None:
        """What `update` gave is what the loop can read."""
        if not isinstance(update, Update):
            self._blame(f"`update` gives {type(update).__name__}", "understudy.core.protocols.Update(metrics)")
        if not isinstance(update.metrics, dict) or not isinstance(update.feedback, Mapping):
            self._blame("metrics or feedback of `update` are no dict", "{name: tensor}")
        for name, value in update.metrics.items():
            if not isinstance(value, Tensor) or value.numel() != 1:
                shape = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                self._blame(f"the metric '{name}' of `update` is {shape}", "a tensor of one number, detached")

    def _blame(self, what: str, expected: str) -> NoReturn:
        blame(" or ".join(self.modules) or "a network of your own", what, expected)


def strangers_of(config: RunConfig) -> tuple[Strangers, ...]:
    """Those of a run; none where everything is ours."""
    modules = tuple(module for module in run_modules(config) if of_others(module))
    if not modules and not _has_own_network(config.algo.model_dump()):
        return ()
    return (Strangers(modules, stream(config.seed, "other packages").get_state()),)


def run_modules(config: RunConfig) -> tuple[str, ...]:
    """The modules whose code a run is made of."""
    return algorithm_names()[config.algorithm], source_names()[config.source_kind], *config.needs.modules


def _has_own_network(settings: Any) -> bool:
    if isinstance(settings, Mapping):
        return settings.get("kind") == "own" or any(map(_has_own_network, settings.values()))
    return isinstance(settings, (list, tuple)) and any(map(_has_own_network, settings))


def working(strangers: tuple[Strangers, ...]) -> AbstractContextManager[None]:
    """Whatever is done inside is done by them, too."""
    return strangers[0].at_work() if strangers else nullcontext()


def call_build(config: RunConfig, context: BuildContext) -> Algorithm[Any]:
    """The algorithm, whose first numbers are the run's, wherever they are drawn from."""
    module = find_algorithm(config.algorithm)
    with own_global_generators(derived_seed(config.seed, "build algorithm")), authored(*run_modules(config)):
        algorithm = module.build(config.algo, context)
    if of_others(name := algorithm_names()[config.algorithm]):
        _check_algorithm(algorithm, name, module.build)
    return algorithm


def build_source(config: RunConfig, inputs: SourceInputs) -> Source[Any]:
    """Ours draw nothing, but reset simulators, whose `restart` may seed a global generator: that must stay seeded."""
    module, name = find_source(config.source_kind), source_names()[config.source_kind]
    drawn = own_global_generators(derived_seed(config.seed, "build source")) if of_others(name) else nullcontext()
    with drawn, authored(*run_modules(config)):
        source: Source[Any] = module.build(config.source, inputs)
    if of_others(name):
        _check_offers(source, SOURCE_OFFERS, name, module.build)
    return source


def _check_algorithm(algorithm: Algorithm[Any], name: str, build: object) -> None:
    _check_offers(algorithm, ALGORITHM_OFFERS, name, build)
    with authored(name):
        policy, demand, networks = algorithm.policy, algorithm.demand, algorithm.networks()
    if not isinstance(policy, Deployed):
        blame(name, f"`policy` is {type(policy).__name__}", "a policy that can be saved, such as nn.actor.Actor", build)
    if not isinstance(demand, Demand):
        blame(name, f"`demand` is {type(demand).__name__}", "understudy.core.protocols.Demand", build)
    if not isinstance(networks, Mapping) or not all(isinstance(one, nn.Module) for one in networks.values()):
        blame(name, "`networks()` is no mapping of role to torch.nn.Module", '{"policy": self.policy}', build)


def _check_offers(built: object, offers: tuple[str, ...], name: str, build: object) -> None:
    if not is_dataclass(built) or isinstance(built, type):
        what = f"`build` gives {type(built).__name__}, which is no dataclass"
        blame(name, what, "a dataclass: its fields are what a checkpoint holds", build)
    if missing := [offered for offered in offers if offered not in dir(built)]:
        blame(name, f"what `build` gives has no {', '.join(missing)}", ", ".join(offers), build)
    try:
        capture(built)
    except InventoryError as error:
        raise PluginError(f"'{name}', {type(built).__name__}.{error}"[:-1], "cannot be saved", do=MEND) from error

"""Critics, value functions and multipliers of another run: taken over by role, tensor by tensor, and told.

A policy folder holds a policy. The other networks of a run are in its checkpoints, which say where each role lies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from torch import Tensor, nn

from understudy.core.errors import CheckpointError, ConfigError, did_you_mean
from understudy.core.protocols import Algorithm, Balancing
from understudy.core.state import Leaf, State, capture, module_paths, restore
from understudy.nn.network_layout import NetworkLayout
from understudy.nn.normalization import Normalizer
from understudy.run.checkpoint import LAYOUTS_FACT, NETWORKS_FACT
from understudy.run.partial_loading import STREAM, LoadReport, Mismatch, Part, load_partially, rename, renamed
from understudy.run.policies import find_checkpoint
from understudy.run.rundir import RunDir

POLICY = "policy"


@final
@dataclass(frozen=True)
class Handed:
    """What one network can take over from another."""

    matched: State
    missing: tuple[str, ...]
    """Tensors of its own that the other does not have."""
    resized: tuple[str, ...]
    """Tensors of both, of different shapes."""
    left: tuple[str, ...]
    """Tensors of the other that it does not have."""
    otherwise: tuple[str, ...] = ()
    """What fits and means something else: other columns, another activation."""

    @classmethod
    def of(cls, network: nn.Module | Tensor, theirs: Part, keys: Mapping[str, str]) -> "Handed":
        """What a network can take over from a part of another run."""
        there = NetworkLayout.of(network).differences(renamed(theirs.layout, keys))
        return replace(cls.between(capture(network), theirs.state, keys), otherwise=tuple(there))

    @classmethod
    def between(cls, mine: Mapping[str, Leaf], theirs: Mapping[str, Leaf], keys: Mapping[str, str]) -> "Handed":
        """`keys`: beginnings of the other's paths, and what they are called here."""
        renamed = {rename(path, keys): leaf for path, leaf in theirs.items() if not path.endswith(STREAM)}
        own = {path: leaf for path, leaf in mine.items() if not path.endswith(STREAM)}
        both = own.keys() & renamed.keys()
        fitting = {path for path in both if _shape(own[path]) == _shape(renamed[path])}
        return cls(
            {path: renamed[path] for path in sorted(fitting)},
            tuple(sorted(own.keys() - renamed.keys())),
            tuple(f"{path} {_shape(renamed[path])} → {_shape(own[path])}" for path in sorted(both - fitting)),
            tuple(sorted(renamed.keys() - own.keys())),
        )

    @property
    def misfit(self) -> str:
        """Why it does not have everything from the other; empty where it does."""
        parts = {"missing": self.missing, "of another shape": self.resized, "left over": self.left}
        parts["of something else"] = self.otherwise
        told = "; ".join(f"{what}: {', '.join(names[:6])}" for what, names in parts.items() if names)
        return told if self.missing or self.resized or self.otherwise else ""

    def check(self, where: str) -> None:
        """An error unless everything it has comes from the other."""
        if self.misfit:
            raise CheckpointError(
                where,
                f"does not fit ({self.misfit})",
                do="Give both runs the same settings of this network, name what is what (init_keys), or take over what "
                "fits: init_mismatch=overlap, or skip.",
            )

    def report(self) -> LoadReport:
        return LoadReport(tuple(self.matched), self.resized, self.missing, self.left, overlap=False)


def parts_by_role(algorithm: Algorithm[Any]) -> dict[str, nn.Module | Tensor]:
    """What an algorithm can hand on: its networks, and the multipliers that it learns."""
    return {**algorithm.networks(), **(algorithm.multipliers() if isinstance(algorithm, Balancing) else {})}


def network_paths(algorithm: Algorithm[Any]) -> dict[str, str]:
    """Where the part of each role lies among an algorithm's state; those that are another's parts are left out."""
    known = module_paths(algorithm)
    return {role: known[id(part)] for role, part in parts_by_role(algorithm).items() if id(part) in known}


def roles_in(origin: str) -> tuple[str, tuple[str, ...]]:
    """The algorithm of a run, and the roles in its last checkpoint; of a policy folder there is none of either."""
    facts = _last_facts(origin)
    return str(_algo(facts).get("name", "")), tuple(facts.get(NETWORKS_FACT, ()))


def algorithm_of(origin: str) -> dict[str, Any]:
    """The settings of a run's algorithm, as its last checkpoint tells them; a policy folder tells none."""
    return _algo(_last_facts(origin))


def _algo(facts: Mapping[str, Any]) -> dict[str, Any]:
    algo = facts.get("settings", {}).get("algo")
    return algo if isinstance(algo, dict) else {}


def _last_facts(origin: str) -> Mapping[str, Any]:
    run = RunDir(origin)
    return find_checkpoint(run, "last").facts if run.config_file.exists() else {}


def network_layouts(algorithm: Algorithm[Any]) -> dict[str, dict[str, Any]]:
    """What lies where in the tensors of each role, for a checkpoint."""
    return {role: NetworkLayout.of(part).model_dump(mode="json") for role, part in parts_by_role(algorithm).items()}


def networks_of(origin: str, roles: tuple[str, ...]) -> dict[str, Part]:
    """The networks of these roles in a run's last checkpoint."""
    if roles and not RunDir(origin).config_file.exists():
        raise CheckpointError(f"init_from '{origin}'", f"only a run has {', '.join(roles)}", do="Name a run directory.")
    checkpoint = find_checkpoint(RunDir.open(origin), "last") if roles else None
    found = {}
    for role in roles:
        assert checkpoint is not None
        paths = checkpoint.facts[NETWORKS_FACT]
        if role not in paths:
            raise ConfigError("init_roles", f"'{origin}' has no '{role}'", do=did_you_mean(role, paths))
        whole = f"algorithm.{paths[role]}"
        state = {path: leaf for path, leaf in checkpoint.state.items() if path == whole or path.startswith(f"{whole}.")}
        told = checkpoint.facts.get(LAYOUTS_FACT, {}).get(role, {})  # older ones do not say
        layout = NetworkLayout.parse(told, f"checkpoint '{checkpoint.path}', {LAYOUTS_FACT}")
        found[role] = Part({path.removeprefix(whole).removeprefix("."): leaf for path, leaf in state.items()}, layout)
    return found


def own_networks(algorithm: Algorithm[Any], roles: tuple[str, ...]) -> dict[str, nn.Module | Tensor]:
    """An algorithm's networks of these roles."""
    networks = parts_by_role(algorithm)
    for role in roles:
        if role not in networks:
            raise ConfigError("init_roles", f"this algorithm has no '{role}'", do=did_you_mean(role, networks))
    return {role: networks[role] for role in roles}


def check_handed(
    algorithm: Algorithm[Any], theirs: Mapping[str, Part], keys: Mapping[str, str], mismatch: Mismatch, where: str
) -> None:
    """An error unless each role can take over all that it has, or of those that need not, something."""
    for role, network in own_networks(algorithm, tuple(theirs)).items():
        if mismatch == "refuse":
            Handed.of(network, theirs[role], keys).check(f"{where}, {role}")
        else:
            load_partially(network, theirs[role], keys, mismatch, f"{where}, {role}", dry=True)


def hand_over(
    algorithm: Algorithm[Any], theirs: Mapping[str, Part], keys: Mapping[str, str], mismatch: Mismatch, where: str
) -> dict[str, LoadReport]:
    """Give networks the tensors of another run's; what was taken over, by role."""
    check_handed(algorithm, theirs, keys, mismatch, where)
    reports = {}
    for role, network in own_networks(algorithm, tuple(theirs)).items():
        if mismatch != "refuse":
            reports[role] = load_partially(network, theirs[role], keys, mismatch, f"{where}, {role}")
            continue
        handed = Handed.of(network, theirs[role], keys)
        restore(network, {**capture(network), **handed.matched}, f"{where}, {role}")
        reports[role] = replace(handed.report(), notes=tuple(_settle(network)))
    return reports


def _settle(network: nn.Module | Tensor) -> Iterator[str]:
    """Statistics that were taken over are applied as this run's settings say, where those differ."""
    for path, part in network.named_modules() if isinstance(network, nn.Module) else ():
        if isinstance(part, Normalizer) and part.settle_other_form():
            yield f"{path or 'statistics'}: {part.settings.formula}, and otherwise there"


def _shape(leaf: object) -> str:
    return str(list(leaf.shape)) if isinstance(leaf, Tensor) else type(leaf).__name__

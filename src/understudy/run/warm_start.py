"""Start from another policy: BC first, then IQL from there. What was taken over is told; too little is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from understudy.core.errors import CheckpointError
from understudy.core.files import json_bytes, sha256_bytes
from understudy.core.protocols import Algorithm
from understudy.core.settings import Settings
from understudy.core.state import State, capture, restore
from understudy.nn.actor import Actor
from understudy.nn.committee import Committee
from understudy.nn.deployed import Deployed
from understudy.nn.exploring_policy import ExplorerSettings, ExploringPolicy
from understudy.run.config import FrozenPolicySettings, RunConfig
from understudy.run.handed_networks import POLICY, STREAM, check_handed, hand_over, networks_of, own_networks
from understudy.run.learner import Learner
from understudy.run.policies import load_policy
from understudy.run.progress import Reporter

TRUNK = "trunk."
Single = Actor | ExploringPolicy
"""A policy of one."""


TARGET = "target_"
"""Before the role of a network, it is the role of its target."""


def load_frozen(role: str, named: FrozenPolicySettings) -> Deployed:
    """A policy that takes part in a run and does not learn; it must have the fingerprint, if one is given."""
    policy = load_policy(named.path, named.checkpoint).requires_grad_(False).train(False)
    check_same(
        policy_fingerprint(policy), named.fingerprint, f"policies.{role} '{named.path}'", f"policies.{role}.fingerprint"
    )
    return policy


def check_same(found: str, fingerprint: str, where: str, setting: str) -> None:
    if fingerprint and fingerprint != found:
        raise CheckpointError(
            where,
            "holds another policy than this run was started from",
            got=found[:16] + "…",
            expected=fingerprint[:16] + "…",
            do=f"Nothing was changed. Bring back that policy, or start a new run without {setting}.",
        )


def policy_fingerprint(policy: Deployed) -> str:
    """sha256 of what a policy hands on, and of its shape: equal for the same policy, wherever it lies."""
    state = {path: leaf for path, leaf in sorted(capture(policy).items()) if not path.endswith(STREAM)}
    tensors = save_tensors({path: leaf for path, leaf in state.items() if isinstance(leaf, Tensor)})
    shape = {
        "spec": policy.spec.to_json(),
        "settings": policy.settings.model_dump(mode="json"),
        "scalars": {path: leaf for path, leaf in state.items() if not isinstance(leaf, Tensor)},
    }
    return sha256_bytes(json_bytes(shape) + tensors)


@final
@dataclass(frozen=True)
class Ancestor:
    """What a run starts from."""

    policy: Deployed
    networks: Mapping[str, State]
    """Of the other roles that are taken over."""

    @classmethod
    def load(cls, origin: str, roles: tuple[str, ...]) -> "Ancestor":
        """From a run directory, or from a policy folder if the policy is all that is wanted."""
        return cls(load_policy(origin), networks_of(origin, tuple(role for role in roles if role != POLICY)))

    @classmethod
    def of(cls, learner: Learner, roles: tuple[str, ...]) -> "Ancestor":
        """From a learner as it stands."""
        others = own_networks(learner.algorithm, tuple(role for role in roles if role != POLICY))
        return cls(learner.policy, {role: capture(network) for role, network in others.items()})

    @property
    def fingerprint(self) -> str:
        """sha256 of all of it."""
        policy = policy_fingerprint(self.policy)
        digests = [_digest(role, state) for role, state in sorted(self.networks.items())]
        return sha256_bytes(json_bytes({"policy": policy, "networks": digests})) if digests else policy

    def check(self, algorithm: Algorithm[Any], config: RunConfig, where: str) -> None:
        """An error unless the algorithm can take over what the config says."""
        if POLICY in config.init_roles:
            assert isinstance(algorithm.policy, Deployed)
            check_warm_start(algorithm.policy, self.policy, where)
        check_handed(algorithm, self.networks, config.init_keys, where)


def _digest(role: str, state: State) -> str:
    tensors = {path: leaf for path, leaf in state.items() if isinstance(leaf, Tensor)}
    return sha256_bytes(role.encode() + save_tensors(tensors))


def take_over(algorithm: Algorithm[Any], config: RunConfig, origin: str, fingerprint: str, reporter: Reporter) -> None:
    """Give an algorithm what its run starts from, by role; targets follow. What it is must have the fingerprint, if one
    is given."""
    where = f"init_from '{origin}'"
    ancestor = Ancestor.load(origin, config.init_roles)
    check_same(ancestor.fingerprint, fingerprint, where, "init_fingerprint")
    for role, told in hand_over(algorithm, ancestor.networks, config.init_keys, where).items():
        reporter.say(f"{where}, {role}: {told}")
    if POLICY in config.init_roles:
        warm_start(algorithm, ancestor.policy, where, reporter)
    _renew_targets(algorithm, where)


def warm_start(algorithm: Algorithm[Any], policy: Deployed, where: str, reporter: Reporter) -> None:
    """Give the algorithm's policy the tensors of another, normaliser included.

    Both policies of a committee start from the same one, or each from its own if the other is a committee, too.
    """
    heir = algorithm.policy
    assert isinstance(heir, Deployed)
    for member, ancestor in _pairs(heir, policy, where):
        taken, mine = _taken(member, ancestor, where), capture(member)
        restore(member, {**mine, **taken}, where)
        kept = sorted(mine.keys() - taken.keys())
        left = sorted(capture(ancestor).keys() - taken.keys())
        told = f"{_told(kept, 'kept as they were')}{_told(left, 'left out')}"
        reporter.say(f"{where}: {len(taken)} tensors taken over{told}")


def check_warm_start(heir: Deployed, ancestor: Deployed, where: str) -> None:
    """An error unless the heir can take over a whole trunk from the ancestor."""
    for member, origin in _pairs(heir, ancestor, where):
        _taken(member, origin, where)


def _pairs(heir: Deployed, ancestor: Deployed, where: str) -> list[tuple[Single, Single]]:
    """Who inherits from whom."""
    heirs, ancestors = _members(heir), _members(ancestor)
    if len(ancestors) > len(heirs):
        raise CheckpointError(where, "is a committee of two policies, and one policy cannot start from both")
    return list(zip(heirs, ancestors * (len(heirs) // len(ancestors)), strict=True))


def _members(policy: Deployed) -> list[Single]:
    return [policy.a, policy.b] if isinstance(policy, Committee) else [policy]


def _taken(heir: Single, ancestor: Single, where: str) -> State:
    """What the heir can take over, by path; an error unless its whole trunk is among it."""
    if not heir.spec.fits(ancestor.spec):
        raise CheckpointError(
            where, "is a policy of something else", got=ancestor.spec.describe(), expected=heir.spec.describe()
        )
    if type(heir) is not type(ancestor):
        raise CheckpointError(
            where, "is a policy of another kind", got=type(ancestor).__name__, expected=type(heir).__name__
        )
    if isinstance(heir, ExploringPolicy) and isinstance(ancestor, ExploringPolicy):
        _check_alike(heir, ancestor, where)
    mine, theirs = capture(heir), capture(ancestor)
    handed_on = {path: leaf for path, leaf in theirs.items() if not path.endswith(STREAM)}
    taken = {path: leaf for path, leaf in handed_on.items() if path in mine and _fits(mine[path], leaf)}
    missing = sorted(
        path for path in mine if path.startswith(TRUNK) and path not in taken and not path.endswith(STREAM)
    )
    if missing:
        raise CheckpointError(
            where,
            f"its network has another shape ({', '.join(missing)})",
            got=_shape(ancestor),
            expected=_shape(heir),
            do="Give this run the same algo.actor settings.",
        )
    return taken


def _check_alike(heir: ExploringPolicy, ancestor: ExploringPolicy, where: str) -> None:
    """Tensors of one shape mean something else behind other eyes."""
    for name in ("sees", "normalize", "encoders", "memory", "trunk", "density"):
        here, there = getattr(heir.settings, name), getattr(ancestor.settings, name)
        if name == "density":
            here, there = here.kind, there.kind
        if here != there:
            raise CheckpointError(
                where,
                f"its {name} are not the ones of algo.actor",
                got=_shown(there),
                expected=_shown(here),
                do="Give this run the same algo.actor settings.",
            )


def _shown(setting: object) -> object:
    return setting.model_dump(mode="json") if isinstance(setting, Settings) else setting


def _shape(policy: Single) -> str:
    settings = policy.settings
    if isinstance(settings, ExplorerSettings):
        return f"trunk {list(settings.trunk.hidden)}, memory {settings.memory.kind}, density {settings.density.kind}"
    return f"hidden {list(settings.hidden)}, head {settings.head}"


def _fits(mine: object, theirs: object) -> bool:
    return isinstance(mine, Tensor) and isinstance(theirs, Tensor) and mine.shape == theirs.shape


def _told(names: list[str], what: str) -> str:
    return f"; {what}: {', '.join(names)}" if names else ""


def _renew_targets(algorithm: Algorithm[Any], where: str) -> None:
    """Target networks are equal to theirs at birth, also where those have just taken over something."""
    networks = algorithm.networks()
    for role, network in networks.items():
        learner, dot, own = role.rpartition(".")
        if (target := f"{learner}{dot}{TARGET}{own}") in networks:
            restore(networks[target], {**capture(networks[target]), **_learned(network)}, where)


def _learned(network: nn.Module) -> State:
    """A network's parameters and buffers; its random streams stay its own."""
    return {path: leaf for path, leaf in capture(network).items() if not path.endswith(STREAM)}

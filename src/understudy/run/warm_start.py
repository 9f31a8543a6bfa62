"""Start from another run: from its policy (BC first, then IQL from there), or from everything it learned (IQL on data,
then IQL online). What was taken over is told; too little is refused. Optimisers begin anew.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from understudy.core.errors import CheckpointError, ConfigError, UnderstudyError, told_with
from understudy.core.files import json_bytes, read_json, sha256_bytes
from understudy.core.protocols import Algorithm
from understudy.core.spec import Box
from understudy.core.state import State, capture, restore
from understudy.nn.actor import Actor, ActorSettings, EstimatingActorSettings
from understudy.nn.committee import Committee
from understudy.nn.deployed import Deployed
from understudy.nn.distributions import means_the_same
from understudy.nn.distributions.gaussians import Gaussian, TanhMeanGaussian
from understudy.nn.network_layout import NetworkLayout
from understudy.nn.perception import Perception, RoleSettings
from understudy.nn.value_policy import ValuePolicy
from understudy.run.config import RunConfig
from understudy.run.frozen_policy import FrozenPolicySettings
from understudy.run.handed_distributions import keep_distribution
from understudy.run.handed_networks import (
    POLICY,
    Handed,
    check_handed,
    hand_over,
    network_paths,
    networks_of,
    own_networks,
    parts_by_role,
    roles_in,
)
from understudy.run.learner import Learner
from understudy.run.onnx_policy import OnnxPolicy, open_exported
from understudy.run.partial_loading import STREAM, LoadReport, Part, load_partially, rename
from understudy.run.policies import load_policy
from understudy.run.policy_file import describe_policy
from understudy.run.progress import Reporter
from understudy.run.rundir import RunDir

Single = Actor | ValuePolicy
"""A policy of one."""
TARGET = "target_"
"""Before the role of a network, it is the role of its target."""
NEW = ("estimator.", "distribution.")
"""What of a policy may begin anew beside what is taken over: whoever hands it on need not have any."""
REWARD_FACTS = ("reward_scale", "reward_shift", "reward_clip")


def load_frozen(role: str, named: FrozenPolicySettings) -> Deployed | OnnxPolicy:
    """A policy that takes part in a run and does not learn; it must have the fingerprint, if one is given."""
    where, exported = f"policies.{role} '{named.path}'", Path(named.path).suffix == ".onnx"
    with told_with(f"policies.{role}.path"):
        policy = open_exported(Path(named.path)) if exported else load_policy(named.path, named.checkpoint)
    if not isinstance(policy, OnnxPolicy):
        policy.requires_grad_(False).train(False)
    check_same(frozen_fingerprint(policy), named.fingerprint, where, f"policies.{role}.fingerprint")
    return policy


def frozen_fingerprint(policy: Deployed | OnnxPolicy) -> str:
    """sha256 of a policy that does not learn, or of the file it was exported to."""
    return policy.sha256 if isinstance(policy, OnnxPolicy) else policy_fingerprint(policy)


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
        **describe_policy(policy),
        "scalars": {path: leaf for path, leaf in state.items() if not isinstance(leaf, Tensor)},
    }
    return sha256_bytes(json_bytes(shape) + tensors)


@final
@dataclass(frozen=True)
class Ancestor:
    """What a run starts from."""

    policy: Deployed
    roles: tuple[str, ...]
    """What is asked of it, the policy among them if it is."""
    networks: Mapping[str, Part]
    """Of the other roles."""

    @classmethod
    def load(cls, origin: str, heir: RunConfig) -> "Ancestor":
        """From a run directory, or from a policy folder if the policy is all that is wanted."""
        policy = load_policy(origin)
        roles = asked_roles(heir, *roles_in(origin))
        return cls(policy, roles, networks_of(origin, _others(roles)))

    @classmethod
    def of(cls, learner: Learner, name: str, heir: RunConfig) -> "Ancestor":
        """From a learner as it stands, whose algorithm has this name."""
        roles = asked_roles(heir, name, tuple(network_paths(learner.algorithm)))
        others = own_networks(learner.algorithm, _others(roles))
        return cls(learner.policy, roles, {role: Part.of(network) for role, network in others.items()})

    @property
    def fingerprint(self) -> str:
        """sha256 of all of it."""
        policy = policy_fingerprint(self.policy)
        digests = [_digest(role, part.state) for role, part in sorted(self.networks.items())]
        return sha256_bytes(json_bytes({"policy": policy, "networks": digests})) if digests else policy

    def handed(self, algorithm: Algorithm[Any], heir: RunConfig) -> tuple[dict[str, Part], list[str]]:
        """What an algorithm takes over beside the policy, by role, and what of its own starts anew instead.

        A list of roles is meant as it stands. Who asks for all of them means those that both have; where nobody asked
        (`auto`), what does not fit starts anew.
        """
        if not isinstance(heir.init_roles, str) or not self.networks:
            return dict(self.networks), []
        assert isinstance(algorithm.policy, nn.Module)
        of_policy = {id(part) for part in algorithm.policy.modules()}  # which come with it
        kept, anew = {}, []
        for role, part in parts_by_role(algorithm).items():
            if id(part) in of_policy:
                continue
            misfit = "there is none" if role not in self.networks else ""
            if not misfit and heir.init_roles == "auto":
                misfit = self._torn(algorithm, role, heir)
            if not misfit and heir.init_roles == "auto" and heir.init_mismatch == "refuse":
                misfit = Handed.of(part, self.networks[role], heir.init_keys).misfit
            if misfit:
                anew.append(f"{role} ({misfit})")
            else:
                kept[role] = self.networks[role]
        return kept, anew

    def check(self, algorithm: Algorithm[Any], config: RunConfig, where: str) -> None:
        """An error unless the algorithm can take over what the config says."""
        if POLICY in self.roles:
            assert isinstance(algorithm.policy, Deployed)
            check_warm_start(algorithm.policy, self.policy, config, where)
            _begin_with_std(algorithm.policy, config.init_std, dry=True)
        handed, _ = self.handed(algorithm, config)
        check_handed(algorithm, handed, config.init_keys, config.init_mismatch, where)
        self.check_whole(algorithm, handed, config, where)

    def check_whole(self, algorithm: Algorithm[Any], roles: Collection[str], config: RunConfig, where: str) -> None:
        """An error unless what these roles share with the policy here they shared with it there."""
        for role in roles:
            if torn := self._torn(algorithm, role, config):
                raise CheckpointError(
                    f"{where}, {role}", torn, do="Let both runs share alike, or leave it out: init_roles=[policy]."
                )

    def _torn(self, algorithm: Algorithm[Any], role: str, heir: RunConfig) -> str:
        """What a role shares with the policy here and did not there: it could not have both. Empty where nothing is."""
        part = parts_by_role(algorithm).get(role)
        if POLICY not in self.roles or not isinstance(part, nn.Module) or not isinstance(algorithm.policy, nn.Module):
            return ""
        of_policy = {id(tensor): path for path, tensor in tensors_of(algorithm.policy)}
        theirs, known = capture(self.policy), self.networks[role].state
        known = {rename(path, heir.init_keys): leaf for path, leaf in known.items()}
        for path, tensor in tensors_of(part):
            mine, other = theirs.get(of_policy.get(id(tensor), "")), known.get(path)
            if isinstance(mine, Tensor) and isinstance(other, Tensor) and not torch.equal(mine, other):
                return f"{path} is the policy's, too, and was not there"
        return ""


def tensors_of(network: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers, under each of their names."""
    buffers = network.named_buffers(remove_duplicate=False)
    return [*network.named_parameters(remove_duplicate=False), *buffers]


def asked_roles(heir: RunConfig, algorithm: str, there: tuple[str, ...]) -> tuple[str, ...]:
    """The roles a config asks an ancestor of this algorithm for, which has those that are `there`."""
    if not isinstance(heir.init_roles, str):
        return heir.init_roles
    whole = heir.init_roles == "all" or algorithm == heir.algorithm
    return (POLICY, *_others(there)) if whole else (POLICY,)


def _others(roles: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(role for role in roles if role != POLICY)


def _digest(role: str, state: State) -> str:
    tensors = {path: leaf for path, leaf in state.items() if isinstance(leaf, Tensor)}
    return sha256_bytes(role.encode() + save_tensors(tensors))


def take_over(
    algorithm: Algorithm[Any], config: RunConfig, origin: str, fingerprint: str, reporter: Reporter
) -> dict[str, list[LoadReport]]:
    """Give an algorithm what its run starts from, by role; targets that were not handed on are copies. What it is must
    have the fingerprint, if one is given. Returns what was handed on by role; of a committee, to each policy."""
    where = f"init_from '{origin}'"
    ancestor = Ancestor.load(origin, config)
    check_same(ancestor.fingerprint, fingerprint, where, "init_fingerprint")
    handed, anew = ancestor.handed(algorithm, config)
    ancestor.check_whole(algorithm, handed, config, where)
    others = hand_over(algorithm, handed, config.init_keys, config.init_mismatch, where)
    told = {role: [report] for role, report in others.items()}
    if POLICY in ancestor.roles:
        told = {POLICY: warm_start(algorithm, ancestor.policy, config, where), **told}
        assert isinstance(algorithm.policy, Deployed)
        _begin_with_std(algorithm.policy, config.init_std)
    _renew_targets(algorithm, where, handed)
    listed = ", ".join(f"{role} ({' and '.join(one.told() for one in reports)})" for role, reports in told.items())
    rest = f"; new: {', '.join(anew)}" if anew else ""
    reporter.say(f"{where}: taken over: {listed}{rest}; optimisers begin anew")
    return told


def compare_rewards(run: RunDir, origin: RunDir, reporter: Reporter) -> None:
    """Values that were handed on are of the rewards they were learned from: others are told."""
    here, there = (rewards_of(one) for one in (run, origin))
    if here and there and here != there:
        reporter.say(
            f"rewards are learned from as {_told_facts(here)}, and in '{origin.path}' as {_told_facts(there)}: values "
            "that were taken over are wrong at first. The same here: data.reward, data.scale_rewards, or "
            "source.scale_rewards and source.shift_rewards of a run without data."
        )


def rewards_of(run: RunDir) -> dict[str, Any]:
    """What a run does to rewards, as its meta.json says; empty where it does not say."""
    facts = [{name: one[name] for name in REWARD_FACTS if name in one} for one in experience_of(run)]
    return next(filter(None, facts), {})


def experience_of(run: RunDir) -> list[dict[str, Any]]:
    """What its meta.json says of the data, and of the replay buffer, that a run learns from."""
    try:
        told = read_json(run.meta_file)
    except UnderstudyError:
        return []
    return [told[name] for name in ("dataset", "replay") if isinstance(told.get(name), dict)]


def warm_start(algorithm: Algorithm[Any], policy: Deployed, config: RunConfig, where: str) -> list[LoadReport]:
    """Give the algorithm's policy the tensors of another, normaliser included; what was taken over.

    Both policies of a committee start from the same one, or each from its own if the other is a committee, too.
    """
    heir = algorithm.policy
    assert isinstance(heir, Deployed)
    reports = []
    for member, ancestor in _pairs(heir, policy, where):
        report = (_wholly if config.init_mismatch == "refuse" else _partly)(member, ancestor, config, where)
        reports.append(replace(report, notes=(*_normalizer_notes(member, ancestor), *report.notes)))
    return reports


def _wholly(heir: Single, ancestor: Single, config: RunConfig, where: str) -> LoadReport:
    taken, mine = _taken(heir, ancestor, where), capture(heir)
    restore(heir, {**mine, **taken}, where)
    _settle(heir, ancestor)
    kept = tuple(sorted(mine.keys() - taken.keys()))
    left = tuple(sorted(capture(ancestor).keys() - taken.keys()))
    return LoadReport(
        tuple(sorted(taken)), (), kept, left, overlap=False, notes=keep_distribution(heir, ancestor, taken)
    )


def _normalizer_notes(heir: Single, ancestor: Single) -> list[str]:
    """How statistics that were taken over are applied, where this run's algorithm has another way of its own."""
    mine, theirs = heir.settings.normalizer, ancestor.settings.normalizer
    if not heir.settings.normalize or not ancestor.settings.normalize:
        return []
    if mine.form != theirs.form:
        return [f"normaliser {mine.formula}, and there {theirs.formula}: the policy acts otherwise than there"]
    return [] if mine.form == type(mine)().form else [f"normaliser as there: {mine.formula}"]


def check_warm_start(heir: Deployed, ancestor: Deployed, config: RunConfig, where: str) -> None:
    """An error unless the heir can take over a whole network from the ancestor, or part of one if that will do."""
    for member, origin in _pairs(heir, ancestor, where):
        if config.init_mismatch == "refuse":
            _taken(member, origin, where)
        else:
            _partly(member, origin, config, where, dry=True)


def _partly(heir: Single, ancestor: Single, config: RunConfig, where: str, *, dry: bool = False) -> LoadReport:
    """Take over what fits of a policy of another shape, but of the same kind."""
    _check_kind(heir, ancestor, where)
    keys, mismatch = config.init_keys, config.init_mismatch
    report = load_partially(heir, Part.of(ancestor), keys, mismatch, f"{where}, {POLICY}", dry=dry)
    if dry:
        return report
    notes = (*report.notes, *_range_notes(heir, ancestor), *keep_distribution(heir, ancestor, report.taken))
    return replace(report, notes=notes)


def _range_notes(heir: Single, ancestor: Single) -> list[str]:
    """The box is this environment's: what a policy says is of its range, whatever that was there."""
    mine, theirs = heir.spec.action, ancestor.spec.action
    if not isinstance(mine, Box) or not isinstance(theirs, Box) or (mine.low, mine.high) == (theirs.low, theirs.high):
        return []
    return [f"actions are of this environment's range, {mine.describe()}, and were of {theirs.describe()}"]


@torch.no_grad()
def _begin_with_std(policy: Deployed, std: float | None, *, dry: bool = False) -> None:
    """Give a policy that was taken over this σ in every dimension, where one is said."""
    for member in () if std is None else _members(policy, "init_std"):
        density = member.distribution if isinstance(member, Actor) else member
        if not isinstance(density, (Gaussian, TanhMeanGaussian)):
            kinds = "gaussian or tanh_mean_gaussian"
            raise ConfigError("init_std", "the policy has no σ that is the same in every state", expected=kinds)
        low, high = (math.exp(limit) for limit in (density.limits.low, density.limits.high))
        assert std is not None
        if not low <= std <= high:
            raise ConfigError("init_std", "outside the limits of σ", got=std, expected=f"from {low:.3g} to {high:.3g}")
        if not dry:
            density.log_std.fill_(math.log(std))


def _pairs(heir: Deployed, ancestor: Deployed, where: str) -> list[tuple[Single, Single]]:
    """Who inherits from whom."""
    heirs, ancestors = _members(heir, where), _members(ancestor, where)
    if len(ancestors) > len(heirs):
        raise CheckpointError(where, "is a committee of two policies, and one policy cannot start from both")
    return list(zip(heirs, ancestors * (len(heirs) // len(ancestors)), strict=True))


def _members(policy: Deployed, where: str) -> list[Single]:
    if isinstance(policy, Committee):
        return [policy.a, policy.b]
    if not isinstance(policy, Single):
        raise CheckpointError(where, "is a policy of another kind", got=policy.kind, expected="a policy of one or two")
    return [policy]


def _taken(heir: Single, ancestor: Single, where: str) -> State:
    """What the heir can take over, by path; an error unless its whole network is among it."""
    if not heir.spec.fits(ancestor.spec):
        raise CheckpointError(
            where, "is a policy of something else", got=ancestor.spec.describe(), expected=heir.spec.describe()
        )
    _check_kind(heir, ancestor, where)
    _check_alike(heir.settings, ancestor.settings, where)
    mine, theirs = capture(heir), capture(ancestor)
    taken = {
        path: leaf
        for path, leaf in theirs.items()
        if not path.endswith(STREAM) and path in mine and _fits(mine[path], leaf)
    }
    new = sorted(path for path in mine.keys() - taken.keys() if not path.endswith(STREAM) and not path.startswith(NEW))
    if otherwise := [*new, *NetworkLayout.of(heir).differences(NetworkLayout.of(ancestor))]:
        raise CheckpointError(
            where,
            f"its network is not that of algo.actor ({'; '.join(otherwise[:6])})",
            do="Give both the same settings, or take over what fits: init_mismatch=overlap, or skip.",
        )
    return taken


def _check_kind(heir: Single, ancestor: Single, where: str) -> None:
    if heir.kind != ancestor.kind:
        raise CheckpointError(where, "is a policy of another kind", got=ancestor.kind, expected=heir.kind)


def _check_alike(mine: RoleSettings, theirs: RoleSettings, where: str) -> None:
    """Tensors of one shape mean something else behind other eyes: whatever differs is named."""
    of_values = ("members", "quantiles", "one_hot")
    names = ("sees", "hide", "normalize", "encoders", "memory", "hidden", "activation", "layer_norm", *of_values)
    here, there = (_facts(settings, names) for settings in (mine, theirs))
    if isinstance(mine, ActorSettings) and isinstance(theirs, ActorSettings):
        kinds = mine.distribution.kind, theirs.distribution.kind
        if not means_the_same(*kinds):
            here["distribution"], there["distribution"] = kinds
    if isinstance(mine, EstimatingActorSettings) and isinstance(theirs, EstimatingActorSettings):
        estimates = _facts(mine, ("estimate",))["estimate"], _facts(theirs, ("estimate",))["estimate"]
        if all(estimates):  # whoever estimates nothing has nothing to hand on, or to take over
            here["estimate"], there["estimate"] = estimates
    different = [name for name in here if here[name] != there[name]]
    if different:
        got, expected = ({name: facts[name] for name in different} for facts in (there, here))
        raise CheckpointError(
            where,
            f"its network is not that of algo.actor ({', '.join(different)})",
            got=_told_facts(got),
            expected=_told_facts(expected),
            do="Give this run the same algo.actor settings, or take over what fits: init_mismatch=overlap, or skip.",
        )


def _facts(settings: RoleSettings, names: tuple[str, ...]) -> dict[str, Any]:
    return settings.model_dump(mode="json", include=set(names))


def _told_facts(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def _settle(heir: Single, ancestor: Single) -> None:
    """Statistics that were taken over are applied as this run's settings say, where those differ."""
    for part in heir.modules():
        if isinstance(part, Perception) and heir.settings.normalizer.form != ancestor.settings.normalizer.form:
            for _, normalizer in part.normalised():
                normalizer.settle()


def _fits(mine: object, theirs: object) -> bool:
    return isinstance(mine, Tensor) and isinstance(theirs, Tensor) and mine.shape == theirs.shape


def _renew_targets(algorithm: Algorithm[Any], where: str, handed: Collection[str]) -> None:
    """Target networks are equal to theirs at birth, also where those have just taken over something; but those that
    were handed on themselves are what they were."""
    networks = algorithm.networks()
    for role, network in networks.items():
        learner, dot, own = role.rpartition(".")
        target = f"{learner}{dot}{TARGET}{own}"
        if target in networks and target not in handed:
            restore(networks[target], {**capture(networks[target]), **_learned(network)}, where)


def _learned(network: nn.Module) -> State:
    """A network's parameters and buffers; its random streams stay its own."""
    return {path: leaf for path, leaf in capture(network).items() if not path.endswith(STREAM)}

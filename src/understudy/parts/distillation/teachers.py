"""Frozen teachers: what each would do, from its own groups, with its own normaliser and its own memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import Carry, Policy
from understudy.core.spec import Spec
from understudy.nn.actor import Actor
from understudy.nn.deployed import Deployed
from understudy.nn.distributions.gaussians import Gaussian, StateGaussian, TanhMeanGaussian
from understudy.nn.policy_fit import policy_differences
from understudy.nn.segments import Input, find_inputs

LABEL, FEATURES, LATENT = "label", "features", "latent."
"""Facts of a step: the action in the student's policy space, the teacher's whole density, and what its encoders say, by
the student's encoder that shall say the same."""


@dataclass(frozen=True)
class Wanted:
    """What is asked of teachers beside their actions."""

    features: bool = False
    latents: Mapping[str, str] | None = None
    """Student's encoder → teacher's."""
    sample: bool = False
    """Labels are drawn, not the mode."""


@final
class Teachers:
    """One, or several of which an integer observation says whose turn it is in an environment."""

    def __init__(self, named: Mapping[str, Policy], dispatch: str, wanted: Wanted, student: Actor, where: str) -> None:
        self.names, self.policies, self.wanted = list(named), list(named.values()), wanted
        self._student, self._where = student, where
        for name, policy in named.items():
            check_teacher(name, policy, student, wanted, where)
        self._dispatch = _index_input(dispatch, student.spec, f"{where}.dispatch") if dispatch else None
        if (self._dispatch is None) == (len(self.names) > 1):
            told = f"{len(self.names)} teachers, and dispatch '{dispatch}'"
            raise ConfigError(
                f"{where}.dispatch", told, expected="the observation that says which of several it is, else nothing"
            )

    def to(self, device: torch.device) -> "Teachers":
        """Where the student is; an outline has no numbers to move."""
        for policy in self.policies:
            if isinstance(policy, nn.Module) and device.type != "meta":
                policy.to(device)
        return self

    def initial(self, count: int) -> Carry:
        """What all of them remember at first."""
        return tuple(part for policy in self.policies for part in policy.initial(count))

    @torch.no_grad()
    def say(self, obs: Obs, carry: Carry, rng: torch.Generator) -> tuple[dict[str, Tensor], Carry]:
        """Facts of N environments, each of its own teacher, and what every teacher remembers."""
        said: list[dict[str, Tensor]] = []
        after: list[Tensor] = []
        used = 0
        for policy in self.policies:
            count = len(policy.initial(1))
            facts, remembered = self._ask(policy, obs, carry[used : used + count], rng)
            said.append(facts)
            after += remembered
            used += count
        chosen = said[0] if self._dispatch is None else self._dispatched(obs, said)
        self._check_finite(chosen[LABEL], obs)
        return chosen, tuple(after)

    def _ask(self, policy: Policy, obs: Obs, carry: Carry, rng: torch.Generator) -> tuple[dict[str, Tensor], Carry]:
        wanted, student = self.wanted, self._student
        if not isinstance(policy, Actor):
            action, carry = policy.act(obs, carry, greedy=not wanted.sample, rng=rng)
            return {LABEL: student.from_env_action(action.to(student.action_centre.device))}, carry
        seen, carry, _ = policy.see(obs, carry)
        features = policy.features(seen, policy.mask(obs))
        action = policy.distribution.sample(features, rng) if wanted.sample else policy.distribution.mode(features)
        facts = {LABEL: student.from_env_action(policy.to_env_action(action))}
        if wanted.features:
            facts[FEATURES] = features
        if wanted.latents:
            latents = policy.encoder_latents(obs)
            facts |= {LATENT + mine: latents[theirs] for mine, theirs in wanted.latents.items()}
        return facts, carry

    def _dispatched(self, obs: Obs, said: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        index = self._index(obs)
        rows = torch.arange(len(index), device=index.device)
        return {name: torch.stack([facts[name] for facts in said])[index, rows] for name in said[0]}

    def _index(self, obs: Obs) -> Tensor:
        """Whose turn it is [N]."""
        assert self._dispatch is not None
        told = self._dispatch.of(obs).reshape(-1)
        index = told.long()
        wrong = (index != told) | (index < 0) | (index >= len(self.names))
        if bool(wrong.any()):
            env = int(wrong.nonzero()[0])
            raise DataError(
                f"{self._where}.dispatch, environment {env}",
                f"'{self._dispatch.name}' names no teacher",
                got=float(told[env]),
                expected=f"a whole number from 0 to {len(self.names) - 1}: {', '.join(self.names)}",
            )
        return index

    def _check_finite(self, label: Tensor, obs: Obs) -> None:
        if bool(label.isfinite().all()):
            return
        env = int((~label.isfinite()).reshape(len(label), -1).any(-1).nonzero()[0])
        name = self.names[0 if self._dispatch is None else int(self._index(obs)[env])]
        raise DataError(
            f"{self._where}, teacher '{name}', environment {env}",
            "its label is not finite",
            got=label[env].tolist(),
            do="Look at what it sees there: observations beyond what it was trained on, or a normaliser of σ 0.",
        )


def check_teacher(name: str, policy: Policy, student: Actor, wanted: Wanted, where: str) -> None:
    """It can be asked in the student's world, and for what is wanted; otherwise every difference is listed."""
    if different := policy_differences(policy, student.spec):
        raise ConfigError(
            f"policies.{name}",
            f"does not fit the student's world: {'; '.join(different)}",
            expected=student.spec.describe(),
            do="Give a teacher of these groups and actions, or the environment it was trained in.",
        )
    if wanted.sample and not isinstance(policy, Deployed):
        raise ConfigError(f"{where}.labels", f"teacher '{name}' is an exported file, which has no draws", got="sample")
    if wanted.features and not (isinstance(policy, Actor) and _family(policy) == _family(student)):
        kind = type(policy.distribution).__name__ if isinstance(policy, Actor) else type(policy).__name__
        raise ConfigError(
            f"{where}.loss",
            f"this loss compares densities of one family, and teacher '{name}' has another",
            got=kind,
            expected=type(student.distribution).__name__,
            do="Say loss=mse or nll, or give both the same actor.distribution.",
        )
    for mine, theirs in (wanted.latents or {}).items():
        _check_latent(f"teacher '{name}'", policy, student, mine, theirs, where)


def _family(policy: Actor) -> type:
    """Who shares it has features of one meaning: μ and log σ of a Gaussian, wherever they come from."""
    kind = type(policy.distribution)
    return Gaussian if kind in (Gaussian, TanhMeanGaussian, StateGaussian) else kind


def _check_latent(place: str, policy: Policy, student: Actor, mine: str, theirs: str, where: str) -> None:
    """Both have the encoder that is named, and of one size."""
    known = {"student": student.perception, **({"teacher": policy.perception} if isinstance(policy, Actor) else {})}
    sizes = {}
    for who, encoder in (("student", mine), ("teacher", theirs)):
        encoders = known[who].settings.encoders if who in known else {}
        if encoder not in encoders:
            raise ConfigError(
                f"{where}.latents",
                f"{place if who == 'teacher' else 'the student'} has no encoder of '{encoder}'",
                expected=sorted(encoders) or "an actor with `encoders`",
            )
        sizes[who] = encoders[encoder].size
    if sizes["student"] != sizes["teacher"]:
        raise ConfigError(
            f"{where}.latents",
            f"'{mine}' and the teacher's '{theirs}' are not of one size",
            got=sizes["student"],
            expected=sizes["teacher"],
        )


def _index_input(name: str, spec: Spec, where: str) -> Input:
    """One number of the observation."""
    (entry,) = find_inputs((name,), spec, where)
    if entry.size != 1:
        raise ConfigError(where, f"'{name}' is no single number", got=list(entry.shape), expected="[1]")
    return entry

"""The form of normalisers that are handed on: ε, what it is added to, and where they cut.

Statistics alone are half of a normaliser. A policy was made for (s − μ)/(σ + ε) as it was, and acts otherwise where
another algorithm applies the same μ and σ in its own form. So the form goes with the statistics, unless the heir says
`init_normalizer=own`. It is written into the heir's config before anything is built: whatever is built from that
config, after a kill too, has it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from understudy.core.errors import told_with
from understudy.core.settings import Settings
from understudy.nn.actor import Actor
from understudy.nn.committee import Committee
from understudy.nn.critic import CriticSettings
from understudy.nn.normalization import NormalizerSettings
from understudy.nn.perception import RoleSettings
from understudy.nn.value_policy import ValuePolicy
from understudy.parts.ppo.networks import OnPolicyCriticSettings
from understudy.run.config import RunConfig
from understudy.run.handed_networks import POLICY, algorithm_of
from understudy.run.policies import load_policy

ACTOR, CRITIC = "actor", "critic"


@final
@dataclass(frozen=True)
class Given:
    """Normalisers of what a run starts from, by the group of settings that says how they are."""

    where: str
    algorithm: str
    """Empty of a policy folder, which does not say."""
    forms: dict[str, NormalizerSettings]
    values: bool
    """Its policy may be its critics."""

    @classmethod
    def by(cls, origin: str) -> "Given":
        """A run directory or a policy folder."""
        policy, settings = load_policy(origin), algorithm_of(origin)
        group = settings.get(CRITIC)
        told = group.get("normalizer") if isinstance(group, dict) else None
        forms = {} if told is None else {CRITIC: NormalizerSettings.parse(told, f"'{origin}', {CRITIC}.normalizer")}
        values = isinstance(policy, ValuePolicy)
        if isinstance(policy, (Actor, Committee, ValuePolicy)) and policy.settings.normalize:
            forms[CRITIC if values else ACTOR] = policy.settings.normalizer
        return cls(f"'{origin}'", str(settings.get("name", "")), forms, values)

    def taken_by(self, heir: RunConfig) -> dict[str, NormalizerSettings]:
        """Those that a config asks for: the policy's, and the critics' where any of them is taken over."""
        roles, same = heir.init_roles, self.algorithm == heir.algorithm
        whole = roles == "all" or same if isinstance(roles, str) else any(role != POLICY for role in roles)
        policy = isinstance(roles, str) or POLICY in roles
        values = self.values and policy and (same or not self.algorithm)
        asked = {ACTOR: policy, CRITIC: whole or values}
        return {name: self.forms[name] for name in asked if asked[name] and name in self.forms}


def with_handed_normalizers(config: RunConfig, say: Callable[[str], None]) -> RunConfig:
    """A config whose normalisers, and those of its stages, have the form of what they start from."""
    with told_with("init_from"):
        given = Given.by(config.init_from) if config.init_from else None
    stages: list[RunConfig] = []
    for number, stage in enumerate(config.stages):
        stages.append(_in_form(stage, given, f"stages.{number}.algo", say))
        forms = {name: group.normalizer for name, group in _groups(stages[-1].algo).items() if group.normalize}
        given = Given(f"stages.{number}", stage.algorithm, forms, values=True)
    return _in_form(config.model_copy(update={"stages": tuple(stages)}), given, "algo", say)


def _in_form(config: RunConfig, given: Given | None, where: str, say: Callable[[str], None]) -> RunConfig:
    if given is None or config.init_normalizer == "own":
        return config
    mine, changed = _groups(config.algo), {}
    forms = given.taken_by(config)
    if ACTOR in forms and _shares(mine.get(CRITIC)):  # what both look through has one form
        forms[CRITIC] = forms[ACTOR]
    for name, form in forms.items():
        if name in mine and (before := mine[name].normalizer).form != form.form:
            changed[name] = mine[name].model_copy(update={"normalizer": before.in_form_of(form)})
            say(
                f"{where}.{name}.normalizer: {form.formula}, as in {given.where}, where its statistics come from; "
                f"init_normalizer=own applies them as {before.formula}"
            )
    return config.model_copy(update={"algo": config.algo.model_copy(update=changed)}) if changed else config


def _groups(algo: Settings) -> dict[str, RoleSettings]:
    return {name: group for name, group in algo if name in (ACTOR, CRITIC) and isinstance(group, RoleSettings)}


def _shares(critic: RoleSettings | None) -> bool:
    """It looks through what is the actor's, or the actor through what is its."""
    if isinstance(critic, OnPolicyCriticSettings) and critic.share_memory:
        return True
    return isinstance(critic, CriticSettings) and critic.share_encoder

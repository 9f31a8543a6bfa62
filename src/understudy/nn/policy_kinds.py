"""The kinds of policies that files hold.

A file names the kind of its policy, its settings and its spec; nothing is guessed from what happens to be in them.
"""

from typing import Any

import torch

from understudy.core.spec import Spec
from understudy.nn.deployed import SINGLE_KINDS, Deployed, PolicyKind, blank_of
from understudy.nn.skill_set import SkillSet
from understudy.nn.skill_settings import SkillSetSettings

KINDS: dict[str, PolicyKind[Any]] = {**SINGLE_KINDS, SkillSet.kind: PolicyKind(SkillSetSettings, SkillSet.blank)}


def blank_policy(kind: str, spec: Spec, settings: object, rng: torch.Generator, where: str = "settings") -> Deployed:
    """A policy of this kind and shape, to be filled."""
    return blank_of(KINDS, kind, spec, settings, rng, where)

"""A deployable policy: `policy.safetensors` and a sealed `policy.json` that says how to rebuild it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from safetensors.torch import save as save_tensors

from understudy.core.arguments import as_mapping, as_path, kind_of
from understudy.core.errors import CheckpointError, ConfigError, UnderstudyError
from understudy.core.facts import Facts, SealedFacts, Whole, count_values
from understudy.core.files import discard, replace_directory, seal, sha256_bytes, write_new
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.core.state import State, capture, check_fits, footprint, restore
from understudy.nn.deployed import Deployed
from understudy.nn.policy_kinds import KINDS, blank_policy
from understudy.nn.skill_set import SkillSet
from understudy.run.tensor_file import read_tensors

FORMAT = 2
CARD = "policy.json"
TENSORS = "policy.safetensors"
HEADER_BYTES = 16 << 20
"""What a file of tensors may have beside their numbers."""
VALUES, BYTES_PER_VALUE = 1000, 64
"""Settings that any policy may have, and bytes of tensors for each further one: a layer is more."""


class TrainingFacts(Facts):
    """What a run says of a policy; whoever saves one alone need not say anything."""

    algorithm: dict[str, Any] = Field(default_factory=dict)
    updates: Whole | None = None
    env: str = ""
    transforms: dict[str, Any] = Field(default_factory=dict)
    return_mean: float | None = None


class PolicyCard(SealedFacts):
    """What `save_policy` writes beside the tensors."""

    FORMAT = FORMAT

    kind: str
    spec: dict[str, Any]
    settings: dict[str, Any]
    sha256: dict[str, str]
    facts: dict[str, Any]


def save_policy(policy: Deployed, path: str | Path, facts: Mapping[str, Any] | None = None) -> str:
    """Write a policy as a folder that `load_policy` reads, or replace the one that is there; its sha256 comes back.

    `facts` are told on its card: `updates`, `env`, …. A reader finds a whole policy, or for an instant none, never half
    of one.
    """
    check_policy(policy, "save_policy")
    path, told = as_path(path, "save_policy"), dict(as_mapping({} if facts is None else facts, "facts"))
    TrainingFacts.parse(told, "facts")
    if path.is_symlink() or (path.exists() and not (path / CARD).is_file()):
        raise CheckpointError(f"folder '{path}'", "exists already and holds no policy", do="Choose another name.")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    discard(draft)
    draft.mkdir()
    tensors = save_tensors({name: leaf for name, leaf in capture(policy).items() if isinstance(leaf, torch.Tensor)})
    write_new(draft / TENSORS, tensors)
    card = {
        "format": FORMAT,
        **describe_policy(policy),
        "sha256": {TENSORS: sha256_bytes(tensors)},
        "facts": told,
    }
    write_new(draft / CARD, seal(card))
    replace_directory(draft, path)
    return sha256_bytes(tensors)


def check_policy(policy: object, where: str) -> Deployed:
    """A policy that can be saved, exported and called."""
    if isinstance(policy, type) or not isinstance(policy, Deployed):
        raise ConfigError(
            where, "not a policy", got=kind_of(policy), expected="what `load_policy` or `algorithm.policy` gives"
        )
    if isinstance(policy, SkillSet):
        policy.check_storable(where)
    return policy


def describe_policy(policy: Deployed) -> dict[str, Any]:
    """All that rebuilding a policy takes, beside its tensors."""
    return {
        "kind": policy.kind,
        "spec": policy.spec.to_json(),
        "settings": policy.settings.model_dump(mode="json"),
    }


def read_card(path: Path) -> PolicyCard:
    """The card of the policy in a folder."""
    where = f"policy '{path}'"
    if not (path / CARD).is_file():
        raise CheckpointError(where, "no such policy")
    card = PolicyCard.read(path / CARD, where)
    TrainingFacts.parse(card.facts, f"{where}, facts of {CARD}")
    return card


def load_policy_file(path: Path) -> tuple[Deployed, PolicyCard]:
    """The policy in a folder that `save_policy` wrote, verified, and what its card says.

    The card can promise any network. Its outline is made first, and no more is read than that would fill.
    """
    card, where = read_card(path), f"policy '{path}'"
    size = (path / TENSORS).stat().st_size if (path / TENSORS).is_file() else 0
    outline = outline_policy(card.kind, card.spec, card.settings, size, where)
    tensors = read_tensors(path / TENSORS, card.sha256.get(TENSORS), where, footprint(outline) + HEADER_BYTES)
    return fill_policy(outline, dict(tensors), where), card


def outline_policy(kind: str, spec: dict[str, Any], settings: dict[str, Any], size: int, where: str) -> Deployed:
    """A policy of this shape without memory: on torch's `meta` device tensors have shapes and no numbers.

    `size` is that of the tensors it should have: none are so small that there is a layer for every few bytes.
    """
    if kind not in KINDS:
        raise CheckpointError(
            where, "is a policy of a kind that is not known here", got=kind, expected=" or ".join(sorted(KINDS))
        )
    if count_values([settings, spec.get("observation")]) > VALUES + size // BYTES_PER_VALUE:
        raise CheckpointError(where, "describes a network of more parts than its tensors can be of")
    try:
        with torch.device("meta"):
            return blank_policy(kind, Spec.from_json("spec", spec), settings, stream(0, "rebuild"))
    except UnderstudyError as error:
        raise CheckpointError(where, f"damaged or incomplete ({str(error).splitlines()[0]})") from error
    except (RuntimeError, OverflowError, KeyError, TypeError, ValueError) as error:
        told = str(error).partition("\n")[0]
        raise CheckpointError(where, f"describes a network that cannot be made ({told})") from error


def fill_policy(outline: Deployed, state: State, where: str) -> Deployed:
    """The policy of an outline with these tensors; unless they are all there and of its shapes, no memory is taken."""
    check_fits(outline, state, where)
    policy = blank_policy(outline.kind, outline.spec, outline.settings.model_dump(), stream(0, "rebuild"))
    restore(policy, state, where)
    return policy.train(False).requires_grad_(False)

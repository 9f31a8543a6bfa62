"""A deployable policy: `policy.safetensors` and a sealed `policy.json` that says how to rebuild it."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from understudy.core.errors import CheckpointError, UnderstudyError
from understudy.core.files import discard, read_bytes, read_sealed, replace_directory, seal, sha256_bytes, write_new
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.core.state import State, capture, restore
from understudy.nn.actor import Actor, parse_actor_settings
from understudy.nn.committee import Committee, CommitteeSettings
from understudy.nn.deployed import Deployed
from understudy.nn.exploring_policy import ExplorerSettings, ExploringPolicy

FORMAT = 1
CARD = "policy.json"
TENSORS = "policy.safetensors"


def save_policy(policy: Deployed, path: Path, facts: dict[str, Any]) -> str:
    """Replace the policy at `path`; a reader finds a whole policy, or for an instant none, never half of one.

    Returns the sha256 of its tensors.
    """
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    discard(draft)
    draft.mkdir()
    tensors = save_tensors({name: leaf for name, leaf in capture(policy).items() if isinstance(leaf, torch.Tensor)})
    write_new(draft / TENSORS, tensors)
    card = {
        "format": FORMAT,
        "kind": "understudy policy",
        "spec": policy.spec.to_json(),
        "settings": policy.settings.model_dump(mode="json"),
        "sha256": {TENSORS: sha256_bytes(tensors)},
        "facts": facts,
    }
    write_new(draft / CARD, seal(card))
    replace_directory(draft, path)
    return sha256_bytes(tensors)


def load_policy_file(path: Path) -> tuple[Deployed, dict[str, Any]]:
    """The policy in a folder that `save_policy` wrote, verified, and what its card says."""
    where = f"policy '{path}'"
    if not (path / CARD).is_file():
        raise CheckpointError(where, "no such policy")
    try:
        card = read_sealed(path / CARD)
        if card["format"] != FORMAT:
            raise CheckpointError(where, "written in another format", got=card["format"], expected=FORMAT)
        content = read_bytes(path / TENSORS)
        if sha256_bytes(content) != card["sha256"][TENSORS]:
            raise CheckpointError(where, f"damaged: the sha256 of {TENSORS} differs")
        state: State = dict(load_tensors(content))
        policy = rebuild_policy(Spec.from_json(where, card["spec"]), card["settings"], state, where)
        return policy, card
    except CheckpointError:
        raise
    except (UnderstudyError, OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise CheckpointError(where, f"damaged or incomplete ({error})") from error


def rebuild_policy(spec: Spec, settings: object, state: State, where: str) -> Deployed:
    """A policy of this shape with these tensors."""
    policy = _blank(spec, settings, where)
    restore(policy, state, where)
    return policy.train(False).requires_grad_(False)


def _blank(spec: Spec, settings: object, where: str) -> Deployed:
    rng = stream(0, "rebuild")
    if isinstance(settings, dict) and "verdict" in settings:
        return Committee.blank(spec, CommitteeSettings.parse(settings, where), rng)
    if isinstance(settings, dict) and "density" in settings:
        return ExploringPolicy(spec, ExplorerSettings.parse(settings, where), rng)
    return Actor(spec, {}, parse_actor_settings(settings, where), rng)

"""Policies and a checkpoint that were written once, in this format: a change of it is noticed here.

Where the format is meant to change, its number does, and `python tests/golden/test_stored_policies.py` (with `tests` on
the path) writes them anew.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from understudy.core.batch import Obs
from understudy.core.rng import stream
from understudy.core.spec import ACTION_MASK, Box, Discrete, Group, Spec
from understudy.core.state import capture
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.committee import Committee, CommitteeCriticSettings, CommitteeSettings
from understudy.nn.deployed import Deployed
from understudy.nn.policy_kinds import KINDS
from understudy.nn.skill_set import SkillSet
from understudy.nn.skill_settings import SkillSetSettings
from understudy.nn.value_policy import ValuePolicy, ValuePolicySettings
from understudy.run.checkpoint import load_checkpoint, save_checkpoint
from understudy.run.policies import load_policy, policy_of
from understudy.run.policy_file import describe_policy, save_policy

STORED = Path(__file__).parent / "stored"
ROWS, STEPS, UPDATES = 3, 2, 7
GROUPS = {"state": Group((4,), "float32"), "camera": Group((1, 5, 5), "uint8")}
BOX = Box((-2.0, 0.0), (2.0, 1.0))
SEEING: dict[str, Any] = {
    "sees": ["camera", "state.body"],
    "hide": {"state": [1]},
    "encoders": {"camera": {"kind": "conv", "layers": [{"channels": 2, "kernel": 3}], "hidden": [3], "size": 3}},
    "memory": {"kind": "gru", "units": 4},
    "hidden": [5],
    "activation": "silu",
    "layer_norm": True,
    "distribution": {"kind": "gaussian", "initial_std": 0.5},
}


def make(kind: str) -> Deployed:
    """One of each kind, with numbers in it that depend on nothing but their place."""
    rng = stream(0, "stored")
    vector = Spec({"state": GROUPS["state"]}, BOX)
    made: Deployed
    if kind == "policy":
        spec = Spec(GROUPS, BOX).with_segments({"state": {"body": (0, 3), "goal": (3, 4)}})
        made = Actor(spec, ActorSettings.parse(SEEING), rng)
    elif kind == "value_policy":
        masked = Spec({"state": GROUPS["state"]}, Discrete(3), masked=True)
        made = ValuePolicy.blank(masked, ValuePolicySettings(hidden=(5,), quantiles=2), rng)
    elif kind == "skill_set":
        spec = vector.with_segments({"state": {"body": (0, 2), "goal": (2, 4)}})
        made = SkillSet.blank(spec, SkillSetSettings.parse(_skilled(spec)), rng)
    else:
        critics = CommitteeCriticSettings(hidden=(3,))
        made = Committee.blank(vector, CommitteeSettings(hidden=(5,), combine="max_q", critics=critics), rng)
    for tensor in capture(made).values():
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            assert tensor.isfinite().all()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.linspace(-0.3, 0.35, parameter.numel()).view_as(parameter))
    return made


def _skilled(spec: Spec) -> dict[str, Any]:
    """A set of two skills that uses every word there is."""
    shape = ActorSettings.parse({"hidden": [3], "memory": {"kind": "gru", "units": 2}})
    policy = {"kind": "policy", "spec": spec.to_json(), "settings": shape.model_dump(mode="json")}
    drawn = {"state.goal": {"low": 0.0, "high": 1.0, "redraw": "selection"}}
    split = {"b": {"observation": "state.goal", "entry": -1, "negative": "a"}}
    return {
        "skills": [
            {"name": "a", "policy": policy, "overrides": drawn, "action_scale": 0.5},
            {"name": "b", "policy": policy, "observation_scale": {"state.body": 2.0}, "reset_memory": "all"},
        ],
        "selector": {"kind": "observation", "observation": "state.body", "fallback": "b", "split": split},
        "smoothing": 2,
        "reset_memory": "when_selected",
        "last_action": ["state.goal"],
    }


def played(policy: Deployed) -> list[Any]:
    """What it does in some steps, from an empty memory."""
    rng = torch.Generator().manual_seed(0)
    carry, actions = policy.initial(ROWS), []
    for _ in range(STEPS):
        obs: Obs = {"state": torch.linspace(-1, 1, 4 * ROWS).view(ROWS, 4)}
        obs["camera"] = torch.randint(256, (ROWS, 1, 5, 5), generator=rng, dtype=torch.uint8)
        obs[ACTION_MASK] = torch.tensor([[True, True, False], [False, True, True], [True, True, True]])
        action, carry = policy.act(obs, carry, greedy=True)
        actions.append(action.tolist())
    return actions


def write() -> None:
    """All of them."""
    STORED.mkdir(exist_ok=True)
    for kind in KINDS:
        save_policy(make(kind), STORED / kind, {"updates": UPDATES})
    policy = make("value_policy")
    facts = {
        "settings": {},
        "updates": UPDATES,
        "sources": {},
        "versions": {},
        "policy": describe_policy(policy),
        "networks": {"policy": "policy"},
    }
    state = {f"algorithm.policy.{path}": leaf for path, leaf in capture(policy).items()}
    save_checkpoint(STORED / "checkpoints", UPDATES, {**state, "algorithm.updates": UPDATES}, facts, keep=1)
    (STORED / "actions.json").write_text(json.dumps({kind: played(make(kind)) for kind in KINDS}, indent=1) + "\n")


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_that_was_stored_does_what_it_did(kind: str) -> None:
    policy = load_policy(STORED / kind)
    assert policy.kind == kind
    expected = json.loads((STORED / "actions.json").read_text())[kind]
    torch.testing.assert_close(torch.tensor(played(policy)), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_a_checkpoint_that_was_stored_holds_its_policy() -> None:
    checkpoint = load_checkpoint(STORED / "checkpoints", UPDATES)
    assert checkpoint.state["algorithm.updates"] == UPDATES
    expected = json.loads((STORED / "actions.json").read_text())["value_policy"]
    assert played(policy_of(checkpoint)) == expected


if __name__ == "__main__":
    write()

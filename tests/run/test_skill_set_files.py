"""Skill sets as files: one folder that needs no other, the same when it comes back, and as ONNX and TorchScript."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import understudy as us
from skill_cases import BY_ZONE, CHOICES, SPEC, actors, make_set, observe
from understudy.core.errors import CheckpointError, ConfigError
from understudy.core.files import read_sealed, seal
from understudy.core.rng import stream
from understudy.core.spec import Discrete, Spec
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.skill_set import SkillSet
from understudy.run.onnx_policy import OnnxPolicy
from understudy.run.packaged import read_packaged, skill_set_names
from understudy.run.skill_sets import load_skill_set, load_skill_set_config
from understudy.run.warm_start import policy_fingerprint

WORDS: dict[str, Any] = {
    "smoothing": 3,
    "reset_memory": "when_selected",
    "action_scale": 0.5,
    "last_action": ["state.last_action"],
    "selector": {**BY_ZONE, "split": {"leap": {"observation": "state.height", "negative": "climb"}}},
    "skills": {
        "walk": {"action_scale": 0.5, "reset_memory": "all"},
        "leap": {"action_scale": 0.25, "overrides": {"state.command": {"low": [0.0, -1.0], "high": [1.0, 2.0]}}},
        "climb": {"action_scale": [0.5, 0.1], "observation_scale": {"state.body": 2.0}},
    },
}


BY_HEIGHT: dict[str, Any] = {
    **{"kind": "threshold", "observation": "state.height", "threshold": 0.1, "margin": 0.5},
    **{"below": "walk", "above": "leap"},
}
OFFSET: dict[str, Any] = {"leap": {"action_offset": {"state.command": -0.5}, "action_scale": 0.5}}


def rich_set() -> SkillSet:
    """One with everything."""
    return make_set(actors(memory="gru"), **WORDS)


def test_what_comes_back_acts_as_what_was_saved_to_the_bit(tmp_path: Path) -> None:
    for name, made in (("rich", rich_set()), ("choices", make_set(actors(CHOICES))), ("gate", gated())):
        us.save_policy(made, tmp_path / name)
        back = us.load_policy(tmp_path / name)
        assert isinstance(back, SkillSet)
        assert back.settings == made.settings
        assert back.spec == made.spec
        carries = [policy.initial(4) for policy in (made, back)]
        for step in range(6):
            obs = observe([step % 3, 2, -1, 1], step)
            found = []
            for number, policy in enumerate((made, back)):
                action, carries[number] = policy.act(obs, carries[number], greedy=False, rng=stream(step, "act"))
                found.append(action)
            assert torch.equal(*found)
            assert all(torch.equal(one, other) for one, other in zip(*carries, strict=True))
        assert policy_fingerprint(made) == policy_fingerprint(back)


def gated() -> SkillSet:
    spec = Spec(SPEC.observation, Discrete(3))
    gate = Actor(spec, ActorSettings.parse({"hidden": [8], "memory": {"kind": "gru", "units": 3}}), stream(5, "gate"))
    return rich_set().chosen_by(gate)


def test_a_folder_of_a_set_needs_none_of_those_its_skills_came_from(tmp_path: Path) -> None:
    for name, policy in actors().items():
        us.save_policy(policy, tmp_path / "runs" / name)
    words = {
        "skills": {name: {"path": str(tmp_path / "runs" / name)} for name in ("walk", "leap", "climb")},
        "selector": BY_ZONE,
    }
    made = us.skill_set(words)
    us.save_policy(made, tmp_path / "set")
    shutil.rmtree(tmp_path / "runs")
    obs = observe([0, 1, 2])
    assert np.array_equal(us.load_policy(tmp_path / "set")(obs), made(obs))
    assert sorted(file.name for file in (tmp_path / "set").iterdir()) == ["policy.json", "policy.safetensors"]


@pytest.mark.parametrize("kind", ["rich", "gate", "choices", "threshold"])
def test_an_exported_set_does_what_the_live_one_does(kind: str, tmp_path: Path) -> None:
    """Each step is compared when it is written; here a whole episode is, in which what is remembered is passed on."""
    pytest.importorskip("onnxruntime")
    sets = {
        "rich": rich_set(),
        "gate": gated(),
        "choices": make_set(actors(CHOICES)),
        "threshold": make_set(selector=BY_HEIGHT, last_action=["state.last_action"], skills=OFFSET),
    }
    made = sets[kind]
    for format in ("onnx", "torchscript"):
        us.export_policy(made, format, out=tmp_path / "export")
    onnx = OnnxPolicy(tmp_path / "export" / "policy.onnx")
    script = torch.jit.load(tmp_path / "export" / "policy.pt")  # type: ignore[no-untyped-call]
    carry, theirs, scripted = made.initial(3), onnx.initial(3), script.initial(3)
    for step in range(8):
        obs = observe([step % 3, (step // 2) % 3, 1], step)
        action, carry = made.act(obs, carry, greedy=True)
        found, theirs = onnx.act(obs, theirs, greedy=True)
        said = script(obs["state"], *scripted)
        same, scripted = (said[0], list(said[1:])) if isinstance(said, tuple) else (said, [])
        assert torch.allclose(action.float(), found.float(), atol=1e-5), step
        assert torch.allclose(action.float(), same.float(), atol=1e-5), step


def test_a_function_that_chooses_is_in_no_file(tmp_path: Path) -> None:
    made = make_set(choose=lambda obs: torch.zeros(len(obs["state"]), dtype=torch.int64))
    told = "its skills are chosen by a function of Python, which no file can hold"
    with pytest.raises(ConfigError, match=told):
        us.save_policy(made, tmp_path / "set")
    with pytest.raises(ConfigError, match=told):
        us.export_policy(made, out=tmp_path / "export")
    assert not any(tmp_path.iterdir())


def test_damaged_sets_are_refused_in_one_sentence(tmp_path: Path) -> None:
    us.save_policy(rich_set(), tmp_path / "set")
    good = read_sealed(tmp_path / "set" / "policy.json")
    shape = good["settings"]["skills"][0]
    nested = {"kind": "skill_set", "spec": good["spec"], "settings": good["settings"]}
    for told, change in (
        ("selector", {"selector": {"kind": "callable"}}),
        ("no skill 'fly'", {"selector": {"kind": "fixed", "skill": "fly"}}),
        ("no kind of policy 'skill_set'", {"skills": [{**shape, "policy": nested}]}),
        ("skills", {"skills": []}),
        ("two skills of one name", {"skills": [shape, shape, shape]}),
        ("does not fit", {"skills": good["settings"]["skills"][:2], "selector": {"kind": "fixed", "skill": "walk"}}),
        ("smoothing", {"smoothing": 10**9}),
        ("no group or segment", {"last_action": ["state.nowhere"]}),
    ):
        card = {**good, "settings": {**good["settings"], **change}}
        (tmp_path / "set" / "policy.json").write_bytes(seal(card))
        with pytest.raises(CheckpointError, match=told):
            us.load_policy(tmp_path / "set")
    (tmp_path / "set" / "policy.json").write_bytes(seal(good))
    content = bytearray((tmp_path / "set" / "policy.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "set" / "policy.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="sha256"):
        us.load_policy(tmp_path / "set")


def test_another_policy_is_no_skill_set(tmp_path: Path) -> None:
    us.save_policy(actors()["walk"], tmp_path / "walk")
    with pytest.raises(CheckpointError, match="is no skill set: got policy, expected skill_set"):
        load_skill_set(tmp_path / "walk")


def test_packaged_sets_are_read_and_open_with_their_command() -> None:
    assert skill_set_names()
    for name in skill_set_names():
        settings = load_skill_set_config(f"skills/{name}")
        assert all(skill.path for skill in settings.skills.values()), name
        assert read_packaged(f"skills/{name}").startswith(f"# understudy skills skills/{name} --out ")
        with pytest.raises(ConfigError, match=rf"skills\.{next(iter(settings.skills))}\.path: no such run or policy"):
            us.skill_set(f"skills/{name}")

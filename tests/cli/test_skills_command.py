"""`understudy skills`, and what can be done with what it writes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import complaint, understudy

import understudy as us
from skill_cases import zones_set
from understudy.core.rng import stream
from understudy.core.spec import Discrete, Spec
from understudy.nn.actor import Actor, ActorSettings

ZONES = "UnderstudyZones-v0"


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A skill set in YAML, its skills as policy folders beside it."""
    monkeypatch.chdir(tmp_path)
    made = zones_set()
    for skill in made.members:
        us.save_policy(skill.policy, Path("runs", skill.name))
    selector = {"kind": "observation", "observation": "state.zone", "skills": ["mirror", "left"], "fallback": "ground"}
    content: dict[str, Any] = {
        "skills": {name: {"path": f"runs/{name}"} for name in ("ground", "mirror", "left")},
        "selector": selector,
        "env": {"id": ZONES},
    }
    Path("set.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return Path("set.yaml")


def returns(*more: str) -> list[float]:
    spoken = understudy("evaluate", *more, "--episodes", "2", "--json", "--quiet")
    assert spoken.code == 0, spoken.err
    found: list[float] = json.loads(spoken.out)["returns"]
    return found


def test_one_command_makes_a_policy_and_another_one_plays_it(words: Path) -> None:
    spoken = understudy("skills", words, "--out", "policies/all")
    assert spoken.code == 0, spoken.err
    assert "ground, mirror, left by observation" in spoken.out
    assert "written to policies/all" in spoken.out
    assert understudy("skills", words, "selector={kind: fixed, skill: left}", "out=policies/left", "--quiet").code == 0
    by_hand = us.evaluate_policy(us.load_policy("runs/left"), ZONES, 2, seed=0)
    assert returns("policies/left") == list(by_hand.returns)
    assert returns("policies/all") != returns("policies/left")
    assert returns("runs/left", "--env", ZONES) == returns("policies/left"), "any policy folder can be played"


def test_a_gate_is_put_into_a_set_that_was_made(words: Path) -> None:
    understudy("skills", words, "--out", "policies/all", "--quiet")
    spec = us.load_policy("policies/all").spec
    gate = Actor(Spec(spec.observation, Discrete(3)), ActorSettings(hidden=(4,)), stream(0, "gate"))
    us.save_policy(gate, "runs/gate")
    spoken = understudy("skills", "policies/all", "--gate", "runs/gate", "--out", "policies/gated")
    assert "ground, mirror, left by gate" in spoken.out
    assert len(returns("policies/gated")) == 2, "where it acts is known from the set"
    told = complaint("skills", "policies/all", "smoothing=2", "--gate", "runs/gate", "--out", "x", code=2)
    assert "smoothing=2: is for a skill set in YAML, and this one was made already" in told


def test_mistakes_are_told_in_one_sentence(words: Path) -> None:
    assert "--out: is required" in complaint("skills", words, code=2)
    assert "no skill set of this name. Did you mean" in complaint("skills", "skills/feld", "--out", "x", code=2)
    absent = complaint("skills", words, "skills.left.path=runs/lift", "--out", "x", code=2)
    assert "skills.left.path: no such run or policy folder: got 'runs/lift'" in absent
    wrong = complaint("skills", words, "selector.fallback=grund", "--out", "x", code=2)
    assert "selector.fallback: no skill 'grund'. Did you mean 'ground'?" in wrong
    assert "nobody said where it acts. Give an environment: --env ID" in complaint("evaluate", "runs/left", code=2)
    assert "does not fit the policy" in complaint("evaluate", "runs/left", "--env", "Pendulum-v1", code=1)
    assert not Path("x").exists()

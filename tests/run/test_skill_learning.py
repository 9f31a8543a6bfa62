"""Skills that were trained one by one, and a gate that learns which is due: together they do what none does alone."""

from pathlib import Path

import pytest

import understudy as us
from understudy.run.skill_sets import gated_set, load_skill_set

ZONES = "UnderstudyZones-v0"
NAMES = ("ground", "mirror", "left", "right")
EPISODES = 50
MARGIN = 60.0
"""Of returns that are 200 at most."""


@pytest.mark.slow
@pytest.mark.usefixtures("no_plots")
def test_a_trained_gate_beats_every_single_skill_and_equals_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        world = f"UnderstudyZones{name.capitalize()}-v0"
        run = us.train("ppo/zones", env=world, out=f"runs/{name}", progress=False)
        assert run.evaluate(EPISODES, progress=False).mean > 190, f"{name} knows its own zone"
    us.save_policy(us.skill_set("skills/mutex"), "policies/mutex")
    gate = us.train("ppo/zones-gate", out="runs/gate", progress=False)
    policies = {"gate": gated_set(load_skill_set("policies/mutex"), gate.path), "rule": us.skill_set("skills/climb")}
    policies |= {
        name: us.skill_set("skills/mutex", ["selector.kind=fixed", f"selector.skill={name}"]) for name in NAMES
    }
    means = {name: us.evaluate_policy(policy, ZONES, EPISODES, seed=0).mean for name, policy in policies.items()}
    assert means["gate"] > max(means[name] for name in NAMES) + MARGIN, means
    assert means["gate"] > means["rule"] - 5, means

"""null takes an entry of a mapping away: on the line, in Python, for a task and in a stage; where it takes nothing
away it is an error."""

from pathlib import Path
from typing import Any

import pytest

from understudy.core.errors import ConfigError
from understudy.run.config import RunConfig, load_config
from understudy.run.session import resolve_config
from understudy.run.skill_sets import load_skill_set_config

TAUGHT: dict[str, Any] = {
    "algo": {"name": "ppo", "objectives": {"teacher": {"weight": 0.5}, "rnd": {}}},
    "env": {"id": "Pendulum-v1", "segments": {"state": {"angle": [0, 2], "speed": [2, 3]}}},
    "policies": {"teacher": {"path": "runs/teacher"}},
    "eval_info": {"torque": "mean", "angle": "max"},
}
NO_TEACHER = ["algo.objectives.teacher=null", "policies.teacher=null"]


def _objectives(config: RunConfig) -> list[str]:
    return sorted(config.algo.model_dump()["objectives"])


def test_an_entry_is_removed_however_it_is_said() -> None:
    said = load_config(TAUGHT, NO_TEACHER)
    assert (_objectives(said), dict(said.policies)) == (["rnd"], {})
    assert load_config(TAUGHT, ["algo={objectives: {teacher: null}}", "policies={teacher: null}"]) == said
    assert resolve_config(TAUGHT, {"algo.objectives.teacher": None, "policies": {"teacher": None}}) == said
    assert load_config(TAUGHT, ["policies=null", "algo.objectives.teacher=null"]) == said, "all entries there are"
    assert _objectives(load_config(TAUGHT, ["algo.objectives=null", "policies=null"])) == []
    again = load_config(TAUGHT, ["algo.objectives.teacher=null", "algo.objectives.teacher={}"])
    assert again.algo.model_dump()["objectives"]["teacher"]["weight"]["start"] == 1.0, "nothing is left of the old one"


def test_every_mapping_loses_entries() -> None:
    changed = load_config(TAUGHT, ["env.segments.state.angle=null", "eval_info.torque=null"])
    assert changed.world.segments == {"state": {"speed": (2, 3)}}
    assert changed.eval_info == {"angle": "max"}
    seeing = {**TAUGHT, "algo": {"name": "ppo", "actor": {"encoders": {"state": {"kind": "mlp"}}}}, "policies": {}}
    assert load_config(seeing, ["algo.actor.encoders.state=null"]).algo.model_dump()["actor"]["encoders"] == {}
    cloned = {"algo": "bc", "data": {"path": "a"}, "datasets": {"more": {"path": "b"}}}
    assert load_config(cloned, ["datasets.more=null"]).datasets == {}
    skills = {"skills": {"walk": {"path": "a", "overrides": {"state.command": 1}}, "jump": {"path": "b"}}}
    assert [*load_skill_set_config(skills, ["skills.jump=null"]).skills] == ["walk"]
    assert load_skill_set_config(skills, ["skills={walk: {overrides: null}}"]).skills["walk"].overrides == {}


def test_a_stage_goes_without_what_the_run_has() -> None:
    first = {"algo": {"name": "ppo", "objectives": {"teacher": None}}, "updates": 3}
    config = load_config({**TAUGHT, "stages": [first]})
    assert (_objectives(config), [*config.policies]) == (["rnd", "teacher"], ["teacher"])
    (stage,) = config.stages
    assert (_objectives(stage), dict(stage.policies)) == (["rnd"], {}), "nor is there a teacher that nobody asks"
    assert load_config({**TAUGHT, "stages": [{**first, "policies": {"teacher": None}}]}).stages == (stage,)
    kept = load_config(config.model_dump(mode="json"))
    assert kept.stages == config.stages, "what a run directory keeps says the same"


def test_a_task_goes_without_what_the_preset_has(tmp_path: Path) -> None:
    suite = "name: small\nabout: a\ntasks: [{id: spin, env: Pendulum-v1, episode_cap: 200}]\n"
    (tmp_path / "small.yaml").write_text(suite)
    plain = {key: value for key, value in TAUGHT.items() if key != "env"}
    preset = {**plain, "tasks": {"spin": {"eval_info": {"torque": None}}}, "suite": str(tmp_path / "small.yaml")}
    assert load_config(preset, ["task=spin"]).eval_info == {"angle": "max"}


def test_a_null_that_removes_nothing_is_an_error() -> None:
    for config, words, told in (
        (
            TAUGHT,
            ["algo.objectives.teecher=null"],
            r"algo\.objectives\.teecher: null removes it, and there is none\. Did",
        ),
        (TAUGHT, ["algo.objectives.symmetry=null"], r"algo\.objectives\.symmetry: .* Leave it out; for its defaults"),
        (
            TAUGHT,
            [*NO_TEACHER, "policies.teacher=null"],
            r"policies\.teacher: null removes it, and there is none\. Leave",
        ),
        (
            TAUGHT,
            ["eval_metrics=null"],
            r"eval_metrics: null removes all there is, and there is nothing\. Leave it out",
        ),
        ({**TAUGHT, "policies": {"teacher": None}}, [], r"policies\.teacher: null removes it"),
        ({**TAUGHT, "algo": {"name": "ppo", "objectives": {"rnd": None}}}, [], r"algo\.objectives\.rnd: .* write \{\}"),
    ):
        with pytest.raises(ConfigError, match=f"^{told}"):
            load_config(config, words)
    other = {"algo": {"name": "bc", "actor": {"encoders": {"state": None}}}, "updates": 3, "data": {"path": "x"}}
    with pytest.raises(
        ConfigError, match=r"^stages\.0\.algo\.actor\.encoders\.state: null removes it, and there is no"
    ):
        load_config({**TAUGHT, "stages": [other]})
    with pytest.raises(ConfigError, match=r"^skills\.run: null removes it"):
        load_skill_set_config({"skills": {"walk": {"path": "a"}}}, ["skills.run=null"])


def test_who_is_left_without_a_reader_is_told_how_to_leave() -> None:
    with pytest.raises(
        ConfigError, match=r"^policies\.teacher: nothing in this run reads it\. .*policies\.teacher=null"
    ):
        load_config(TAUGHT, ["algo.objectives.teacher=null"])


def test_null_elsewhere_is_a_value() -> None:
    assert load_config(TAUGHT, ["algo.actor.normalizer.until=null", "eval_max_steps=null"]).eval_max_steps is None

"""Whatever is wrong in a config is told with the full path of its setting, and what would be right: a table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import understudy as us
from understudy.core.errors import UnderstudyError

PPO: dict[str, Any] = {
    "algo": {"name": "ppo", "actor": {"hidden": [8]}, "critic": {"hidden": [8]}},
    "env": {"id": "Pendulum-v1"},
    "source": {"num_envs": 4, "rollout_length": 8},
    "updates": 1,
    "eval_every": 0,
}
RECIPE: dict[str, Any] = {"env": "Pendulum-v1", "behaviours": [{"policy": "scripted"}], "episodes": 2}
BC: dict[str, Any] = {
    "algo": {"name": "bc", "actor": {"hidden": [8]}},
    "data": {"recipe": RECIPE},
    "env": {"id": "Pendulum-v1"},
    "updates": 1,
    "eval_every": 0,
}
TEACHER = {"policies.teacher.path": "pendulum"}
DAGGER = {"data": None, "source.kind": "interactive", "source.teacher": "policy"}
STAGE = {"algo": "bc", "updates": 3, "data": {"path": "demos"}}
Changes = Mapping[str, Any]


def changed(config: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Plain data with other values at dotted keys; a name with a point in it stands in a mapping."""
    made: dict[str, Any] = yaml.safe_load(yaml.safe_dump(dict(config)))
    for key, value in changes.items():
        *parents, last = key.split(".")
        owner = made
        for part in parents:
            owner = owner.setdefault(part, {})
        owner[last] = value
    return made


def objective(name: str, **settings: Any) -> dict[str, Any]:
    return {f"algo.objectives.{name}": settings}


def encoder(**settings: Any) -> dict[str, Any]:
    return {"algo.actor.encoders": {"state": settings}}


def stage(**settings: Any) -> dict[str, Any]:
    return {"stages": [{**STAGE, **settings}]}


OF_PPO: list[tuple[Changes, str]] = [
    ({"algo.clip": "wide"}, "algo.clip: wrong value: got 'wide', expected a number."),
    ({"algo.gama": 1}, "algo.gama: no such setting of ppo. Did you mean 'gamma'?"),
    ({"algo.gamma": 1.5}, "algo.gamma: wrong value: got 1.5, expected less than or equal to 1."),
    ({"algo.epochs": 1.5}, "algo.epochs: wrong value: got 1.5, expected a whole number."),
    ({"algo.policy_coef": 0}, "algo.policy_coef: nothing would move the policy: there are no objectives: got 0. Say"),
    ({"algo.actor": None}, "algo.actor: wrong value: got null, expected a group of settings."),
    ({"algo.actor.hidden": "many"}, "algo.actor.hidden: wrong value: got 'many', expected a list […]."),
    ({"algo.actor.hidden": [8, "x"]}, "algo.actor.hidden.1: wrong value: got 'x', expected a whole number."),
    ({"algo.actor.activation": "rela"}, "algo.actor.activation: wrong value: got 'rela', expected 'relu', 'tanh'"),
    ({"algo.actor.memory": "gru"}, "algo.actor.memory: wrong value: got 'gru', expected a group of settings. Did you"),
    ({"algo.actor.memory.kind": "gruu"}, "algo.actor.memory.kind: wrong value: got 'gruu', expected 'none', 'gru'"),
    ({"algo.actor.sees": ["stat"]}, "algo.actor.sees: no group or segment 'stat'. Did you mean 'state'?"),
    ({"algo.critic.sees": "state"}, "algo.critic.sees: wrong value: got 'state', expected a list […]."),
    ({"algo.actor.hide": {"state": [7]}}, "algo.actor.hide: no such column of 'state': got 7, expected -3 to 2."),
    ({"algo.actor.hide": {"stat": [0]}}, "algo.actor.hide: no vector group 'stat'. Did you mean 'state'?"),
    ({"algo.actor.distribution": {"kind": "gausian"}}, "algo.actor.distribution.kind: wrong value: got 'gausian', exp"),
    (encoder(kind="convv"), "algo.actor.encoders.state.kind: no such kind: got 'convv', expected conv, mlp, own."),
    (encoder(hidden=[8]), "algo.actor.encoders.state.kind: is required: expected conv, mlp, own."),
    (
        encoder(kind="mlp", size="big"),
        "algo.actor.encoders.state.size: wrong value: got 'big', expected a whole number.",
    ),
    ({"algo.objectives": ["rnd"]}, "algo.objectives: wrong value: got ['rnd'], expected a mapping {name: …}."),
    (objective("rndd"), "algo.objectives.rndd: no such objective. Did you mean 'rnd'?"),
    (objective("rnd", weigth=1), "algo.objectives.rnd.weigth: no such setting. Did you mean 'weight'?"),
    (objective("rnd", weight="high"), "algo.objectives.rnd.weight: wrong value: got 'high', expected a number."),
    (objective("rnd", weight={"ende": 0}), "algo.objectives.rnd.weight.ende: no such setting. Did you mean 'end'?"),
    (
        objective("rnd", weight={"end": -1}),
        "algo.objectives.rnd.weight.end: wrong value: got -1, expected greater than",
    ),
    (
        objective("rnd", target={"hidden": [0]}),
        "algo.objectives.rnd.target.hidden.0: wrong value: got 0, expected grea",
    ),
    (objective("rnd", sees=["stat"]), "algo.objectives.rnd.sees: no group or segment 'stat'. Did you mean 'state'?"),
    (objective("teacher"), "policies.teacher: is required. Say where it is: policies.teacher.path=…."),
    (
        {**objective("teacher"), "policies": {"teacher": "x"}},
        "policies.teacher: wrong value: got 'x', expected a group",
    ),
    ({**objective("teacher"), "policies": {"teacher": {}}}, "policies.teacher.path: is required."),
    ({**objective("teacher"), "policies.teacher.path": "no"}, "policies.teacher.path: run '"),
    (
        {**objective("teacher"), "policies.teacher.path": "pendulm"},
        "policies.teacher.path: run '{place}/pendulm': no such directory. Did you mean '{place}/pendulum'?",
    ),
    (
        {**objective("teacher"), "policies.teacher.path": "pendulum/config.yaml"},
        "policies.teacher.path: run '{place}/pendulum/config.yaml': is a file, and no run directory. Did",
    ),
    (
        {**objective("teacher"), **TEACHER, "policies.teacher.checkpoint": "best"},
        "policies.teacher.path: run '{place}/pendulum': has no best policy: it was not evaluated yet.",
    ),
    ({**objective("teacher"), "policies.teacher.path": "no.onnx"}, "policies.teacher.path: policy '"),
    (
        {**objective("teacher"), **TEACHER, "policies.teacher.checkpoint": "fifth"},
        "policies.teacher.checkpoint: wrong value: got 'fifth', expected last, best or a number of updates.",
    ),
    (
        {**objective("teacher"), "policies.teacher.path": "cartpole"},
        "policies.teacher: does not fit the student's world",
    ),
    (
        {**objective("teacher", beta=1.5), **TEACHER},
        "algo.objectives.teacher.beta: wrong value: got 1.5, expected less",
    ),
    ({**objective("teacher", loss="mes"), **TEACHER}, "algo.objectives.teacher.loss: wrong value: got 'mes', expected"),
    (
        {**objective("teacher", huber_delta=3), **TEACHER},
        "algo.objectives.teacher.huber_delta: huber_delta=3 is of loss",
    ),
    (
        {**objective("teacher", teachers=[]), **TEACHER},
        "algo.objectives.teacher.teachers: wrong value: got [], expected",
    ),
    (
        objective("demonstrations"),
        "datasets.demonstrations: is required. Say where it is: datasets.demonstrations.path",
    ),
    ({**objective("demonstrations"), "datasets.demonstrations": {}}, "datasets.demonstrations.path: give it or recipe"),
    (
        {**objective("demonstrations"), "datasets.demonstrations.path": "no"},
        "datasets.demonstrations.path: dataset 'no'",
    ),
    (
        {**objective("demonstrations"), "datasets.demonstrations": {"path": "demos", "only": "good"}},
        "datasets.demonstrations.only: wrong value: got 'good', expected 'successful' or 'failed'.",
    ),
    (
        {**objective("demonstrations"), "datasets.demonstrations": {"path": "demos", "only": "successful"}},
        "datasets.demonstrations.path: dataset '",
    ),
    (objective("estimator"), "algo.objectives.estimator: the actor estimates nothing. Say algo.actor.estimate="),
    (
        {**objective("estimator"), "algo.actor.estimate": {"targets": ["speed"]}},
        "algo.actor.estimate.targets: no group or segment 'speed'. Known: state.",
    ),
    ({"env.id": "Pendulm-v1"}, "env.id: no environment 'Pendulm-v1'. Did you mean 'Pendulum-v1'?"),
    ({"env": 3}, "env: wrong value: got '3', expected a group of settings."),
    (
        {"env.segments": {"state": {"angle": [0, 9]}}},
        "env.segments.state.angle: not a range of columns: got 0 to 9, exp",
    ),
    ({"env.segments": {"state": [0, 1]}}, "env.segments.state: wrong value: got ['0', '1'], expected a mapping"),
    ({"env.settings": {"gravity": 3}}, "env.settings: are EnvPool's, and the simulator is gymnasium."),
    ({"env.reference": "pendlum"}, "env.reference: reference score 'pendlum': not known."),
    ({"env.skills": {"path": "no"}}, "env.skills.path: run 'no': no such directory."),
    (
        {"env.skills": {"path": "pendulum"}},
        "env.skills.path: 'pendulum' is no skill set: got policy, expected skill_set.",
    ),
    ({"source.kind": "rolout"}, "source.kind: no source 'rolout'. Did you mean 'rollout'?"),
    ({"source.workers": 9}, "source.workers: 9 for 4 environments: at most one for each."),
    (
        {"eval_metrics": {"e": {"kind": "track"}}},
        "eval_metrics.e.kind: no such kind: got 'track', expected tracking_error",
    ),
    ({"eval_info": {"x": "often"}}, "eval_info.x: wrong value: got 'often', expected 'final', 'mean'"),
    ({"init_from": "no"}, "init_from: run '"),
    ({"best": "eval/x"}, "best: needs evaluations, and eval_every is 0."),
    ({"init_std": 0.1}, "init_std: is of a policy that is taken over: init_from=RUN, or stages."),
    ({"tasks": {"x": {}}}, "tasks.x: no task 'x'."),
    (
        {"deployment.joint_names": ["a", "b"]},
        "deployment.joint_names: one for each number of an action: got 2, expected",
    ),
    ({"stages": [3]}, "stages: wrong value: got ['3'], expected [{algo: bc, updates: 1000}]."),
    ({"stages": [{"algo": "bc"}]}, "stages.0.updates: is required."),
    (stage(algo="bcc"), "stages.0.algo.name: no algorithm 'bcc'. Did you mean 'bc'?"),
    (stage(updates="few"), "stages.0.updates: wrong value: got 'few', expected a whole number."),
    (stage(data={"path": "no"}), "stages.0.data.path: dataset 'no': no such file: expected an .npz"),
    (
        stage(data={"path": "demos", "latest_episodes": 0}),
        "stages.0.data.latest_episodes: wrong value: got 0, expected",
    ),
    (stage(algo={"name": "bc", "actor": {"hiden": [3]}}), "stages.0.algo.actor.hiden: no such setting. Did you mean"),
    (
        stage(algo={"name": "bc", "actor": {"sees": ["stat"]}}),
        "stages.0.algo.actor.sees: no group or segment 'stat'. Did",
    ),
    (
        {"stages": [{"algo": {"name": "ppo", "objectives": {"rnd": {"weight": -1}}}, "updates": 3}]},
        "stages.0.algo.objectives.rnd.weight: wrong value: got -1, expected greater than or equal to 0.",
    ),
    (
        {
            "stages": [
                {
                    "algo": {"name": "ppo", "objectives": {"teacher": {}}},
                    "updates": 3,
                    "policies": {"teacher": {"path": "no"}},
                }
            ]
        },
        "stages.0.policies.teacher.path: run '",
    ),
]
OF_BC: list[tuple[Changes, str]] = [
    ({"data": {"path": "no.csv"}}, "data.path: dataset 'no.csv': no such file: expected an .npz"),
    ({"data.path": "demos"}, "data.path: give it or recipe, and not both."),
    ({"data.action_low": -1}, "data.action_low: give it and action_high, or none of both."),
    ({"data.best_episodes": "x"}, "data.best_episodes: wrong value: got 'x', expected a number."),
    ({"data.starting_frame_range": [50, 5]}, "data.starting_frame_range: low must be below high: got [50, 5]."),
    ({"data.recipe.env": "Pendulm-v1"}, "data.recipe.env: no environment 'Pendulm-v1'. Did you mean 'Pendulum-v1'?"),
    (
        {"data.recipe.behaviours": [{"policy": "x"}]},
        "data.recipe.behaviours.0.policy: no such policy: got 'x', expected",
    ),
    (
        {"source.kind": "interactive"},
        "data: bc learns from source.kind=interactive, which reads no dataset. Give source.",
    ),
    ({**DAGGER}, "policies.teacher: is required. Say where it is: policies.teacher.path=…."),
    ({**DAGGER, "policies.teacher.path": "no"}, "policies.teacher.path: run '"),
    ({**DAGGER, "policies.teacher.path": "cartpole"}, "policies.teacher: does not fit the environment, 2 differences"),
    ({**DAGGER, "source.teacher": "callable"}, "source.teacher: nobody was handed over to label, and no file can hold"),
    (
        {**DAGGER, "source.teacher": "scripted", "source.controller": "No-v1"},
        "source.controller: environment 'No-v1': has",
    ),
    (
        {**DAGGER, "source.teacher": "scripted", "source.beta": 1.5},
        "source.beta: wrong value: got 1.5, expected less than",
    ),
    ({"policies.teacher.path": "pendulum"}, "policies.teacher: nothing in this run reads it. Leave it out;"),
]
OF_SKILLS: list[tuple[Changes, str]] = [
    (
        {"skills.walk": "pendulum"},
        "skills.walk: wrong value: got 'pendulum', expected a group of settings. Did you mean",
    ),
    ({"skills.walk.path": "no"}, "skills.walk.path: no such run or policy folder: got 'no'."),
    ({"skills.walk.path": "demos"}, "skills.walk.path: "),
    ({"skills.walk.pat": "x"}, "skills.walk.pat: no such setting. Did you mean 'path'?"),
    ({"skills.walk.checkpoint": "fifth"}, "skills.walk.checkpoint: wrong value: got 'fifth', expected last, best or a"),
    ({"skills.walk.overrides": {"state.comand": 1}}, "skills.walk.overrides: no group or segment 'state.comand'."),
    ({"skills.walk.overrides": {"state": {"low": 1}}}, "skills.walk.overrides.state: a value, or low and high."),
    ({"skills.walk.action_scale": -1}, "skills.walk.action_scale"),
    ({"selector": {"kind": "observer"}}, "selector.kind: no such kind: got 'observer', expected fixed, observation"),
    ({"selector": {"kind": "fixed", "skill": "wlak"}}, "selector.skill: no skill 'wlak'. Did you mean 'walk'?"),
    ({"selector": {"kind": "observation", "observation": "stat"}}, "selector.observation: no group or segment 'stat'."),
    ({"selector": {"kind": "gate", "path": "no"}}, "selector.path: no such run or policy folder: got 'no'."),
    ({"smoothing": 0}, "smoothing: wrong value: got 0, expected greater than or equal to 1."),
    ({"env.id": "Pendulm-v1"}, "env.id: no environment 'Pendulm-v1'. Did you mean 'Pendulum-v1'?"),
]
ON_THE_LINE: list[tuple[list[str], str]] = [
    (["algo.actor.hidden=[64"], "algo.actor.hidden: not readable as YAML"),
    (["algo.clip"], "'algo.clip': not a setting: expected key=value."),
    (["algo.clip.low=1"], "algo.clip: wrong value: got {'low': '1'}, expected a number."),
    (["updates.x=3"], "updates.x: 'updates' is not a group of settings: got 60. Change it whole: updates=…."),
    (["batch_size=3"], "batch_size: no such setting."),
    (["env.segments.state.angle=[1]"], "env.segments.state.angle.1: is required."),
    (["algo.objectives.rnd.weight.over=0"], "algo.objectives.rnd.weight.over: wrong value: got 0, expected greater"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where there are a run in Pendulum, one in CartPole, and demonstrations."""
    folder = tmp_path_factory.mktemp("wrong")
    us.train(PPO, out=str(folder / "pendulum"), progress=False)
    us.train(changed(PPO, {"env.id": "CartPole-v1"}), out=str(folder / "cartpole"), progress=False)
    us.collect("Pendulum-v1", "scripted", folder / "demos", episodes=2)
    return folder


def test_every_mistake_in_a_file_is_told_with_its_setting(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    wrong = []
    for base, table in ((PPO, OF_PPO), (BC, OF_BC)):
        for changes, told in table:
            Path("wrong.yaml").write_text(yaml.safe_dump(changed(base, changes)))
            with pytest.raises(UnderstudyError) as caught:
                us.train("wrong.yaml", out="never", progress=False)
            here = told.replace("{place}", str(place))
            wrong += [(told, str(caught.value))] if not str(caught.value).startswith(here) else []
            assert not Path("never").exists(), told
    assert wrong == []


def test_every_mistake_in_a_skill_set_is_told_with_its_setting(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    wrong = []
    for changes, told in OF_SKILLS:
        words = {"skills": {"walk": {"path": "pendulum"}, "run": {"path": "pendulum"}}}
        Path("wrong.yaml").write_text(yaml.safe_dump(changed(words, changes)))
        with pytest.raises(UnderstudyError) as caught:
            us.skill_set("wrong.yaml")
        wrong += [(told, str(caught.value))] if not str(caught.value).startswith(told) else []
    assert wrong == []


def test_every_mistake_on_the_line_is_told_with_its_setting() -> None:
    wrong = []
    for words, told in ON_THE_LINE:
        with pytest.raises(UnderstudyError) as caught:
            us.load_config("ppo/pendulum", words)
        wrong += [(told, str(caught.value))] if not str(caught.value).startswith(told) else []
    assert wrong == []

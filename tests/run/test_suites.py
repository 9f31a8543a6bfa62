"""Suites: what the library ships is right, and one's own is checked in the same voice."""

import json
from pathlib import Path
from typing import Any

import pytest

from understudy.core.errors import ConfigError
from understudy.data.formats.minari.published import minari_datasets
from understudy.data.scores import episode_cap, reference
from understudy.envs.gym import make_env
from understudy.run.packaged import config_names, suite_names
from understudy.run.suites import Suite, find_task, load_suite, published_score, suites, suites_of

COUNTS = {"adroit": 12, "antmaze": 6, "bullet": 32, "kitchen": 3, "locomotion": 18, "maze2d": 8}
"""Tasks of others, of which somebody published scores."""
OWN = {
    "baselines": 0,
    "baselines-discrete": 0,
    "corrupted": 9,
    "discrete": 2,
    "hopper-ladder": 5,
    "offline-quick": 3,
    "onpolicy": 2,
    "pendulum-quick": 1,
}
TASKS = [(suite, task) for suite in suites() if suite.name in COUNTS for task in suite.tasks]


def test_the_suites_of_the_library() -> None:
    assert {suite.name: len(suite.tasks) for suite in suites()} == {**COUNTS, **OWN}
    assert suite_names() == sorted({**COUNTS, **OWN})
    assert not any(name.startswith("suites/") for name in config_names()), "a suite is no run config"


def test_a_task_belongs_to_one_suite() -> None:
    ids = [task.id for suite in suites() for task in suite.tasks]
    assert len(set(ids)) == len(ids) == sum(COUNTS.values()) + sum(OWN.values())


def test_every_suite_compares_something_and_presets_of_others_stand_where_they_are_from() -> None:
    for suite in suites():
        assert len(suite.methods) > 1
        presets = {name for configs in suite.presets.values() for name in configs}
        for method in suite.methods.values():
            configs = [method.config] if isinstance(method.config, str) else list(method.config.values())
            assert not any("corl-" in config or "paper-" in config for config in configs if config not in presets)


@pytest.mark.parametrize("task", [task for _, task in TASKS], ids=lambda task: task.id)
def test_every_task_is_scored_like_its_dataset_and_has_a_source(task: Any) -> None:
    assert task.reference == task.id
    assert reference(task.id)
    assert task.episode_cap == episode_cap(task.id)
    assert task.d4rl or task.origin
    if task.minari:
        kitchen = task.env.startswith("UnderstudyKitchen")  # which is FrankaKitchen with the tasks of the set
        assert minari_datasets()[task.minari].env == ("FrankaKitchen-v1" if kitchen else task.env)


FILES = {
    "hopper-medium-replay-v2": "gym_mujoco_v2/hopper_medium_replay-v2.hdf5",
    "antmaze-medium-diverse-v2": "ant_maze_v2/Ant_maze_big-maze_noisy_multistart_True_multigoal_True_sparse_fixed.hdf5",
    "antmaze-umaze-v2": "ant_maze_v2/Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse_fixed.hdf5",
    "kitchen-complete-v0": "kitchen/mini_kitchen_microwave_kettle_light_slider-v0.hdf5",
    "kitchen-mixed-v0": "kitchen/kitchen_microwave_kettle_bottomburner_light-v0.hdf5",
    "pen-human-v1": "hand_dapg_v1/pen-human-v1.hdf5",
    "maze2d-umaze-v1": "maze2d/maze2d-umaze-sparse-v1.hdf5",
    "maze2d-large-dense-v1": "maze2d/maze2d-large-dense-v1.hdf5",
    "maze2d-open-v0": "maze2d/maze2d-open-sparse.hdf5",
    "bullet-walker2d-medium-expert-v0": "bullet/bullet-walker2d_medium_expert.hdf5",
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_d4rl(name: str) -> None:
    assert find_task(name)[1].d4rl == FILES[name]


@pytest.mark.parametrize("env", sorted({task.env for suite, task in TASKS if suite.name in ("locomotion", "adroit")}))
def test_environments_of_today_have_the_cap_or_say_that_they_differ(env: str) -> None:
    pytest.importorskip("mujoco")
    if env.startswith("Adroit"):
        pytest.importorskip("gymnasium_robotics")
    made = make_env(env)
    made.close()
    assert made.spec is not None
    for suite, task in TASKS:
        if task.env == env:
            assert suite.difference(task) or made.spec.max_episode_steps == task.episode_cap


@pytest.mark.parametrize("name", ["antmaze-umaze-v2", "kitchen-mixed-v0", "maze2d-umaze-v1", "pen-human-v1"])
def test_where_returns_are_on_another_scale_it_is_said(name: str) -> None:
    suite, task = find_task(name)
    assert suite.difference(task)


@pytest.mark.parametrize("name", ["hopper-medium-v2", "door-human-v1", "bullet-hopper-medium-v0"])
def test_where_they_are_not_nothing_is_said(name: str) -> None:
    suite, task = find_task(name)
    assert not suite.difference(task)


def test_every_preset_belongs_to_one_suite_of_its_algorithm() -> None:
    """Others' settings say whose they are; what is called as a suite is our own."""
    for name in config_names():
        algorithm, _, short = name.partition("/")
        if short.startswith(("paper-", "corl-")) or short in COUNTS:
            (suite,) = suites_of(name)
            assert suite.name == short.removeprefix("paper-").removeprefix("corl-")
            assert name in suite.presets[algorithm]
        else:
            assert suites_of(name) == []


def test_presets_of_others_know_what_others_reached() -> None:
    """Means over a suite as CORL's table has them, and a sentence for whoever checks a config."""
    averages = {
        "locomotion": {"bc": 50.40, "td3bc": 76.45, "cql": 78.28, "iql": 81.63, "rebrac": 89.74},
        "maze2d": {"bc": 1.13, "td3bc": 61.99, "cql": 33.65, "iql": 46.23, "rebrac": 96.77},
        "antmaze": {"bc": 17.21, "td3bc": 19.33, "cql": 50.71, "iql": 57.17, "rebrac": 78.42},
        "adroit": {"bc": 48.18, "td3bc": 10.40, "cql": 1.53, "iql": 53.43, "rebrac": 59.39},
    }
    for name, expected in averages.items():
        published = load_suite(name).published
        means = {preset: [mean for mean, _ in scores.values()] for preset, scores in published.items()}
        found = {preset.split("/")[0]: sum(each) / len(each) for preset, each in means.items()}
        assert found == pytest.approx(expected, abs=0.01)
    told = published_score("td3bc/corl-antmaze", "antmaze-umaze-v2")
    assert told == "70.75 ± 39.18, CORL (tinkoff-ai/CORL, configs/offline/td3_bc)"
    assert published_score("td3bc/corl-antmaze", "hopper-medium-v2") == published_score("td3bc/pendulum", "x") == ""


def test_lookup_is_exact() -> None:
    assert find_task("hopper-medium-v2")[1].id == "hopper-medium-v2"
    with pytest.raises(ConfigError, match=r"^task: no task 'hopper-medium'\. Did you mean 'hopper-medium-v2'\?$"):
        find_task("hopper-medium")
    with pytest.raises(ConfigError, match=r"^task: no task 'x'\. See: understudy list tasks\.$"):
        find_task("x")


def test_an_unknown_suite() -> None:
    with pytest.raises(ConfigError, match=r"suite 'antmase': no suite of this name\. Did you mean 'antmaze'\?"):
        load_suite("antmase")
    with pytest.raises(ConfigError, match=r"absent\.yaml: no such file"):
        load_suite("absent.yaml")


def own(**changes: Any) -> dict[str, Any]:
    task = {"id": "swing", "env": "Pendulum-v1", "episode_cap": 200, "reference": [-1500, -150]}
    return {"name": "mine", "about": "A pendulum.", "tasks": [task], **changes}


def written(path: Path, content: dict[str, Any]) -> str:
    path.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML, and has no aliases
    return str(path)


def test_an_own_suite(tmp_path: Path) -> None:
    recipe = {"env": "Pendulum-v1", "episodes": 2, "behaviours": [{"policy": "random"}]}
    content = own(presets={"iql": {"iql/pendulum": "this library"}})
    content["tasks"].append({"id": "lab/arm-v1", "env": "Arm-v1", "episode_cap": 50, "recipe": recipe})
    suite = load_suite(written(tmp_path / "mine.yaml", content))
    assert [task.id for task in suite.tasks] == ["swing", "lab/arm-v1"]
    assert suite.tasks[0].reference == (-1500.0, -150.0)
    assert find_task("lab/arm-v1", str(tmp_path / "mine.yaml"))[1].recipe is not None
    with pytest.raises(ConfigError, match="no task 'hopper-medium-v2'"):
        find_task("hopper-medium-v2", str(tmp_path / "mine.yaml"))


def changed(**changes: Any) -> dict[str, Any]:
    """The own suite with a task that differs."""
    content = own()
    content["tasks"] = [{**content["tasks"][0], **changes}]
    return content


BAD = {
    "unknown key of a task": (changed(refrence="x"), "tasks.0.refrence: no such setting. Did you mean 'reference'?"),
    "unknown key": (own(tassks=[]), "tassks: no such setting. Did you mean 'tasks'?"),
    "no tasks": (own(tasks=[]), "tasks: give one at least, or methods"),
    "cap 0": (changed(episode_cap=0), "tasks.0.episode_cap: wrong value: got 0, expected greater than 0."),
    "cap true": (changed(episode_cap=True), "tasks.0.episode_cap: wrong value: got true"),
    "high below low": (changed(reference=[3, 3]), "low must be below high"),
    "unknown reference": (changed(reference="hoper-medium-v2"), "Did you mean 'hopper-medium-v2'?"),
    "misleading reference": (changed(reference="mujoco/hopper/medium-v0"), "D4RL's numbers do not fit"),
    "twice": (own(tasks=own()["tasks"] * 2), "task given twice: swing"),
    "unknown preset": (own(presets={"iql": {"iql/papper-antmaze": "x"}}), "Did you mean 'iql/paper-antmaze'?"),
    "preset file": (own(presets={"iql": {"nowhere.yaml": "x"}}), "no config 'nowhere.yaml'"),
    "unknown algorithm": (own(presets={"iqll": {}}), "no algorithm 'iqll'. Did you mean 'iql'?"),
    "published by nobody": (own(published={"iql/pendulum": {}}), "published: no preset 'iql/pendulum' here."),
    "published of nothing": (
        own(presets={"iql": {"iql/pendulum": "x"}}, published={"iql/pendulum": {"swin": [1, 2]}}),
        "published.iql/pendulum: no task 'swin' here. Did you mean 'swing'?",
    ),
    "no source": (own(presets={"iql": {"iql/pendulum": " "}}), "does not say where its numbers come from"),
    "path out": (changed(d4rl="../secret.hdf5"), "must be a path below the server's folder"),
    "url": (changed(d4rl="http://x/y.hdf5"), "must be a path below the server's folder"),
    "import": (changed(env="os:system"), "tasks.0.env: wrong value"),
    "id that leads out": (changed(id="a/../b"), "tasks.0.id: wrong value"),
    "recipe": (changed(recipe={"env": "x", "behaviours": []}), "tasks.0.recipe.behaviours: wrong value"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_suite_is_told_in_our_voice(case: str, tmp_path: Path) -> None:
    content, expected = BAD[case]
    path = written(tmp_path / "bad.yaml", content)
    with pytest.raises(ConfigError) as caught:
        load_suite(path)
    assert expected in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_the_shape_of_the_file_is_the_shape_of_the_class() -> None:
    for suite in suites():
        assert Suite.parse(suite.model_dump(mode="json")) == suite

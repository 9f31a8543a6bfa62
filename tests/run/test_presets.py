"""Presets: every number as its source has it, and who has the last word."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from understudy.core.errors import ConfigError
from understudy.run.config import RunConfig, load_config, read_resolved
from understudy.run.packaged import config_names
from understudy.run.suites import load_suite, suites

COMMON = {
    "algo.weight_ceiling": 100.0,
    "algo.gamma": 0.99,
    "algo.n_step": 1,
    "algo.polyak": 0.005,
    "algo.actor_learning_rate": 3e-4,
    "algo.critic_learning_rate": 3e-4,
    "algo.value_learning_rate": 3e-4,
    "algo.actor_optimizer.schedule": "cosine",
    "algo.actor.hidden": [256, 256],
    "algo.actor.layer_norm": False,
    "algo.actor.distribution.kind": "tanh_mean_gaussian",
    "algo.actor.distribution.clamp": "hard",
    "algo.actor.distribution.log_std_max": 2.0,
    "algo.critics": 2,
    "algo.critic.hidden": [256, 256],
    "algo.critic.layer_norm": False,
    "algo.critic.dropout": 0.0,
    "source.batch_size": 256,
    "updates": 1_000_000,
}
PAPER = COMMON | {
    "algo.actor.distribution.log_std_min": -5.0,
    "algo.actor.init": "orthogonal",
    "algo.critic.init": "orthogonal",
    "data.normalize_observations": False,
}
CORL = COMMON | {
    "algo.actor.distribution.log_std_min": -20.0,
    "algo.actor.init": "default",
    "algo.critic.init": "default",
    "data.normalize_observations": True,
    "eval_every": 5000,
}
CORL_BC = {
    "algo.learning_rate": 3e-4,
    "algo.actor.hidden": [256, 256],
    "algo.actor.distribution.kind": "deterministic",
    "algo.actor.init": "default",
    "algo.actor.dropout": 0.0,
    "data.normalize_observations": True,
    "data.reward": "none",
    "source.batch_size": 256,
    "updates": 1_000_000,
    "eval_every": 5000,
}
CORL_TD3 = {
    "algo.n_step": 1,
    "algo.critics": 2,
    "algo.gamma": 0.99,
    "algo.polyak": 0.005,
    "algo.policy_delay": 2,
    "algo.target_noise": 0.2,
    "algo.target_noise_clip": 0.5,
    "algo.actor.distribution.kind": "deterministic",
    "algo.actor.layer_norm": False,
    "algo.actor.dropout": 0.0,
    "algo.critic.dropout": 0.0,
    "data.reward": "none",
    "updates": 1_000_000,
    "eval_every": 5000,
    "eval_episodes": 10,
}
CORL_TD3BC = CORL_TD3 | {
    "algo.alpha": 2.5,
    "algo.actor_learning_rate": 3e-4,
    "algo.critic_learning_rate": 3e-4,
    "algo.actor.hidden": [256, 256],
    "algo.actor.init": "default",
    "algo.critic.hidden": [256, 256],
    "algo.critic.init": "default",
    "algo.critic.layer_norm": False,
    "source.batch_size": 256,
    "data.normalize_observations": True,
}
CORL_REBRAC = CORL_TD3 | {
    "algo.policy_critic": "min",
    "algo.normalize_q": True,
    "algo.actor_learning_rate": 1e-3,
    "algo.critic_learning_rate": 1e-3,
    "algo.actor.hidden": [256, 256, 256],
    "algo.actor.init": "small_output",
    "algo.critic.hidden": [256, 256, 256],
    "algo.critic.init": "small_output",
    "algo.critic.layer_norm": True,
    "source.batch_size": 1024,
    "data.normalize_observations": False,
}
REBRAC_ANTMAZE = {
    "algo.gamma": 0.999,
    "algo.actor_learning_rate": 3e-4,
    "algo.critic_learning_rate": 5e-5,
    "source.batch_size": 256,
    "data.reward": "antmaze_rebrac",
    "eval_every": 50_000,
    "eval_episodes": 100,
}
REBRAC_SMALL = {"algo.actor_learning_rate": 3e-4, "algo.critic_learning_rate": 3e-4, "source.batch_size": 256}
REBRAC_MAZE2D = {"algo.actor_penalty": 0.003, "algo.critic_penalty": 0.001, "eval_episodes": 100}
PENALTIES = {
    "halfcheetah-random-v2": (0.001, 0.1),
    "halfcheetah-medium-v2": (0.001, 0.01),
    "halfcheetah-expert-v2": (0.01, 0.01),
    "halfcheetah-medium-replay-v2": (0.01, 0.001),
    "halfcheetah-medium-expert-v2": (0.01, 0.1),
    "halfcheetah-full-replay-v2": (0.001, 0.1),
    "hopper-random-v2": (0.001, 0.01),
    "hopper-medium-v2": (0.01, 0.01),
    "hopper-expert-v2": (0.1, 0.1),
    "hopper-medium-replay-v2": (0.05, 0.5),
    "hopper-medium-expert-v2": (0.1, 0.01),
    "hopper-full-replay-v2": (0.01, 0.01),
    "walker2d-random-v2": (0.01, 0.0),
    "walker2d-medium-v2": (0.05, 0.1),
    "walker2d-expert-v2": (0.01, 0.5),
    "walker2d-medium-replay-v2": (0.05, 0.01),
    "walker2d-medium-expert-v2": (0.01, 0.01),
    "walker2d-full-replay-v2": (0.01, 0.01),
    "antmaze-umaze-v2": (0.003, 0.002),
    "antmaze-umaze-diverse-v2": (0.003, 0.001),
    "antmaze-medium-play-v2": (0.001, 0.0005),
    "antmaze-medium-diverse-v2": (0.001, 0.0),
    "antmaze-large-play-v2": (0.002, 0.001),
    "antmaze-large-diverse-v2": (0.002, 0.002),
    "pen-human-v1": (0.1, 0.5),
    "pen-cloned-v1": (0.05, 0.5),
    "pen-expert-v1": (0.01, 0.01),
    "door-human-v1": (0.1, 0.1),
    "door-cloned-v1": (0.01, 0.1),
    "door-expert-v1": (0.05, 0.01),
    "hammer-human-v1": (0.01, 0.5),
    "hammer-cloned-v1": (0.1, 0.5),
    "hammer-expert-v1": (0.01, 0.01),
    "relocate-human-v1": (0.1, 0.01),
    "relocate-cloned-v1": (0.1, 0.01),
    "relocate-expert-v1": (0.05, 0.01),
}
"""β₁ and β₂ of ReBRAC for every set."""


def iql(expectile: float, beta: float, dropout: float, reward: str, episodes: int) -> dict[str, Any]:
    return {
        "algo.expectile": expectile,
        "algo.beta": beta,
        "algo.actor.dropout": dropout,
        "data.reward": reward,
        "eval_episodes": episodes,
    }


CQL = {
    "algo.penalty": "cql_h",
    "algo.penalty_temperature": 1.0,
    "algo.sampled_actions": 10,
    "algo.subtract_log_n": False,
    "algo.clip_diff_min": None,
    "algo.clip_diff_max": None,
    "algo.lagrange": False,
    "algo.td_half": False,
    "algo.max_backup": "off",
    "algo.backup_entropy": False,
    "algo.gamma": 0.99,
    "algo.polyak": 0.005,
    "algo.critic_learning_rate": 3e-4,
    "algo.entropy_weight": 1.0,
    "algo.entropy_target": -1.0,
    "algo.actor.hidden": [256, 256, 256],
    "algo.n_step": 1,
    "algo.critics": 2,
    "algo.actor.distribution.kind": "tanh_gaussian",
    "algo.actor.distribution.log_std_min": -20.0,
    "algo.actor.distribution.log_std_max": 2.0,
    "algo.actor.distribution.clamp": "hard",
    "algo.critic.hidden": [256, 256, 256],
    "data.reward": "none",
    "source.batch_size": 256,
    "eval_every": 5000,
}
CORL_CQL = CQL | {
    "algo.actor.init": "xavier_output",
    "algo.actor.output_gain": 0.01,
    "algo.actor.distribution.initial_std": 0.36787944,
    "algo.critic.init": "orthogonal",
    "algo.critic.output_gain": 0.01,
    "algo.warm_start": 0,
    "algo.lagrange_form": "weight_outside",
    "algo.lagrange_start": 1.0,
    "data.normalize_observations": True,
    "updates": 1_000_000,
}


def cql(weight: float, actor_rate: float, episodes: int) -> dict[str, Any]:
    return {
        "algo.penalty_weight": weight,
        "algo.actor_learning_rate": actor_rate,
        "algo.entropy_learning_rate": actor_rate,
        "eval_episodes": episodes,
    }


PAPER_CQL = {
    "algo.actor.init": "default",
    "algo.actor.distribution.initial_std": 1.0,
    "algo.critic.init": "default",
    "algo.warm_start": 40_000,
    "algo.lagrange_form": "weight_inside",
    "algo.lagrange_start": 0.0,
    "data.normalize_observations": False,
    "updates": 3_000_000,
}
ANTMAZE_CQL = {
    "algo.lagrange": True,
    "algo.lagrange_gap": 0.8,
    "algo.clip_diff_min": -200.0,
    "algo.max_backup": "max_min",
    "algo.critic.hidden": [256, 256, 256, 256, 256],
    "data.reward": "antmaze_cql",
    "data.normalize_observations": False,
    "eval_every": 50_000,
}

TABLE: dict[str, dict[str, Any]] = {
    "iql/paper-locomotion": PAPER | iql(0.7, 3.0, 0.0, "iql_locomotion", 10) | {"eval_every": 5000},
    "iql/paper-antmaze": PAPER | iql(0.9, 10.0, 0.0, "antmaze_iql", 100) | {"eval_every": 100_000},
    "iql/paper-kitchen": PAPER | iql(0.7, 0.5, 0.1, "none", 10) | {"eval_every": 5000},
    "iql/paper-adroit": PAPER | iql(0.7, 0.5, 0.1, "none", 10) | {"eval_every": 5000},
    "iql/corl-locomotion": CORL | iql(0.7, 3.0, 0.0, "none", 10),
    "iql/corl-antmaze": CORL | iql(0.9, 10.0, 0.0, "antmaze_iql", 100),
    "iql/corl-maze2d": CORL | iql(0.7, 3.0, 0.0, "none", 100),
    "iql/corl-adroit": CORL | iql(0.8, 3.0, 0.0, "none", 10),
    "cql/paper-locomotion": CQL | PAPER_CQL | cql(5.0, 1e-4, 10),
    "cql/corl-locomotion": CORL_CQL | cql(10.0, 3e-5, 10),
    "cql/corl-antmaze": CORL_CQL | cql(5.0, 1e-4, 100) | ANTMAZE_CQL,
    "cql/corl-maze2d": CORL_CQL | cql(10.0, 3e-5, 100) | {"algo.lagrange": True, "algo.lagrange_gap": 5.0},
    "cql/corl-adroit": CORL_CQL | cql(1.0, 1e-4, 10),
    "bc/corl-locomotion": CORL_BC | {"eval_episodes": 10},
    "bc/corl-antmaze": CORL_BC | {"eval_episodes": 100},
    "bc/corl-maze2d": CORL_BC | {"eval_episodes": 100},
    "bc/corl-adroit": CORL_BC | {"eval_episodes": 10},
    "td3bc/corl-locomotion": CORL_TD3BC,
    "td3bc/corl-antmaze": CORL_TD3BC | {"data.reward": "antmaze_iql", "eval_episodes": 100},
    "td3bc/corl-maze2d": CORL_TD3BC | {"eval_episodes": 100},
    "td3bc/corl-adroit": CORL_TD3BC,
    "rebrac/corl-locomotion": CORL_REBRAC,
    "rebrac/corl-antmaze": CORL_REBRAC | REBRAC_ANTMAZE,
    "rebrac/corl-maze2d": CORL_REBRAC | REBRAC_SMALL | REBRAC_MAZE2D,
    "rebrac/corl-adroit": CORL_REBRAC | REBRAC_SMALL,
}
SMALL_CHANGE = {
    "algo.polyak": 0.001,
    "algo.actor.distribution.kind": "deterministic",
    "algo.actor.distribution.log_std_min": -5.0,  # a point has no σ
    "algo.actor.distribution.clamp": "returning",
    "data.reward": "iql_locomotion",
}
CHANGES: dict[tuple[str, str], dict[str, Any]] = {
    ("cql/corl-locomotion", "hopper-medium-v2"): {"data.reward": "iql_locomotion"},
    ("iql/corl-locomotion", "hopper-medium-v2"): SMALL_CHANGE,
    ("iql/corl-locomotion", "hopper-medium-replay-v2"): SMALL_CHANGE,
    ("iql/corl-locomotion", "hopper-medium-expert-v2"): {"algo.expectile": 0.5, "algo.beta": 6.0},
}
for rebrac_task, (beta_1, beta_2) in PENALTIES.items():
    (rebrac_suite,) = [suite.name for suite in suites() if any(task.id == rebrac_task for task in suite.tasks)]
    CHANGES[f"rebrac/corl-{rebrac_suite}", rebrac_task] = {"algo.actor_penalty": beta_1, "algo.critic_penalty": beta_2}
CASES = [(name, task.id) for name in TABLE for task in load_suite(name.split("-", maxsplit=1)[1]).tasks]


def flat(config: RunConfig) -> dict[str, Any]:
    """Dotted key to value."""

    def walk(prefix: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {prefix: value}
        return {k: v for name, part in value.items() for k, v in walk(f"{prefix}.{name}".lstrip("."), part).items()}

    return walk("", config.model_dump(mode="json"))


def test_the_table_names_every_preset() -> None:
    assert sorted(TABLE) == [name for name in config_names() if "/paper-" in name or "/corl-" in name]


@pytest.mark.parametrize(("name", "task"), CASES)
def test_every_number_of_every_preset_on_every_task(name: str, task: str) -> None:
    found = flat(load_config(name, [f"task={task}", "data.path=x.hdf5"]))
    expected = TABLE[name] | CHANGES.get((name, task), {})
    assert {key: found[key] for key in expected} == expected
    assert found["task"] == task
    assert found["out"] == f"runs/{name}/{task}/0"


def test_every_set_has_penalties_of_its_own() -> None:
    tasks = {task.id for suite in ("locomotion", "antmaze", "adroit") for task in load_suite(suite).tasks}
    assert tasks == PENALTIES.keys()


SIX = ["random", "medium", "expert", "medium-replay", "medium-expert", "full-replay"]


def test_per_task_changes_are_looked_up_exactly() -> None:
    heads = {}
    for level in SIX:
        config = flat(load_config("iql/corl-locomotion", [f"task=hopper-{level}-v2", "data.path=x"]))
        heads[level] = (config["algo.actor.distribution.kind"], config["algo.expectile"], config["algo.polyak"])
    small, plain = ("deterministic", 0.7, 0.001), ("tanh_mean_gaussian", 0.7, 0.005)
    assert heads == dict.fromkeys(SIX, plain) | {
        "medium": small,
        "medium-replay": small,
        "medium-expert": ("tanh_mean_gaussian", 0.5, 0.005),
    }


def test_overrides_have_the_last_word() -> None:
    words = ["task=hopper-medium-expert-v2", "data.path=x", "algo.beta=7", "eval_episodes=3", "env.reference=[0, 1]"]
    for order in (words, words[::-1]):
        config = flat(load_config("iql/corl-locomotion", order))
        assert config["algo.beta"] == 7.0
        assert config["algo.expectile"] == 0.5, "the rest of the task's changes stay"
        assert config["eval_episodes"] == 3
        assert config["env.reference"] == [0.0, 1.0]
        assert config["env.id"] == "Hopper-v4"


def test_another_environment_is_not_given_the_tasks_reference() -> None:
    words = ["task=hopper-medium-v2", "data.path=x"]
    assert load_config("iql/paper-locomotion", words).world.reference == "hopper-medium-v2"
    assert load_config("iql/paper-locomotion", [*words, "env.id=Hopper-v4"]).world.reference == "hopper-medium-v2"
    assert load_config("iql/paper-locomotion", [*words, "env.id=Hopper-v5"]).world.reference is None


def test_where_returns_are_on_another_scale_there_is_no_reference() -> None:
    config = load_config("iql/paper-antmaze", ["task=antmaze-umaze-v2", "data.path=x"])
    assert config.world.id == "AntMaze_UMaze-v4"
    assert config.world.reference is None


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_preset_alone_says_what_it_needs(name: str) -> None:
    with pytest.raises(ConfigError, match=r"names no data\. Give it: data\.path=…\. Without a simulator that is all"):
        load_config(name)


MISTAKES = {
    ("task=hoper-medium-v2", "data.path=x"): r"^task: no task 'hoper-medium-v2'\. Did you mean 'hopper-medium-v2'\?$",
    (
        "task=hopper-medium-v2",
    ): r"names no data\. Give it: data\.path=…\. .* D4RL's gym_mujoco_v2/hopper_medium-v2.hdf5",
    ("task=[1]", "data.path=x", "env.id=Hopper-v4"): r"^task: wrong value: got \['1'\]",
    ("task=hopper-medium-v2", "suite=antmaze"): r"no task 'hopper-medium-v2'",
    ("task=hopper-medium-v2", "suite=[1]"): r"^suite: wrong value",
    ("task=hopper-medium-v2", "data=x"): r"^data: wrong value: got 'x', expected a group of settings",
    ("task=hopper-medium-v2", "data.path=x", "taks=1"): r"^taks: no such setting\. Did you mean 'task'\?$",
    ("env.id=Hopper-v4",): r"names no data\. Give it: data\.path=…\.$",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=MISTAKES[words]):
        load_config("iql/paper-locomotion", words)


def test_a_config_with_its_own_world_is_not_renamed() -> None:
    with pytest.raises(ConfigError, match="evaluated in Hopper-v4, and the config has an environment of its own"):
        load_config("iql/pendulum", ["task=hopper-medium-v2"])
    assert load_config("iql/pendulum").task == ""
    assert load_config("iql/pendulum").out == "runs/iql/pendulum/0"


def test_the_resolved_config_needs_no_suite_and_changes_no_more(tmp_path: Path) -> None:
    config = load_config("iql/corl-locomotion", ["task=hopper-medium-v2", "data.path=x", "algo.polyak=0.5"])
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    assert not {"tasks", "suite"} & yaml.safe_load(config.to_yaml()).keys()
    assert read_resolved(path) == config
    assert load_config(str(path)) == config


OWN_SUITE = """
name: mine
about: A pendulum.
eval_episodes: 7
tasks:
  - id: swing-v0
    env: Pendulum-v1
    episode_cap: 200
    reference: [-1500, -150]
    recipe: {env: Pendulum-v1, episodes: 2, behaviours: [{policy: random}]}
  - {id: swing-v1, env: Pendulum-v1, episode_cap: 200}
"""
OWN_PRESET = """
algo: {name: bc}
task: swing-v0
suite: SUITE
tasks:
  swing-v0: {algo: {learning_rate: 1e-3}, updates: 10}
  swing-v1: {algo: {learning_rate: 1e-2}}
"""


def own(folder: Path, preset: str = OWN_PRESET) -> str:
    (folder / "mine.yaml").write_text(OWN_SUITE, encoding="utf-8")
    path = folder / "preset.yaml"
    path.write_text(preset.replace("SUITE", str(folder / "mine.yaml")), encoding="utf-8")
    return str(path)


def test_an_own_suite_brings_environment_reference_evaluation_and_recipe(tmp_path: Path) -> None:
    config = flat(load_config(own(tmp_path)))
    assert config["env.id"] == "Pendulum-v1"
    assert config["env.reference"] == [-1500.0, -150.0]
    assert config["eval_episodes"] == 7
    assert config["data.recipe.episodes"] == 2
    assert (config["algo.learning_rate"], config["updates"]) == (1e-3, 10)
    assert config["out"] == "runs/preset/swing-v0/0"


def test_another_task_of_it_on_the_line(tmp_path: Path) -> None:
    config = flat(load_config(own(tmp_path), ["task=swing-v1", "data.path=x", "eval_episodes=2"]))
    assert config["env.reference"] is None
    assert (config["algo.learning_rate"], config["updates"]) == (1e-2, 1_000_000)
    assert config["eval_episodes"] == 2
    assert (config["data.path"], config["data.recipe"]) == ("x", None)


def test_its_resolved_config_loads_when_the_suite_is_gone(tmp_path: Path) -> None:
    config = load_config(own(tmp_path))
    (tmp_path / "mine.yaml").unlink()
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(str(path)) == config


def test_a_misspelt_task_among_the_changes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no task 'swing-w0'\. Did you mean 'swing-v"):
        load_config(own(tmp_path, OWN_PRESET.replace("  swing-v0:", "  swing-w0:")))
    with pytest.raises(ConfigError, match=r"^tasks: wrong value: expected task: \{algo: \{…\}"):
        load_config(own(tmp_path, "algo: bc\ntasks: [1]\n"))

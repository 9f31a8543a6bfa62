"""What the pages of PPO and "Coming from …" say is so: configs, settings, names, tables and examples."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import python_blocks, quoted, read_page, table

import understudy
from shipped import command_words
from understudy.algorithms import algorithm_names, find_algorithm
from understudy.core.errors import ConfigError
from understudy.core.other_names import FROM_DATA, FROM_REPLAY, FROM_ROLLOUTS, LOGS, ONLINE, ROBOTS
from understudy.core.settings import Settings, has_setting
from understudy.run.config import DataSettings, RunConfig, load_config
from understudy.run.packaged import config_names
from understudy.sources import find_source

PAGE = read_page("coming-from")
CLASSES = [
    (config, setting)
    for _, names, told in table(PAGE, "Classes")
    for config in quoted(names)
    for setting in quoted(told)
]
NUMBERS = [(quoted(ours)[0], quoted(value)[0]) for *_, ours, value, _ in table(PAGE, "Numbers") if quoted(value)]
RUNNER = [name for _, ours in table(PAGE, "Runner") for name in quoted(ours)]
EXAMPLES = python_blocks(PAGE)


def settled(name: str) -> RunConfig:
    return load_config(name, command_words(name))


def lookup(config: RunConfig, key: str) -> Any:
    """The value of a dotted key; a part may have a dot of its own, as `encoders.state.velocity` has."""
    found: Any = config.model_dump(mode="json")
    words = key.split(".")
    while words:
        taken = next(count for count in range(1, len(words) + 1) if ".".join(words[:count]) in found)
        found, words = found[".".join(words[:taken])], words[taken:]
    return found


def read(text: str) -> Any:
    """A value as YAML has it, and 1e-8 as everybody else has it."""
    value = yaml.safe_load(text)
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


@pytest.mark.parametrize(("config", "setting"), CLASSES)
def test_a_class_is_the_config_with_these_settings(config: str, setting: str) -> None:
    key, _, value = setting.partition("=")
    assert lookup(settled(config), key) == read(value)


@pytest.mark.parametrize(("key", "value"), NUMBERS)
def test_a_number_is_what_the_robot_preset_says(key: str, value: str) -> None:
    assert lookup(settled("ppo/robot"), key) == read(value)


@pytest.mark.parametrize(("name", "rows"), [("ppo/gym", 64), ("ppo/robot", 1536)])
def test_a_preset_asks_for_an_environment_and_has_minibatches_of_its_camp(name: str, rows: int) -> None:
    with pytest.raises(ConfigError, match=r"names no environment\. Give one: env\.id="):
        load_config(name)
    config = settled(name)
    transitions = lookup(config, "source.num_envs") * lookup(config, "source.rollout_length")
    assert transitions / lookup(config, "algo.minibatches") == rows


def test_the_tables_are_those_that_suggestions_come_from() -> None:
    for heading, rows, libraries in (
        ("Numbers", FROM_ROLLOUTS, ROBOTS),
        ("Learning from data", FROM_DATA, LOGS),
        ("Learning from a replay buffer", FROM_REPLAY, ONLINE),
    ):
        told = [
            [*map(quoted, cells[: len(libraries)]), quoted(cells[len(libraries)]), cells[-1]]
            for cells in table(PAGE, heading)
        ]
        assert told == [
            [*(row.names(library) for library in libraries), [row.ours] if row.ours else [], row.differs]
            for row in rows
        ]


def test_every_name_in_them_is_a_setting_of_ours() -> None:
    learners = {name: find_algorithm(name).Config for name in algorithm_names()}
    groups = {"data": [DataSettings], "source": [find_source(kind).Config for kind in ("offline", "replay")]}
    for row in FROM_ROLLOUTS:
        if row.ours:
            lookup(settled("ppo/robot"), row.ours)
    for row in (*FROM_DATA, *FROM_REPLAY):
        group, _, rest = row.ours.partition(".")
        if not rest:
            assert not group or group in RunConfig.model_fields, row.ours
            continue
        models: Any = learners.values() if group == "algo" else groups[group]
        assert any(has_setting(model, rest) for model in models), row.ours


SUGGESTED = {
    ("ppo", "algo.clip_param=0.1"): "Did you mean 'algo.clip' (rsl_rl's clip_param)?",
    ("ppo", "algo.ent_coef=0"): "Did you mean 'algo.entropy_coef' (Stable-Baselines3's ent_coef)?",
    ("ppo", "algo.desired_kl=0.1"): "Did you mean 'algo.target_kl' (rsl_rl's desired_kl)?",
    ("ppo", "n_steps=5"): "Did you mean 'source.rollout_length' (Stable-Baselines3's n_steps)?",
    ("ppo", "algo.n_steps=5"): "Did you mean 'source.rollout_length' (Stable-Baselines3's n_steps)?",
    ("ppo", "timesteps=5"): "Did you mean 'updates' (skrl's timesteps)? It differs: rollouts from the start, as max_it",
    ("ppo", "total_timesteps=5"): "Did you mean 'updates' (Stable-Baselines3's total_timesteps)? It differs: ",
    (
        "ppo",
        "algo.batch_size=64",
    ): "Did you mean 'algo.minibatches' (Stable-Baselines3's batch_size)? It differs: how m",
    (
        "ppo",
        "buffer_size=9",
    ): "Stable-Baselines3's buffer_size is not needed: a rollout is learned from and thrown away.",
    ("ppo", "algo.actor.hidden_dims=[1]"): "Did you mean 'algo.actor.hidden' (rsl_rl's hidden_dims)?",
    (
        "ppo",
        "algo.net_arch=[1]",
    ): "Did you mean 'algo.actor.hidden' or 'algo.critic.hidden' (Stable-Baselines3's net_arch)?",
    ("ppo", "algo.speed=1"): "Known: actor, clip, ",
    ("iql", "algo.iql_tau=0.1"): "Did you mean 'algo.expectile' (CORL's iql_tau)?",
    ("iql", "algo.tau=0.1"): "Did you mean 'algo.polyak' (d3rlpy's tau)?",
    ("iql", "total_timesteps=5"): "Did you mean 'updates' (Stable-Baselines3's total_timesteps)?",
    (
        "iql",
        "learning_rate=5",
    ): "Did you mean 'algo.actor_learning_rate' or 'algo.critic_learning_rate' (Stable-Baselines3's learning_rate)?",
    ("iql", "n_steps=5"): "Did you mean 'updates' (d3rlpy's n_steps)?",
    ("iql", "algo.batch_size=5"): "Did you mean 'source.batch_size' (d3rlpy's batch_size)?",
    ("iql", "batch_size=5"): "Did you mean 'source.batch_size'?",
    ("iql", "buffer_size=9"): "CORL's buffer_size is not needed: data are read whole",
    ("iql", "algo.cql_alpha=5"): "Known: actor, ",
    ("sac", "total_timesteps=5"): "Did you mean 'env_steps' (Stable-Baselines3's total_timesteps)?",
    (
        "sac",
        "algo.ent_coef=0.2",
    ): "Did you mean 'algo.entropy_weight' (Stable-Baselines3's ent_coef)? It differs: where "
    "it starts, as auto_1, and a fixed one is with algo.entropy_learning_rate=0.",
    ("sac", "algo.tau=0.1"): "Did you mean 'algo.polyak' (Stable-Baselines3's tau)?",
    ("sac", "algo.buffer_size=9"): "Did you mean 'source.buffer_size' (Stable-Baselines3's buffer_size)?",
    ("td3", "algo.buffer_size=9"): "only source.kind=replay has a buffer",
    ("sac", "source.gradient_steps=2"): "Did you mean 'source.utd_ratio' (Stable-Baselines3's gradient_steps)? It diff",
    ("sac", "source.memory_size=2"): "Did you mean 'source.buffer_size' (skrl's memory_size)?",
    ("sac", "train_freq=2"): "Did you mean 'source.utd_ratio' (Stable-Baselines3's train_freq)?",
    ("iql", "gama=1"): "Did you mean 'algo.gamma'?",
    ("iql", "algo.gama=1"): "Did you mean 'gamma'?",
}


@pytest.mark.parametrize(("algorithm", "setting"), SUGGESTED)
def test_a_name_of_others_is_told_ours_and_no_other_word_is_guessed(algorithm: str, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(f"{algorithm}/pendulum", [setting])
    key = setting.partition("=")[0]
    assert str(caught.value).startswith(f"{key}: no such setting")
    assert SUGGESTED[algorithm, setting] in str(caught.value)


def test_every_setting_of_an_update_is_in_the_table() -> None:
    told = {key for key, _ in NUMBERS}
    algo = settled("ppo/robot").algo
    groups = {name for name in type(algo).model_fields if isinstance(getattr(algo, name), Settings)}
    assert {f"algo.{name}" for name in type(algo).model_fields} - told == {"algo.name", *(f"algo.{g}" for g in groups)}


def test_the_page_of_ppo_lists_every_config_of_it() -> None:
    told = [name for row in table(read_page("ppo"), "Configs") for name in quoted(row[0])]
    assert sorted(told) == [name for name in config_names() if name.startswith("ppo/")]


def test_what_stands_in_for_the_runner_exists() -> None:
    asked = [name.split("(")[0] for name in RUNNER if name.startswith(("us.", "run."))]
    assert len(asked) > 5
    for name in asked:
        owner, _, rest = name.partition(".")
        assert rest in (understudy.__all__ if owner == "us" else dir(understudy.Run)), name


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_its_examples_run(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[number], encoding="utf-8")
    runpy.run_path(str(script))
    assert capsys.readouterr().out.strip()

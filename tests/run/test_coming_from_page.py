"""What the pages of PPO and "Coming from st_rl / rsl_rl" say is so: configs, settings, names and examples."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import python_blocks, quoted, read_page, table

import understudy
from shipped import command_words
from understudy.core.errors import ConfigError
from understudy.core.settings import Settings
from understudy.run.config import RunConfig, load_config
from understudy.run.packaged import config_names

PAGE = read_page("coming-from-rsl-rl")
CLASSES = [
    (config, setting)
    for _, names, told in table(PAGE, "Classes")
    for config in quoted(names)
    for setting in quoted(told)
]
NUMBERS = [(quoted(ours)[0], quoted(value)[0]) for _, ours, value, _ in table(PAGE, "Numbers")]
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

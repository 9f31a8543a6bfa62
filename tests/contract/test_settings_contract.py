"""Settings: complete in YAML, closed to unknown keys, each one described."""

from pathlib import Path

import pytest

from understudy.algorithms import algorithm_names, find_algorithm
from understudy.core.errors import ConfigError
from understudy.core.settings import Settings
from understudy.run.config import parse_config
from understudy.run.yaml_text import parse_yaml
from worlds import tiny_config

pytestmark = pytest.mark.parametrize("name", sorted(algorithm_names()))


def test_a_resolved_config_survives_yaml(name: str, tmp_path: Path) -> None:
    config = tiny_config(name, tmp_path)
    text = config.to_yaml()
    again = parse_config(parse_yaml(text, "config.yaml"))
    assert again == config
    assert type(again.algo) is find_algorithm(name).Config
    assert again.to_yaml() == text


def test_a_resolved_config_names_every_setting(name: str, tmp_path: Path) -> None:
    written = parse_yaml(tiny_config(name, tmp_path).to_yaml(), "config.yaml")["algo"]
    assert set(written) == set(find_algorithm(name).Config.model_fields)


def test_a_misspelt_setting_is_refused_with_its_neighbour(name: str) -> None:
    config = find_algorithm(name).Config
    for setting in config.model_fields:
        with pytest.raises(ConfigError, match=rf"algo\.{setting}x: no such setting.* Did you mean '{setting}'\?"):
            config.parse({f"{setting}x": 1}, "algo")


def test_the_name_is_the_file_and_nothing_else(name: str) -> None:
    config = find_algorithm(name).Config
    assert config().model_dump()["name"] == name
    with pytest.raises(ConfigError, match=r"algo\.name"):
        config.parse({"name": "somebody else"}, "algo")


def test_settings_are_frozen(name: str) -> None:
    with pytest.raises(ValueError, match="frozen"):
        find_algorithm(name).Config().name = "other"  # type: ignore[attr-defined]


def undescribed(config: type[Settings], path: str) -> list[str]:
    found = []
    for name, field in config.model_fields.items():
        if not field.description:
            found.append(f"{path}.{name}")
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            found += undescribed(field.annotation, f"{path}.{name}")
    return found


def test_every_setting_is_described(name: str) -> None:
    config = find_algorithm(name).Config
    assert undescribed(config, name) == []
    assert config.__doc__

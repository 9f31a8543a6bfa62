"""Words that come with an algorithm: equations in its file, a page, a config."""

import importlib
from pathlib import Path

import pytest

from shipped import command_words
from understudy.algorithms import algorithm_names, find_algorithm
from understudy.run.config import load_config
from understudy.run.packaged import config_names

pytestmark = pytest.mark.parametrize("name", sorted(algorithm_names()))

ROOT = Path(__file__).parents[2]


def named_functions(name: str) -> list[str]:
    """`losses.value.expectile_loss` and the like, from the right of each equation."""
    text = find_algorithm(name).__doc__ or ""
    return [line.split("→")[1].split()[0] for line in text.splitlines() if "→" in line]


def test_the_file_opens_with_equations_and_their_functions(name: str) -> None:
    functions = named_functions(name)
    assert functions
    for function in functions:
        room, file, *_, word = function.split(".")
        source = (ROOT / "src" / "understudy" / room / f"{file}.py").read_text(encoding="utf-8")
        assert f"def {word}(" in source, f"{name}: {function} is not there"
    assert "Differs from" in (find_algorithm(name).__doc__ or "")


def test_the_file_is_short_enough_to_read(name: str) -> None:
    path = Path(str(importlib.import_module(algorithm_names()[name]).__file__))
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 250


def test_a_page_tells_equations_functions_and_differences(name: str) -> None:
    page = ROOT / "docs" / f"{name}.md"
    assert page.is_file(), f"docs/{name}.md is missing"
    text = page.read_text(encoding="utf-8")
    assert [function for function in named_functions(name) if function not in text] == []
    assert "Differs from" in text


def test_a_config_of_its_own_is_packaged(name: str) -> None:
    own = [config for config in config_names() if config.startswith(f"{name}/")]
    assert own
    for config in own:
        assert load_config(config, command_words(config)).algo.model_dump()["name"] == name

"""YAML is read by a loader in C where that is safe; what it says is what the strict one in Python says."""

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from understudy.core.errors import ConfigError
from understudy.run import yaml_text
from understudy.run.packaged import config_names, read_packaged
from understudy.run.yaml_text import parse_yaml

TOKENS = [
    *("a", "b", "1", "-1", "3e-4", "010", "1:30", "null", "~", "true", "no", "0.5", "é", "𝛼", "<<", "=", "2026-11-19"),
    *(": ", ":", "- ", "-", "\n", "\n  ", "\n    ", ", ", ",", "{", "}", "[", "]", "? ", "|\n", ">\n", "# c", "\t"),
    *("'", '"', "''", "!!int ", "!!python/name:os.system ", "!x ", "&x ", "*x", "%", "@", "`", "---\n", "...\n"),
    *("\\", "\x07"),
]  # fmt: skip


def as_in_python(text: str) -> Any:
    return yaml_text._Loader(text).get_single_data()


def answer(text: str, read: Any) -> tuple[str, str]:
    try:
        return "data", repr(read(text))
    except Exception as error:
        return "error", " ".join(str(error).split())


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=14).map("".join))
@example("{a:b}")
@example("{a: 1, b: [1, {c: }]}")
@example("a: &x 1\nb: 2")
@example("a: 1\na: 2")
@example("[a:b, 'c':1]")
@example("- a\n-b")
@example("a: !!python/object/apply:os.system [id]")
def test_both_loaders_say_the_same(text: str) -> None:
    assert answer(text, yaml_text._read) == answer(text, as_in_python)


def test_all_configs_are_read_the_same_and_several_times_as_fast() -> None:
    texts = [read_packaged(name) for name in config_names()]
    seconds = {}
    for read in (as_in_python, yaml_text._read):
        began = time.process_time()
        seconds[read] = ([repr(read(text)) for text in texts], time.process_time() - began)
    assert seconds[as_in_python][0] == seconds[yaml_text._read][0]
    assert seconds[yaml_text._read][1] < seconds[as_in_python][1] / 2


@pytest.mark.parametrize("depth", [31, 32, 100, 100_000])
def test_how_deep_is_too_deep_does_not_hang_on_the_loader(depth: int) -> None:
    text = "[" * depth + "]" * depth
    if depth <= yaml_text.DEPTH_LIMIT:
        assert repr(parse_yaml(text, "x")) == text
    else:
        with pytest.raises(ConfigError, match=r"x: not readable as YAML \(nested deeper than 32\)"):
            parse_yaml(text, "x")


def test_an_alias_is_refused_before_it_is_followed(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
    with pytest.raises(ConfigError, match=r"aliases \(\*name\) are not allowed"):
        parse_yaml("\n".join(lines), "x")

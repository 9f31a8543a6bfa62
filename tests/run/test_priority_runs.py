"""Runs whose rows are drawn by priority: going on to the bit, and what is refused before the first step."""

from pathlib import Path
from typing import Any

import pytest
from small import content, short_settings

import understudy as us
from understudy.core.errors import ConfigError
from understudy.run.config import parse_config

pytestmark = pytest.mark.usefixtures("no_plots")


class Ending:
    """Stops a run at an update that is saved."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def on_checkpoint(self, updates: int, path: Path) -> None:
        if updates >= self.updates:
            raise KeyboardInterrupt


def test_a_run_killed_anywhere_goes_on_to_the_bit(tmp_path: Path) -> None:
    source = {"batch_size": 8, "priority": {"exponent": 0.7, "correction": {"over": 30}}}
    config = short_settings("td3bc", tmp_path / "whole", source=source, updates=40)
    whole = us.train(parse_config(config))
    with pytest.raises(KeyboardInterrupt):
        us.train(parse_config({**config, "out": str(tmp_path / "killed")}), callbacks=[Ending(17)])
    us.resume(tmp_path / "killed")
    assert content(tmp_path / "killed") == content(whole.path)


def test_what_is_refused(tmp_path: Path) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("bc", {"priority": {"exponent": 0.6}}, "this algorithm learns no values"),
        ("iql", {"priority": {"exponent": 1.5}}, "source.priority.exponent"),
        ("iql", {"priority": {"exponent": 0.6, "correction": 2}}, "source.priority.correction.start"),
        ("iql", {"priority": {"correction": 0.5}}, "correction means nothing with exponent=0"),
        ("iql", {"priority": {"exponent": 0.6, "epsilon": 0}}, "source.priority.epsilon"),
        ("iql", {"priority": {"exponent": 0.6}, "replacement": False}, "by priority.exponent or by replacement=false"),
        ("iql", {"priority": {"exponent": 0.6}, "weights": "x"}, "by priority.exponent or by weights=x"),
    ]
    for algorithm, source, told in cases:
        with pytest.raises(ConfigError, match=told):
            us.train(parse_config(short_settings(algorithm, tmp_path, source=source)))

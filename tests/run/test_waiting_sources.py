"""A source that has nothing to give yet: updates wait, counts stay right, and a signal is heard meanwhile."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from small import content, short_settings
from wrapped_source import WrappedSource

import understudy as us
from understudy.core.batch import Transitions
from understudy.core.protocols import Policy
from understudy.core.state import Static
from understudy.core.stopping import StoppedError
from understudy.run import preflight, session
from understudy.run.build import build_learner
from understudy.run.config import parse_config
from understudy.run.loop import InterruptedRunError

pytestmark = pytest.mark.usefixtures("no_plots")


@dataclass
class Waiting(WrappedSource):
    """Gives something at every third call only."""

    asked: Static[Callable[[int], None]]
    calls: int = 0

    def next(self, policy: Policy) -> Transitions | None:
        self.calls += 1
        self.asked(self.calls)
        return None if self.calls % 3 else self.inner.next(policy)


def waits(monkeypatch: pytest.MonkeyPatch, asked: Callable[[int], None]) -> None:
    def build(*args: Any, **options: Any) -> Any:
        learner: Any = build_learner(*args, **options)
        learner.source = Waiting(learner.source, asked)
        return learner

    for module in (session, preflight):
        monkeypatch.setattr(module, "build_learner", build)


def test_waiting_changes_nothing_that_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = us.train(parse_config(short_settings("iql", tmp_path / "plain")))
    waits(monkeypatch, lambda calls: None)
    waited = us.train(parse_config(short_settings("iql", tmp_path / "waited")))
    assert waited.metrics() == plain.metrics()
    assert waited.evaluations() == plain.evaluations()


def stop_at(call: int) -> Callable[[int], None]:
    def stop(calls: int) -> None:
        if calls == call:
            os.kill(os.getpid(), signal.SIGTERM)

    return stop


def test_a_signal_before_the_first_update_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits(monkeypatch, stop_at(2))
    with pytest.raises(StoppedError, match="Nothing was begun"):
        us.train(parse_config(short_settings("iql", tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_a_signal_is_heard_while_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two updates; then the run goes on to what it would have been."""
    waits(monkeypatch, lambda calls: None)
    us.train(parse_config(short_settings("iql", tmp_path / "whole")))
    waits(monkeypatch, stop_at(11))
    with pytest.raises(InterruptedRunError, match="stopped and saved at update 3"):
        us.train(parse_config(short_settings("iql", tmp_path / "halves")))
    waits(monkeypatch, lambda calls: None)
    us.resume(tmp_path / "halves")
    assert content(tmp_path / "halves") == content(tmp_path / "whole")

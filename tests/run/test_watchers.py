"""A watcher hears of every evaluation, and may end the run: saved, without a result, resumable to the bit."""

from pathlib import Path
from typing import Any

import pytest
from small import content, short_settings

import understudy as us
from understudy.core.errors import UnderstudyError
from understudy.run.checkpoint import list_checkpoints
from understudy.run.config import RunConfig, parse_config

ALGORITHMS = ("iql", "ppo")
"""One that learns from data, one from rollouts. Both evaluate at 3, 6, 9, 12 and save at 4, 8, 12."""


class Heard:
    """A watcher that keeps what it hears, and at one update answers True or raises."""

    def __init__(self, last: int = 0, error: Exception | None = None) -> None:
        self.last = last
        self.error = error
        self.told: list[tuple[int, float]] = []

    def __call__(self, updates: int, evaluation: us.Evaluation) -> bool:
        self.told.append((updates, evaluation.mean))
        if updates == self.last and self.error is not None:
            raise self.error
        return updates == self.last

    @property
    def updates(self) -> list[int]:
        return [updates for updates, _ in self.told]


def short(algorithm: str, out: Path, **changes: Any) -> RunConfig:
    return parse_config(short_settings(algorithm, out, **changes))


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than all the rest of a short run."""
    monkeypatch.setattr("understudy.run.loop.draw_run", lambda run: None)


@pytest.fixture(scope="module", params=ALGORITHMS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> us.Run:
    """An uninterrupted run that nobody watched."""
    return us.train(short(request.param, tmp_path_factory.mktemp("whole") / "run"))


def test_it_hears_what_the_log_says_and_changes_nothing(whole: us.Run, tmp_path: Path) -> None:
    heard = Heard()
    run = us.train(short(whole.config.algorithm, tmp_path / "run"), watch=heard)
    assert heard.updates == [3, 6, 9, 12]
    assert heard.told == [(line["updates"], line["eval/return_mean"]) for line in run.evaluations()]
    assert content(run.path) == content(whole.path)


@pytest.mark.parametrize("last", [6, 12], ids=["between two saves", "at the last update"])
def test_true_ends_the_run_and_resume_goes_on(last: int, whole: us.Run, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(us.StoppedRunError) as stopped:
        us.train(short(whole.config.algorithm, path), watch=Heard(last))
    assert str(stopped.value) == (
        f"run '{path}': ended by its watcher and saved at update {last}. Go on with: understudy resume {path}"
    )
    assert isinstance(stopped.value, UnderstudyError)
    assert list_checkpoints(path / "checkpoints")[-1] == last
    assert not (path / "result.json").exists()
    assert us.Run(path).evaluations()[-1]["updates"] == last

    after = Heard()
    us.resume(path, watch=after)
    assert after.updates == [updates for updates in (3, 6, 9, 12) if updates > last]
    assert content(path) == content(whole.path)


def test_an_error_of_the_watcher_is_passed_on_and_the_run_saved(whole: us.Run, tmp_path: Path) -> None:
    path, error = tmp_path / "run", ZeroDivisionError("mine")
    with pytest.raises(ZeroDivisionError) as raised:
        us.train(short(whole.config.algorithm, path), watch=Heard(6, error))
    assert raised.value is error
    assert list_checkpoints(path / "checkpoints")[-1] == 6
    assert not (path / "result.json").exists()
    us.resume(path)
    assert content(path) == content(whole.path)


def test_a_resumed_run_can_be_ended_as_well(whole: us.Run, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(us.StoppedRunError):
        us.train(short(whole.config.algorithm, path), watch=Heard(3))
    with pytest.raises(us.StoppedRunError, match="at update 9"):
        us.resume(path, watch=Heard(9))
    us.resume(path)
    assert content(path) == content(whole.path)


def test_stages_are_not_its_business(tmp_path: Path) -> None:
    """Their updates are counted from the start again, and would be heard twice."""
    heard = Heard()
    settings = short("iql", tmp_path / "run", stages=[{"algo": "bc", "updates": 6}], updates=9)
    run = us.train(settings, watch=heard)
    assert heard.told == [(line["updates"], line["eval/return_mean"]) for line in run.evaluations()]
    assert len(us.Run(run.path / "stages" / "1-bc").evaluations()) == 2

"""Callbacks hear of logs, evaluations, checkpoints and the end, and may end a run: saved, and resumable to the bit."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small import content, short_settings

import understudy as us
from understudy.core.errors import ConfigError, RunError
from understudy.run.checkpoint import list_checkpoints
from understudy.run.config import RunConfig, parse_config
from understudy.run.loop import InterruptedRunError
from understudy.run.rundir import RunDir

pytestmark = pytest.mark.usefixtures("no_plots")

ALGORITHMS = ("iql", "ppo")
"""One that learns from data, one from rollouts. Both evaluate at 3, 6, 9, 12 and save at 4, 8, 12."""


class Heard(us.Callback):
    """Keeps what it hears, and at one update answers True or raises."""

    def __init__(self, last: int = 0, error: Exception | None = None, hook: str = "evaluation") -> None:
        self.last, self.error, self.hook = last, error, hook
        self.told: list[tuple[str, int]] = []
        self.means: list[float] = []
        self.metrics: list[dict[str, float]] = []
        self.checkpoints: list[Path] = []
        self.results: list[Mapping[str, Any]] = []

    def _hear(self, hook: str, updates: int) -> bool:
        self.told.append((hook, updates))
        if updates == self.last and hook == self.hook and self.error is not None:
            raise self.error
        return updates == self.last

    def on_log(self, updates: int, metrics: Mapping[str, float]) -> None:
        self.metrics.append({"updates": updates, **metrics})
        self._hear("log", updates)

    def on_evaluation(self, updates: int, evaluation: us.Evaluation) -> bool:
        self.means.append(evaluation.mean)
        return self._hear("evaluation", updates)

    def on_checkpoint(self, updates: int, path: Path) -> None:
        assert (path / "manifest.json").is_file()
        self.checkpoints.append(path)
        self._hear("checkpoint", updates)

    def on_end(self, result: Mapping[str, Any]) -> None:
        self.results.append(result)

    def updates(self, hook: str = "evaluation") -> list[int]:
        return [updates for heard, updates in self.told if heard == hook]


def short(algorithm: str, out: Path, **changes: Any) -> RunConfig:
    return parse_config(short_settings(algorithm, out, **changes))


@pytest.fixture(scope="module", params=ALGORITHMS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> us.Run:
    """An uninterrupted run that nobody watched."""
    return us.train(short(request.param, tmp_path_factory.mktemp("whole") / "run"))


def test_they_hear_what_the_logs_say_and_change_nothing(whole: us.Run, tmp_path: Path) -> None:
    heard, plain = Heard(), []
    callbacks = [heard, lambda updates, evaluation: plain.append(updates)]
    run = us.train(short(whole.config.algorithm, tmp_path / "run"), callbacks=callbacks)
    assert heard.updates() == plain == [3, 6, 9, 12]
    assert heard.means == [line["eval/return_mean"] for line in run.evaluations()]
    assert heard.metrics == run.metrics()
    assert heard.checkpoints == [run.path / "checkpoints" / f"{updates:09d}" for updates in (4, 8, 12)]
    assert heard.results == [run.result]
    assert "stopped" not in run.result
    assert content(run.path) == content(whole.path)


def test_true_ends_the_run_and_resume_goes_on(whole: us.Run, tmp_path: Path) -> None:
    path, heard = tmp_path / "run", Heard(6)
    run = us.train(short(whole.config.algorithm, path), callbacks=[heard])
    assert (run.state, run.finished) == ("stopped", False)
    assert list_checkpoints(path / "checkpoints")[-1] == 6
    assert run.result["stopped"] == "callback"
    assert run.result["updates"] == 6
    assert run.result["eval/return_mean"] == run.evaluations()[-1]["eval/return_mean"]
    assert heard.results == [run.result]
    assert f"{whole.config.algorithm}, stopped (callback), 6 of 12 updates" in repr(run)

    after = Heard(9)
    assert us.resume(path, callbacks=[after]).result["updates"] == 9
    assert after.updates() == [9]
    assert us.resume(path).state == "finished"
    assert not (path / "stopped.json").exists()
    assert content(path) == content(whole.path)


def test_who_says_enough_when_all_is_done_ends_nothing(whole: us.Run, tmp_path: Path) -> None:
    run = us.train(short(whole.config.algorithm, tmp_path / "run"), callbacks=[Heard(12)])
    assert run.state == "finished"
    assert content(run.path) == content(whole.path)


@pytest.mark.parametrize(("hook", "update"), [("evaluation", 6), ("log", 10), ("checkpoint", 8)])
def test_an_error_of_a_callback_is_passed_on_and_the_run_saved(
    hook: str, update: int, whole: us.Run, tmp_path: Path
) -> None:
    path, error = tmp_path / "run", ZeroDivisionError("mine")
    with pytest.raises(ZeroDivisionError) as raised:
        us.train(short(whole.config.algorithm, path), callbacks=[Heard(update, error, hook)])
    assert raised.value is error
    assert f"callback of run '{path}', which is saved at update {update}" in error.__notes__[0]
    assert list_checkpoints(path / "checkpoints")[-1] == update
    assert us.Run(path).result["stopped"] == "ZeroDivisionError: mine"
    us.resume(path)
    assert content(path) == content(whole.path)


def test_stages_are_not_their_business(tmp_path: Path) -> None:
    """Their updates are counted from the start again, and would be heard twice."""
    heard = Heard()
    run = us.train(short("iql", tmp_path / "run", stages=[{"algo": "bc", "updates": 6}], updates=9), callbacks=[heard])
    assert heard.means == [line["eval/return_mean"] for line in run.evaluations()]
    assert len(us.Run(run.path / "stages" / "1-bc").evaluations()) == 2


def test_what_is_no_callback_is_told_before_anything_begins(tmp_path: Path) -> None:
    class Misspelt:
        def on_evalution(self, updates: int, evaluation: us.Evaluation) -> None:
            """Nobody would ever call it."""

    class Deaf:
        def on_log(self, updates: int) -> None:
            """It is told more than it takes."""

    config = short("bc", tmp_path / "run")
    for given, told in (
        ([lambda: True], "callbacks: does not take what it is called with (too many positional arguments): got (), "),
        ([Deaf()], "callback Deaf.on_log: does not take what it is called with"),
        ([Misspelt()], "callback Misspelt: no run calls 'on_evalution'. Did you mean 'on_evaluation'?"),
        ([Heard], "callbacks: a class where an object belongs: got Heard. Make one: Heard()."),
        ([3], "callbacks: not a callback: got int"),
        (3, "callbacks: not a list: got int"),
    ):
        with pytest.raises(ConfigError) as error:
            us.train(config, callbacks=given)  # type: ignore[arg-type]
        assert str(error.value).startswith(told)
    assert not (tmp_path / "run").exists()


class Numbers:
    """A logger of one's own."""

    def __init__(self, fails_at: int = 0) -> None:
        self.fails_at = fails_at
        self.begun: list[tuple[Path, str]] = []
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.closed = 0

    def begin(self, path: Path, config: Mapping[str, Any]) -> None:
        self.begun.append((path, config["algo"]["name"]))

    def log(self, updates: int, values: Mapping[str, float]) -> None:
        if updates == self.fails_at:
            raise OSError("the server is gone")
        self.rows.append((updates, dict(values)))

    def close(self) -> None:
        self.closed += 1


def test_a_logger_of_ones_own_gets_every_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers, failing = Numbers(), Numbers(fails_at=6)
    run = us.train(short("iql", tmp_path / "run"), loggers=[numbers, failing])
    assert numbers.begun == [(run.path, "iql")]
    logged = [(line["updates"], {k: v for k, v in line.items() if k != "updates"}) for line in run.metrics()]
    assert [row for row in numbers.rows if "loss/critic" in row[1]] == logged
    told = [(updates, row["eval/return_mean"]) for updates, row in numbers.rows if "eval/return_mean" in row]
    assert told == [(line["updates"], line["eval/return_mean"]) for line in run.evaluations()]
    assert numbers.closed == 1
    assert failing.rows == [row for row in numbers.rows if row[0] < 6]
    assert capsys.readouterr().err.count("logger Numbers gets no more numbers (OSError: the server is gone)") == 1
    for given in ([Numbers], [object()], Numbers()):
        with pytest.raises(ConfigError, match="loggers: not a l"):
            us.train(short("iql", tmp_path / "other"), loggers=given)  # type: ignore[arg-type]


def test_a_run_says_how_it_ended(tmp_path: Path) -> None:
    """Ctrl-C, a kill, and while it goes on."""
    path, seen = tmp_path / "run", []

    def look(updates: int, evaluation: us.Evaluation) -> None:
        seen.append((us.Run(path).state, "stopped" in us.Run(path).result))
        if updates == 6:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(InterruptedRunError):
        us.train(short("bc", path), callbacks=[look])
    assert seen == [("running", False)] * 2
    assert us.Run(path).result["stopped"] == "interrupted"
    assert us.Run(path).result["updates"] == 6

    (path / "stopped.json").unlink()  # which a kill does not write
    killed = us.Run(path)
    assert (killed.state, killed.result["stopped"], killed.result["updates"]) == ("killed", "killed", 6)


def test_overwriting_replaces_a_run_and_nothing_else(whole: us.Run, tmp_path: Path) -> None:
    path = tmp_path / "run"
    config = short(whole.config.algorithm, path)
    us.train(config.model_copy(update={"seed": 5, "tensorboard": True}), callbacks=[Heard(3)])
    (path / ".git").mkdir()
    with pytest.raises(RunError, match="already holds an unfinished run"):
        us.train(config)
    with pytest.raises(ConfigError):  # found wrong before anything is removed
        us.train(config.model_copy(update={"env": config.world.model_copy(update={"id": "None-v0"})}), overwrite=True)
    assert us.Run(path).result["stopped"] == "callback"
    assert content(us.train(config, overwrite=True).path) == content(whole.path)
    assert not (path / "tensorboard").exists()
    (path / ".git").rmdir()  # of somebody who keeps his runs in git

    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("")
    with pytest.raises(RunError, match="exists already and is not a run"):
        us.train(short("bc", mine), overwrite=True)
    (mine / "config.yaml").write_text("chapters: 5\n")
    with pytest.raises(RunError, match=r"its config\.yaml is none that a run wrote"):
        us.train(short("bc", mine), overwrite=True)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(RunError, match="already holds a finished run"):
        us.train(short("bc", tmp_path / "link"), overwrite=True)
    (path / "elsewhere").symlink_to(mine)
    with pytest.raises(RunError, match="'elsewhere' is a link"):
        us.train(config, overwrite=True)
    (path / "elsewhere").unlink()
    with RunDir(path).locked(), pytest.raises(RunError, match="another process"):
        us.train(config, overwrite=True)
    assert (mine / "thesis.txt").exists()
    assert us.Run(path).finished


def test_the_default_place_takes_the_next_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {key: value for key, value in short_settings("bc", tmp_path).items() if key != "out"}
    Path("mine.yaml").write_text(json.dumps(settings))
    paths = [us.train("mine.yaml", callbacks=[Heard(3 if number == 1 else 0)]).path for number in range(3)]
    assert paths == [Path("runs/mine/0"), Path("runs/mine/0-2"), Path("runs/mine/0-3")]
    assert "runs/mine/0 is finished; this run goes to runs/mine/0-2" in capsys.readouterr().err
    assert us.train("mine.yaml", overwrite=True).path == Path("runs/mine/0")
    assert us.Run("runs/mine/0-2").state == "stopped"
    with pytest.raises(RunError, match="already holds a finished run"):
        us.train("mine.yaml", out="runs/mine/0")

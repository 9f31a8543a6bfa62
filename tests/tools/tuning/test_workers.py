"""Workers that die: what they had in their hands is tried again, given up after as many tries as anywhere, and the rest
of the search goes on."""

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import pytest
from levels import SPACE, TINY, TROUBLE

from understudy.core.errors import RunError
from understudy.tools.experiments.work import FAILED, Outcome
from understudy.tools.tuning.confirm import candidates, confirmed, failed_runs, fresh_runs, unfinished
from understudy.tools.tuning.plan import Plan
from understudy.tools.tuning.study import JOURNAL, Study, hopeless
from understudy.tools.tuning.worker import Orders, work
from understudy.tools.tuning.workers import LocalWorkers, Workers

pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")


@final
class Forks:
    """A launcher whose workers know the worlds of this process."""

    def __init__(self) -> None:
        self.begun = 0
        self._running: dict[int, tuple[int, int]] = {}

    def submit(self, directory: str, config: str) -> int:
        reading, writing = os.pipe()
        if (process := os.fork()) == 0:
            try:
                os.write(writing, work(directory, config).encode())
            finally:
                os._exit(0)
        os.close(writing)
        self.begun += 1
        self._running[self.begun] = process, reading
        return self.begun

    def poll(self, seconds: float) -> Mapping[int, Outcome]:
        ended = {}
        for handle, (process, reading) in list(self._running.items())[:1]:
            with os.fdopen(reading) as line:
                answer = line.read()
            os.waitpid(process, 0)
            del self._running[handle]
            ended[handle] = Outcome.from_json(answer) if answer else Outcome(FAILED, "killed", retry=True)
        return ended

    def cancel(self, handle: int) -> None:
        """They end by themselves."""

    def close(self) -> None:
        """Nothing is left."""


@pytest.fixture(autouse=True)
def _no_plots(no_plots: None) -> None:
    pass


@pytest.fixture
def study(tmp_path: Path) -> Study:
    Plan.make(TINY, SPACE, {}).write(tmp_path)
    return Study.open(tmp_path)


def trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setenv(TROUBLE, str(tmp_path / "trouble"))
    (tmp_path / "trouble").write_text("\n".join(words))


def search(study: Study, orders: Orders) -> int:
    """The first step by one worker after the other; how many there were."""
    forks = Forks()

    def left() -> int:
        states = [row.state for row in study.rows()]
        return 0 if hopeless(states) else orders.trials - sum(state != "running" for state in states)

    Workers(study, orders, 1, forks, left).run(lambda: None)
    return forks.begun


def test_a_trial_that_kills_its_workers_is_given_up_and_the_others_are_not(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble(tmp_path, monkeypatch, ["none", *["kill"] * 5])
    assert search(study, Orders(3, 0, 1, retries=4)) == 6
    assert [row.state for row in study.rows()] == ["failed", "complete", "complete"]
    assert study.rows()[0].failures == ("killed",) * 5


def test_a_disk_that_is_full_for_a_while_is_no_attempt(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble(tmp_path, monkeypatch, ["none", "full", "full"])
    assert search(study, Orders(2, 0, 1, retries=0)) == 3
    assert [(row.state, row.failures) for row in study.rows()] == [("complete", ())] * 2


def test_deaths_that_are_far_apart_do_not_end_a_search(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trial costs a worker at its second episode, and then needs its thirteen."""
    trials = 5
    trouble(tmp_path, monkeypatch, [*["none", "kill", *["none"] * 13] * trials])
    assert search(study, Orders(trials, 0, 1, retries=1)) == trials + 1
    assert [row.state for row in study.rows()] == ["complete"] * trials
    assert [row.failures for row in study.rows()] == [("killed",)] * trials


def test_a_fresh_run_that_kills_its_workers_is_given_up_and_the_others_are_not(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Outcome.from_json(work(str(tmp_path), Orders(2, 0, 1, 0).words())) == Outcome("finished")
    orders = Orders(2, top=1, fresh=1, retries=1, fresh_only=True)
    runs = fresh_runs(study, candidates(study, 1), 1)
    trouble(tmp_path, monkeypatch, ["none", "kill", "kill"])
    forks = Forks()
    Workers(study, orders, 1, forks, lambda: len(unfinished(study, runs, 1))).run(lambda: None)
    assert forks.begun == 3
    winner, loser = confirmed(study, runs)
    assert (len(winner.values), winner.failures) == (1, {})
    assert loser.failures == {"1": "killed"}
    assert list(map(len, failed_runs(study).values())) == [2]


def test_a_fresh_run_that_would_fail_again_is_not_tried_again(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Orders(2, top=1, fresh=1, retries=2)
    work(str(tmp_path), orders.words())
    trouble(tmp_path, monkeypatch, ["refuse"])
    fresh = replace(orders, fresh_only=True).words()
    assert Outcome.from_json(work(str(tmp_path), fresh)) == Outcome("finished")
    assert Outcome.from_json(work(str(tmp_path), fresh)) == Outcome("finished")
    (told,) = failed_runs(study).values()
    assert len(told) == 1
    assert told[0].startswith("world: this cannot be done, now or ever.")
    assert len(list(tmp_path.glob("confirmed/*/*/result.json"))) == 1


def test_workers_that_die_with_nothing_in_their_hands_end_the_search_with_what_they_said(tmp_path: Path) -> None:
    Plan.make(TINY, SPACE, {}).write(tmp_path)
    study, forks = Study.open(tmp_path), Forks()
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(RunError, match=r"its processes die one after the other: tuning '.*': .*plan\.json"):
        Workers(study, Orders(4, 0, 1, 0), 1, forks, lambda: 4).run(lambda: None)
    assert forks.begun == 3


def test_a_trial_is_written_down_whole_or_not_at_all(study: Study, tmp_path: Path) -> None:
    """Whatever the last line is that a process wrote before it died."""
    orders = Orders(2, 0, 1, 0)
    first, second = study.claim(2), study.claim(2)
    assert first is not None
    assert second is not None
    first.release()
    second.release()
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    drawn = [row.settings for row in study.rows()]
    assert [len(settings) for settings in drawn] == [2, 2]
    assert len(lines) >= 4
    for number in range(1, len(lines)):
        (tmp_path / JOURNAL).write_bytes(b"".join(lines[:number]))
        again = Study.open(tmp_path)
        claims = [again.claim(orders.trials), again.claim(orders.trials)]
        assert [row.settings for row in again.rows()] == drawn, number
        assert [claim.words for claim in claims if claim is not None] == [row.words for row in again.rows()]
        for claim in claims:
            assert claim is not None
            claim.release()


def test_trials_that_diverged_are_no_sign_that_all_fail() -> None:
    assert hopeless(["failed", "running", "failed", "failed"])
    assert not hopeless(["failed", "failed", "running"])
    assert not hopeless(["failed", "failed", "failed", "pruned"])
    assert not hopeless(["failed", "failed", "failed", "complete"])


def test_a_search_ends_after_three_failures_while_others_still_run(study: Study) -> None:
    """With two processes there is always one that has not failed yet."""
    running = study.claim(9)
    assert running is not None
    for _ in range(3):
        claim = study.claim(9)
        assert claim is not None
        study.fail_trial(claim, "the simulator is gone")
        claim.release()
    assert study.claim(9) is None
    study.complete_trial(running, 1.0)  # it was not the same for all
    running.release()
    claim = study.claim(9)
    assert claim is not None
    claim.release()


@pytest.mark.slow
def test_what_others_print_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Path(__file__).parents[3] / "src"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ours)]))
    (tmp_path / "sitecustomize.py").write_text("import atexit\natexit.register(print, 'goodbye')\n")
    config: dict[str, Any] = {**TINY, "env": {"id": "Pendulum-v1"}, "eval_max_steps": 5}
    Plan.make(config, {"algo.clip": {"low": 0.1, "high": 0.4}}, {}).write(tmp_path)
    with closing(LocalWorkers()) as launcher:
        handle = launcher.submit(str(tmp_path), Orders(1, 0, 1, 0, worker="me").words())
        outcome: Mapping[int, Outcome] = {}
        while not outcome:
            outcome = launcher.poll(1.0)
    assert outcome == {handle: Outcome("finished")}
    assert (tmp_path / "workers.log").read_text().endswith("goodbye\n")
    assert [row.state for row in Study.open(tmp_path).rows()] == ["complete"]

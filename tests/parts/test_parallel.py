"""Two pieces of work at once: both done before anything goes on, errors told, and as many threads as were asked for."""

import threading
import time

import pytest
import torch

from understudy.parts import parallel as second_thread
from understudy.parts.parallel import PROCESSORS, run_both


@pytest.mark.skipif(PROCESSORS < 2, reason="one processor does one thing at a time")
def test_both_are_done_and_at_once() -> None:
    """Each waits for the other: one after the other they would wait for ever."""
    meeting, done = threading.Barrier(2, timeout=20), []

    def work(name: str) -> None:
        meeting.wait()
        done.append(name)

    run_both(lambda: work("one"), lambda: work("other"))
    assert sorted(done) == ["one", "other"]


@pytest.mark.parametrize("fails", ["one", "other"])
def test_an_error_of_either_is_told_once_both_are_done(fails: str) -> None:
    done = []

    def work(name: str) -> None:
        if name == fails:
            raise ArithmeticError(name)
        done.append(name)

    with pytest.raises(ArithmeticError, match=fails):
        run_both(lambda: work("one"), lambda: work("other"))
    assert len(done) == 1


def test_both_have_the_same_number_of_threads() -> None:
    before = torch.get_num_threads()
    try:
        seen: list[int] = []
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            run_both(lambda: None, lambda: seen.append(torch.get_num_threads()))
        assert seen == [1, 2, 1]
    finally:
        torch.set_num_threads(before)


def test_with_one_processor_both_are_done_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_thread, "PROCESSORS", 1)
    here, seen = threading.get_ident(), []
    run_both(lambda: seen.append(threading.get_ident()), lambda: seen.append(threading.get_ident()))
    assert seen == [here, here]


@pytest.mark.skipif(PROCESSORS < 2, reason="one processor does one thing at a time")
def test_who_is_interrupted_waits_until_the_other_is_done() -> None:
    """Otherwise somebody would still be writing parameters while somebody else saves them."""
    begun, done = threading.Event(), []

    def slowly() -> None:
        begun.set()
        time.sleep(0.2)
        done.append("other")

    def stopped() -> None:
        assert begun.wait(20)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_both(stopped, slowly)
    assert done == ["other"]

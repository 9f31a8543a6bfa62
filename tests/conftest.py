"""Every test runs on one thread, so that parallel tests do not fight and bits do not depend on the machine."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process draw no pictures, which take longer than all the rest of a short run."""
    monkeypatch.setattr("understudy.run.loop.draw_run", lambda run: None)

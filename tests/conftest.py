"""Every test runs on one thread, so that parallel tests do not fight and bits do not depend on the machine."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)

"""Two pieces of work at once, on two processors."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

import torch

PROCESSORS = os.cpu_count() or 1


@cache
def _beside(process: int) -> ThreadPoolExecutor:
    """One thread for as long as the process lives; a fork has none of its parent's."""
    return ThreadPoolExecutor(1, thread_name_prefix="beside")


def run_both(one: Callable[[], object], other: Callable[[], object]) -> None:
    """Both, and no earlier back than both are done. Worth it where they let go of Python's lock, as compiled code does;
    they must not write to what the other reads."""
    if PROCESSORS < 2:
        try:
            one()
        finally:
            other()
        return
    beside = _beside(os.getpid()).submit(_with_threads, torch.get_num_threads(), other)
    try:
        one()
    except BaseException:
        wait([beside])
        raise
    try:
        beside.result()
    except KeyboardInterrupt:
        wait([beside])
        raise


def _with_threads(count: int, work: Callable[[], object]) -> None:
    """A thread keeps the number of torch's threads that it began with: results would depend on when that was."""
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
    work()

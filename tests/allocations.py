"""How much memory a piece of work takes, by NumPy's, Python's and torch's own counts: the same on every machine."""

import tracemalloc
from collections.abc import Callable

import torch


def most_allocated(work: Callable[[], object]) -> int:
    """Bytes in use at the worst moment of `work`, above those before it; torch's tensors are not counted."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def tensor_bytes(work: Callable[[], object]) -> int:
    """Bytes of all tensors that torch makes during `work`, those that are gone before its end included."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    return sum(max(0, event.self_cpu_memory_usage) for event in profile.events() or [])

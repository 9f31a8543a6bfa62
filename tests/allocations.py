"""How much memory a piece of work takes at most, by NumPy's and Python's own count: the same on every machine."""

import tracemalloc
from collections.abc import Callable


def most_allocated(work: Callable[[], object]) -> int:
    """Bytes in use at the worst moment of `work`, above those before it; torch's tensors are not counted."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

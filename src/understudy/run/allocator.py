"""Keep freed memory instead of giving it back to the system at once.

A hidden layer's activations are a few hundred kilobytes. By default glibc maps such blocks anew or trims the
heap behind them, so every update pays hundreds of page faults (a tenth of a small update).
"""

import ctypes

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
KEPT_BYTES = 256 << 20
LARGEST_BLOCK = 32 << 20
"""glibc accepts no more than this."""


def keep_freed_memory() -> None:
    """Tell glibc to reuse freed blocks; elsewhere do nothing."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK)

"""How much memory there is, so that somebody who asks for a hundred times as much is told before he asks the system."""

import os
import resource
import sys
from pathlib import Path

from understudy.core.errors import ConfigError

CONTAINER = Path("/sys/fs/cgroup/memory.max")
UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def machine_memory() -> int:
    """Bytes that this process can have at most: of the machine, of its container, or what a limit leaves it."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    limits = (_physical(), _container(), 0 if allowed == resource.RLIM_INFINITY else allowed)
    return min((limit for limit in limits if limit > 0), default=sys.maxsize)


def check_room(where: str, what: str, needed: int, do: str) -> None:
    """An error if `what` needs more memory than there can be."""
    if needed > (limit := machine_memory()):
        raise ConfigError(
            where,
            f"{what} would need more memory than there is",
            got=told_bytes(needed),
            expected=f"at most {told_bytes(limit)}",
            do=do,
        )


def _physical() -> int:
    """0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


def _container() -> int:
    """0 where there is none, or none with a limit."""
    try:
        text = CONTAINER.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return 0
    return int(text) if text.isdecimal() else 0


def told_bytes(count: int) -> str:
    """A number of bytes as people say it: 40 GB."""
    power = min((len(str(abs(count))) - 1) // 3, len(UNITS) - 1)
    return f"{count / 1000**power:,.3g} {UNITS[power]}"

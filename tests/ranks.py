"""Several processes of one run, forked from this one, which has imported everything: what torchrun starts, in less
time."""

import os
import socket
import traceback
from collections.abc import Callable
from contextlib import closing


def in_ranks(work: Callable[[], None], size: int = 2) -> list[int]:
    """Exit codes of so many processes that do the same work as ranks 0, 1, … of one run."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [_forked(work, rank, size, port) for rank in range(size)]
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


def _forked(work: Callable[[], None], rank: int, size: int, port: int) -> int:
    if process := os.fork():
        return process
    code = 1
    try:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(size), **place})
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)

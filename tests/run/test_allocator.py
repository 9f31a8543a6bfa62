"""Freed memory is kept: a block allocated again costs no page faults."""

import platform
import subprocess
import sys

import pytest

ASK = """
import ctypes, resource, sys
from understudy.run.allocator import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

def touch(times):
    for _ in range(times):
        blocks = [libc.malloc(512 << 10) for _ in range(4)]
        for block in blocks:
            ctypes.memset(block, 1, 512 << 10)
        for block in reversed(blocks):
            libc.free(block)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

touch(5)
before = faults()
touch(100)
print((faults() - before) / 400)
"""


def faults_per_block(mode: str) -> float:
    answer = subprocess.run([sys.executable, "-c", ASK, mode], capture_output=True, text=True, timeout=120, check=True)
    return float(answer.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep freed memory")
def test_repeated_blocks_cost_no_page_faults() -> None:
    assert faults_per_block("keep") < 1


@pytest.mark.skipif(sys.platform == "win32", reason="ctypes.CDLL(None) is a POSIX way to ask")
def test_it_may_be_asked_twice() -> None:
    code = "from understudy.run.allocator import keep_freed_memory as keep; keep(); keep(); print('alive')"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert answer.stdout.strip() == "alive"

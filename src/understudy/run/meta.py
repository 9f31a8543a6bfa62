"""Where a run came from: versions, git commit and diff, host, command line."""

import platform
import socket
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

PACKAGES = ("understudy", "torch", "numpy", "gymnasium", "mujoco", "envpool", "safetensors", "pydantic")
DIFF_LIMIT = 200_000


def describe_run(origin: dict[str, Any]) -> dict[str, Any]:
    """Facts for meta.json; nothing here influences training. `origin`: where experience comes from."""
    return {
        "versions": versions(),
        "git": _git_state(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "argv": sys.argv,
        **origin,
    }


@cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "processor": torch.backends.cpu.get_cpu_capability()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _git_state() -> dict[str, str]:
    """Commit and uncommitted changes of the folder the run was started in, if it is a git checkout."""
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return {}
    diff = _git("diff", "HEAD")
    cut = " (cut)" if len(diff) > DIFF_LIMIT else ""
    return {"commit": commit, "diff": diff[:DIFF_LIMIT] + cut}


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""

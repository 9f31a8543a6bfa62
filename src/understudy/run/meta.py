"""Where a run came from: versions, git commit and diff, host, command line."""

import platform
import socket
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from understudy.run.git_state import git_state

PACKAGES = ("understudy", "torch", "numpy", "gymnasium", "mujoco", "envpool", "safetensors", "pydantic")


def describe_run(origin: dict[str, Any]) -> dict[str, Any]:
    """Facts for meta.json; nothing here influences training. `origin`: where experience comes from."""
    return {
        "versions": versions(),
        "git": git_state(Path()),
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
